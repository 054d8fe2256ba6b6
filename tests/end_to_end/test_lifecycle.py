"""From the first worker to the last: ends, failures, restarts, and who is told what in which order."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from .running import RELIGHT, Runs

FAILS_AT_ONCE = "tell('fails', RANK); sys.exit(3)"


def test_a_job_that_finishes(relight: Runs) -> None:
    run = relight.finish("--nproc-per-node=3", relight.script("tell('worked', RANK); print('hello from', RANK)"))
    assert run.process.returncode == 0
    assert sorted(run.events) == ["worked 0", "worked 1", "worked 2"]
    assert sorted(run.out.splitlines()) == [f"hello from {rank}" for rank in range(3)]
    assert run.err == ""
    run.tidied_up()


def test_a_job_that_fails(relight: Runs) -> None:
    job = relight.script("if RANK == 1: sys.exit(7)\nforever()")
    run = relight.finish("--nproc-per-node=3", job)
    assert run.process.returncode == 1
    assert "rank 1 (local rank 1, pid" in run.err
    assert "exit code 7" in run.err
    assert "relight ended 2 others" in run.err
    assert "Traceback" not in run.err


def test_a_restart_has_the_right_world_and_keeps_the_logs_of_the_round_before(relight: Runs) -> None:
    job = relight.script(
        """
        keys = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "RELIGHT_ROUND",
                "MASTER_PORT", "TORCHELASTIC_RUN_ID")
        tell("world", ROUND, *(os.environ[key] for key in keys))
        tell("errors", ROUND, os.environ["TORCHELASTIC_ERROR_FILE"])
        print("said in round", ROUND)
        if RANK == 0: sys.exit(0)       # finished well, and yet it works again in every round
        time.sleep(0.05)
        sys.exit(1 if ROUND < 2 else 0)
        """
    )
    logs = relight.folder / "logs"
    run = relight.finish("--nproc-per-node=2", "--max-restarts=5", "-r3", f"--log-dir={logs}", job)
    assert run.process.returncode == 0, run.story()
    worlds = [event.split()[1:] for event in run.events if event.startswith("world")]
    assert len(worlds) == 6
    assert {(world[0], world[1]) for world in worlds} == {(str(n), str(rank)) for n in range(3) for rank in range(2)}
    for number, _, size, count, most, own, _, _ in worlds:
        assert (size, count, most, own) == ("2", number, "5", number)
    assert len({tuple(world[-2:]) for world in worlds}) == 1, "the port and the id stay the same"
    (folder,) = logs.iterdir()
    for round_ in range(3):
        for rank in range(2):
            assert (folder / f"attempt_{round_}/{rank}/stdout.log").read_text() == f"said in round {round_}\n"
    assert f"errors 2 {folder}/attempt_2/1/error.json" in run.events
    assert [line for line in run.err.splitlines() if "starting again" in line][1].endswith("restart 2 of 5")


def test_the_budget_ends(relight: Runs) -> None:
    run = relight.finish("--max-restarts=2", relight.script(FAILS_AT_ONCE))
    assert run.process.returncode == 1
    assert run.events == ["fails 0"] * 3
    assert "2 of 2 restarts used" in run.err


def test_the_restart_rate_ends_a_job_that_fails_too_often(relight: Runs) -> None:
    logs = relight.folder / "logs"
    words = "--max-restarts=100", "--restart-rate=3/60", f"--log-dir={logs}"
    run = relight.finish(*words, relight.script(FAILS_AT_ONCE))
    assert run.process.returncode == 1
    assert run.events == ["fails 0"] * 4
    (report,) = logs.glob("*/attempt_3/report.json")
    assert json.loads(report.read_text())["reason"].endswith("3 restarts within 60 s are the limit")


TRAINER_WITH_LOADERS = """
    loaders = []
    for number in range(2):
        def load():
            on("SIGTERM", lambda *_: (tell("loader told", number), os._exit(0)))
            tell("loader ready", number)
            forever()
        loaders.append(child(load))
    def last_save(*_):
        time.sleep(0.2)              # the loaders would be dead by now, had they been told as well
        for pid in loaders:
            os.kill(pid, 0)
            state = open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0]
            tell("loader at the last save", "dead" if state == "Z" else "alive")
        tell("saved")
        os._exit(0)
    on("SIGTERM", last_save)
    tell("trainer ready")
    forever()
