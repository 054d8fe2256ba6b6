"""Signals to the launcher: once, twice, three times, early, late, from a terminal. Always bounded, never a leak."""

from __future__ import annotations

import os
import pty
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from .running import RELIGHT, Run, Runs, until

ALL = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]

DEAF = """
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"): on(name, signal.SIG_IGN)
    tell("ready", RANK)
    forever()
"""
POLITE = """
    def told(number, frame):
        tell("told", signal.Signals(number).name)
        os._exit(0)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"): on(name, told)
    tell("ready", RANK)
    forever()
"""


def in_good_order(run: Run) -> None:
    assert "Traceback" not in run.err, run.err
    run.nothing_is_left()
    run.tidied_up()


@pytest.mark.parametrize("name", ALL)
def test_once_it_is_passed_on(relight: Runs, name: str) -> None:
    run = relight("--nproc-per-node=2", relight.script(POLITE))
    run.happened("ready 0", "ready 1")
    run.signal(getattr(signal, name))
    assert run.ends(5) == 1
    assert run.events[2:] == [f"told {name}"] * 2, run.story()
    assert run.err.count("received") == 1
    in_good_order(run)


@pytest.mark.parametrize("name", ALL)
def test_a_trainer_behind_a_shell_that_waits_hears_the_signal_at_once(relight: Runs, name: str) -> None:
    """A shell whose trap is set runs it only when its child has ended, and passes nothing on."""
    inner = relight.script(POLITE, "inner.py")
    wrapper = relight.program(f"#!/bin/sh\ntrap : INT TERM HUP QUIT\npython3 {inner}\nexit 0\n", "wrapper.sh")
    run = relight("--nproc-per-node=2", "--no-python", wrapper)
    run.happened("ready 0", "ready 1")
    run.signal(getattr(signal, name))
    assert run.ends(5) == 1
    assert run.events[2:] == [f"told {name}"] * 2, run.story()
    in_good_order(run)


