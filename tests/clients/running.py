"""Runs one job under relight with a deadline, lets a test kill its workers, and leaves nothing behind.

Every process of a job carries the job's folder in its environment, so that whatever is left is found in /proc and
ended by its pid.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DEADLINE_S = 240.0  # a job of seconds, on a machine that is busy with other tests
MARK = "RELIGHT_CLIENT_TEST"
ROOT = Path(__file__).parent.parent.parent
SCRIPTS = Path(__file__).parent / "scripts"


class Job:
    """One launcher and what it has printed so far."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        self.mark = f"{MARK}={folder}"
        self._file = folder / "printed.txt"
        with self._file.open("ab") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "relight", *words],
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._file.read_text(errors="replace")

    def said(self, pattern: str, rank: int | None = None) -> list[re.Match[str]]:
        """The lines that match, of one local rank or of all of them, without the prefix that --tee gives them."""
        lines = re.findall(rf"^\[default{'[0-9]+' if rank is None else rank}\]:(.*)$", self.printed, re.MULTILINE)
        return [found for line in lines if (found := re.search(pattern, line))]

    def until(self, pattern: str, rank: int | None = None) -> None:
        """Waits until a worker has said so."""
        end = time.monotonic() + DEADLINE_S
        while not self.said(pattern, rank):
            assert self._process.poll() is None, f"the job ended without saying {pattern!r}:\n{self.printed}"
            assert time.monotonic() < end, f"waited {DEADLINE_S} s for {pattern!r}:\n{self.printed}"
            time.sleep(0.02)

    def kill_worker(self, rank: int) -> None:
        """SIGKILL for the worker of this rank: a direct child of the launcher."""
        pids = [pid for pid in self._pids(f"RANK={rank}") if _parent_of(pid) == self._process.pid]
        assert len(pids) == 1, f"rank {rank} is {pids}:\n{self.printed}"
        os.kill(pids[0], signal.SIGKILL)

    def finish(self) -> int:
        """Waits for the launcher's end; its exit code."""
        try:
            return self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"waited {DEADLINE_S} s for the job to end:\n{self.printed}") from None

    def left_running(self) -> list[int]:
        return self._pids()

    def close(self) -> None:
        for pid in {self._process.pid, *self._pids()} if self._process.poll() is None else self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(10)

    def _pids(self, *more: str) -> list[int]:
        wanted = [word.encode() for word in (self.mark, *more)]
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                words = Path("/proc", name, "environ").read_bytes().split(b"\0")
                if all(word in words for word in wanted):
                    found.append(int(name))
        return found


@contextmanager
def job(folder: Path, *words: str | Path) -> Iterator[Job]:
    """A job of two workers or what `words` say, with every line of a worker told apart by its prefix."""
    started = Job(folder, ["--standalone", "--tee", "3", "--log-dir", str(folder / "logs"), *map(str, words)])
    try:
        yield started
    finally:
        started.close()


def run(folder: Path, *words: str | Path) -> Job:
    """A whole job that has to succeed and to leave nothing behind."""
    with job(folder, *words) as started:
        code = started.finish()
        assert code == 0, f"exit code {code}:\n{started.printed}"
        assert started.left_running() == []
        return started


def _parent_of(pid: int) -> int:
    return int(Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2].split()[1])


def _environment(folder: Path) -> dict[str, str]:
    """The test's own environment without another launcher's traces, and without anything that reaches a hub."""
    foreign = ("PET_", "TORCHELASTIC_", "RELIGHT_", "MASTER_", "ACCELERATE_", "WANDB_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PYTHONPATH"):
        inherited.pop(name, None)
    return {
        **inherited,
        MARK: str(folder),
        "HF_HUB_OFFLINE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": os.environ.get("RELIGHT_CLIENT_GPUS", ""),
    }
