"""Runs `relight` as a user does, hears what its workers tell, and sees what is alive of a run.

A worker tells something by one appending write to a file of the run. Every process of a run carries the run's own
mark in its environment, whatever session or parent it has by now, so all of them are found in /proc, and ended by
their pid. Only the guardian has an environment of its own; it is found as a child of the launcher.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

RELIGHT = str(Path(sys.executable).parent / "relight")
MARK = "RELIGHT_TEST_RUN"
EVENTS = "RELIGHT_TEST_EVENTS"
DEADLINE_S = 30.0

PRELUDE = f"""\
import os, signal, sys, time

RANK, ROUND = int(os.environ.get("RANK", "-1")), int(os.environ.get("RELIGHT_ROUND", "-1"))

def tell(what, *more):
    fd = os.open(os.environ["{EVENTS}"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (" ".join(map(str, (what, *more))) + "\\n").encode())
    os.close(fd)

def told(what):
    while what not in open(os.environ["{EVENTS}"]).read().split("\\n"):
        time.sleep(0.01)

def on(name, action):
    signal.signal(getattr(signal, name), action)

def forever():
    while True:
        time.sleep(60)

def child(action):
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    return pid

"""


class TookTooLong(AssertionError):
    """What a test waited for has not happened."""


def until(condition: Callable[[], object], what: str | Callable[[], str], within_s: float = DEADLINE_S) -> None:
    """Waits until a condition holds. Says what for, if it never does."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise TookTooLong(f"waited {within_s:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(0.005)


def script(folder: Path, text: str, name: str = "train.py") -> str:
    """A worker's script that can `tell` and knows its RANK and ROUND."""
    path = folder / name
    path.write_text(PRELUDE + textwrap.dedent(text))
    return str(path)


def program(folder: Path, text: str, name: str) -> str:
    """An executable file."""
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip())
    path.chmod(0o755)
    return str(path)


class Run:
    """One launcher and everything that it started."""

    def __init__(
        self,
        folder: Path,
        words: Sequence[str],
        env: Mapping[str, str],
        before: Sequence[str],
        launcher: Sequence[str],
        cwd: Path | None,
        terminal: int | None,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.mark = os.urandom(8).hex()
        self._events = folder / "events"
        self._events.touch()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        hidden = ("TORCHELASTIC_", "PET_", "RELIGHT_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "OMP_NUM_THREADS")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        environ |= {MARK: self.mark, EVENTS: str(self._events), "TMPDIR": str(self.temporary), **env}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.started_at = time.monotonic()
            self.process = subprocess.Popen(
                [*before, *launcher, *words],
                env=environ,
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=out if terminal is None else terminal,
                stderr=err if terminal is None else terminal,
                cwd=cwd,
            )
        self._guardians: set[int] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def events(self) -> list[str]:
        """What was told so far, whole lines only."""
        return self._events.read_text().split("\n")[:-1]

    def happened(self, *wanted: str) -> None:
        """Waits until all of these have been told."""
        self._wait(lambda: set(wanted) - set(self.events))
        self.guardian()

    def began(self, beginning: str) -> None:
        """Waits until something has been told that begins like this."""
        self._wait(lambda: not any(event.startswith(beginning) for event in self.events) and beginning)

    def _wait(self, missing: Callable[[], object]) -> None:
        until(
            lambda: not missing() or self.process.poll() is not None,
            lambda: f"{missing()}; alive {self.alive()}; {self.story()}",
        )
        assert not missing(), f"relight ended before {missing()}; {self.story()}"

    def tell(self, what: str) -> None:
        """Something for the workers, who wait for it with `told`."""
        with self._events.open("a") as events:
            events.write(f"{what}\n")

    def number(self, name: str) -> int:
        """The number in the last event `name N`."""
        self_told = [int(event.split()[1]) for event in self.events if event.split()[0] == name]
        assert self_told, f"nobody told {name}; {self.story()}"
        return self_told[-1]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self, within_s: float = DEADLINE_S) -> int:
        """Waits for the launcher's end and returns its exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise TookTooLong(f"waited {within_s:g} s for relight to end; {self.story()}") from None

    def guardian(self) -> int:
        """The pid of the launcher's guardian, 0 if it has none (any more)."""
        for pid, (parent, words) in _everybody().items():
            if parent == self.pid and b"RELIGHT_AGENT=" in words and words.startswith(b"/bin/sh"):
                self._guardians.add(pid)
                return pid
        return 0

    def alive(self) -> dict[int, str]:
        """What is alive of this run, by pid. Zombies are not."""
        marked = dict(_marked(f"{MARK}={self.mark}"))
        everybody = _everybody()
        guardians = {
            pid: everybody[pid][1].decode(errors="replace")
            for pid in self._guardians
            if pid in everybody and b"RELIGHT_AGENT=" in everybody[pid][1]
        }
        return marked | guardians

    def nothing_is_left(self, within_s: float = 2.0) -> float:
        """Waits until nothing of the run is alive; how long that took."""
        begin = time.monotonic()
        until(lambda: not self.alive(), lambda: f"the end of {self.alive()}; {self.story()}", within_s)
        return time.monotonic() - begin

    def temporary_files(self) -> list[str]:
        paths = glob(f"{self.temporary}/**", recursive=True)
        return sorted(os.path.relpath(path, self.temporary) for path in paths)[1:]

    def tidied_up(self) -> None:
        """Waits until nothing is left in the temporary folder: after a launcher's death its guardian sees to that."""
        until(lambda: not self.temporary_files(), lambda: f"{self.temporary_files()} to go", 5)

    def story(self) -> str:
        return f"events {self.events[-30:]}, stderr {self.err[-3000:]!r}"

    def clean(self) -> None:
        """Ends whatever is left, by pid."""
        for _ in range(50):
            alive = self.alive()
            if not alive:
                break
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.01)
        self.process.wait(DEADLINE_S)


class Runs:
    """Starts launchers in folders of their own and cleans up after them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: list[Run] = []

    def __call__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        launcher: Sequence[str] = (RELIGHT,),
        cwd: Path | None = None,
        terminal: int | None = None,
    ) -> Run:
        run = Run(self.folder / f"run{len(self._runs)}", words, env or {}, before, launcher, cwd, terminal)
        self._runs.append(run)
        return run

    def finish(self, *words: str, env: Mapping[str, str] | None = None) -> Run:
        """Runs to the end; then nothing may be left."""
        run = self(*words, env=env)
        run.ends()
        run.nothing_is_left()
        return run

    def script(self, text: str, name: str = "train.py") -> str:
        return script(self.folder, text, name)

    def program(self, text: str, name: str) -> str:
        return program(self.folder, text, name)

    def clean(self) -> None:
        for run in self._runs:
            run.clean()


@contextmanager
def runs_in(folder: Path) -> Iterator[Runs]:
    runs = Runs(folder)
    try:
        yield runs
    finally:
        runs.clean()


def children_of(pid: int) -> dict[int, bytes]:
    """The children of a process that are more than zombies."""
    return {child: words for child, (parent, words) in _everybody().items() if parent == pid}


def _everybody() -> dict[int, tuple[int, bytes]]:
    """Every process that is more than a zombie: its parent and its command line."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b") ")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1]), Path(f"/proc/{name}/cmdline").read_bytes()
    return found


def _marked(mark: str) -> Iterator[tuple[int, str]]:
    for pid, (_, words) in _everybody().items():
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                yield pid, words.replace(b"\0", b" ").decode(errors="replace").strip()
