"""The workers' store: PyTorch's TCPStore, decided without a socket.

It owns the keys, the queues and who waits for what; it knows nothing of descriptors or clocks, and how requests are
written is known to `core.storewire` alone. Bytes of many clients go in, bytes for many clients come out. Where
PyTorch's own server was seen to answer otherwise, it is on purpose: a client that sends nonsense is always closed, a
request is carried out whole or not at all, a COMPARE_SET that stores nothing wakes nobody, a client's second WAIT
takes the place of its first, and memory has limits.
"""

from __future__ import annotations

from collections import deque

from relight.core import storewire as wire
from relight.core.storewire import CANCELLED, I64, NO, U64, YES, Limits, Reader, Refused, framed, number
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.storewire import Verbs

ENTRY = 200  # what Python spends on a key, beside its bytes


class Send:
    """Bytes for a client. A plain class: one is made for every answer, and speed is what this store is for."""

    __match_args__ = ("client", "data")
    __slots__ = ("client", "data")

    def __init__(self, client: int, data: bytes) -> None:
        self.client = client
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Send) and (self.client, self.data) == (other.client, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Send({self.client}, {self.data!r})"


@value
class Close:
    """The store has forgotten this client; `why` is a sentence."""

    client: int
    why: str


@value
class More:
    """This client has asked for more than is answered at once: once it took its answers, call `received` again."""

    client: int


class _Client:
    """One connection: what it asks, what it is owed, and what it waits for."""

    __slots__ = ("answers", "awaits", "barrier", "held", "number", "reader")

    def __init__(self, number: int, limits: Limits) -> None:
        self.number = number
        self.reader = Reader(limits)
        self.held = 0  # what a request that is not whole yet counts for in the store's memory
        self.answers: list[bytes] = []
        self.awaits: set[bytes] = set()
        self.barrier: bytes | None = None


class WorkerStore:
    """One key space and its clients, numbered by the caller."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._clients: dict[int, _Client] = {}
        self._verbs: Verbs[_Client] = {
            wire.SET: self._set,
            wire.COMPARE_SET: self._compare_set,
            wire.GET: self._get,
            wire.ADD: self._add,
            wire.CHECK: self._check,
            wire.WAIT: self._wait,
            wire.GET_NUM_KEYS: self._get_num_keys,
            wire.DELETE_KEY: self._delete_key,
            wire.APPEND: self._append,
            wire.MULTI_GET: self._multi_get,
            wire.MULTI_SET: self._multi_set,
            wire.CANCEL_WAIT: self._cancel_wait,
            wire.PING: self._ping,
            wire.QUEUE_PUSH: self._queue_push,
            wire.QUEUE_POP: self._queue_pop,
            wire.QUEUE_LEN: self._queue_len,
            wire.LIST_KEYS: self._list_keys,
            wire.BARRIER: self._barrier,
        }
        self._empty()

    def joined(self, client: int) -> None:
        """A client has connected."""
        self._clients[client] = _Client(client, self.limits)

    def greeted(self, client: int) -> bool:
        """Whether a client has said TCPStore's hello."""
        return self._clients[client].reader.greeted

    def left(self, client: int) -> None:
        """A client's connection is gone; what it stored stays."""
        peer = self._clients.pop(client, None)
        if peer is not None:
            self._stop_waiting(peer)
            self._held -= peer.held

    def empty(self) -> list[Close]:
        """Forgets every key and every client: a new round starts with nothing of the round before."""
        closed = [Close(client, "a new round has begun") for client in self._clients]
        self._clients.clear()
        self._empty()
        return closed

    def received(self, client: int, chunk: bytes) -> list[Send | Close | More]:
        """What a client's bytes lead to, for it and for those it wakes. No bytes: carry on where `More` was said."""
        peer = self._clients.get(client)
        if peer is None:
            return []
        self._held -= peer.held
        peer.held = 0
        try:
            kept = peer.reader.read(chunk, peer, self._verbs, peer.answers)
        except Refused as refused:
            self.left(client)
            return [*self._flush(peer), Close(client, str(refused))]
        said = self._flush(peer) if peer.answers or self._woken else []
        if not kept:
            return said
        peer.held = kept
        self._held += kept
        if self._held > self.limits.memory:
            self.left(client)
            said.append(Close(client, self._full()))
        elif peer.reader.sated:
            said.append(More(client))
        return said

    def stored(self, key: bytes) -> bytes | bytearray | None:
        """What is under a key, for the agent's own use."""
        return self._values.get(key)

    @property
    def held(self) -> int:
        """How many bytes this store counts: keys, values, waiting clients, and requests that are not whole yet."""
        return self._held

    def _empty(self) -> None:
        self._values: dict[bytes, bytes | bytearray] = {}
        self._queues: dict[bytes, deque[bytes]] = {}  # none of them is empty
        self._waiting: dict[bytes, dict[int, _Client]] = {}
        self._barriers: dict[bytes, dict[int, _Client]] = {}
        self._woken: list[_Client] = []
        self._held = 0

    def _flush(self, peer: _Client) -> list[Send | Close | More]:
        """Every answer since the last flush, the asking client's first."""
        said: list[Send | Close | More] = []
        answers = peer.answers
        if answers:
            said.append(Send(peer.number, answers[0] if len(answers) == 1 else b"".join(answers)))
            peer.answers = []
        if self._woken:
            for other in self._woken:
                if other.answers:  # the asking client may have woken itself, and then has its answer
                    said.append(Send(other.number, b"".join(other.answers)))
                    other.answers = []
            self._woken.clear()
        return said

    # Memory and waiting.

    def _full(self) -> str:
        return f"sent more than this store may hold, {self.limits.memory} bytes in all"

    def _room(self, growth: int) -> None:
        if self._held + growth > self.limits.memory:
            raise Refused(self._full())

    def _put(self, key: bytes, stored: bytes) -> None:
        old = self._values.get(key)
        growth = len(stored) - len(old) if old is not None else len(key) + len(stored) + ENTRY
        self._room(growth)
        self._held += growth
        self._values[key] = stored
        if key in self._waiting:
            for peer in list(self._waiting[key].values()):
                self._appeared(peer, key)

    def _there(self, key: bytes) -> bool:
        return key in self._values or key in self._queues

    def _appeared(self, peer: _Client, key: bytes) -> None:
        """Ticks `key` off a client's list. Once ticked it counts, even if it is deleted before the others come."""
        peer.awaits.discard(key)
        self._unlist(self._waiting, key, peer)
        if not peer.awaits:
            self._wake(peer)

    def _wake(self, peer: _Client) -> None:
        peer.answers.append(YES)
        self._woken.append(peer)

    def _list(self, lists: dict[bytes, dict[int, _Client]], key: bytes, peer: _Client) -> None:
        lists.setdefault(key, {})[peer.number] = peer
        self._held += len(key) + ENTRY

    def _unlist(self, lists: dict[bytes, dict[int, _Client]], key: bytes, peer: _Client) -> None:
        listed = lists[key]
        del listed[peer.number]
        self._held -= len(key) + ENTRY
        if not listed:
            del lists[key]

    def _stop_waiting(self, peer: _Client) -> None:
        for key in peer.awaits:
            self._unlist(self._waiting, key, peer)
        peer.awaits = set()
        if peer.barrier is not None:
            self._unlist(self._barriers, peer.barrier, peer)
            peer.barrier = None

    # The verbs, each from the fields of one whole request to its answer.

    def _ping(self, _peer: _Client, _strings: list[bytes], tail: bytes) -> bytes:
        return tail

    def _set(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        self._put(strings[0], strings[1])
        return b""

    def _multi_set(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        self._room(sum(map(len, strings)) + ENTRY * len(strings))  # all of it or nothing
        for key, stored in zip(strings[::2], strings[1::2], strict=True):
            self._put(key, stored)
        return b""

    def _compare_set(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        key, expected, desired = strings
        old = self._values.get(key)
        if old is None and expected:
            return framed(expected)
        if old is None or old == expected:
            self._put(key, desired)
            return framed(desired)
        return framed(old)

    def _get(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        stored = self._values.get(strings[0], b"")
        if len(stored) > self.limits.answer:
            return self._answerable([stored])
        return U64.pack(len(stored)) + stored

    def _multi_get(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        return self._answerable([self._values.get(key, b"") for key in strings])

    def _answerable(self, found: list[bytes | bytearray]) -> bytes:
        size = sum(map(len, found)) + 8 * len(found)
        if size > self.limits.answer:
            raise Refused(f"asked for {size} bytes in one answer, and {self.limits.answer} is the most")
        return b"".join(map(framed, found))

    def _append(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        key, added = strings
        old = self._values.get(key)
        if old is None:
            self._put(key, added)
            return b""
        self._room(len(added))
        self._held += len(added)
        if isinstance(old, bytes):  # so that many small additions to a large value do not copy it each time
            old = self._values[key] = bytearray(old)
        old += added
        return b""

    def _add(self, _peer: _Client, strings: list[bytes], tail: bytes) -> bytes:
        return I64.pack(self._count(strings[0], I64.unpack(tail)[0]))

    def _count(self, key: bytes, delta: int) -> int:
        old = number(bytes(self._values.get(key, b"0")))
        if old is None:
            raise Refused("counted on a key whose value is not a whole number of 64 bits")
        total = (old + delta + (1 << 63)) % (1 << 64) - (1 << 63)
        self._put(key, b"%d" % total)
        return total

    def _check(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        return YES if all(map(self._there, strings)) else NO

    def _wait(self, peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        self._stop_waiting(peer)
        missing = {key for key in strings if not self._there(key)}
        if not missing:
            return YES
        self._room(sum(map(len, missing)) + ENTRY * len(missing))
        for key in missing:
            self._list(self._waiting, key, peer)
        peer.awaits = missing
        return b""

    def _cancel_wait(self, peer: _Client, _strings: list[bytes], _tail: bytes) -> bytes:
        self._stop_waiting(peer)
        return CANCELLED

    def _barrier(self, peer: _Client, strings: list[bytes], tail: bytes) -> bytes:
        """Whoever comes as the n-th or later passes, and with it all who wait; the count stays under the key."""
        key = strings[0]
        self._stop_waiting(peer)
        self._room(len(key) + ENTRY)
        if self._count(key, 1) < I64.unpack(tail)[0]:
            self._list(self._barriers, key, peer)
            peer.barrier = key
            return b""
        for other in list(self._barriers.get(key, {}).values()):
            self._stop_waiting(other)
            self._wake(other)
        return YES

    def _get_num_keys(self, _peer: _Client, _strings: list[bytes], _tail: bytes) -> bytes:
        return I64.pack(len(self._values))

    def _list_keys(self, _peer: _Client, _strings: list[bytes], _tail: bytes) -> bytes:
        return U64.pack(len(self._values)) + self._answerable(list(self._values))

    def _delete_key(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        old = self._values.pop(strings[0], None)
        if old is None:
            return I64.pack(0)
        self._held -= len(strings[0]) + len(old) + ENTRY
        return I64.pack(1)

    def _queue_push(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        key, pushed = strings
        self._room(len(key) + len(pushed) + ENTRY)
        self._held += len(key) + len(pushed) + ENTRY
        self._queues.setdefault(key, deque()).append(pushed)
        if key in self._waiting:  # one thing to take wakes one who waits: the first
            self._appeared(next(iter(self._waiting[key].values())), key)
        return b""

    def _queue_pop(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        """How many things there were to take, then the first of them, if any."""
        key = strings[0]
        queue = self._queues.get(key)
        if queue is None:
            return I64.pack(0)
        popped = queue.popleft()
        self._held -= len(key) + len(popped) + ENTRY
        if not queue:
            del self._queues[key]
        return I64.pack(len(queue) + 1) + framed(popped)

    def _queue_len(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        return I64.pack(len(self._queues.get(strings[0], ())))
