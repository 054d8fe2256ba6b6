"""Real children, one loop: started all or none, told alone or with their group, and never lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relight.core.names import ExitStatus
from relight.shell.exits import exit_descriptor
from relight.shell.guardian import Guardian
from relight.shell.loop import Loop
from relight.shell.processes import Order, Processes

from ..waiting import alive, until

End = tuple[int, int, ExitStatus]


class House:
    """A loop, a guardian and the workers that live there."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.guardian = Guardian(os.urandom(8).hex(), self.loop, print)
        self.ends: list[End] = []
        self.processes = Processes(self.loop, self.guardian, lambda *end: self.ends.append(end))

    def start(self, *programs: str, **more: Any) -> None:
        self.processes.start([order(at, program, **more) for at, program in enumerate(programs)])

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, what, self.loop)

    def close(self) -> None:
        self.processes.close()
        self.guardian.dismiss()
        self.loop.close()


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


def order(local_rank: int, program: str, **more: Any) -> Order:
    return Order(local_rank, [sys.executable, "-S", "-c", program], dict(os.environ), **more)


def pipe_order(local_rank: int, program: str) -> tuple[Order, int]:
    readable, writable = os.pipe()
    return order(local_rank, program, stdout=writable), readable


def test_a_forked_worker_begins_only_when_the_guardian_knows_of_it(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark is in no environment that /proc shows, so until then nobody would end it if the agent were killed."""
    begun = tmp_path / "begun"
    known: list[bool] = []

    def protect(pid: int) -> None:
        time.sleep(0.2)
        known.append(not begun.exists())

    monkeypatch.setattr(house.guardian, "protect", protect)
    house.processes.start([Order(0, begun.touch, dict(os.environ))])
    house.until(lambda: house.ends, "its end")
    assert (known, begun.exists()) == ([True], True)


def test_ends_are_noticed_with_their_status(house: House) -> None:
    house.start("", "raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)")
    pids = house.processes.pids
    house.until(lambda: len(house.ends) == 3, "three ends")
    assert {(rank, pid, status.number) for rank, pid, status in house.ends} == {
        (0, pids[0], 0),
        (1, pids[1], 3),
        (2, pids[2], -9),
    }
    assert house.processes.pids == {}
    assert not any(house.processes.others(rank) for rank in range(3))


def test_each_is_in_a_session_of_its_own(house: House) -> None:
    house.start("import time; time.sleep(60)")
    pid = house.processes.pids[0]
    assert os.getsid(pid) == os.getpgid(pid) == pid


WITH_A_CHILD = """
import os, signal, time
if os.fork() == 0:
    os.write(1, b"child")
    time.sleep(60)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
os.write(1, b"self.")
time.sleep(60)
"""


def test_the_worker_is_told_alone_and_then_its_group(house: House) -> None:
    asked, readable = pipe_order(0, WITH_A_CHILD)
    house.processes.start([asked])
    said = b""
    while len(said) < 10:
        said += os.read(readable, 10)
    house.processes.tell(0, signal.SIGTERM, group=False)
    house.until(lambda: house.ends, "the worker's end")
    assert house.ends[0][2].ok
    assert house.processes.others(0), "the child lives on"
    house.processes.tell(0, signal.SIGTERM, group=True)
    house.until(lambda: not house.processes.others(0), "the child's end")
    house.processes.tell(0, signal.SIGTERM, group=True)  # nobody is there, and nobody minds
    assert asked.stdout is not None
    os.close(asked.stdout)
    os.close(readable)


def test_a_zombie_that_nobody_reaps_is_not_alive(house: House) -> None:
    """A child of the worker ends, its own parent (outside of the group) never waits for it."""
    program = """
import os, time
if os.fork() == 0:
    if os.fork() == 0: os._exit(0)       # stays in the worker's group, as a zombie
    os.setsid()
    os.write(1, b"x")
    time.sleep(60)
time.sleep(0.2)
"""
    asked, readable = pipe_order(0, program)
    house.processes.start([asked])
    assert os.read(readable, 1) == b"x"
    house.until(lambda: house.ends, "the worker's end")
    stranger = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _holds(pid, readable)]
    try:
        assert not house.processes.others(0)
    finally:
        for pid in stranger:
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
    assert asked.stdout is not None
    os.close(asked.stdout)
    os.close(readable)


def _holds(pid: int, pipe: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/self/fd/{pipe}")
    except OSError:
        return False


def test_all_or_none(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [order(rank, "import time; time.sleep(60)") for rank in range(3)]
    bad = Order(3, ["/nowhere/python"], {})
    pids: list[int] = []
    protect = house.guardian.protect

    def noted(group: int) -> None:
        pids.append(group)
        protect(group)

    monkeypatch.setattr(house.guardian, "protect", noted)
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        house.processes.start([*good, bad])
    assert len(pids) == 3 and not any(alive(pid) for pid in pids)
    assert house.processes.pids == {} and house.ends == []
    house.start("")
    house.until(lambda: house.ends, "a worker that is started afterwards")


def test_all_or_none_when_descriptors_run_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has been started, but there is no descriptor to notice its end by."""
    from relight.shell import processes

    known: list[int] = []

    def scarce(pid: int) -> int:
        known.append(pid)
        if len(known) == 2:
            raise OSError(24, "Too many open files")
        return exit_descriptor(pid)

    monkeypatch.setattr(processes, "exit_descriptor", scarce)
    with pytest.raises(OSError, match="Too many open files"):
        house.start("import time; time.sleep(60)", "import time; time.sleep(60)")
    assert len(known) == 2 and not any(alive(pid) for pid in known)
    assert house.processes.pids == {}


def test_close_kills_and_reaps_what_is_left() -> None:
    house = House()
    house.start("import time; time.sleep(60)", "import time; time.sleep(60)")
    pids = house.processes.pids.values()
    house.close()
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_cpus_are_the_workers_and_not_ours(house: House) -> None:
    mine = os.sched_getaffinity(0)
    one = min(mine)
    asked, readable = pipe_order(0, "import os; os.write(1, repr(os.sched_getaffinity(0)).encode())")
    assert asked.stdout is not None
    house.processes.start([Order(0, asked.command, asked.environment, stdout=asked.stdout, cpus=(one,))])
    assert os.read(readable, 100) == repr({one}).encode()
    assert os.sched_getaffinity(0) == mine
    os.close(asked.stdout)
    os.close(readable)
