"""Odd places to run in: as the first process of a container, without pidfd, inside another program's thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .running import PRELUDE, RELIGHT, Runs, until

PYTHON = Path(RELIGHT).parent / "python"
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def may_make_a_container() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=10).returncode == 0
    except FileNotFoundError:
        return False


container = pytest.mark.skipif(not may_make_a_container(), reason="needs a PID namespace of its own")

STRANGERS = """
    def stranger():
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.1)     # its parent is gone by now, so the first process inherits it
            tell("stranger", os.getppid())
        os._exit(0)
    for _ in range(3): os.waitpid(child(stranger), 0)
    for _ in range(3): told("stranger 1")
    def zombies():
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = open(f"/proc/{name}/stat").read().rpartition(") ")[2].split()
                except OSError:
                    continue
                if fields[0] == "Z" and fields[1] == "1": found.append(name)
        return found
    end = time.monotonic() + 5
    while open(os.environ["RELIGHT_TEST_EVENTS"]).read().count("stranger 1") < 3 or zombies():
        if time.monotonic() > end:
            tell("zombies", *zombies())
            break
        time.sleep(0.01)
    tell("reaped")
"""


@container
@pytest.mark.parametrize("code", [0, 5])
def test_as_the_first_process_strangers_are_reaped(relight: Runs, code: int) -> None:
    job = relight.script(STRANGERS + f"    sys.exit({code})")
    run = relight("--exit-codes=detailed", job, before=UNSHARE)
    assert run.ends() == code, run.story()
    assert run.events == ["stranger 1"] * 3 + ["reaped"]
    run.nothing_is_left()


@container
def test_as_the_first_process_signals_and_restarts_work(relight: Runs) -> None:
    job = relight.script(
        """
        on("SIGTERM", lambda *_: (tell("told"), sys.exit(0)))
        tell("ready", ROUND)
        if ROUND == 0: sys.exit(1)
        forever()
        """
    )
    run = relight("--max-restarts=1", job, before=UNSHARE)
    run.happened("ready 1")
    (launcher,) = [pid for pid, words in run.alive().items() if "bin/relight" in words and pid != run.pid]
    os.kill(launcher, signal.SIGTERM)
    assert run.ends(5) == 1
    assert "told" in run.events
    assert "Traceback" not in run.err
    run.nothing_is_left()


WITHOUT_PIDFD = f"""
    #!{PYTHON}
    import os, sys
    del os.pidfd_open
    from relight.cli.main import main
    sys.exit(main())
"""


def test_a_whole_job_without_pidfd(relight: Runs) -> None:
    launcher = (relight.program(WITHOUT_PIDFD, "without.py"),)
    job = relight.script("tell('here', RANK, ROUND)\nif RANK == 1 and ROUND == 0: sys.exit(1)\ntime.sleep(0.1)")
    run = relight("--nproc-per-node=3", "--max-restarts=1", job, launcher=launcher)
    assert run.ends() == 0, run.story()
    assert {event for event in run.events if event.endswith("1")} >= {f"here {rank} 1" for rank in range(3)}
    run.nothing_is_left()
    run.tidied_up()


def test_a_signal_without_pidfd(relight: Runs) -> None:
    launcher = (relight.program(WITHOUT_PIDFD, "without.py"),)
    job = relight.script("on('SIGTERM', lambda *_: (tell('told'), os._exit(0)))\ntell('ready')\nforever()")
    run = relight(job, launcher=launcher)
    run.happened("ready")
    run.signal(signal.SIGTERM)
    assert run.ends(5) == 1
    assert run.events == ["ready", "told"]
    run.nothing_is_left()


def from_python(relight: Runs, text: str, *more: str, terminal: int | None = None) -> list[str]:
    """Runs a program that uses `relight.run`, with warnings as errors; what it told."""
    program = relight.folder / "program.py"
    program.write_text(PRELUDE + "import threading\nimport relight\n" + text)
    run = relight(str(program), *more, launcher=(str(PYTHON), "-W", "error"), terminal=terminal)
    assert run.ends(60) == 0, run.story()
    assert "Traceback" not in run.err and "Warning" not in run.err, run.err
    run.nothing_is_left()
    reports = [path for path in run.temporary_files() if path.endswith("attempt_0/report.json")]
    assert len(run.temporary_files()) == 4 * len(reports), "a failed run keeps its report and nothing else"
    return run.events


COUNTS = """
def state():
    children = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                children += file.read().split()
        except (FileNotFoundError, ProcessLookupError):  # a thread that has just been joined
            pass
    handlers = {number: signal.getsignal(number) for number in (1, 2, 3, 15, 20)}
    return sorted(os.listdir("/proc/self/fd")), children, threading.active_count(), handlers
