"""No orphan survives: whatever ends the launcher, nothing of its run is alive a moment later."""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import time

import pytest

from relight.shell.guardian import MOST_LIVES, WITHOUT

from .running import PRELUDE, RELIGHT, Runs, until

LIMIT_S = 2.0  # of one death on a machine that is busy with other things; the median has its own limit

FAMILY = """
    def deaf(action):
        def act():
            for name in ("SIGTERM", "SIGINT", "SIGHUP"): on(name, signal.SIG_IGN)
            action()
        return act
    child(deaf(lambda: (tell("child", RANK, ROUND), forever())))
    def daemon():
        os.setsid()
        if os.fork() == 0:
            deaf(lambda: (tell("daemon", RANK, ROUND), forever()))()
        os._exit(0)
    os.waitpid(child(daemon), 0)
    child(deaf(lambda: (os.setsid(), tell("own session", RANK, ROUND), forever())))
    child(lambda: os.execvp("sleep", ["sleep", "1000"]))
    on("SIGTERM", signal.SIG_IGN)
    tell("ready", RANK, ROUND)
"""
WORKS = FAMILY + "    forever()\n"
FAILS_NOW_AND_THEN = FAMILY + "    time.sleep(0.1)\n    sys.exit(RANK)\n"


def deaths(relight: Runs, count: int, seed: int) -> list[float]:
    """Kills launchers at random moments; how long the rest of each run outlived it."""
    chance = random.Random(seed)
    works, fails = relight.script(WORKS, "works.py"), relight.script(FAILS_NOW_AND_THEN, "fails.py")
    times = []
    for number in range(count):
        moment = chance.uniform(0.02, 0.7)
        words = ("--nproc-per-node=2", "--max-restarts=1000", "--shutdown-timeout=1")
        run = relight(*words, fails if number % 2 else works)
        time.sleep(moment)
        run.guardian()
        run.signal(signal.SIGKILL)
        assert run.ends() == -signal.SIGKILL
        times.append(run.nothing_is_left(LIMIT_S))
        run.tidied_up()
    return times


def test_the_launcher_is_killed_at_random_moments(relight: Runs) -> None:
    deaths(relight, 5, seed=11)


@pytest.mark.slow
def test_the_launcher_is_killed_at_thirty_random_moments(relight: Runs, record_property: pytest.FixtureRequest) -> None:
    times = deaths(relight, 30, seed=2024)
    print(f"outlived by: median {statistics.median(times):.3f} s, longest {max(times):.3f} s")
    assert statistics.median(times) < 0.5


def test_a_whole_family_goes_with_the_launcher(relight: Runs) -> None:
    run = relight("--nproc-per-node=2", relight.script(WORKS))
    kinds = ("ready", "child", "daemon", "own session")
    run.happened(*(f"{kind} {rank} 0" for kind in kinds for rank in range(2)))
    until(lambda: len(run.alive()) == 12, f"the whole family, not {run.alive()}")  # with launcher and guardian
    run.signal(signal.SIGKILL)
    run.ends()
    assert run.nothing_is_left(LIMIT_S) < LIMIT_S


def test_what_finished_workers_left_behind_goes_with_the_launcher(relight: Runs) -> None:
    run = relight("--nproc-per-node=2", relight.script(FAMILY + "    if RANK == 1: forever()\n    tell('finished')"))
    run.happened("finished", "child 0 0", "daemon 0 0", "own session 0 0", "ready 1 0")
    time.sleep(0.1)
    run.signal(signal.SIGKILL)
    run.ends()
    run.nothing_is_left(LIMIT_S)


def test_a_launcher_inside_a_worker(relight: Runs) -> None:
    """The inner launcher and its guardian are not the outer one's, and yet all of it goes."""
    inner = relight.script(WORKS, "inner.py")
    outer = relight.script(f'os.execv("{RELIGHT}", ["relight", "--nproc-per-node=2", "{inner}"])')
    run = relight("--nproc-per-node=2", outer)
    until(lambda: run.events.count("ready 0 0") == 2 and run.events.count("ready 1 0") == 2, "four inner workers")
    run.guardian()
    run.signal(signal.SIGKILL)
    run.ends()
    run.nothing_is_left(LIMIT_S)
    run.tidied_up()


