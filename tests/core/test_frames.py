"""Frames out of torn bytes, and fields that are what they were asked for or Nonsense."""

from __future__ import annotations

import enum
import json
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.frames import LARGEST, LIMIT, LINE, MOST, Fields, Frames, cut, frame
from relight.core.names import Nonsense, legible, why_no_word

Ask = Callable[[Fields], object]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def raw(body: bytes) -> bytes:
    """A frame with any body."""
    return struct.pack(">I", len(body)) + body


def read(body: bytes) -> Fields:
    (said,) = Frames().received(raw(body))
    return said


def holding(entry: object) -> Fields:
    """What came in as an object with one field, `x`."""
    return read(json.dumps({"x": entry}).encode())


def told(said: Fields) -> dict[str, Any]:
    return dict(said._said)


# -- frames --------------------------------------------------------------------------------------------------


def test_a_frame_is_an_object_behind_its_length() -> None:
    body = b'{"a":1,"b":["\\u00e9"]}'
    assert frame({"a": 1, "b": ["é"]}) == b"\0\0\0\x16" + body


OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.integers(-MOST, MOST) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=3),
    max_size=4,
)  # fmt: skip


@given(st.lists(OBJECTS, max_size=5), st.lists(st.integers(0, 400), max_size=8))
def test_the_cuts_between_chunks_do_not_matter(objects: list[dict[str, Any]], cuts: list[int]) -> None:
    said = b"".join(frame(one) for one in objects)
    bounds = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    frames, heard = Frames(), list[dict[str, Any]]()
    for start, stop in pairwise(bounds):
        heard += [told(one) for one in frames.received(said[start:stop])]
    assert heard == objects


def test_an_object_comes_with_its_last_byte() -> None:
    frames, said = Frames(), frame({"a": 1}) + frame({"b": 2})
    heard = [[told(one) for one in frames.received(bytes([each]))] for each in said]
    assert [objects for objects in heard if objects] == [[{"a": 1}], [{"b": 2}]]
    assert heard[len(frame({"a": 1})) - 1] == [{"a": 1}] and heard[-1] == [{"b": 2}]


def test_a_frame_as_large_as_it_may_be_is_read() -> None:
    largest = b'{"a":1}' + b" " * (LIMIT - 7)
    assert told(read(largest)) == {"a": 1}
    assert len(frame({"a": "x" * (LIMIT - 8)})) == 4 + LIMIT


def test_what_is_said_is_never_larger_than_a_frame() -> None:
    with pytest.raises(AssertionError, match=r"^whatever is said is bounded where it is made$"):
        frame({"a": "x" * (LIMIT - 7)})


@pytest.mark.parametrize("length", [LIMIT + 1, 1 << 31, (1 << 32) - 1])
def test_a_frame_that_is_too_long_is_nonsense_before_it_is_there(length: int) -> None:
    with pytest.raises(Nonsense) as caught:
        Frames().received(struct.pack(">I", length))
    assert str(caught.value) == f"a frame of {length} bytes, and {LIMIT} is the most"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"{",
        b'{"a":1}{"b":2}',
        b"{'a':1}",
        b"\xff\xfe{}",
        b'{"a":"\xff"}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    ],
)
def test_what_is_not_json_is_nonsense(body: bytes) -> None:
    with pytest.raises(Nonsense) as caught:
        read(body)
    assert str(caught.value) == "a frame that is not JSON"


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b"true", b'"a"', b"NaN", b'[{"a":1}]'])
def test_what_is_no_object_is_nonsense(body: bytes) -> None:
    with pytest.raises(Nonsense) as caught:
        read(body)
    assert str(caught.value) == "something that is no JSON object"


def test_of_a_field_that_is_there_twice_the_last_counts() -> None:
    assert read(b'{"x":1,"x":2}').whole("x") == 2
    with pytest.raises(Nonsense):
        read(b'{"x":1,"x":"2"}').whole("x")


# -- fields --------------------------------------------------------------------------------------------------


def whole(said: Fields) -> int:
    return said.whole("x")


