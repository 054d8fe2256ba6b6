"""Where the workers' store answers: a listener on the loop, and nothing else.

It moves bytes between sockets and `core.tcpstore`, which decides everything. The port is bound before any worker
exists, so no other program can take it in between and no worker has to try twice. A client that does not read its
answers is not read either, so it holds no more than the answers to one request.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections import deque

from relight.core.names import UsageError, never
from relight.core.tcpstore import Close, More, Send, WorkerStore
from relight.shell.clock import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relight.core.storewire import Limits
    from relight.shell.loop import Loop

    Place = tuple[int, str, int]  # family, address, scope
    Admits = Callable[[str], bool]
    Tell = Callable[[str, str], object]

CHUNK = 64 << 10
BACKLOG = 4096
ACCEPTS_AT_ONCE = 256  # so that a crowd at the door does not keep those inside waiting
TRIES = 16
PAUSE_S = 0.2
NO_DESCRIPTOR = "relight has no file descriptor left (see `ulimit -n`)"
NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
V4_ANY, V6_ANY = (socket.AF_INET, "0.0.0.0", 0), (socket.AF_INET6, "::", 0)
V4_LOOPBACK, V6_LOOPBACK = (socket.AF_INET, "127.0.0.1", 0), (socket.AF_INET6, "::1", 0)


class StoreHost:
    """Listens on `host:port` from the moment it is made; port 0 takes any free one.

    A host that is not this machine's (not yet, or behind a translated address) makes it answer at every address of this
    machine, as torchrun's store always does; `warn` hears of that. `admits` may refuse a connection by the address it
    comes from; `tell` hears who was turned away or thrown out (an address, and why as a sentence).
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int = 0,
        *,
        limits: Limits | None = None,
        admits: Admits = lambda _address: True,
        tell: Tell = lambda _address, _why: None,
        warn: Callable[[str], object] = lambda _sentence: None,
    ) -> None:
        self._loop = loop
        self._admits = admits
        self._tell = tell
        self.store = WorkerStore(limits)
        self._guests: dict[int, _Guest] = {}
        self._next = 0
        self._unsent = 0
        self._paused = False
        self._again_at: float | None = None  # when a pause ends, whether somebody leaves or not
        try:
            self._listeners = _listen(host, port)
        except _NotHere as not_here:
            self._listeners = _listen("", port)
            warn(f"warning: {not_here}: the workers' store answers at every address of this machine")
        self._spare = _spare()
        self.address: str = self._listeners[0].getsockname()[0]
        self.port: int = self._listeners[0].getsockname()[1]
        self._watch_listeners()

    def renew(self) -> None:
        """An empty store for a new round; whoever is still connected is cut off. The port stays."""
        for closed in self.store.empty():
            self._dismiss(self._guests[closed.client])
        self._resume()

    def wake_at(self) -> float | None:
        return self._again_at

    def tick(self, now: float) -> None:
        """Tries again to let somebody in."""
        if self._again_at is not None and now >= self._again_at:
            self._resume()

    def close(self) -> None:
        """Stops listening and cuts everybody off."""
        self.renew()
        for listener in self._listeners:
            self._loop.unwatch(listener.fileno())
            listener.close()
        self._listeners = []
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def adopt(self, connection: socket.socket, address: str, first: bytes = b"") -> None:
        """Serves a connection that someone else accepted, and of which `first` has already been read."""
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next += 1
        guest = _Guest(self, connection, address, self._next)
        self._guests[guest.number] = guest
        self.store.joined(guest.number)
        self._loop.watch(guest.fd, guest.readable)
        if first:
            self.hear(guest, first)

    def hear(self, guest: _Guest, chunk: bytes) -> None:
        """Hands bytes to the store and does what it says."""
        for said in self.store.received(guest.number, chunk):
            match said:
                case Send(client, data):
                    self._send(self._guests.get(client), data)
                case Close(_, why):
                    self._dismiss(guest)
                    self._tell(guest.address, why)
                case More():
                    guest.has_more = True
                case _:
                    never(said)
        if guest.connection is not None:
            self._choose(guest)

    def flush(self, guest: _Guest) -> None:
        """Sends what waits for a client that reads again, then goes on with what it asked."""
        connection, unsent = guest.connection, guest.unsent
        if connection is None:
            return
        try:
            while unsent:
                sent = connection.send(unsent[0])
                self._unsent -= sent
                if sent == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self.gone(guest)
            return
        if guest.has_more:
            guest.has_more = False
            self.hear(guest, b"")
        else:
            self._choose(guest)

    def gone(self, guest: _Guest) -> None:
        """A client has closed its connection, or lost it."""
        self.store.left(guest.number)
        self._dismiss(guest)

    def _send(self, guest: _Guest | None, data: bytes) -> None:
        if guest is None or guest.connection is None:  # it was lost while answers for others were on their way
            return
        sent = 0
        if not guest.unsent:
            try:
                sent = guest.connection.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self.gone(guest)
                return
            if sent == len(data):
                return
        self._unsent += len(data) - sent
        guest.unsent.append(memoryview(data)[sent:])
        if self._unsent > self.store.limits.memory:
            self._tell(guest.address, "did not read its answers while this store had too many unread ones")
            self.gone(guest)
        else:
            self._choose(guest)

    def _choose(self, guest: _Guest) -> None:
        """Either reads from a client or writes to it: one that does not read asks nothing more."""
        writing = bool(guest.unsent) or guest.has_more
        if writing != guest.writing:
            guest.writing = writing
            self._loop.watch(guest.fd, guest.writable if writing else guest.readable, writable=writing)

    def _dismiss(self, guest: _Guest) -> None:
        if guest.connection is None:
            return
        self._loop.unwatch(guest.fd)
        guest.connection.close()
        guest.connection = None
        self._unsent -= sum(map(len, guest.unsent))
        guest.unsent.clear()
        del self._guests[guest.number]
        self._resume()  # this one's descriptor is free now

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
                self.adopt(connection, origin[0])
            except OSError:
                connection.close()  # it was reset before it could be set up

    def _make_room(self) -> bool:
        """Out of descriptors: whoever came first of those who have not even said hello goes. False: there is nobody."""
        for guest in list(self._guests.values()):
            if guest.connection is not None and not self.store.greeted(guest.number):
                guest.readable()  # it may have said so by now
                if guest.connection is None:
                    return True
                if not self.store.greeted(guest.number):
                    self.gone(guest)
                    self._tell(guest.address, f"was cut off, having said nothing: {NO_DESCRIPTOR}")
                    return True
        return False

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

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._again_at = None
            self._spare = self._spare if self._spare is not None else _spare()
            self._watch_listeners()