"""


def test_a_trainer_is_told_alone_and_its_data_loaders_after_it(relight: Runs) -> None:
    job = relight.script(
        """
    if RANK == 1:
        told("trainer ready")
        told("loader ready 0")
        told("loader ready 1")
        sys.exit(1)
    """
        + TRAINER_WITH_LOADERS
    )
    run = relight.finish("--nproc-per-node=2", job)
    assert run.process.returncode == 1
    assert run.events.count("loader at the last save alive") == 2, run.story()
    assert set(run.events[run.events.index("saved") + 1 :]) == {"loader told 0", "loader told 1"}


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_child_of_a_wrapper_script_is_told_when_the_wrapper_dies(relight: Runs, shell: str) -> None:
    inner = relight.script(
        """
        on("SIGTERM", lambda *_: (tell("told", RANK), time.sleep(0.1), tell("saved", RANK), os._exit(0)))
        tell("ready", RANK)
        forever()
        """,
        "inner.py",
    )
    wrapper = relight.program(
        f"""
        #!/usr/bin/env {shell}
        if [ "$RANK" = 1 ]; then
            until grep -q "^ready 0" "$RELIGHT_TEST_EVENTS"; do sleep 0.02; done
            exit 4
        fi
        python3 {inner}
        echo "not reached when the wrapper is told to end"
        """,
        f"wrapper-{shell}.sh",
    )
    run = relight.finish("--nproc-per-node=2", "--no-python", wrapper)
    assert run.process.returncode == 1
    assert run.events == ["ready 0", "told 0", "saved 0"], run.story()
    assert "not reached" not in run.out


def test_what_finished_workers_left_behind_is_gone_at_the_end(relight: Runs) -> None:
    job = relight.script(
        """
        child(lambda: (on("SIGTERM", lambda *_: (tell("leftover told"), os._exit(0))), tell("leftover"), forever()))
        told("leftover")
        if RANK == 1:
            time.sleep(0.3)
            tell("the other works on")
        """
    )
    run = relight.finish("--nproc-per-node=2", job)
    assert run.process.returncode == 0
    assert sorted(run.events[-3:]) == ["leftover told", "leftover told", "the other works on"], run.story()


def test_a_leftover_that_ignores_sigterm_is_killed_after_the_timeout(relight: Runs) -> None:
    job = relight.script('child(lambda: (on("SIGTERM", signal.SIG_IGN), tell("stubborn"), forever()))\ntime.sleep(0.1)')
    run = relight.finish("--shutdown-timeout=1", job)
    assert run.process.returncode == 0
    assert 1.0 <= time.monotonic() - run.started_at < 4.0
    assert run.events == ["stubborn"]


STUBBORN = """
    on("SIGTERM", lambda *_: tell("told", RANK, time.monotonic()))
    on("SIGINT", lambda *_: tell("told", RANK, time.monotonic()))
    tell("ready", RANK, ROUND)
"""


def test_the_shutdown_timeout_holds_after_a_failure(relight: Runs) -> None:
    job = relight.script(STUBBORN + "    if RANK == 0:\n        time.sleep(0.2)\n        sys.exit(1)\n    forever()")
    run = relight("--nproc-per-node=2", "--shutdown-timeout=1", job)
    run.happened("ready 0 0", "ready 1 0")
    ready_at = time.monotonic()
    assert run.ends() == 1
    assert 1.0 <= time.monotonic() - ready_at < 3.0
    run.nothing_is_left()


def test_the_shutdown_timeout_holds_before_a_restart(relight: Runs) -> None:
    job = relight.script(
        STUBBORN
        + """
    if ROUND == 1:
        tell("again", RANK, time.monotonic())
        sys.exit(0)
    if RANK == 0:
        time.sleep(0.2)
        tell("failed", RANK, time.monotonic())
        sys.exit(1)
    forever()