def number(said: Fields) -> float:
    return said.number("x")


def text(said: Fields) -> str:
    return said.text("x")


def word(said: Fields) -> str:
    return said.word("x")


def flag(said: Fields) -> bool:
    return said.flag("x")


def choice(said: Fields) -> Colour:
    return said.choice("x", Colour)


def texts(said: Fields) -> tuple[str, ...]:
    return said.texts("x", 3)


def within(said: Fields) -> Fields | None:
    return said.within("x")


@pytest.mark.parametrize(
    ("entry", "ask", "answer"),
    [
        (0, whole, 0),
        (MOST, whole, MOST),
        (-1, lambda said: said.whole("x", -1), -1),
        (7, lambda said: said.whole("x", 7, 7), 7),
        (0, number, 0.0),
        (3, number, 3.0),
        (-2.5, number, -2.5),
        (LARGEST, number, LARGEST),
        (-LARGEST, number, -LARGEST),
        (0.5, lambda said: said.number("x", 0.5), 0.5),
        ("", text, ""),
        ("x" * LINE, text, "x" * LINE),
        ("xy", lambda said: said.text("x", 2), "xy"),
        ("two\nlines, \t\0 and \x1b[31m", text, "two\nlines, \t\0 and \x1b[31m"),
        ("half \ud83d", text, "half \\ud83d"),
        ("a file\udcff", text, "a file\\udcff"),
        ("\U0001f600", text, "\U0001f600"),
        ("", word, ""),
        ("x" * LINE, word, "x" * LINE),
        ("xy", lambda said: said.word("x", 2), "xy"),
        ("a file\udcff", word, "a file\udcff"),
        (True, flag, True),
        (False, flag, False),
        ("red", choice, Colour.RED),
        ([], texts, ()),
        (["a", "", "half \ud83d"], texts, ("a", "", "half \\ud83d")),
        (["x" * LINE] * 3, texts, ("x" * LINE,) * 3),
        (["xy"], lambda said: said.texts("x", 1, 2), ("xy",)),
        (None, within, None),
        ({"x": 4}, lambda said: whole(within(said) or said), 4),
        (None, lambda said: "x" in said, False),
        (0, lambda said: "x" in said, True),
        ("", lambda said: "x" in said, True),
        (0, lambda said: "y" in said, False),
        (0, lambda said: said.within("y"), None),
    ],
)  # fmt: skip
def test_a_field_is_what_it_was_asked_for(entry: object, ask: Ask, answer: object) -> None:
    found = ask(holding(entry))
    assert found == answer and type(found) is type(answer)


NO_WHOLE = f"'x' that is no whole number from 0 to {MOST}"
NO_NUMBER = "'x' that is no number from -1e+15 to 1e+15"
NO_TEXT = "'x' that is no text of at most 1000 characters"
NO_WORD = "'x' that is no word of at most 1000 characters"
NO_FLAG = "'x' that is neither true nor false"
NO_COLOUR = "'x' that is no Colour"
NO_LIST = "'x' that is no list of at most 3 texts"
NO_TEXTS = "'x' with something that is no text of at most 1000 characters"
NAN, INFINITY = float("nan"), float("inf")


def rows(ask: Ask, why: str, *entries: object) -> list[tuple[object, Ask, str]]:
    return [(entry, ask, why) for entry in entries]