def test_an_inner_launcher_that_is_killed_is_a_failed_worker(relight: Runs) -> None:
    inner = relight.script(WORKS, "inner.py")
    outer = relight.script(
        f'tell("outer", os.getpid())\nos.execv("{RELIGHT}", ["relight", "--nproc-per-node=2", "{inner}"])'
    )
    run = relight(outer)
    run.happened("ready 0 0", "ready 1 0")
    os.kill(run.number("outer"), signal.SIGKILL)
    assert run.ends() == 1
    assert "killed by SIGKILL" in run.err
    run.nothing_is_left(LIMIT_S)


def test_a_guardian_that_is_killed_is_replaced(relight: Runs) -> None:
    run = relight("--nproc-per-node=2", relight.script(WORKS))
    run.happened("ready 0 0", "ready 1 0")
    first = run.guardian()
    os.kill(first, signal.SIGKILL)
    until(lambda: run.guardian() not in (0, first), "another guardian")
    assert len(run.alive()) >= 6
    run.signal(signal.SIGKILL)
    run.ends()
    run.nothing_is_left(LIMIT_S)
    run.tidied_up()


def test_a_job_whose_guardians_are_all_killed_goes_on_and_says_so(relight: Runs) -> None:
    run = relight("--max-restarts=1", relight.script("tell('ready', ROUND)\ntold('go on')\nsys.exit(1 - ROUND)"))
    run.happened("ready 0")
    killed = set()

    def given_up() -> bool:
        if guardian := run.guardian():
            killed.add(guardian)
            os.kill(guardian, signal.SIGKILL)
        return "guardian" in run.err

    until(given_up, lambda: f"the last guardian; {len(killed)} were killed; {run.story()}")
    assert len(killed) == MOST_LIVES
    assert f"relight: the guardian has died {MOST_LIVES} times and is not started again: {WITHOUT}\n" in run.err
    run.tell("go on")
    assert run.ends() == 0, run.story()
    assert "ready 1" in run.events
    assert run.err.count("guardian") == 1
    run.nothing_is_left()


@pytest.mark.skipif(os.getuid() != 0, reason="hides /bin/sh in a mount namespace of its own")
def test_a_job_for_which_there_is_no_guardian_goes_on_and_says_so(relight: Runs) -> None:
    hide_the_shell = ("unshare", "-m", "sh", "-c", 'mount --bind /dev/null /bin/sh && exec "$@"', "sh")
    run = relight(relight.script("tell('ready')"), before=hide_the_shell)
    assert run.ends() == 0, run.story()
    assert run.events == ["ready"]
    assert run.err == f"relight: no guardian could be started (Permission denied): {WITHOUT}\n"
    run.nothing_is_left()
    run.tidied_up()


def test_a_guardian_that_was_stopped_does_not_hold_the_end(relight: Runs) -> None:
    run = relight(relight.script("tell('ready')\ntime.sleep(0.2)"))
    run.happened("ready")
    os.kill(run.guardian(), signal.SIGSTOP)
    assert run.ends(5) == 0
    run.nothing_is_left()


def test_functions_in_forked_workers_go_with_their_program(relight: Runs) -> None:
    """A fork holds whatever its program held, the guardian's pipe among it, unless it lets go."""
    program = relight.folder / "program.py"
    program.write_text(
        PRELUDE
        + """
from relight.compat import LaunchConfig, elastic_launch
def work():
    tell("ready", os.environ["RANK"])
    forever()
config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, start_method="fork", rdzv_backend="c10d",
                      rdzv_endpoint="localhost:0")
elastic_launch(config, work)()
"""
    )
    run = relight(str(program), launcher=(sys.executable,))
    run.happened("ready 0", "ready 1")
    run.signal(signal.SIGKILL)
    run.ends()
    run.nothing_is_left(LIMIT_S)
