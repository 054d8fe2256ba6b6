"""A console that never makes its writer wait: what it does not take now is kept, within bounds, for later.

The descriptor we inherited shares its open file description with the shell and with every worker, so it is never
switched to non-blocking mode. A pipe or a terminal is opened once more through /proc/self/fd instead; where that
is refused (a pipe that belongs to another user, as after `su` or in many containers) a thread of our own copies
from a pipe that we made. A socket is written with MSG_DONTWAIT. A regular file, or anything else, is written
plainly through the inherited descriptor, whose offset and O_APPEND all its writers share.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections import deque

from relight.core.lines import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FULL = 1 << 20  # with so much waiting, a console is given no more workers' output
MOST = 4 << 20  # with so much waiting, relight's own messages are counted and dropped
_PTMX = os.makedev(5, 2)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Console:
    """One place where people (or their pipes) read; it belongs to one thread at a time."""

    def __init__(self, fd: int, *, terminal: bool | None = None) -> None:
        self.gone = False  # nobody will ever read this; what is written is forgotten
        self.backlog = 0  # bytes accepted and not yet written
        self.missed = 0  # bytes that were dropped since the console last heard about it
        self._queue: deque[bytes] = deque()
        self._in_mid_line = False  # of what was really written
        self._own = -1
        self._carrier: _Carrier | None = None
        self._put: Callable[[list[bytes]], int] = _nothing
        try:
            self._open(fd, os.fstat(fd))
        except OSError:
            self.gone = True
        on_terminal = terminal if terminal is not None else not self.gone and os.isatty(fd)
        self.screen = Screen(on_terminal)
        self._inherited = fd

    def fileno(self) -> int:
        """What to watch for room while `wants_writing`; -1 if there is nothing to wait for."""
        return self._own

    @property
    def wants_writing(self) -> bool:
        return self.backlog > 0

    @property
    def full(self) -> bool:
        return self.backlog >= FULL

    @property
    def settled(self) -> bool:
        """Whether everything that was written has really arrived."""
        return self.gone or (not self.backlog and (self._carrier is None or self._carrier.idle))

    def look(self) -> None:
        """Learns how wide the terminal is at the moment."""
        if self.screen.terminal:
            try:
                self.screen.columns = os.get_terminal_size(self._inherited).columns
            except OSError:
                self.screen.columns = 0

    def write(self, *pieces: bytes) -> None:
        """Writes what can be written at once and keeps the rest. Never waits."""
        if self.gone:
            return
        fresh = [piece for piece in pieces if piece]
        if not self._queue and len(fresh) < 64:
            fresh = self._send(fresh)
        for piece in fresh:
            self._queue.append(piece)
            self.backlog += len(piece)

    def say(self, text: bytes) -> None:
        """Writes whole lines of our own, beginning a fresh line where a worker's is unfinished."""
        if self.backlog + len(text) > MOST:
            self.missed += len(text)
            return
        if self.missed and not self.full:
            missed, self.missed = self.missed, 0
            text = b"relight: %d bytes for this console were dropped\n%b" % (missed, text)
        self.write(self.screen.fresh(), text, b"" if text.endswith(b"\n") else b"\n")

    def flush(self) -> None:
        """Writes as much of what was kept as the console takes now."""
        while self._queue and not self.gone:
            batch = [self._queue.popleft() for _ in range(min(64, len(self._queue)))]
            size = sum(map(len, batch))
            left = self._send(batch)
            self._queue.extendleft(reversed(left))
            self.backlog -= size - sum(map(len, left))
            if left:
                return

    def abandon(self) -> int:
        """Forgets what was not written yet, so that the next line can be; says how many bytes that were."""
        forgotten, self.backlog = self.backlog, 0
        self._queue.clear()
        self.screen.owner = None
        if self._in_mid_line:
            self.write(b"\n")
        return forgotten

    def close(self) -> None:
        """Lets go of what this console opened; the inherited descriptor stays as it was."""
        self._leave()
        own, self._own = self._own, -1
        if own >= 0:
            os.close(own)

    def _send(self, pieces: list[bytes]) -> list[bytes]:
        """Hands pieces to the system; what it did not take comes back."""
        try:
            taken = self._put(pieces) if pieces else 0
        except (BlockingIOError, InterruptedError):
            return pieces
        except OSError as error:
            if error.errno not in _NO_ROOM:  # closed, hung up: nobody reads this any more
                self._leave()
                return []
            self.missed += sum(map(len, pieces))
            return []
        for at, piece in enumerate(pieces):
            if taken < len(piece):
                if taken:
                    self._in_mid_line = piece[taken - 1] != 10
                return [piece[taken:], *pieces[at + 1 :]]
            taken -= len(piece)
            self._in_mid_line = piece[-1] != 10
        return []

    def _leave(self) -> None:
        self.gone = True
        self.backlog = 0
        self._queue.clear()
        self._put = _nothing

    def _open(self, fd: int, status: os.stat_result) -> None:
        if stat.S_ISSOCK(status.st_mode):
            self._own = os.dup(fd)
            self._put = _through_socket(self._own)
        elif stat.S_ISFIFO(status.st_mode) or os.isatty(fd):
            own = self._own = self._reopened(fd, status)
            self._put = self._carrier.put if self._carrier else lambda pieces: os.writev(own, pieces)
            if stat.S_ISFIFO(status.st_mode):
                _widen(own)
        else:
            self._put = _plainly(fd)

    def _reopened(self, fd: int, status: os.stat_result) -> int:
        try:
            if status.st_rdev == _PTMX:  # opening this name would make a new pair
                raise OSError(errno.ENOTSUP, "the controlling side of a terminal")
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as refusal:
            if refusal.errno == errno.ENXIO and stat.S_ISFIFO(status.st_mode):
                raise  # no reader is left
            self._carrier = _Carrier(fd)
            return self._carrier.entry


