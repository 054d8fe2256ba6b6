"""Where the workers' store answers.

It moves bytes between sockets and `core.tcpstore`, which decides everything. A client that does not read its answers
is not read either, so it holds no more than the answers to one request.
"""

from __future__ import annotations

import socket
from collections import deque

from relight.core.names import never
from relight.core.tcpstore import Close, More, Send, WorkerStore
from relight.shell.door import NO_DESCRIPTOR, Door, NotHere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.core.storewire import Limits
    from relight.shell.door import Admits, Tell
    from relight.shell.loop import Loop

    Adopts = Callable[[socket.socket, str, bytes], object]

CHUNK = 64 << 10
NOT_A_CLIENT = b"r"  # the first byte of a call from another relight, and of nothing that TCPStore's clients say


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
        self._tell = tell
        self.store = WorkerStore(limits)
        self._guests: dict[int, _Guest] = {}
        self._next = 0
        self._unsent = 0
        self.other: Adopts | None = None  # who serves those that speak relight's own protocol at this port

        def door(at: str) -> Door:
            return Door(loop, at, port, self.adopt, make_room=self._make_room, tell=tell, admits=admits)

        try:
            self._door = door(host)
        except NotHere as not_here:
            self._door = door("")
            warn(f"warning: {not_here}: the workers' store answers at every address of this machine")
        self.address, self.port = self._door.address, self._door.port

    def renew(self) -> None:
        """An empty store for a new round; whoever is still connected is cut off. The port stays."""
        for closed in self.store.empty():
            self._dismiss(self._guests[closed.client])

    def wake_at(self) -> float | None:
        return self._door.wake_at()

    def tick(self, now: float) -> None:
        self._door.tick(now)

    def close(self) -> None:
        """Stops listening and cuts everybody off."""
        self.renew()
        self._door.close()

    def adopt(self, connection: socket.socket, address: str, first: bytes = b"") -> None:
        """Serves a connection that does not block, and of which `first` has already been read."""
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

    def pass_on(self, guest: _Guest, chunk: bytes, other: Adopts) -> None:
        """Somebody at this port speaks relight's own protocol."""
        connection = guest.connection
        if connection is not None:
            guest.connection = None
            self._loop.unwatch(guest.fd)
            self.store.left(guest.number)
            del self._guests[guest.number]
            other(connection, guest.address, chunk)

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
        self._door.resume()  # this one's descriptor is free now

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
        if not chunk:
            self._host.gone(self)
        elif chunk[:1] == NOT_A_CLIENT and self._host.other and not self._host.store.greeted(self.number):
            self._host.pass_on(self, chunk, self._host.other)
        else:
            self._host.hear(self, chunk)

    def writable(self) -> None:
        self._host.flush(self)
