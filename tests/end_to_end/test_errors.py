"""A failure is explained: by the worker's own words, by its stderr, by the order of events; whatever the files are."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .running import RELIGHT, Run, Runs, until

RECORDED = """
import relight
@relight.record
def main():
    def deep(): raise ValueError("the loss is not a number")
    deep()
main()
"""


def report_of(logs: Path, round_: int = 0) -> Any:
    (path,) = logs.glob(f"*/attempt_{round_}/report.json")
    return json.loads(path.read_text())


def failed(relight: Runs, *words: str, env: dict[str, str] | None = None) -> tuple[Run, Path]:
    logs = relight.folder / "logs"
    run = relight.finish(f"--log-dir={logs}", *words, env=env)
    assert run.process.returncode == 1, run.story()
    assert 'Traceback (most recent call last):\n  File "/work' not in run.err, "relight itself must not fail"
    assert "relight: train.py failed in round" in run.err
    return run, logs


def test_recorded_exceptions_are_told_whole(relight: Runs) -> None:
    job = relight.script("if RANK == 0: forever()\n" + RECORDED)
    run, logs = failed(relight, "--nproc-per-node=2", job)
    assert "it said      ValueError: the loss is not a number" in run.err
    report = report_of(logs)
    worker = report["first_cause"]["worker"]
    assert worker["rank"] == worker["local_rank"] == 1
    assert (worker["exit_code"], worker["signal"], worker["outcome"]) == (1, None, "failed")
    assert "in deep" in worker["traceback"] and worker["traceback"].startswith("Traceback")
    assert Path(worker["error_file"]).name == "error.json"
    assert [one["outcome"] for one in report["workers"]] == ["ended by relight", "failed"]
    assert report["workers"][0]["signal"] == "SIGTERM"
    assert report["first_cause"]["sentence"].endswith("exited with 1: ValueError: the loss is not a number")
    block = run.err[run.err.index("Root Cause (first observed failure):") :]
    assert "traceback : Traceback (most recent call last):" in block and "in deep" in block


@pytest.mark.parametrize("words", [("--tee=3",), ("-r2",), ("--tee=2",), ("-r3",)])
def test_a_plain_exception_is_found_in_a_captured_stderr(relight: Runs, words: tuple[str, ...]) -> None:
    job = relight.script("def deep(): raise KeyError('no such layer')\ndeep()")
    run, logs = failed(relight, *words, job)
    assert "it said      KeyError: 'no such layer'" in run.err
    worker = report_of(logs)["first_cause"]["worker"]
    assert worker["stderr_tail"][-1] == "KeyError: 'no such layer'"
    assert Path(worker["stderr_file"]).read_text().endswith("KeyError: 'no such layer'\n")
    assert worker["stderr_file"] in run.err


STRANGE_FILES = {
    "half": 'open(path, "w").write(\'{"message": {"message": "Value\')',
    "empty": 'open(path, "w")',
    "not text": 'open(path, "wb").write(bytes(range(256)) * 100)',
    "another shape": 'open(path, "w").write("[1, 2]")',
    "deep": 'open(path, "w").write("[" * 100000)',
    "fifty megabytes": 'open(path, "w").write(\'{"message": "\' + "x" * 50_000_000 + \'"}\')',
    "a folder": "os.mkdir(path)",
    "a FIFO": "os.mkfifo(path)",
    "a link to a terminal": 'os.symlink("/dev/tty", path)',
    "a link to nothing": 'os.symlink("/nowhere/at/all", path)',
    "a socket": "import socket; s = socket.socket(socket.AF_UNIX); s.bind(os.path.relpath(path))",
    "unreadable": 'open(path, "w").write("{}"); os.chmod(path, 0)',
    "its folder is gone": "import shutil; shutil.rmtree(os.path.dirname(path))",
}


def test_no_error_file_however_strange_hurts_the_launcher(relight: Runs) -> None:
    """Each round leaves another one behind; the launcher goes on to the next, and explains the last."""
    cases = "\n".join(f"    if ROUND == {at}: {make}" for at, make in enumerate(STRANGE_FILES.values()))
    job = relight.script(f"path = os.environ['TORCHELASTIC_ERROR_FILE']\nif True:\n{cases}\nsys.exit(9)")
    most = len(STRANGE_FILES) - 1
    parent = relight.folder / "parent.json"
    run, logs = failed(relight, f"--max-restarts={most}", job, env={"TORCHELASTIC_ERROR_FILE": str(parent)})
    assert run.err.count("starting again") == most
    assert f"failed in round {most}, {most} of {most} restarts used" in run.err
    assert run.err.count("exit code 9") == 1
    assert report_of(logs, most)["first_cause"]["worker"]["exit_code"] == 9


@pytest.mark.parametrize("file", ["a FIFO", "a folder", "half", "fifty megabytes"])
def test_a_strange_error_file_of_the_last_round(relight: Runs, file: str) -> None:
    job = relight.script(f"path = os.environ['TORCHELASTIC_ERROR_FILE']\n{STRANGE_FILES[file]}\nsys.exit(9)")
    run, logs = failed(relight, "-r2", job, env={"TORCHELASTIC_ERROR_FILE": str(relight.folder / "parent.json")})
    assert "exit code 9" in run.err
    assert report_of(logs)["first_cause"]["worker"]["message"] is None


def test_a_relative_log_folder_and_a_worker_that_goes_elsewhere(relight: Runs) -> None:
    job = relight.script('os.chdir("/")' + RECORDED)
    run = relight("--log-dir=logs", "-r3", job, cwd=relight.folder)
    assert run.ends() == 1
    assert "it said      ValueError: the loss is not a number" in run.err
    assert report_of(relight.folder / "logs")["first_cause"]["worker"]["traceback"]


@pytest.mark.parametrize("first", [0, 2])
def test_the_first_cause_is_the_first_in_time(relight: Runs, first: int) -> None:
    """The launcher is stopped while the workers fail, so it finds all of them at once, and still knows the order."""
    job = relight.script(
        f"""
        order = [{first}, {2 - first}]
        tell("pid", RANK, os.getpid())
        tell("ready", RANK)
        if RANK == 1: forever()
        told("fail")
        if RANK == order[1]:
            events = [line.split() for line in open(os.environ["RELIGHT_TEST_EVENTS"])]
            (other,) = [event[2] for event in events if event[:2] == ["pid", str(order[0])]]
            while open(f"/proc/{{other}}/stat").read().rpartition(") ")[2][0] != "Z": pass
            time.sleep(0.003)
        os._exit(10 + RANK)
        """
    )
    logs = relight.folder / "logs"
    run = relight("--nproc-per-node=3", f"--log-dir={logs}", job)
    run.happened("ready 0", "ready 1", "ready 2")
    run.signal(signal.SIGSTOP)
    run.tell("fail")
    pids = [int(event.split()[2]) for event in run.events if event.startswith(("pid 0", "pid 2"))]
    until(lambda: not any(pid in run.alive() for pid in pids), "both to end")
    run.signal(signal.SIGCONT)
    assert run.ends() == 1
    assert f"first cause  rank {first} (local rank {first}" in run.err, run.err
    assert f"exit code {10 + first}" in run.err
    assert f"1 worker exited with {12 - first} (rank {2 - first})" in run.err
    assert report_of(logs)["first_cause"]["worker"]["rank"] == first


def test_three_milliseconds_earlier_by_their_own_words(relight: Runs) -> None:
    """Rank 2 raises first but takes half a second to leave; rank 0 raises 3 ms later and is gone at once."""
    job = relight.script(
        """
        import atexit, relight
        @relight.record
        def main():
            tell("ready", RANK)
            for rank in range(3): told(f"ready {rank}")
            if RANK == 2:
                on("SIGTERM", signal.SIG_IGN)
                atexit.register(time.sleep, 0.3)
                tell("raises")
                raise ValueError("the cause")
            if RANK == 0:
                told("raises")
                while not os.path.exists(os.environ["TORCHELASTIC_ERROR_FILE"].replace("/0/", "/2/")): pass
                time.sleep(0.003)
                raise RuntimeError("connection closed by peer")
            forever()
        main()
        """
    )
    run, logs = failed(relight, "--nproc-per-node=3", job)
    assert "first cause  rank 2 (local rank 2" in run.err, run.err
    assert "it said      ValueError: the cause" in run.err
    assert report_of(logs)["first_cause"]["worker"]["rank"] == 2


def test_a_worker_killed_by_a_signal(relight: Runs) -> None:
    run, logs = failed(relight, "--nproc-per-node=2", relight.script("if RANK: os.kill(os.getpid(), 11)\nforever()"))
    assert "how          killed by SIGSEGV" in run.err
    worker = report_of(logs)["first_cause"]["worker"]
    assert (worker["exit_code"], worker["signal"]) == (-11, "SIGSEGV")


def test_nested_launchers_hand_the_root_cause_up(relight: Runs) -> None:
    inner = relight.script(RECORDED, "inner.py")
    outer = relight.script(f'os.execv("{RELIGHT}", ["relight", "--nproc-per-node=2", "{inner}"])')
    parent = relight.folder / "root-cause.json"
    run, logs = failed(relight, outer, env={"TORCHELASTIC_ERROR_FILE": str(parent)})
    assert run.err.count("it said      ValueError: the loss is not a number") == 2
    worker = report_of(logs)["first_cause"]["worker"]
    assert worker["message"] == "ValueError: the loss is not a number" and "in deep" in worker["traceback"]
    message = json.loads(parent.read_text())["message"]
    assert message["message"] == "ValueError: the loss is not a number"
    assert message["errorCode"] == 1
    assert "in deep" in message["extraInfo"]["py_callstack"]


def test_a_job_that_succeeds_writes_no_error_for_its_parent(relight: Runs) -> None:
    parent = relight.folder / "root-cause.json"
    run = relight.finish(
        "--max-restarts=1", relight.script("sys.exit(1 - ROUND)"), env={"TORCHELASTIC_ERROR_FILE": str(parent)}
    )
    assert run.process.returncode == 0
    assert not parent.exists()


def test_a_message_of_many_megabytes(relight: Runs) -> None:
    """Bounded where it is written, so that it is not lost where it is read."""
    job = relight.script(
        """
        import relight
        @relight.record
        def main(): raise ValueError("it begins like this " + "\\u00e4\\u20ac" * 5_000_000)
        main()
        """
    )
    run, logs = failed(relight, "-r3", job)
    assert "it said      ValueError: it begins like this" in run.err
    assert len(run.err) < 1_000_000
    assert "in main" in report_of(logs)["first_cause"]["worker"]["traceback"]


@pytest.mark.slow
def test_torchs_own_record(relight: Runs) -> None:
    pytest.importorskip("torch")
    job = relight.script(
        """
        from torch.distributed.elastic.multiprocessing.errors import record
        @record
        def main():
            def deep(): raise ValueError("the loss is not a number")
            if RANK == 1: deep()
            forever()
        main()
        """
    )
    run, logs = failed(relight, "--nproc-per-node=2", job)
    assert "it said      ValueError: the loss is not a number" in run.err
    worker = report_of(logs)["first_cause"]["worker"]
    assert worker["rank"] == 1 and "in deep" in worker["traceback"]


def test_a_full_disk_for_logs(relight: Runs) -> None:
    """The workers feel it, the launcher says it; nobody hangs, and what was written stays."""
    disk = relight.folder / "disk"
    disk.mkdir()
    if os.geteuid() or os.system(f"mount -t tmpfs -o size=256k tmpfs {disk} 2>/dev/null"):
        pytest.skip("a small disk of its own needs root")
    job = relight.script(
        """
        begin = time.monotonic()
        try:
            for _ in range(2000): print("x" * 1000, flush=True)
        except OSError as error:
            tell("full", error.errno)
        tell("done")
        os._exit(3)
        """
    )
    try:
        for words in (("-r3",), ("--tee=3",)):
            run = relight(f"--log-dir={disk}", *words, job)
            begin = time.monotonic()
            assert run.ends() == 1, run.story()
            assert time.monotonic() - begin < 15
            assert "exit code 3" in run.err
            assert "Traceback" not in run.err, run.err
            assert "done" in run.events
            run.nothing_is_left()
            assert sum(path.stat().st_size for path in disk.glob("*/attempt_0/0/stdout.log")) > 50_000
    finally:
        assert os.system(f"umount {disk}") == 0