class _Carrier:
    """A thread that copies from a pipe of ours to a descriptor that may block it."""

    def __init__(self, fd: int) -> None:
        import threading

        self._exit, self.entry = os.pipe()
        os.set_blocking(self.entry, False)
        self._fd = fd
        self._accepted = self._delivered = 0  # each has one writer: the console's thread, and ours
        self._over = False
        threading.Thread(target=self._carry, name="relight console", daemon=True).start()

    @property
    def idle(self) -> bool:
        return self._over or self._delivered == self._accepted

    def put(self, pieces: list[bytes]) -> int:
        taken = os.writev(self.entry, pieces)
        self._accepted += taken
        return taken

    def _carry(self) -> None:
        try:
            while data := os.read(self._exit, 1 << 16):
                write_all(self._fd, data)
                self._delivered += len(data)
        except OSError:
            pass
        self._over = True
        os.close(self._exit)  # who writes into the entry now learns that nobody reads


def open_consoles(out: int = 1, err: int = 2, *, terminal: bool | None = None) -> tuple[Console, Console]:
    """The consoles for two descriptors: one and the same if both lead to the same place, so that order is kept."""
    first = Console(out, terminal=terminal)
    try:
        if os.path.samestat(os.fstat(out), os.fstat(err)):
            return first, first
    except OSError:
        pass
    return first, Console(err, terminal=terminal)


def _widen(pipe: int) -> None:
    """Gives a pipe room for a burst: with its usual 64 KiB, two processes take turns for every little piece."""
    import fcntl

    try:
        if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < FULL:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, FULL)
    except (AttributeError, OSError):  # not Linux, or this user has all the pipe memory a user may have
        pass


def _nothing(pieces: list[bytes]) -> int:
    return sum(map(len, pieces))


def _through_socket(fd: int) -> Callable[[list[bytes]], int]:
    import socket

    flags = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

    def put(pieces: list[bytes]) -> int:
        peer = socket.socket(fileno=fd)
        try:
            return peer.sendmsg(pieces, [], flags)
        finally:
            peer.detach()  # the descriptor is the console's to close

    return put


def _plainly(fd: int) -> Callable[[list[bytes]], int]:
    def put(pieces: list[bytes]) -> int:
        for piece in pieces:
            write_all(fd, piece)
        return _nothing(pieces)

    return put


def write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # somebody else switched the shared description to non-blocking
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
