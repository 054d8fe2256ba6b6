"""Waiting for what a test is about, never without an end; whether a process lives; a time without descriptors."""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relight.shell.clock import monotonic
from relight.shell.loop import Loop

DEADLINE_S = 10.0


def until(condition: Callable[[], object], what: str, loop: Loop | None = None) -> None:
    """Waits until a condition holds, turning a loop if there is one. Says what for, if it never does."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited {DEADLINE_S:g} s for {what}"
        if loop is None:
            time.sleep(0.005)
        else:
            loop.wait(monotonic() + 0.01)


def alive(pid: int) -> bool:
    """Whether a process is more than a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


@contextmanager
def out_of_descriptors() -> Iterator[None]:
    """As long as this lasts, nobody in this process can open anything."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        try:
            for _ in itertools.count():
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
