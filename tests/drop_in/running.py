"""Runs one case under one launcher in a folder of its own and ends whatever that left behind.

Every process of a run carries the run's folder in its environment (DROP_IN_OUT), so that all of them, also
those that left their session, are found in /proc and ended by their pid.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from .case import Case

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.dirname(sys.executable)

PLAIN = """#!/usr/bin/env python
from look import look

me = look()
me.say("hello")
me.tell("hello on stderr")
"""
JOB = "import json, os, signal, subprocess, sys, time\nfrom look import look\n\nme = look()\n"


@dataclass(frozen=True)
class Launcher:
    """A launcher by the three ways in which it is called."""

    name: str
    main: tuple[str, ...]
    module: tuple[str, ...]
    launch: tuple[str, ...]

    def words(self, how: str) -> tuple[str, ...]:
        return {"main": self.main, "module": self.module, "launch": self.launch}[how]

    def exists(self) -> bool:
        return os.path.exists(self.main[0])


def _python(*words: str) -> tuple[str, ...]:
    return (sys.executable, *words)


TORCHRUN = Launcher(
    "torchrun",
    (f"{BIN}/torchrun",),
    _python("-m", "torch.distributed.run"),
    _python("-m", "torch.distributed.launch"),
)
RELIGHT = Launcher("relight", (f"{BIN}/relight",), _python("-m", "relight"), _python("-m", "relight.launch"))


@dataclass
class Run:
    """What one run left: its folder, exit status and processes."""

    root: str
    port: int
    launcher: Launcher
    exits: list[int] = field(default_factory=list)
    launcher_pids: list[int] = field(default_factory=list)
    left_running: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def place(self, name: str) -> str:
        return f"{self.root}/{name}"

    def fill(self, text: str) -> str:
        for name in ("work", "logs", "out"):
            text = text.replace(f"@{name.upper()}@", self.place(name))
        return text.replace("@PORT@", str(self.port))

    def read(self, name: str) -> str:
        with open(self.place(name), "rb") as file:
            return file.read().decode("utf-8", "backslashreplace")


class TookTooLong(Exception):
    """A run was still going at its deadline; it has been ended."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _processes_of(root: str) -> dict[int, str]:
    """The live processes of this run, by the mark in their environment."""
    mark = f"DROP_IN_OUT={root}/".encode()
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            environ, words = _settled(name)
            if mark in environ and words:
                found[int(name)] = words.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def _settled(pid: str) -> tuple[bytes, bytes]:
    """A process's environment and command line. In the middle of an exec, which loads from a disk, both read empty."""
    environ = words = b""
    end = time.monotonic() + 2
    with suppress(OSError):
        while not words and time.monotonic() < end:
            os.readlink(f"/proc/{pid}/exe")  # neither the kernel's threads nor the dead have one
            environ, words = (_proc(pid, part) for part in ("environ", "cmdline"))
            if not environ:
                time.sleep(0.001)
                environ = _proc(pid, "environ")
    return environ, words


def _proc(pid: str, part: str) -> bytes:
    with open(f"/proc/{pid}/{part}", "rb") as file:
        return file.read()


def _end_all(root: str) -> None:
    """SIGKILL by pid until nothing of this run is left."""
    end = time.monotonic() + 10
    while pids := _processes_of(root):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise TookTooLong(f"processes that do not die: {pids}")
        time.sleep(0.02)


@contextmanager
def run(case: Case, launcher: Launcher) -> Iterator[Run]:
    """Run the case to its end; afterwards nothing of it is left, neither processes nor files."""
    root = tempfile.mkdtemp(prefix="drop-in-")
    happened = Run(root=root, port=_free_port(), launcher=launcher)
    try:
        _lay_out(case, happened)
        began = time.monotonic()
        for _ in range(case.runs):
            _once(case, happened)
        happened.seconds = time.monotonic() - began
        happened.left_running = _left(root)
        yield happened
    finally:
        _end_all(root)
        shutil.rmtree(root, ignore_errors=True)


def _left(root: str) -> list[str]:
    """Processes that outlive the launcher, after a moment in which the dying may finish."""
    end = time.monotonic() + 0.5
    while (left := _processes_of(root)) and time.monotonic() < end:
        time.sleep(0.02)
    return sorted(left.values())


def _lay_out(case: Case, happened: Run) -> None:
    for name in ("work/pkg", "out", "tmp"):
        os.makedirs(happened.place(name))
    shutil.copy(f"{HERE}/scripts/look.py", happened.place("work/look.py"))
    texts = {"plain.py": PLAIN, "pkg/__init__.py": "", "pkg/mod.py": PLAIN, "pkg/__main__.py": PLAIN}
    if case.body is not None:
        texts["job.py"] = JOB + case.body
    for name, text in {**texts, **case.files}.items():
        path = happened.place(f"work/{name}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(happened.fill(text))
        if text.startswith("#!"):
            os.chmod(path, 0o755)
    with open(happened.place("stdin"), "w") as file:
        file.write(case.stdin)


def _surroundings(case: Case, happened: Run) -> dict[str, str]:
    """A small environment of our own, so that a recording does not depend on who made it."""
    own = {
        "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
        "HOME": happened.place("work"),
        "LANG": "C.UTF-8",
        "TMPDIR": happened.place("tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DROP_IN_OUT": happened.place("out") + "/",
        "DROP_IN_LAUNCHER": json.dumps(happened.launcher.words(case.how)),
    }
    return {**own, **{name: happened.fill(text) for name, text in case.env.items()}}


def _start(words: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """Start the launcher in a session of its own, no signal ignored, whatever started this program."""
    ignored = [each for each in signal.valid_signals() if signal.getsignal(each) == signal.SIG_IGN]
    for each in ignored:
        if each not in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)):  # Popen sees to those
            signal.signal(each, lambda *_: None)  # what is handled is reset by exec, what is ignored is not
    try:
        return subprocess.Popen(words, start_new_session=True, **more)
    finally:
        for each in ignored:
            signal.signal(each, signal.SIG_IGN)


def _once(case: Case, happened: Run) -> None:
    words = [*happened.launcher.words(case.how), *map(happened.fill, case.words)]
    if case.before:
        words = ["/bin/sh", "-c", f'{happened.fill(case.before)}; exec "$@"', "sh", *words]
    with (
        open(happened.place("stdin"), "rb") as stdin,
        open(happened.place("stdout"), "ab") as stdout,
        open(happened.place("stderr"), "ab") as stderr,
    ):
        process = _start(
            words,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=happened.place("work"),
            env=_surroundings(case, happened),
        )
    happened.launcher_pids.append(process.pid)
    end = time.monotonic() + case.deadline_s
    try:
        _send(case, happened, process, end)
        happened.exits.append(process.wait(max(0.0, end - time.monotonic())))
    except subprocess.TimeoutExpired:
        raise TookTooLong(
            f"{shlex.join(words)} still ran after {case.deadline_s:g} s\n{happened.read('stderr')}"
        ) from None
    finally:
        if process.poll() is None:
            _end_all(happened.root)
            process.wait(10)


def _send(case: Case, happened: Run, process: subprocess.Popen[bytes], end: float) -> None:
    """Signal the launcher, each time once the workers that should be ready are."""
    if case.send is None:
        return
    while sum(name.endswith(".ready") for name in os.listdir(happened.place("out"))) < case.send.after:
        if process.poll() is not None:
            return
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, case.deadline_s)
        time.sleep(0.01)
    for nth, name in enumerate(case.send.names):
        if nth:
            time.sleep(0.3)
        if process.poll() is None:
            os.kill(process.pid, signal.Signals[name])