"""
    )
    run = relight.finish("--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=1", job)
    assert run.process.returncode == 0
    moments = {event.split()[0]: float(event.split()[2]) for event in run.events if not event.startswith("ready")}
    assert 1.0 <= moments["again"] - moments["failed"] < 2.5


def test_the_shutdown_timeout_is_each_workers_own_when_signalled(relight: Runs) -> None:
    """One needs a while to save, one ignores the signal: the first is not cut short, the second is not waited for."""
    job = relight.script(
        """
        if RANK == 0: on("SIGTERM", lambda *_: (time.sleep(0.6), tell("saved"), os._exit(0)))
        else: on("SIGTERM", signal.SIG_IGN)
        tell("ready", RANK)
        forever()
        """
    )
    run = relight("--nproc-per-node=2", "--shutdown-timeout=1", job)
    run.happened("ready 0", "ready 1")
    told_at = time.monotonic()
    run.signal(signal.SIGTERM)
    assert run.ends() == 1
    assert 1.0 <= time.monotonic() - told_at < 2.5
    assert "saved" in run.events
    run.nothing_is_left()


def test_an_interpreter_that_disappears_before_a_restart(relight: Runs) -> None:
    """Everything of the command can be found when the job begins, and is gone when it starts again."""
    vanishing = relight.program(
        """
        #!/bin/sh
        rm -f "$0"
        exit 1
        """,
        "vanishing",
    )
    run = relight.finish("--max-restarts=3", "--no-python", vanishing)
    assert run.process.returncode == 1
    assert "could not be started" in run.err and "vanishing" in run.err, run.err
    assert "Traceback" not in run.err


def test_the_third_worker_cannot_be_started(relight: Runs) -> None:
    """A fork that fails, as it does when a user may have no more processes: the two before it do not stay."""
    launcher = relight.program(
        f"""
        #!{Path(RELIGHT).parent}/python
        import errno, os, sys
        from relight.cli.main import main
        from relight.shell import processes

        begin, begun = processes._begin, []

        def scarce(order, protect):
            if len(begun) == 2:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            begun.append(begin(order, protect))
            print("begun", begun[-1].pid, file=sys.stderr)
            return begun[-1]

        processes._begin = scarce
        sys.exit(main())
        """,
        "scarce.py",
    )
    run = relight("--nproc-per-node=4", relight.script("forever()"), launcher=(launcher,))
    assert run.ends() == 1
    run.nothing_is_left()
    assert len(re.findall(r"^begun \d+$", run.err, re.MULTILINE)) == 2
    assert "could not be started: Resource temporarily unavailable" in run.err, run.err
    assert "Traceback" not in run.err


def test_every_worker_is_there_when_there_are_sixty_four(relight: Runs) -> None:
    run = relight.finish("--nproc-per-node=64", relight.script("tell('here', RANK, os.environ['WORLD_SIZE'])"))
    assert run.process.returncode == 0
    assert sorted(run.events) == sorted(f"here {rank} 64" for rank in range(64))


def test_sixty_four_workers_end_when_one_fails(relight: Runs) -> None:
    job = relight.script("tell('ready', RANK)\nif RANK == 40:\n    time.sleep(0.5)\n    sys.exit(1)\nforever()")
    run = relight.finish("--nproc-per-node=64", job)
    assert run.process.returncode == 1
    assert "rank 40 (local rank 40" in run.err
    assert "relight ended 63 others" in run.err


def test_workers_that_close_their_streams(relight: Runs) -> None:
    job = relight.script("os.close(1); os.close(2); os.close(0); tell('closed'); time.sleep(0.3); tell('works on')")
    for words in (("--tee=3",), ("-r3",), ()):
        run = relight.finish(*words, job)
        assert run.process.returncode == 0, run.story()
        assert run.events == ["closed", "works on"]
