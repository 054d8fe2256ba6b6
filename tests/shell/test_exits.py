"""A descriptor that tells of a child's end: by pidfd, and by a thread where there is none."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time

import pytest

from relight.shell.exits import exit_descriptor

DEADLINE_S = 10.0


@pytest.fixture(params=["pidfd", "thread", "refused"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open")
    elif request.param == "refused":

        def refuse(pid: int) -> int:
            raise PermissionError(1, "a sandbox")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    return str(request.param)


def child(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE)


def readable(fd: int, within_s: float) -> bool:
    return bool(select.select([fd], [], [], within_s)[0])


def test_it_tells_when_and_not_before(way: str) -> None:
    process = child("input()")
    fd = exit_descriptor(process.pid)
    assert not readable(fd, 0.1)
    process.stdin.write(b"\n")  # type: ignore[union-attr]
    process.stdin.close()  # type: ignore[union-attr]
    assert readable(fd, DEADLINE_S)
    assert process.wait() == 0, "the child is left for its owner to reap, status and all"
    os.close(fd)


def test_one_that_has_ended_before(way: str) -> None:
    process = child("raise SystemExit(7)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    fd = exit_descriptor(process.pid)
    assert readable(fd, DEADLINE_S)
    process.stdin.close()  # type: ignore[union-attr]
    assert process.wait() == 7
    os.close(fd)


def test_other_children_are_not_touched(way: str) -> None:
    first, second = child("input()"), child("raise SystemExit(3)")
    fd = exit_descriptor(first.pid)
    assert second.wait(DEADLINE_S) == 3
    assert not readable(fd, 0.05)
    for process in (first, second):
        process.stdin.close()  # type: ignore[union-attr]
    assert readable(fd, DEADLINE_S)
    first.wait()
    os.close(fd)


def test_no_thread_and_no_descriptor_stays(way: str) -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    processes = [child("") for _ in range(10)]
    fds = [exit_descriptor(process.pid) for process in processes]
    for process, fd in zip(processes, fds, strict=True):
        assert readable(fd, DEADLINE_S)
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()
        os.close(fd)
    end = time.monotonic() + DEADLINE_S
    while (len(os.listdir("/proc/self/fd")), threading.active_count()) != before:
        assert time.monotonic() < end, f"{before} is not {len(os.listdir('/proc/self/fd'))}, {threading.active_count()}"
        time.sleep(0.01)
    assert way == "pidfd" or threading.active_count() == before[1]