class _Guest:
    """One connection and what it has not read yet."""

    __slots__ = ("_host", "address", "connection", "fd", "has_more", "number", "unsent", "writing")

    def __init__(self, host: StoreHost, connection: socket.socket, address: str, number: int) -> None:
        self._host = host
        self.connection: socket.socket | None = connection
        self.fd = connection.fileno()
        self.address = address
        self.number = number
        self.unsent: deque[memoryview] = deque()
        self.writing = False
        self.has_more = False

    def readable(self) -> None:
        if self.connection is None:
            return
        try:
            chunk = self.connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._host.hear(self, chunk)
        else:
            self._host.gone(self)

    def writable(self) -> None:
        self._host.flush(self)


class _NotHere(Exception):
    """The host is not known as one of this machine's addresses."""


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
        raise _NotHere(f"the name {host!r} stands for no address ({why})") from None
    places: list[Place] = [
        (family, str(where[0]), int(where[3]) if len(where) > 3 else 0) for family, *_, where in found
    ]
    return list(dict.fromkeys(places))


def _unusable(host: str, port: int, error: OSError) -> Exception:
    match error.errno:
        case errno.EADDRINUSE:
            what = f"port {port} on {host or 'this machine'} is taken by another program"
            free = port + 1 if port < 65535 else 29500
            return UsageError(what, f"--master-port {free}, or --master-port 0 for any free one")
        case errno.EACCES:
            what = f"port {port} on {host or 'this machine'} may not be used by this user"
            return UsageError(what, "--master-port 29500, or any other port above 1023")
        case errno.EADDRNOTAVAIL:
            return _NotHere(f"{host} is not an address of this machine")
        case _:
            what = f"the workers' store cannot answer at {host or '*'}, port {port}: {error.strerror}"
            return UsageError(what, "another --local-addr or --master-port")
