"""The store's listener: real sockets on loopback, one loop, no thread."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from relight.core.names import UsageError
from relight.core.storewire import MAGIC, Limits
from relight.shell.loop import Loop
from relight.shell.storehost import StoreHost
from tests.waiting import out_of_descriptors

DEADLINE_S = 10.0
HELLO = b"\0" + struct.pack("<I", MAGIC)
PING = b"\x0d" + struct.pack("<I", 7)
PONG = struct.pack("<I", 7)


def ipv6_is_there() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
        return True


HAS_IPV6 = ipv6_is_there()


def s(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def get(key: bytes) -> bytes:
    return b"\3" + s(key)


def set_(key: bytes, stored: bytes) -> bytes:
    return b"\1" + s(key) + s(stored)


def wait(key: bytes) -> bytes:
    return b"\6" + struct.pack("<Q", 1) + s(key)


@pytest.fixture
def host(loop: Loop) -> Iterator[StoreHost]:
    host = StoreHost(loop, "127.0.0.1")
    yield host
    host.close()


@pytest.fixture
def dial(host: StoreHost) -> Iterator[Callable[[], socket.socket]]:
    dialled: list[socket.socket] = []

    def dial() -> socket.socket:
        client = socket.create_connection(("127.0.0.1", host.port), timeout=DEADLINE_S)
        client.setblocking(False)
        dialled.append(client)
        return client

    yield dial
    for client in dialled:
        client.close()


Dial = Callable[[], socket.socket]


def turn_until(loop: Loop, true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for {what}"
        loop.wait(time.monotonic() + 0.01)


def inside(host: StoreHost) -> int:
    return len(host._guests)


def hear(loop: Loop, client: socket.socket, size: int) -> bytes:
    """The next `size` bytes; b"" if the connection ended."""
    heard = bytearray()
    ended = False

    def enough() -> bool:
        nonlocal ended
        try:
            while len(heard) < size:
                piece = client.recv(size - len(heard))
                heard.extend(piece)
                if not piece:
                    ended = True
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            ended = True
        return ended or len(heard) == size

    turn_until(loop, enough, f"{size} bytes, {len(heard)} have come")
    return bytes(heard)


def test_it_listens_before_anybody_comes_and_serves_many(loop: Loop, host: StoreHost, dial: Dial) -> None:
    one, two = dial(), dial()
    one.send(HELLO + wait(b"k"))
    two.send(HELLO + PING)
    assert hear(loop, two, 4) == PONG
    two.send(set_(b"k", b"v"))
    assert hear(loop, one, 1) == b"\0"
    assert host.address == "127.0.0.1"
    assert inside(host) == 2
    one.close()
    turn_until(loop, lambda: inside(host) == 1, "the host to see that one left")


def test_a_new_round_cuts_everybody_off_and_keeps_the_port(loop: Loop, host: StoreHost, dial: Dial) -> None:
    old = dial()
    old.send(HELLO + set_(b"k", b"v") + PING)
    assert hear(loop, old, 4) == PONG
    port = host.port
    host.renew()
    assert hear(loop, old, 1) == b""
    new = dial()
    new.send(HELLO + get(b"k") + PING)
    assert hear(loop, new, 12) == s(b"") + PONG
    assert host.port == port


def test_nonsense_costs_one_connection_and_is_told(loop: Loop, host: StoreHost, dial: Dial) -> None:
    told: list[tuple[str, str]] = []
    host._tell = lambda address, why: told.append((address, why))
    good, bad = dial(), dial()
    good.send(HELLO)
    bad.send(b"GET / HTTP/1.1\r\n\r\n")
    assert hear(loop, bad, 1) == b""
    good.send(PING)
    assert hear(loop, good, 4) == PONG
    assert told == [("127.0.0.1", "did not begin with TCPStore's hello")]


def test_a_reset_connection_is_only_that(loop: Loop, host: StoreHost, dial: Dial) -> None:
    good, bad = dial(), dial()
    good.send(HELLO + PING)
    bad.send(HELLO + wait(b"k") + PING)
    assert hear(loop, good, 4) + hear(loop, bad, 4) == PONG + PONG
    bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bad.close()
    good.send(set_(b"k", b"") + PING)
    assert hear(loop, good, 4) == PONG
    turn_until(loop, lambda: inside(host) == 1, "the reset to be seen")


def test_who_does_not_read_is_not_read_either_and_loses_nothing(loop: Loop, host: StoreHost, dial: Dial) -> None:
    large = os.urandom(8 << 20)
    slow, other = dial(), dial()
    slow.setblocking(True)
    slow.settimeout(DEADLINE_S)
    other.send(HELLO + PING)
    assert hear(loop, other, 4) == PONG
    host.store.received(2, set_(b"k", large))
    slow.send(HELLO + get(b"k") * 40)
    for _ in range(50):
        loop.wait(time.monotonic() + 0.002)
    assert 0 < host._unsent <= len(large) + 8
    other.send(PING)
    assert hear(loop, other, 4) == PONG
    slow.setblocking(False)
    for _ in range(40):
        assert hear(loop, slow, 8 + len(large)) == s(large)
    assert host._unsent == 0
    slow.send(PING)
    assert hear(loop, slow, 4) == PONG


def test_unread_answers_have_a_limit_in_all(loop: Loop) -> None:
    told: list[str] = []
    limits = Limits(memory=20 << 20)
    host = StoreHost(loop, "127.0.0.1", limits=limits, tell=lambda _, why: told.append(why))
    clients = [socket.create_connection(("127.0.0.1", host.port)) for _ in range(8)]
    turn_until(loop, lambda: inside(host) == 8, "8 connections")
    host.store.received(1, HELLO + set_(b"k", bytes(8 << 20)))
    for client in clients[1:]:
        client.send(HELLO + get(b"k"))
    turn_until(loop, lambda: bool(told), "somebody to be thrown out")
    assert told[0] == "did not read its answers while this store had too many unread ones"
    assert host._unsent <= limits.memory
    host.close()
    assert host._unsent == 0
    for client in clients:
        client.close()


def test_out_of_descriptors_a_newcomer_is_turned_away_at_once_and_others_are_served(
    loop: Loop, host: StoreHost, dial: Dial
) -> None:
    told: list[str] = []
    host._door._tell = lambda _address, why: told.append(why)
    inside = dial()
    inside.send(HELLO + PING)
    assert hear(loop, inside, 4) == PONG
    outside = dial()
    with out_of_descriptors():
        assert hear(loop, outside, 1) == b""
        inside.send(PING)
        assert hear(loop, inside, 4) == PONG
    assert told == ["was turned away: relight has no file descriptor left (see `ulimit -n`)"]
    again = dial()
    again.send(HELLO + PING)
    assert hear(loop, again, 4) == PONG


class Barren:
    """A listener that cannot accept."""

    def __init__(self, real: socket.socket, error: int) -> None:
        self.real = real
        self.error: int | None = error
        self.calls = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.calls += 1
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return self.real.accept()

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()


@pytest.mark.parametrize("error", [errno.ENFILE, errno.ENOBUFS])
def test_when_nothing_helps_it_stops_accepting_until_somebody_leaves(
    loop: Loop, host: StoreHost, dial: Dial, error: int
) -> None:
    inside = dial()
    inside.send(HELLO + PING)
    assert hear(loop, inside, 4) == PONG
    barren = Barren(host._door._listeners[0], error)
    host._door._listeners = [barren]  # type: ignore[list-item]
    host._door._watch_listeners()
    outside = dial()
    outside.send(HELLO + PING)
    turn_until(loop, lambda: host._door._paused, "the pause")
    calls = barren.calls
    for _ in range(20):
        loop.wait(time.monotonic() + 0.001)
    assert barren.calls == calls <= 2
    barren.error = None
    inside.close()
    assert hear(loop, outside, 4) == PONG


def test_an_address_that_is_not_admitted_is_closed_and_told(loop: Loop) -> None:
    told: list[tuple[str, str]] = []
    host = StoreHost(
        loop, "127.0.0.1", admits=lambda address: address != "127.0.0.1", tell=lambda *said: told.append(said)
    )
    with socket.create_connection(("127.0.0.1", host.port)) as client:
        client.setblocking(False)
        assert hear(loop, client, 1) == b""
    assert told == [("127.0.0.1", "is not an address that this job's nodes come from")]
    host.close()


def test_it_serves_a_connection_that_another_listener_took(loop: Loop, host: StoreHost) -> None:
    ours, theirs = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with ours, theirs:
        theirs.connect(ours.getsockname())
        theirs.setblocking(False)
        connection, _ = ours.accept()
        host.adopt(connection, "10.1.2.3", HELLO + PING[:2])
        theirs.send(PING[2:])
        assert hear(loop, theirs, 4) == PONG
        assert [guest.address for guest in host._guests.values()] == ["10.1.2.3"]


def reaches(loop: Loop, address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=DEADLINE_S) as client:
            client.setblocking(False)
            client.send(HELLO + PING)
            return hear(loop, client, 4) == PONG
    except OSError:
        return False


@pytest.mark.parametrize(
    ("name", "reached", "unreached"),
    [
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "::1"]),
        ("127.0.0.2", ["127.0.0.2"], ["127.0.0.1"]),
        ("localhost", ["127.0.0.1", "::1"], ["127.0.0.2"]),
        ("::1", ["::1"], ["127.0.0.1"]),
        ("", ["127.0.0.1", "::1", "127.0.0.3"], []),
        ("*", ["127.0.0.1", "::1"], []),
        ("0.0.0.0", ["127.0.0.1", "127.0.0.2"], ["::1"]),
        ("::", ["127.0.0.1", "::1"], []),
    ],
)
def test_it_answers_where_it_was_told_to(
    loop: Loop, name: str, reached: list[str], unreached: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not HAS_IPV6 and name in ("::", "::1"):
        pytest.skip("this machine has no IPv6")

    def no_lookup(*_: object, **__: object) -> list[object]:
        raise AssertionError(f"asked a name server for {name}")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", no_lookup)
        host = StoreHost(loop, name)
    assert [address for address in reached if HAS_IPV6 or ":" not in address] == [
        address for address in reached if reaches(loop, address, host.port)
    ]
    assert [address for address in unreached if reaches(loop, address, host.port)] == []
    host.close()


def found(*addresses: str) -> Callable[..., list[object]]:
    def lookup(host: bytes, *_: object, **__: object) -> list[object]:
        assert host == b"node7"
        return [
            (socket.AF_INET6, 1, 6, "", (each, 0, 0, 0)) if ":" in each else (socket.AF_INET, 1, 6, "", (each, 0))
            for each in addresses
        ]

    return lookup


def test_a_name_is_every_address_it_stands_for(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", found("127.0.0.2", "127.0.0.3", "127.0.0.2", "192.0.2.1"))
    host = StoreHost(loop, "node7")
    monkeypatch.undo()
    assert [reaches(loop, f"127.0.0.{last}", host.port) for last in (1, 2, 3)] == [False, True, True]
    host.close()


def test_a_port_that_is_free_on_one_address_only_is_not_taken(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", found("127.0.0.2", "127.0.0.3"))
    with socket.create_server(("127.0.0.3", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} on node7 is taken by another program"):
            StoreHost(loop, "node7", port)
        drawn: list[int] = []
        real = socket.socket.bind

        def bind(self: socket.socket, where: tuple[str, int]) -> None:
            drawn.append(where[1])
            real(self, (where[0], port) if len(drawn) == 1 else where)

        monkeypatch.setattr(socket, "socket", type("Rigged", (socket.socket,), {"bind": bind}))
        host = StoreHost(loop, "node7")
    assert drawn == [0, port, 0, host.port]
    host.close()


def test_a_port_can_be_used_again_at_once(loop: Loop) -> None:
    host = StoreHost(loop, "127.0.0.1")
    with socket.create_connection(("127.0.0.1", host.port)) as client:
        client.setblocking(False)
        client.send(HELLO + PING)
        assert hear(loop, client, 4) == PONG
        host.close()  # it closes first, so the kernel keeps the connection in TIME_WAIT
    again = StoreHost(loop, "127.0.0.1", host.port)
    assert again.port == host.port
    again.close()


@pytest.mark.parametrize(
    ("address", "port", "what", "remedy"),
    [
        ("127.0.0.1", 70000, "70000 is not a port", "from 1 to 65535"),
        ("127.0.0.1", -1, "-1 is not a port", "from 1 to 65535"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_plainly(
    loop: Loop, address: str, port: int, what: str, remedy: str
) -> None:
    with pytest.raises(UsageError, match=what) as raised:
        StoreHost(loop, address, port)
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("192.0.2.1", "192.0.2.1 is not an address of this machine"),
        ("no such name", "the name 'no such name' stands for no address"),
        ("a..b", "the name 'a..b' stands for no address"),
    ],
)
def test_what_is_not_this_machine_or_not_yet_is_warned_of_and_served_everywhere(
    loop: Loop, address: str, why: str
) -> None:
    warned: list[str] = []
    host = StoreHost(loop, address, warn=warned.append)
    assert len(warned) == 1 and why in warned[0]
    assert warned[0].endswith(": the workers' store answers at every address of this machine")
    assert [reaches(loop, each, host.port) for each in ("127.0.0.1", "127.0.0.2")] == [True, True]
    host.close()


@pytest.mark.parametrize(
    ("error", "what", "remedy"),
    [
        (errno.EACCES, "port 80 on 127.0.0.1 may not be used by this user", "--master-port 29500"),
        (errno.EADDRINUSE, "port 80 on 127.0.0.1 is taken", "--master-port 81"),
        (errno.EPERM, "cannot answer at 127.0.0.1, port 80", "another --local-addr or --master-port"),
    ],
)
def test_a_port_that_cannot_be_used_is_said_plainly(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, error: int, what: str, remedy: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(socket, "socket", type("Rigged", (socket.socket,), {"bind": refuse}))
    with pytest.raises(UsageError, match=what) as raised:
        StoreHost(loop, "127.0.0.1", 80)
    assert remedy in raised.value.remedy


def test_out_of_descriptors_who_has_said_nothing_makes_room(loop: Loop, host: StoreHost, dial: Dial) -> None:
    """Somebody who only holds connections open does not keep the workers out."""
    told: list[str] = []
    host._tell = lambda _address, why: told.append(why)
    worker, silent = dial(), dial()
    worker.send(HELLO + PING)
    assert hear(loop, worker, 4) == PONG
    turn_until(loop, lambda: inside(host) == 2, "both to be inside")
    outside = dial()
    outside.send(HELLO + PING)
    with out_of_descriptors():
        assert hear(loop, outside, 4) == PONG
    assert hear(loop, silent, 1) == b""
    assert told == ["was cut off, having said nothing: relight has no file descriptor left (see `ulimit -n`)"]
    worker.send(PING)
    assert hear(loop, worker, 4) == PONG


def test_a_pause_ends_by_itself(loop: Loop, host: StoreHost, dial: Dial) -> None:
    barren = Barren(host._door._listeners[0], errno.ENOBUFS)
    host._door._listeners = [barren]  # type: ignore[list-item]
    host._door._watch_listeners()
    outside = dial()
    outside.send(HELLO + PING)
    turn_until(loop, lambda: host._door._paused, "the pause")
    again_at = host.wake_at()
    assert again_at is not None
    host.tick(again_at - 0.001)
    assert host._door._paused
    barren.error = None
    host.tick(again_at)
    assert host.wake_at() is None
    assert hear(loop, outside, 4) == PONG