def test_once_and_a_worker_that_is_deaf_is_killed_after_the_timeout(relight: Runs) -> None:
    run = relight("--nproc-per-node=2", "--shutdown-timeout=1", relight.script(DEAF))
    run.happened("ready 0", "ready 1")
    told_at = time.monotonic()
    run.signal(signal.SIGTERM)
    assert run.ends(5) == 1
    assert 1.0 <= time.monotonic() - told_at < 2.5
    in_good_order(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_twice_the_workers_are_hurried(relight: Runs, name: str) -> None:
    job = relight.script(DEAF.replace('"SIGTERM", ', "", 1) if name != "SIGTERM" else DEAF)
    run = relight("--nproc-per-node=2", job)
    run.happened("ready 0", "ready 1")
    run.signal(getattr(signal, name))
    time.sleep(0.3)
    assert run.process.poll() is None
    run.signal(getattr(signal, name))
    assert run.ends(2 if name != "SIGTERM" else 7) == 1, (
        "the second signal comes as SIGTERM, which only one case ignores"
    )
    in_good_order(run)


@pytest.mark.parametrize("name", ALL)
def test_three_times_they_are_killed_at_once(relight: Runs, name: str) -> None:
    run = relight("--nproc-per-node=2", relight.script(DEAF))
    run.happened("ready 0", "ready 1")
    for times in range(3):
        run.signal(getattr(signal, name))
        until(lambda times=times: run.err.count(f"received {name}") > times, f"signal {times + 1} to be heard")  # type: ignore[misc]
    assert run.ends(2) == 1
    in_good_order(run)


def test_three_different_ones_without_a_pause(relight: Runs) -> None:
    run = relight("--nproc-per-node=2", relight.script(DEAF))
    run.happened("ready 0", "ready 1")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        run.signal(number)
    assert run.ends(2) == 1
    in_good_order(run)


def test_a_hundred_of_them(relight: Runs) -> None:
    run = relight("--nproc-per-node=2", relight.script(DEAF))
    run.happened("ready 0", "ready 1")
    chance = random.Random(7)
    for _ in range(100):
        if run.process.poll() is None:
            run.signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
            time.sleep(0.002)  # signals of one kind that nobody has taken yet are one
    assert run.ends(2) in (1, -signal.SIGTERM, -signal.SIGINT)  # the last ones may come when all is done
    run.nothing_is_left()


def test_one_during_the_pause_between_two_rounds(relight: Runs) -> None:
    """A worker has failed and its sibling takes its time to end: the job is stopped and does not begin again."""
    job = relight.script(
        """
        on("SIGTERM", lambda *_: (tell("told"), time.sleep(1), os._exit(0)))
        on("SIGINT", lambda *_: None)
        tell("ready", RANK)
        if RANK == 0:
            told("ready 1")
            sys.exit(1)
        forever()
        """
    )
    run = relight("--nproc-per-node=2", "--max-restarts=5", job)
    run.happened("told")
    run.signal(signal.SIGINT)
    assert run.ends(5) == 1
    assert run.events.count("ready 0") == 1
    in_good_order(run)


def test_nohup(relight: Runs) -> None:
    job = relight.script('tell("ready")\ntold("go on")\ntell("finished")')
    run = relight(job, before=("nohup",))
    run.happened("ready")
    run.signal(signal.SIGHUP)
    time.sleep(0.2)
    assert run.process.poll() is None
    run.tell("go on")
    assert run.ends() == 0
    in_good_order(run)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_before_the_first_worker_is_up(relight: Runs, name: str) -> None:
    """At any moment of the start: death by that very signal, or a clean stop. Never a leak.

    A worker's Python may swallow a SIGINT that comes while it starts, and go on: then the timeout ends it.
    """
    moments = [0.02, 0.035, 0.05, 0.06, 0.07, 0.085]
    job = relight.script(POLITE)
    for moment in moments:
        run = relight("--nproc-per-node=4", "--shutdown-timeout=2", job)
        time.sleep(moment)
        run.signal(getattr(signal, name))
        number = getattr(signal, name)
        assert run.ends(5) in (1, -number), run.story()
        run.nothing_is_left()
        run.tidied_up()


def test_a_listed_sigusr1_stops_the_job(relight: Runs) -> None:
    run = relight("--signals-to-handle=SIGTERM,SIGUSR1", relight.script(POLITE))
    run.happened("ready 0")
    run.signal(signal.SIGUSR1)
    assert run.ends(5) == 1
    assert run.events[1:] == ["told SIGUSR1"]
    in_good_order(run)


def test_an_unlisted_sigusr1_kills_the_launcher_and_leaves_no_orphan(relight: Runs) -> None:
    run = relight("--nproc-per-node=3", relight.script(DEAF))
    run.happened("ready 0", "ready 1", "ready 2")
    run.signal(signal.SIGUSR1)
    assert run.ends(5) == -signal.SIGUSR1
    run.nothing_is_left()
    run.tidied_up()


LEAD_A_SESSION = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def states(pids: list[int]) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in pids}


