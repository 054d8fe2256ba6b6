"""The workers' store, byte for byte: what each request is answered, and what no request can do."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.storewire import ANSWERS_AT_ONCE, DIGITS, FIELD, MAGIC, SHAPES, Limits
from relight.core.tcpstore import ENTRY, Close, More, Send, WorkerStore

SMALL = Limits(key=8, value=64, keys=4, answer=100, memory=4000)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def i64(number: int) -> bytes:
    return struct.pack("<q", number)


def s(text: bytes) -> bytes:
    return u64(len(text)) + text


def many(*texts: bytes) -> bytes:
    return u64(len(texts)) + b"".join(map(s, texts))


HELLO = b"\0" + struct.pack("<I", MAGIC)
YES, NO = b"\0", b"\1"
NUM_KEYS, CANCEL, LIST_KEYS = b"\7", b"\x0c", b"\x11"


def set_(key: bytes, stored: bytes) -> bytes:
    return b"\1" + s(key) + s(stored)


def compare_set(key: bytes, expected: bytes, desired: bytes) -> bytes:
    return b"\2" + s(key) + s(expected) + s(desired)


def get(key: bytes) -> bytes:
    return b"\3" + s(key)


def add(key: bytes, delta: int) -> bytes:
    return b"\4" + s(key) + i64(delta)


def check(*keys: bytes) -> bytes:
    return b"\5" + many(*keys)


def wait(*keys: bytes) -> bytes:
    return b"\6" + many(*keys)


def delete(key: bytes) -> bytes:
    return b"\x08" + s(key)


def append(key: bytes, added: bytes) -> bytes:
    return b"\x09" + s(key) + s(added)


def multi_get(*keys: bytes) -> bytes:
    return b"\x0a" + many(*keys)


def multi_set(*pairs: tuple[bytes, bytes]) -> bytes:
    return b"\x0b" + u64(len(pairs)) + b"".join(s(key) + s(stored) for key, stored in pairs)


def ping(nonce: int) -> bytes:
    return b"\x0d" + struct.pack("<I", nonce)


def push(key: bytes, pushed: bytes) -> bytes:
    return b"\x0e" + s(key) + s(pushed)


def pop(key: bytes) -> bytes:
    return b"\x0f" + s(key)


def queue_len(key: bytes) -> bytes:
    return b"\x10" + s(key)


def barrier(key: bytes, size: int) -> bytes:
    return b"\x12" + s(key) + i64(size)


def store_with(*clients: int, limits: Limits | None = None) -> WorkerStore:
    """A store whose clients have said hello."""
    store = WorkerStore(limits)
    for client in clients:
        store.joined(client)
        assert store.received(client, HELLO) == []
    return store


def answers(store: WorkerStore, client: int, request: bytes) -> bytes:
    """What one client is answered, when nobody else is."""
    said = store.received(client, request)
    assert all(isinstance(each, Send) and each.client == client for each in said), said
    return b"".join(each.data for each in said if isinstance(each, Send))


def why_closed(store: WorkerStore, client: int, request: bytes) -> str:
    *_, last = store.received(client, request)
    assert isinstance(last, Close)
    assert last.client == client
    assert store.received(client, ping(1)) == []
    return last.why


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(ping(77), struct.pack("<I", 77), id="ping"),
        pytest.param(NUM_KEYS, i64(0), id="no keys"),
        pytest.param(set_(b"a", b"1") + get(b"a"), s(b"1"), id="set, get"),
        pytest.param(set_(b"a", b"1") + set_(b"a", b"234") + get(b"a") + NUM_KEYS, s(b"234") + i64(1), id="set twice"),
        pytest.param(set_(b"", b"1") + get(b""), s(b"1"), id="the empty key"),
        pytest.param(set_(b"a", b"") + get(b"a") + check(b"a"), s(b"") + YES, id="the empty value"),
        pytest.param(get(b"none") + NUM_KEYS, s(b"") + i64(0), id="get of a missing key stores nothing"),
        pytest.param(compare_set(b"a", b"", b"d") + get(b"a"), s(b"d") + s(b"d"), id="compare_set of a missing key"),
        pytest.param(compare_set(b"a", b"x", b"d") + check(b"a"), s(b"x") + NO, id="compare_set expecting in vain"),
        pytest.param(set_(b"a", b"x") + compare_set(b"a", b"x", b"d"), s(b"d"), id="compare_set that agrees"),
        pytest.param(set_(b"a", b"x") + compare_set(b"a", b"y", b"d"), s(b"x"), id="compare_set that differs"),
        pytest.param(set_(b"a", b"") + compare_set(b"a", b"", b"d"), s(b"d"), id="compare_set of an empty value"),
        pytest.param(add(b"n", 5) + add(b"n", -7) + get(b"n"), i64(5) + i64(-2) + s(b"-2"), id="add"),
        pytest.param(set_(b"n", b" \t\v+12abc") + add(b"n", 1) + get(b"n"), i64(13) + s(b"13"), id="add, as C++ reads"),
        pytest.param(set_(b"n", b"1_0") + add(b"n", 1), i64(2), id="add, not as Python reads"),
        pytest.param(set_(b"n", b"%d" % (2**63 - 1)) + add(b"n", 1), i64(-(2**63)), id="add wraps"),
        pytest.param(set_(b"n", b"%d" % -(2**63)) + add(b"n", -1), i64(2**63 - 1), id="add wraps downwards"),
        pytest.param(set_(b"n", b"1".zfill(DIGITS)) + add(b"n", 1), i64(2), id="add, with many leading zeros"),
        pytest.param(check() + wait() + multi_get() + multi_set() + ping(1), YES + YES + struct.pack("<I", 1), id="0"),
        pytest.param(set_(b"a", b"1") + check(b"a", b"b"), NO, id="check, one missing"),
        pytest.param(set_(b"a", b"1") + wait(b"a", b"a"), YES, id="wait for what is there"),
        pytest.param(wait(b"a") + set_(b"a", b"1") + ping(4), YES + struct.pack("<I", 4), id="wakes itself"),
        pytest.param(wait(b"a") + ping(2), struct.pack("<I", 2), id="others are answered while one waits"),
        pytest.param(set_(b"d", b"1") + delete(b"d") + delete(b"d") + NUM_KEYS, i64(1) + i64(0) + i64(0), id="delete"),
        pytest.param(append(b"a", b"x") + append(b"a", b"y") + append(b"a", b"z") + get(b"a"), s(b"xyz"), id="append"),
        pytest.param(append(b"a", b"") + append(b"a", b"y") + compare_set(b"a", b"y", b""), s(b""), id="append to it"),
        pytest.param(append(b"a", b"1") + append(b"a", b"2") + add(b"a", 1), i64(13), id="append, then add"),
        pytest.param(multi_set((b"a", b"1"), (b"b", b"2")) + multi_get(b"b", b"x", b"a"), s(b"2") + s(b"") + s(b"1")),
        pytest.param(CANCEL, b"\1", id="cancel nothing"),
        pytest.param(wait(b"a") + CANCEL + set_(b"a", b"1"), b"\1", id="cancel a wait"),
        pytest.param(barrier(b"b", 2) + CANCEL + barrier(b"b", 2), b"\1" + YES, id="a cancelled barrier has counted"),
        pytest.param(LIST_KEYS, u64(0), id="list nothing"),
        pytest.param(set_(b"a", b"1") + push(b"q", b"1") + LIST_KEYS + NUM_KEYS, many(b"a") + i64(1), id="list keys"),
        pytest.param(queue_len(b"q") + check(b"q") + pop(b"q"), i64(0) + NO + i64(0), id="no queue"),
        pytest.param(
            push(b"q", b"1") + push(b"q", b"2") + queue_len(b"q") + check(b"q") + wait(b"q") + delete(b"q") + get(b"q"),
            i64(2) + YES + YES + i64(0) + s(b""),
            id="a queue is there, but is no key",
        ),
        pytest.param(
            push(b"q", b"1") + push(b"q", b"2") + pop(b"q") + pop(b"q") + check(b"q") + pop(b"q"),
            i64(2) + s(b"1") + i64(1) + s(b"2") + NO + i64(0),
            id="pop, first in first out",
        ),
        pytest.param(barrier(b"b", 1) + barrier(b"b", 2) + get(b"b"), YES + YES + s(b"2"), id="a barrier counts"),
        pytest.param(barrier(b"b", 0) + barrier(b"b", -1), YES + YES, id="a barrier for nobody"),
    ],
)  # fmt: skip
def test_answers(request_: bytes, answer: bytes) -> None:
    assert answers(store_with(1), 1, request_) == answer


@pytest.mark.parametrize(
    "request_",
    [
        set_(b"k", b"1"),
        compare_set(b"k", b"", b"1"),
        add(b"k", 1),
        append(b"k", b"1"),
        multi_set((b"x", b""), (b"k", b"")),
        push(b"k", b"1"),
        barrier(b"k", 9),
    ],
    ids=["set", "compare_set", "add", "append", "multi_set", "push", "barrier"],
)
def test_whoever_waits_for_a_key_hears_of_it_however_it_comes(request_: bytes) -> None:
    store = store_with(1, 2)
    assert store.received(1, wait(b"k")) == []
    assert Send(1, YES) in store.received(2, request_)
    assert store.received(2, set_(b"k", b"again")) == []
    assert store._woken == []


def test_a_refused_compare_set_wakes_nobody() -> None:
    store = store_with(1, 2)
    store.received(1, wait(b"k"))
    assert store.received(2, compare_set(b"k", b"x", b"y")) == [Send(2, s(b"x"))]


def test_all_who_wait_are_woken_each_once_all_its_keys_have_come() -> None:
    store = store_with(1, 2, 3)
    store.received(1, wait(b"a", b"b"))
    store.received(2, wait(b"b"))
    assert store.received(3, set_(b"a", b"")) == []
    assert store.received(3, delete(b"a") + set_(b"b", b"")) == [Send(3, i64(1)), Send(1, YES), Send(2, YES)]


def test_a_barrier_takes_the_place_of_a_wait() -> None:
    store = store_with(1, 2)
    store.received(1, wait(b"a") + barrier(b"b", 2))
    assert store.received(2, set_(b"a", b"")) == []
    assert store.received(2, barrier(b"b", 2)) == [Send(2, YES), Send(1, YES)]


def test_a_later_wait_takes_the_place_of_the_first() -> None:
    store = store_with(1, 2)
    store.received(1, wait(b"a") + wait(b"b"))
    assert store.received(2, set_(b"a", b"")) == []
    assert store.received(2, set_(b"b", b"")) == [Send(1, YES)]


def test_one_thing_in_a_queue_wakes_one_who_waits() -> None:
    store = store_with(1, 2, 3)
    store.received(1, wait(b"q"))
    store.received(2, wait(b"q"))
    assert store.received(3, push(b"q", b"x")) == [Send(1, YES)]
    assert store.received(3, push(b"q", b"y")) == [Send(2, YES)]


def test_a_barrier_lets_all_pass_when_the_last_has_come() -> None:
    store = store_with(1, 2, 3)
    assert store.received(1, barrier(b"b", 3)) == []
    assert store.received(2, barrier(b"b", 3)) == []
    assert store.received(3, barrier(b"b", 3)) == [Send(3, YES), Send(1, YES), Send(2, YES)]
    assert store.received(1, barrier(b"b", 3)) == [Send(1, YES)]


def test_a_client_that_left_is_woken_no_more_and_what_it_stored_stays() -> None:
    store = store_with(1, 2, 3)
    store.received(1, set_(b"kept", b"1") + wait(b"a", b"b"))
    store.received(2, barrier(b"b", 3))
    store.left(1)
    store.left(2)
    store.left(2)
    assert store.received(3, set_(b"a", b"") + barrier(b"b", 2) + get(b"kept")) == [Send(3, YES + s(b"1"))]
    assert store.received(1, ping(1)) == []


def test_a_new_round_starts_with_nothing_and_nobody() -> None:
    store = store_with(1, 2)
    store.received(1, set_(b"a", b"1") + push(b"q", b"1") + wait(b"b"))
    assert store.empty() == [Close(1, "a new round has begun"), Close(2, "a new round has begun")]
    assert store.held == 0
    assert store.received(2, set_(b"a", b"1")) == [], "what was still on its way is of the round before"
    store.joined(3)
    assert answers(store, 3, HELLO + NUM_KEYS + check(b"a") + queue_len(b"q") + set_(b"b", b"")) == i64(0) + NO + i64(0)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (HELLO, "said hello twice"),
        (b"\x13", "asked for operation 19, which this store does not know"),
        (b"\xff", "asked for operation 255, which this store does not know"),
        (get(b"k" * 9), "sent a key of 9 bytes, and 8 is the most"),
        (b"\3" + u64(2**64 - 1), f"sent a key of {2**64 - 1} bytes, and 8 is the most"),
        (b"\1" + s(b"k") + u64(65), "sent a value of 65 bytes, and 64 is the most"),
        (compare_set(b"k", b"", b"v" * 65), "sent a value of 65 bytes, and 64 is the most"),
        (b"\x0b" + u64(2) + s(b"a") + s(b"1") + u64(9), "sent a key of 9 bytes, and 8 is the most"),
        (b"\5" + u64(5), "asked for 5 keys in one request, and 4 is the most"),
        (set_(b"n", b"abc") + add(b"n", 1), "counted on a key whose value is not a whole number of 64 bits"),
        (set_(b"n", b"9" * 19) + add(b"n", 1), "counted on a key whose value is not a whole number of 64 bits"),
        (set_(b"n", b"%d" % 2**63) + add(b"n", 1), "counted on a key whose value is not a whole number of 64 bits"),
        (set_(b"n", b"-%d" % (2**63 + 1)) + add(b"n", 1), "counted on a key whose value is not a whole number"),
        (set_(b"n", b"") + barrier(b"n", 1), "counted on a key whose value is not a whole number of 64 bits"),
        (set_(b"a", b"v" * 40) + multi_get(b"a", b"a", b"a"), "asked for 144 bytes in one answer, and 100 is the most"),
        (append(b"a", b"v" * 64) + append(b"a", b"v" * 37) + get(b"a"), "asked for 109 bytes in one answer"),
        (append(b"a", b"v" * 60) * 2 + get(b"a"), "asked for 128 bytes in one answer, and 100 is the most"),
        (b"".join(add(b"k%d" % i, 0) for i in range(9)) + LIST_KEYS, "asked for 90 bytes"),
    ],
)  # fmt: skip
def test_nonsense_is_closed_with_a_reason(request_: bytes, why: str) -> None:
    limits = SMALL if "90 bytes" not in why else Limits(answer=89)
    assert why_closed(store_with(1, limits=limits), 1, request_).startswith(why)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (append(b"a", b"v" * 50) * 2 + get(b"a"), s(b"v" * 100)),
        (set_(b"a", b"v" * 42) + multi_get(b"a", b"a"), s(b"v" * 42) * 2),
    ],
)
def test_an_answer_may_be_as_large_as_it_may_be(request_: bytes, answer: bytes) -> None:
    assert answers(store_with(1, limits=SMALL), 1, request_) == answer


def test_a_number_of_a_million_digits_is_not_read() -> None:
    assert "not a whole number" in why_closed(store_with(1), 1, set_(b"n", b"1" * 1_000_000) + add(b"n", 1))


@pytest.mark.parametrize("first", [get(b"k"), ping(1), b"GET / HTTP/1.1\r\n", b"\0" + bytes(4), b"\x16\x03\x01"])
def test_who_does_not_begin_with_hello_is_closed(first: bytes) -> None:
    store = WorkerStore()
    store.joined(1)
    assert why_closed(store, 1, first) == "did not begin with TCPStore's hello"


def test_who_has_said_hello_is_known() -> None:
    store = WorkerStore()
    store.joined(1)
    store.received(1, HELLO[:-1])
    assert store.greeted(1) is False
    store.received(1, HELLO[-1:])
    assert store.greeted(1) is True


def test_what_came_before_the_nonsense_is_still_answered() -> None:
    assert store_with(1).received(1, ping(1) + b"\xff") == [
        Send(1, struct.pack("<I", 1)),
        Close(1, "asked for operation 255, which this store does not know"),
    ]


FULL = "sent more than this store may hold, 4000 bytes in all"


@pytest.mark.parametrize(
    "request_",
    [
        b"".join(set_(b"k%d" % i, b"") for i in range(20)),
        multi_set(*[(b"k%d" % i, bytes(60)) for i in range(4)]) * 2 + append(b"a", bytes(64)) * 60,
        append(b"a", bytes(64)) * 62,
        b"".join(push(b"q", bytes(64)) for i in range(16)),
        b"".join(barrier(b"k%d" % i, 0) for i in range(20)),
    ],
    ids=["keys", "multi_set", "append", "queue", "barrier"],
)
def test_no_flood_makes_the_store_larger_than_it_may_be(request_: bytes) -> None:
    store = store_with(1, 2, limits=SMALL)
    assert why_closed(store, 1, request_) == FULL
    assert 2000 < store.held <= SMALL.memory
    assert answers(store, 2, ping(1)) == struct.pack("<I", 1)


def test_a_crowd_of_waiting_clients_counts() -> None:
    store = store_with(*range(9), limits=SMALL)
    said = [store.received(client, wait(b"a", b"b", b"c")) for client in range(9)]
    assert [Close(6, FULL)] in said
    for client in range(9):
        store.left(client)
    assert store.held == 0


def test_a_crowd_at_a_barrier_counts() -> None:
    store = store_with(*range(30), limits=SMALL)
    said = [store.received(client, barrier(b"b", 99)) for client in range(30)]
    assert [Close(18, FULL)] in said
    assert store.held <= SMALL.memory


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        (set_(b"k", b"v" * 50), ENTRY + 51),
        (push(b"k", b"v" * 50), ENTRY + 51),
        (append(b"k", b"v" * 25) * 2, ENTRY + 51),
        (multi_set((b"k", b"v" * 50)), 2 * ENTRY + 51),  # it asks for more than it takes
        (wait(b"k"), ENTRY + 1),
        (compare_set(b"k", b"e", b"v" * 50)[:-1], 2 + 2 * FIELD + 57),  # two whole fields and most of a third
    ],
    ids=["set", "push", "append", "multi_set", "wait", "most of a compare_set"],
)
def test_memory_may_be_used_to_the_last_byte(request_: bytes, size: int) -> None:
    fits, does_not = store_with(1, limits=Limits(memory=size)), store_with(1, limits=Limits(memory=size - 1))
    assert fits.received(1, request_) == []
    assert does_not.received(1, request_) == [Close(1, f"sent more than this store may hold, {size - 1} bytes in all")]


def test_what_is_only_half_sent_counts_and_is_forgotten_with_its_client() -> None:
    store = store_with(*range(64), limits=Limits(memory=3000))
    request = multi_set((b"k" * 500, b"v" * 500))
    closed = [client for client in range(64) if store.received(client, request[:-1])]
    assert closed
    assert closed[0] == 2
    assert store.held <= 3000
    for client in range(64):
        store.left(client)
    assert store.held == 0
    trickling = store_with(1, limits=Limits(memory=300))
    assert trickling.received(1, b"\1" + s(b"k") + u64(1000)) == []
    assert [each for _ in range(1000) for each in trickling.received(1, b"v")] == [
        Close(1, "sent more than this store may hold, 300 bytes in all")
    ]


def test_a_multi_set_that_does_not_fit_stores_nothing() -> None:
    store = store_with(1, 2, limits=Limits(memory=3 * ENTRY))
    assert "300 bytes" not in why_closed(store, 1, multi_set((b"a", b"1"), (b"b", b"2"), (b"c", b"3")))
    assert answers(store, 2, NUM_KEYS) == i64(0)


def test_memory_is_given_back() -> None:
    store = store_with(1, 2)
    store.received(1, set_(b"a", b"12") + append(b"a", b"3") + set_(b"a", b"1") + push(b"q", b"1") + wait(b"x"))
    store.received(2, barrier(b"b", 2) + CANCEL + delete(b"b") + set_(b"x", b"") + delete(b"x"))
    assert store.held > 0
    assert answers(store, 1, delete(b"a") + pop(b"q")) == i64(1) + i64(1) + s(b"1")
    assert store.held == 0


def test_a_key_that_is_deleted_gives_back_its_own_memory() -> None:
    store = store_with(1)
    store.received(1, set_(b"a", b"12345") + set_(b"b", b"1") + delete(b"a"))
    assert store.held == ENTRY + 2


def test_as_much_as_is_answered_at_once_is_not_too_much() -> None:
    store = store_with(1)
    store.received(1, set_(b"a", bytes(ANSWERS_AT_ONCE // 2 - 8)))
    answer = s(bytes(ANSWERS_AT_ONCE // 2 - 8))
    for _ in range(2):
        assert store.received(1, get(b"a") * 2 + get(b"a")[:5]) == [Send(1, answer * 2)]
        assert store.received(1, get(b"a")[5:]) == [Send(1, answer)]
        assert store.received(1, get(b"a") * 3) == [Send(1, answer * 3)]


def test_who_asks_for_much_is_answered_in_turns() -> None:
    store = store_with(1)
    store.received(1, set_(b"a", bytes(ANSWERS_AT_ONCE // 2)))
    answer = s(bytes(ANSWERS_AT_ONCE // 2))
    first = store.received(1, get(b"a") * 5)
    assert first == [Send(1, answer * 2), More(1)]
    assert store.received(1, b"") == [Send(1, answer * 2), More(1)]
    assert store.received(1, b"") == [Send(1, answer)]
    assert store.received(1, b"") == []
    assert store.received(1, get(b"a") * 3 + NUM_KEYS) == [Send(1, answer * 2), More(1)]
    assert store.received(1, b"") == [Send(1, answer + i64(1))]
    assert store.received(1, get(b"a") * 2 + NUM_KEYS) == [Send(1, answer * 2), More(1)]
    assert store.received(1, b"") == [Send(1, i64(1))]
    assert store.held == ENTRY + 1 + ANSWERS_AT_ONCE // 2


def test_who_is_not_done_reading_and_too_much_is_closed() -> None:
    store = store_with(1, limits=Limits(memory=ANSWERS_AT_ONCE + 2 * ENTRY))
    store.received(1, set_(b"a", bytes(ANSWERS_AT_ONCE)))
    *_, last = store.received(1, get(b"a") * 100)
    assert isinstance(last, Close)


def test_the_agent_may_look_at_what_is_stored() -> None:
    store = store_with(1, 2)
    store.received(1, set_(b"a", b"1") + set_(b"empty", b""))
    assert [store.stored(key) for key in (b"a", b"empty", b"none")] == [b"1", b"", None]


def test_every_request_that_can_be_read_can_be_carried_out() -> None:
    assert WorkerStore()._verbs.keys() == SHAPES.keys()


def test_an_answer_can_be_shown_and_compared() -> None:
    assert repr(Send(1, b"x")) == "Send(1, b'x')"
    assert Send(1, b"x") != Send(2, b"x")
    assert Send(1, b"x") != (1, b"x")


CONVERSATION = [
    ping(7), set_(b"a", b"1"), get(b"a"), add(b"n", 3), multi_set((b"x", b"y"), (b"", b"")), multi_get(b"x", b"a"),
    check(b"a", b"zz"), wait(b"w"), CANCEL, append(b"a", b"2"), compare_set(b"a", b"12", b"c"), push(b"q", b"1"),
    wait(b"q"), pop(b"q"), queue_len(b"q"), barrier(b"b", 1), LIST_KEYS, delete(b"a"), NUM_KEYS,
]  # fmt: skip
WHOLE = HELLO + b"".join(CONVERSATION)


def collected(store: WorkerStore, client: int, pieces: list[bytes]) -> bytes:
    said = [each for piece in pieces for each in store.received(client, piece)]
    assert all(isinstance(each, Send) and each.client == client for each in said)
    return b"".join(each.data for each in said if isinstance(each, Send))


def fresh() -> WorkerStore:
    store = WorkerStore()
    store.joined(1)
    return store


EXPECTED = collected(fresh(), 1, [WHOLE])


def test_it_does_not_matter_where_the_bytes_are_torn() -> None:
    for cut in range(len(WHOLE)):
        assert collected(fresh(), 1, [WHOLE[:cut], WHOLE[cut:]]) == EXPECTED, cut
    assert collected(fresh(), 1, [WHOLE[at : at + 1] for at in range(len(WHOLE))]) == EXPECTED


@pytest.mark.parametrize("request_", [*CONVERSATION, check(), get(b""), compare_set(b"k", b"", bytes(9000))])
def test_a_request_is_answered_as_soon_as_its_last_byte_has_come(request_: bytes) -> None:
    answer = collected(fresh(), 1, [HELLO + request_ + b"\7"])[:-8]
    assert collected(fresh(), 1, [HELLO, request_]) == answer
    assert collected(fresh(), 1, [HELLO, *[request_[at : at + 1] for at in range(len(request_))]]) == answer


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_it_does_not_matter_into_how_many_pieces(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in itertools.pairwise(edges)]
    assert collected(fresh(), 1, pieces) == EXPECTED


class CountingBytes(bytearray):
    """Counts how often what has arrived is looked at."""

    copies = 0

    def __iadd__(self, other: object) -> CountingBytes:
        super().__iadd__(other)  # type: ignore[arg-type]
        return self

    def __bytes__(self) -> bytes:
        CountingBytes.copies += 1
        return bytes(memoryview(self))


def test_a_large_value_that_trickles_in_is_copied_a_few_times_not_once_per_piece() -> None:
    store = store_with(1)
    CountingBytes.copies = 0
    store._clients[1].reader.rest = CountingBytes()
    request = set_(b"k", bytes(100_000))
    for at in range(0, len(request), 10):
        store.received(1, request[at : at + 10])
    assert answers(store, 1, get(b"k")) == s(bytes(100_000))
    assert CountingBytes.copies < 10


def test_many_keys_that_trickle_in_are_read_once() -> None:
    store = store_with(1)
    request = check(*[b"%04d" % i for i in range(5000)])
    CountingBytes.copies = 0
    store._clients[1].reader.rest = CountingBytes()
    for at in range(0, len(request), 24):
        store.received(1, request[at : at + 24])
        assert len(store._clients[1].reader.rest) < 40
    assert len(store._clients[1].reader.rest) == 0
    assert answers(store, 1, ping(1)) == struct.pack("<I", 1)


hostile = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(CONVERSATION), max_size=6).map(b"".join),
    st.tuples(st.sampled_from(CONVERSATION), st.integers(0, 40)).map(lambda t: t[0][: t[1]]),
    st.tuples(st.sampled_from(CONVERSATION), st.integers(0, 40), st.integers(0, 255)).map(
        lambda t: t[0][: t[1]] + bytes([t[2]]) + t[0][t[1] + 1 :]
    ),
    st.tuples(st.sampled_from([0, *sorted(SHAPES)]), st.integers(0, 2**64 - 1)).map(
        lambda t: bytes([t[0]]) + u64(t[1])
    ),
)


@given(st.lists(st.tuples(st.integers(1, 3), hostile), max_size=30))
def test_whatever_three_clients_send_the_store_stays_whole(sent: list[tuple[int, bytes]]) -> None:
    store = store_with(0, 1, 2, 3, limits=SMALL)
    for client, chunk in sent:
        for said in store.received(client, chunk):
            if isinstance(said, Close):
                assert said.client == client
                assert said.why
        assert 0 <= store.held <= SMALL.memory
    assert answers(store, 0, ping(5)) == struct.pack("<I", 5)
    for client in (1, 2, 3):
        store.left(client)
    assert store._waiting == store._barriers == {}
    stored = sum(len(key) + len(kept) + ENTRY for key, kept in store._values.items())
    queued = sum(len(key) + len(kept) + ENTRY for key, queue in store._queues.items() for kept in queue)
    assert store.held == stored + queued


@given(st.sampled_from(CONVERSATION), st.data())
def test_a_request_that_is_cut_short_changes_nothing(request_: bytes, data: st.DataObject) -> None:
    store = store_with(1, 2)
    store.received(1, request_[: data.draw(st.integers(0, len(request_) - 1))])
    assert answers(store, 2, NUM_KEYS + queue_len(b"q")) == i64(0) + i64(0)
    store.left(1)
    assert store.held == 0
