"""Starts workers, notices their end, signals their groups. Owns process handles and exit descriptors."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess

from relight.core.names import ExitStatus
from relight.core.values import value
from relight.shell.exits import exit_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from relight.shell.forked import Forked
    from relight.shell.guardian import Guardian
    from relight.shell.loop import Loop

    Command = Sequence[str] | Callable[[], None]  # a program, or a call to be made by a forked child


LAST_WAIT_S = 5.0  # for what was killed on the way out


@value
class Commands:
    """What workers run where it is not the launch's own command: asked anew for every round and local rank."""

    of: Callable[[int, int], Command]
    keeps: tuple[int, ...] = ()  # descriptors that a program inherits, as they are


@value
class Order:
    """One worker to start."""

    local_rank: int
    command: Command
    environment: dict[str, str]
    stdout: int | None = None  # a descriptor, or None: as inherited
    stderr: int | None = None
    cpus: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()


class Processes:
    """The workers of this node's current round."""

    def __init__(self, loop: Loop, guardian: Guardian, on_exit: Callable[[int, int, ExitStatus], None]) -> None:
        self._loop = loop
        self._guardian = guardian
        self._on_exit = on_exit
        self._running: dict[int, subprocess.Popen[bytes] | Forked] = {}
        self._descriptors: dict[int, int] = {}
        self._groups: dict[int, int] = {}  # by local rank, until the group is gone

    @property
    def pids(self) -> dict[int, int]:
        return {local_rank: process.pid for local_rank, process in self._running.items()}

    def start(self, orders: Sequence[Order]) -> None:
        """Starts all of them or none: when one cannot be started, the others are killed and the error is raised."""
        try:
            for order in orders:
                self._start_one(order)
        except BaseException:
            self.close()
            raise

    def tell(self, local_rank: int, number: int, group: bool) -> None:
        """Sends a signal to a worker or its whole group. One that has just ended is left alone."""
        process = self._running.get(local_rank)
        if group:
            try:
                os.killpg(self._groups[local_rank], number)
            except (KeyError, ProcessLookupError, PermissionError):
                pass
        elif process is not None:
            process.send_signal(number)

    def others(self, local_rank: int) -> bool:
        """Whether anything of a worker's process group is alive; zombies that nobody reaps do not count."""
        group = self._groups.get(local_rank)
        if group is None:
            return False
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            self.release(local_rank)
            return False
        except PermissionError:
            pass
        if _any_alive(group):
            return True
        self.release(local_rank)
        return False

    def release(self, local_rank: int) -> None:
        """A worker's group is gone; its number may be used by others from now on."""
        group = self._groups.pop(local_rank, None)
        if group is not None:
            self._guardian.release(group)

    def close(self) -> None:
        """Kills whatever is left. In good order nothing is."""
        for local_rank in list(self._groups):
            self.tell(local_rank, signal.SIGKILL, group=True)
        for local_rank, process in list(self._running.items()):
            poll = select.poll()
            if local_rank in self._descriptors:  # there is none if no descriptor was left for it
                poll.register(self._descriptors[local_rank], select.POLLIN)
            if local_rank not in self._descriptors or poll.poll(LAST_WAIT_S * 1000):
                process.wait()
            self._forget(local_rank)
        for local_rank in list(self._groups):
            self.release(local_rank)

    def _start_one(self, order: Order) -> None:
        before = os.sched_getaffinity(0) if order.cpus else None
        try:
            if order.cpus:
                os.sched_setaffinity(0, order.cpus)  # inherited across the start, then taken back
            process = _begin(order, self._guardian.protect)
        finally:
            if before is not None:
                os.sched_setaffinity(0, before)
        self._running[order.local_rank] = process
        self._groups[order.local_rank] = process.pid
        descriptor = exit_descriptor(process.pid)
        self._descriptors[order.local_rank] = descriptor
        self._loop.watch(descriptor, lambda: self._ended(order.local_rank))

    def _ended(self, local_rank: int) -> None:
        process = self._running[local_rank]
        status = process.wait()
        self._forget(local_rank)
        self._on_exit(local_rank, process.pid, ExitStatus(status))

    def _forget(self, local_rank: int) -> None:
        del self._running[local_rank]
        descriptor = self._descriptors.pop(local_rank, None)
        if descriptor is not None:
            self._loop.unwatch(descriptor)
            os.close(descriptor)


def _begin(order: Order, protect: Callable[[int], None]) -> subprocess.Popen[bytes] | Forked:
    if callable(order.command):
        from relight.shell.forked import Forked

        return Forked(order.command, order.environment, order.stdout, order.stderr, protect)
    process = subprocess.Popen(
        order.command,
        env=order.environment,
        stdout=order.stdout,
        stderr=order.stderr,
        pass_fds=order.keeps,
        start_new_session=True,
    )
    protect(process.pid)
    return process


def reap_strangers(mine: Container[int]) -> None:
    """As the first process of a container: ended orphans that nobody else waits for, until one of ours is next."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in mine:
            return
        os.waitpid(ended.si_pid, os.WNOHANG)


def _any_alive(group: int) -> bool:
    """Whether the group has a member that is more than a zombie. When that cannot be seen, it counts as alive."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # no descriptor left, or no /proc
        return True
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, process_group = file.read().rpartition(b") ")[2].split(b" ", 3)[:3]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return True
            continue  # it has just ended, or it is somebody else's (hidepid), and so none of the group
        except ValueError:
            continue
        if int(process_group) == group and state not in (b"Z", b"X"):
            return True
    return not names