def test_ctrl_z_and_fg_and_ctrl_c_in_a_shell(relight: Runs) -> None:
    """With a real terminal: the workers stop with the launcher and go on with it; Ctrl-C then ends the job."""
    job = relight.script(
        """
        on("SIGINT", lambda *_: (tell("interrupted", RANK), sys.exit(0)))
        tell("worker", os.getpid())
        tell("ready", RANK)
        while True:
            time.sleep(0.02)
        """
    )
    ours, theirs = pty.openpty()
    shell = (sys.executable, "-c", LEAD_A_SESSION, "bash", "--norc", "--noprofile", "-i")
    try:
        run = relight(launcher=shell, terminal=theirs, env={"HISTFILE": "/dev/null", "PS1": "$ "})
        os.close(theirs)
        os.set_blocking(ours, False)
        shown = b""

        def on_screen(text: bytes) -> bool:
            nonlocal shown
            try:
                shown += os.read(ours, 1 << 16)
            except BlockingIOError:
                pass
            return text in shown

        def types(line: bytes, then: bytes) -> None:
            nonlocal shown
            shown = b""
            os.write(ours, line)
            until(lambda: on_screen(then), f"{then!r} after {line!r}; the screen says {shown!r}", 10)

        os.write(ours, f"{RELIGHT} --nproc-per-node=2 {job}; echo code=$?.\n".encode())
        run.happened("ready 0", "ready 1")
        workers = [int(event.split()[1]) for event in run.events if event.startswith("worker")]
        for _ in range(2):
            types(b"\x1a", b"Stopped")
            until(lambda: states(workers) == {"T"}, "the workers to stop")
            os.write(ours, b"fg\n")
            until(lambda: states(workers) <= {"S", "R"}, "the workers to go on")
        time.sleep(0.1)
        assert states(workers) <= {"S", "R"}
        types(b"\x03", b"received SIGINT")
        until(lambda: on_screen(b"code=") or on_screen(b"$ "), "the shell to be back", 10)
        assert sorted(event for event in run.events if event.startswith("interrupted")) == [
            "interrupted 0",
            "interrupted 1",
        ]
        types(b"echo code=$?.\n", b"code=1.")
        os.write(ours, b"exit\n")
        run.ends(10)
        run.nothing_is_left()
    finally:
        os.close(ours)


# Ctrl-Z stops only who has a parent that could continue it: a session's leader, with the launcher in another group.
LEAD_A_JOB = """
import os, subprocess, sys
os.setsid()
sys.exit(subprocess.Popen(sys.argv[1:], process_group=0).wait())
"""
SHELL = (sys.executable, "-c", LEAD_A_JOB)


def pause(run: Run, for_s: float) -> None:
    """Ctrl-Z, and `fg` so much later."""
    launcher = run.number("launcher")
    os.kill(launcher, signal.SIGTSTP)
    until(lambda: states([launcher]) == {"T"}, lambda: f"relight to stop; {run.story()}")
    time.sleep(for_s)
    os.kill(launcher, signal.SIGCONT)
    until(lambda: states([launcher]) <= {"S", "R"}, lambda: f"relight to go on; {run.story()}")


def test_a_pause_is_not_taken_from_a_workers_grace(relight: Runs) -> None:
    job = relight.script(
        """
        def save(*_):
            tell("saving")
            told("continued")
            tell("saved")
            os._exit(0)
        on("SIGTERM", save)
        tell("launcher", os.getppid())
        tell("ready")
        forever()
        """
    )
    run = relight("--shutdown-timeout=2", job, before=SHELL)
    run.happened("ready")
    os.kill(run.number("launcher"), signal.SIGTERM)
    run.happened("saving")
    pause(run, 2.2)
    time.sleep(0.3)
    run.tell("continued")
    assert run.ends() == 1
    assert run.events[-1] == "saved", run.story()
    in_good_order(run)


@pytest.mark.slow
def test_a_pause_does_not_make_a_worker_stuck(relight: Runs) -> None:
    """A process that starts another waits in state D until that one is itself: here, until a FIFO has a writer."""
    fifo = relight.folder / "fifo"
    os.mkfifo(fifo)
    job = relight.script(
        f"""
        tell("launcher", os.getppid())
        tell("worker", os.getpid())
        os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "{fifo}", os.O_RDONLY, 0)])
        tell("finished")
        """
    )
    run = relight(job, before=SHELL, env={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "3"})
    run.began("worker")
    until(lambda: states([run.number("worker")]) == {"D"}, "the worker to be stuck")
    time.sleep(1.3)  # it has been seen
    pause(run, 2.5)
    time.sleep(1.3)  # it has been looked at again
    os.close(os.open(fifo, os.O_WRONLY))
    assert run.ends() == 0, run.story()
    assert run.events[-1] == "finished"
    in_good_order(run)