@pytest.mark.parametrize(
    ("entry", "ask", "why"),
    [
        *rows(whole, NO_WHOLE, -1, MOST + 1, 10**400, 1.0, 1e300, NAN, True, "1", None, [1], {}),
        (6, lambda said: said.whole("x", 7, 8), "'x' that is no whole number from 7 to 8"),
        (9, lambda said: said.whole("x", 7, 8), "'x' that is no whole number from 7 to 8"),
        *rows(number, NO_NUMBER, NAN, INFINITY, -INFINITY, 1.1e15, -1.1e15, 10**400, -(10**400)),
        *rows(number, NO_NUMBER, True, "1", None, [1.0], {}),
        (0.4, lambda said: said.number("x", 0.5), "'x' that is no number from 0.5 to 1e+15"),
        *rows(text, NO_TEXT, "x" * 1001, 1, None, ["x"], {}),
        ("xyz", lambda said: said.text("x", 2), "'x' that is no text of at most 2 characters"),
        *rows(word, NO_WORD, "x" * 1001, "a\0b", "half \ud83d", 1, None, ["x"], {}),
        ("xyz", lambda said: said.word("x", 2), "'x' that is no word of at most 2 characters"),
        *rows(flag, NO_FLAG, 0, 1, "true", None, [], {}),
        *rows(choice, NO_COLOUR, "RED", "green", "", None, 1, True, NAN, ["red"], {"red": 1}),
        *rows(texts, NO_LIST, ["a"] * 4, "abc", None, 1, {}),
        *rows(texts, NO_TEXTS, ["a", 1], [None], [["a"]], ["a", "x" * 1001]),
        (["xyz"], lambda said: said.texts("x", 1, 2), "'x' with something that is no text of at most 2 characters"),
        *rows(within, "something that is no JSON object", 0, "", [], False),
    ],
)  # fmt: skip
def test_a_field_that_is_something_else_is_nonsense(entry: object, ask: Ask, why: str) -> None:
    with pytest.raises(Nonsense) as caught:
        ask(holding(entry))
    assert str(caught.value) == why


@pytest.mark.parametrize("ask", [whole, number, text, word, flag, choice, texts])
def test_a_field_that_is_missing_is_nonsense(ask: Ask) -> None:
    with pytest.raises(Nonsense):
        ask(read(b'{"y":1}'))


ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@given(ANY_TEXT)
def test_text_can_be_encoded_and_words_are_what_an_environment_holds(entry: str) -> None:
    said = holding(entry)
    entry = json.loads(json.dumps(entry))  # where two halves of a pair have met
    assert said.text("x").encode().decode() == legible(entry)
    try:
        assert said.word("x") == entry
    except Nonsense:
        assert why_no_word(entry)


@pytest.mark.parametrize(
    ("whole", "short"), [("x" * 9, "x" * 9), ("x" * 10, "xxxxxx..."), ("abcd\ud800", "abcd\\u...")]
)  # fmt: skip
def test_text_is_cut_once_it_is_legible(whole: str, short: str) -> None:
    assert cut(whole, 9) == short


def test_text_is_cut_to_a_line() -> None:
    assert cut("x" * 1000) == "x" * 1000
    assert cut("x" * 1001) == "x" * 997 + "..."


# -- whatever comes ------------------------------------------------------------------------------------------

ASKS: list[Ask] = [whole, number, text, word, flag, choice, texts, within]
BODIES = [
    b'{"x":1}', b'{"x":-1.5e3}', b'{"x":"red"}', b'{"x":["a","b\\ud800"]}', b'{"x":{"x":true}}', b'{"x":null}',
    b'{"x":NaN,"y":[[[]]]}', b"[]", b"{}", '{"x":"é"}'.encode(),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(100))
def test_no_bytes_bring_more_than_values_or_nonsense(seed: int) -> None:
    chance = random.Random(seed)
    said = bytearray(b"".join(raw(chance.choice(BODIES)) for _ in range(chance.randint(1, 4))))
    for _ in range(chance.randint(0, 6)):
        at = chance.randrange(len(said) + 1)
        match chance.randrange(3):
            case 0:
                said[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                said[at:at] = chance.randbytes(chance.randint(1, 5))
            case _:
                del said[at : at + chance.randint(1, 5)]
        said = said or bytearray(b"{")
    frames = Frames()
    while said:
        size = chance.randint(1, len(said))
        chunk, said = bytes(said[:size]), said[size:]
        try:
            heard = frames.received(chunk)
        except Nonsense as nonsense:
            assert str(nonsense)
            return
        for one in heard:
            for ask in ASKS:
                try:
                    ask(one)
                except Nonsense as nonsense:
                    assert str(nonsense)
