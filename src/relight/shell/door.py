"""Where connections come in: a port that listens from the moment it is made, and lets in as many as there is room for.

What is said through a connection is not known here: whoever made the door is given each one. The port is bound before
any worker exists, so no other program can take it in between and no worker has to try twice.
"""

from __future__ import annotations

import errno
import os
import select
import socket

from relight.core.names import UsageError
from relight.shell.clock import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relight.shell.loop import Loop

    Place = tuple[int, str, int]  # family, address, scope
    Admits = Callable[[str], bool]
    Tell = Callable[[str, str], object]
    Welcome = Callable[[socket.socket, str], object]  # a connection, and the address that it comes from

BACKLOG = 4096
ACCEPTS_AT_ONCE = 256  # so that a crowd at the door does not keep those inside waiting
TRIES = 16
PAUSE_S = 0.2
NO_DESCRIPTOR = "relight has no file descriptor left (see `ulimit -n`)"
NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
V4_ANY, V6_ANY = (socket.AF_INET, "0.0.0.0", 0), (socket.AF_INET6, "::", 0)
V4_LOOPBACK, V6_LOOPBACK = (socket.AF_INET, "127.0.0.1", 0), (socket.AF_INET6, "::1", 0)


class Taken(UsageError):
    """Somebody else listens there."""


class NotHere(Exception):
    """The host is not known as one of this machine's addresses."""


class Door:
    """Listens on `host:port`; port 0 takes any free one. Raises NotHere, or UsageError if the port cannot be had.

    `admits` may refuse a connection by the address it comes from; `tell` hears who was turned away (an address, and
    why as a sentence); `make_room` is asked to send somebody away when no descriptor is left.
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        welcome: Welcome,
        *,
        make_room: Callable[[], bool],
        tell: Tell,
        admits: Admits = lambda _address: True,
    ) -> None:
        self._loop = loop
        self._welcome = welcome
        self._make_room = make_room
        self._tell = tell
        self._admits = admits
        self._paused = False
        self._again_at: float | None = None  # when a pause ends, whether somebody leaves or not
        self._listeners = _listen(host, port)
        self._spare = _spare()
        self.address: str = self._listeners[0].getsockname()[0]
        self.port: int = self._listeners[0].getsockname()[1]
        self._watch_listeners()

    def wake_at(self) -> float | None:
        return self._again_at

    def tick(self, now: float) -> None:
        """Tries again to let somebody in."""
        if self._again_at is not None and now >= self._again_at:
            self.resume()

    def resume(self) -> None:
        """Somebody has left: there may be a descriptor for somebody else."""
        if self._paused:
            self._paused = False
            self._again_at = None
            self._spare = self._spare if self._spare is not None else _spare()
            self._watch_listeners()

    def close(self) -> None:
        self._paused = False
        for listener in self._listeners:
            self._loop.unwatch(listener.fileno())
            listener.close()
        self._listeners = []
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _watch_listeners(self) -> None:
        for listener in self._listeners:
            self._loop.watch(listener.fileno(), lambda listener=listener: self._accept(listener))  # type: ignore[misc]

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if self._paused or listener.fileno() < 0:
                return
            try:
                connection, origin = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    if not _knocks(listener):
                        return  # Linux looks for a descriptor first, and for somebody at the door then
                    if self._make_room():
                        continue
                    self._turn_away(listener)
                    return
                if error.errno in (errno.ENOBUFS, errno.ENOMEM):
                    self._pause()
                continue  # anything else is the fault of one connection, which is gone
            if not self._admits(origin[0]):
                connection.close()
                self._tell(origin[0], "is not an address that this job's nodes come from")
                continue
            try:
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._welcome(connection, origin[0])
            except OSError:
                connection.close()  # it was reset before it could be set up

    def _turn_away(self, listener: socket.socket) -> None:
        """Gives up the spare descriptor to take a connection and close it, so that it tries again.

        To leave it in the queue would wake the loop for ever.
        """
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            try:
                connection, origin = listener.accept()
            except OSError:
                self._pause()
            else:
                connection.close()
                self._tell(origin[0], f"was turned away: {NO_DESCRIPTOR}")
            self._spare = _spare()
        if self._spare is None:
            self._pause()

    def _pause(self) -> None:
        """Accepts nobody until someone leaves, or a moment has passed."""
        self._paused = True
        self._again_at = monotonic() + PAUSE_S
        for listener in self._listeners:
            self._loop.unwatch(listener.fileno())


def _knocks(listener: socket.socket) -> bool:
    """Whether somebody is at the door."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listens on every address that `host` stands for, on one port."""
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is not a port", "a number from 1 to 65535, or 0 for any free one")
    places = _places(host)
    for left in reversed(range(TRIES)):
        try:
            return _bind(places, port)
        except OSError as error:
            if port == 0 and left and error.errno == errno.EADDRINUSE:
                continue  # free on one address, taken on the other: another draw
            raise _unusable(host, port, error) from None
    raise AssertionError("unreachable")


def _bind(places: list[Place], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    first: OSError | None = None
    for family, address, scope in places:
        listener = None
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, len(places) > 1)
            chosen = bound[0].getsockname()[1] if bound else port
            listener.bind((address, chosen, 0, scope) if family == socket.AF_INET6 else (address, chosen))
            listener.listen(BACKLOG)
            bound.append(listener)
        except OSError as error:
            if listener is not None:
                listener.close()
            if error.errno not in NO_SUCH_FAMILY:
                _close_all(bound)
                raise
            first = first or error
    if not bound and first is not None:
        raise first
    return bound


def _close_all(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _places(host: str) -> list[Place]:
    """What `host` stands for. A literal address and `localhost` never ask a name server."""
    if host in ("", "*"):
        return [V4_ANY, V6_ANY]
    if host == "localhost":
        return [V4_LOOPBACK, V6_LOOPBACK]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, host, 0)]
    try:
        found = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else str(error)
        raise NotHere(f"the name {host!r} stands for no address ({why})") from None
    places: list[Place] = [
        (family, str(where[0]), int(where[3]) if len(where) > 3 else 0) for family, *_, where in found
    ]
    return list(dict.fromkeys(places))


def _unusable(host: str, port: int, error: OSError) -> Exception:
    match error.errno:
        case errno.EADDRINUSE:
            what = f"port {port} on {host or 'this machine'} is taken by another program"
            free = port + 1 if port < 65535 else 29500
            return Taken(what, f"--master-port {free}, or --master-port 0 for any free one")
        case errno.EACCES:
            what = f"port {port} on {host or 'this machine'} may not be used by this user"
            return UsageError(what, "--master-port 29500, or any other port above 1023")
        case errno.EADDRNOTAVAIL:
            return NotHere(f"{host} is not an address of this machine")
        case _:
            what = f"the workers' store cannot answer at {host or '*'}, port {port}: {error.strerror}"
            return UsageError(what, "another --local-addr or --master-port")
