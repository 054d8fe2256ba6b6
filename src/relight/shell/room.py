"""The room where workers and their agent talk: one Unix socket, for this user only, optional for the worker."""

from __future__ import annotations

import errno
import os
import socket

from relight.core.names import Nonsense, UsageError
from relight.core.room import Conversation, Fact, Hello, greeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.shell.logfiles import RunFolder
    from relight.shell.loop import Loop

MOST_GUESTS = 1024
BACKLOG = 128


class Room:
    """Listens, and passes on what workers say of themselves, with their local rank and round."""

    def __init__(self, loop: Loop, path: str, on_fact: Callable[[Hello, Fact], None]) -> None:
        self._loop = loop
        self._on_fact = on_fact
        self._guests: dict[int, tuple[socket.socket, Conversation]] = {}
        self.path = path
        self._shut = False  # no descriptor is left for another guest
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._door.bind(path)
        except OSError:
            self._door.close()
            raise
        os.chmod(path, 0o600)
        self._door.listen(BACKLOG)
        self._door.setblocking(False)
        loop.watch(self._door.fileno(), self._let_in)

    def catch_up(self) -> None:
        """Hears everything that was said up to now: a worker that has just ended may have said something."""
        self._let_in()
        for fd in list(self._guests):
            self._spoke(fd)

    def close(self) -> None:
        self._shut = False
        for fd in list(self._guests):
            self._part(fd)
        self._loop.unwatch(self._door.fileno())
        self._door.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass

    def _let_in(self) -> None:
        """Everyone who is at the door now; a crowd that goes on knocking does not hold up the loop."""
        for _ in range(BACKLOG):
            if not self._knocked():
                return

    def _knocked(self) -> bool:
        """Lets one guest in; False if nobody is at the door."""
        try:
            guest, _ = self._door.accept()
        except BlockingIOError:
            return False
        except OSError as error:  # gone again; or no descriptor left: then nobody is let in until somebody leaves
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._loop.unwatch(self._door.fileno())
                self._shut = True
            return False
        if len(self._guests) >= MOST_GUESTS:
            guest.close()
            return True
        fd = guest.fileno()
        guest.setblocking(False)
        self._guests[fd] = guest, Conversation()
        self._loop.watch(fd, lambda: self._spoke(fd))
        return True

    def _spoke(self, fd: int) -> None:
        guest, conversation = self._guests[fd]
        try:
            chunk = guest.recv(1 << 16)
            if not chunk:
                self._part(fd)
                return
            for fact in conversation.received(chunk):
                if isinstance(fact, Hello):
                    _greet(guest)
                elif conversation.who is not None:
                    self._on_fact(conversation.who, fact)
        except BlockingIOError:
            pass
        except (OSError, Nonsense):
            self._part(fd)

    def _part(self, fd: int) -> None:
        guest, _ = self._guests.pop(fd)
        self._loop.unwatch(fd)
        guest.close()
        if self._shut:
            self._shut = False
            self._loop.watch(self._door.fileno(), self._let_in)


def open_room(loop: Loop, folder: RunFolder, on_fact: Callable[[Hello, Fact], None]) -> Room:
    """The room in the run's folder, or in a temporary one where that file system has no sockets."""
    try:
        return Room(loop, folder.socket_path(), on_fact)
    except OSError:
        path = folder.other_socket_path()
    try:
        return Room(loop, path, on_fact)
    except OSError as error:
        raise UsageError(
            f"the workers' socket cannot be made at {path}: {error.strerror}",
            "TMPDIR=<a folder that can be written to> relight ...",
        ) from None


def _greet(guest: socket.socket) -> None:
    try:
        guest.send(greeting())
    except OSError:  # it has said what it had to say, and is gone
        pass