"""


@pytest.mark.parametrize("runs", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_many_runs_leave_nothing_in_the_program(relight: Runs, runs: int) -> None:
    """Neither descriptors nor zombies nor threads nor handlers; with the consoles being pipes, and some of it tee'd."""
    readable, writable = os.pipe()
    job = relight.script("time.sleep(0)\nif 'fail' in sys.argv: sys.exit(1)")
    events = from_python(
        relight,
        COUNTS
        + """
from relight.core.streams import streams
job = sys.argv[1]
relight.run(relight.Launch(job, output=relight.Output(tee=streams("3"), log_dir=sys.argv[3])))
before = state()
for number in range(int(sys.argv[2])):
    fails = number % 5 == 0
    output = relight.Output(tee=streams("3" if number % 3 else "0"), log_dir=sys.argv[3])
    try:
        relight.run(relight.Launch(job, args=("fail",) if fails else (), output=output))
        assert not fails
    except relight.JobFailed:
        assert fails
tell("same", state() == before, before if state() == before else (before, state()))
""",
        job,
        str(runs),
        str(relight.folder / "logs"),
        terminal=writable,
    )
    os.close(writable)
    os.close(readable)
    assert events[-1].startswith("same True"), events


def test_a_run_in_a_thread(relight: Runs) -> None:
    job = relight.script("tell('works', RANK)")
    events = from_python(
        relight,
        COUNTS
        + """
before = state()
thread = threading.Thread(target=relight.run, args=[relight.Launch(sys.argv[1], nproc_per_node=2)])
thread.start()
thread.join()
tell("same", state() == before)
""",
        job,
    )
    assert sorted(events) == ["same True", "works 0", "works 1"]


def test_two_runs_at_once_in_two_threads(relight: Runs) -> None:
    """The one fails and is ended; the other does not notice."""
    job = relight.script(
        """
        which, code = sys.argv[1], int(sys.argv[2])
        tell(which, RANK)
        for other in ("a", "b"):
            for rank in ("0", "1"): told(f"{other} {rank}")
        if code: sys.exit(code)
        time.sleep(0.3)
        tell(which, RANK, "finished")
        """
    )
    events = from_python(
        relight,
        COUNTS
        + """
before = state()
def one(which, code):
    try:
        relight.run(relight.Launch(sys.argv[1], args=(which, code), nproc_per_node=2))
        tell(which, "succeeded")
    except relight.JobFailed as failed:
        tell(which, "failed")
threads = [threading.Thread(target=one, args=both) for both in (("a", "0"), ("b", "3"))]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell("same", state() == before)
""",
        job,
    )
    assert events[-1] == "same True"
    assert set(events[4:-1]) == {"b failed", "a 0 finished", "a 1 finished", "a succeeded"}


def test_a_signal_to_a_program_that_runs_a_job(relight: Runs) -> None:
    """SIGTERM ends the job; afterwards the program's own handler is back."""
    job = relight.script("on('SIGTERM', lambda *_: (tell('worker told'), os._exit(0)))\ntell('ready')\nforever()")
    program = relight.folder / "program.py"
    program.write_text(
        PRELUDE
        + """
import relight
on("SIGTERM", lambda *_: tell("my own"))
try:
    relight.run(relight.Launch(sys.argv[1]))
except relight.JobStopped as stopped:
    tell("stopped:", stopped)
os.kill(os.getpid(), signal.SIGTERM)
"""
    )
    run = relight(str(program), job, launcher=(sys.executable,))
    run.happened("ready")
    run.signal(signal.SIGTERM)
    assert run.ends(5) == 0, run.story()
    assert run.events == ["ready", "worker told", "stopped: relight: stopped by a signal", "my own"]


def test_a_long_temporary_folder(relight: Runs) -> None:
    """A socket's path is short by law; the folder for everything else may be anywhere."""
    deep = relight.folder / ("d" * 120)
    deep.mkdir()
    before = set(Path("/tmp").glob("relight_*"))
    job = relight.script("tell(os.path.exists(os.environ['RELIGHT_SOCKET']))")
    run = relight.finish(job, env={"TMPDIR": str(deep)})
    assert run.process.returncode == 0, run.story()
    assert run.events == ["True"]
    assert list(deep.iterdir()) == []
    until(lambda: set(Path("/tmp").glob("relight_*")) <= before, "the socket's folder to be gone")


def test_a_long_run_id(relight: Runs) -> None:
    run = relight.finish(
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        "--rdzv-id=" + "x" * 300,
        "--max-restarts=1",
        relight.script("tell(len(os.environ['TORCHELASTIC_RUN_ID']))"),
    )
    assert run.process.returncode == 0, run.story()
    assert run.events == ["300"]
    run.tidied_up()


def test_time_is_not_lost_on_the_way(relight: Runs) -> None:
    """A generous bound against accidental sleeps: start, one restart and the end of four plain workers."""
    run = relight.finish("--nproc-per-node=4", "--max-restarts=1", relight.script("sys.exit(1 - ROUND)"))
    assert run.process.returncode == 0
    assert time.monotonic() - run.started_at < 3.0
