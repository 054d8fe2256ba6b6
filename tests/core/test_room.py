"""The conversation between a worker and its agent: any bytes in, facts or an end of the conversation out."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.names import Nonsense
from relight.core.room import LINE_LIMIT, Closed, Conversation, Fact, Hello, Returned, Step, greeting, line

HELLO = line(relight=1, local_rank=0, round=2)


def begun() -> Conversation:
    conversation = Conversation()
    assert conversation.received(HELLO) == [Hello(0, 2)]
    return conversation


def test_a_worker_says_who_it_is_and_then_its_facts() -> None:
    conversation = Conversation()
    assert conversation.who is None
    facts = conversation.received(HELLO + line(step=1) + line(step=2) + line(closed="left its group open"))
    assert facts == [Hello(0, 2), Step(1), Step(2), Closed("left its group open")]
    assert conversation.who == Hello(0, 2)


def test_the_agent_answers_with_its_version() -> None:
    assert greeting() == b'{"relight": 1}\n'


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"\n", "a line that is not JSON"),
        (b"hello\n", "a line that is not JSON"),
        (b"\xff\xfe\n", "a line that is not JSON"),
        (b"[" * 9999 + b"\n", "a line that is not JSON"),
        (b"[1]\n", "a line that is not a JSON object"),
        (b"3\n", "a line that is not a JSON object"),
        (line(step=1), "a greeting that is not in version 1"),
        (line(relight=2, local_rank=0, round=0), "a greeting that is not in version 1"),
        (line(relight="1", local_rank=0, round=0), "a greeting that is not in version 1"),
        (line(relight=1, round=0), "local_rank that is no whole number"),
        (line(relight=1, local_rank=0), "round that is no whole number"),
        (line(relight=1, local_rank=-1, round=0), "local_rank that is no whole number"),
        (line(relight=1, local_rank=0, round=1 << 62), "round that is no whole number"),
        (line(relight=1, local_rank=True, round=0), "local_rank that is no whole number"),
        (line(relight=1, local_rank=1.0, round=0), "local_rank that is no whole number"),
        (b"x" * (LINE_LIMIT + 1), f"a line of more than {LINE_LIMIT} bytes"),
        (b"x" * (LINE_LIMIT + 1) + b"\n", f"a line of more than {LINE_LIMIT} bytes"),
    ],
)
def test_a_greeting_that_makes_no_sense_ends_it(first: bytes, why: str) -> None:
    with pytest.raises(Nonsense) as caught:
        Conversation().received(first)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (HELLO, "a line with nothing known in it"),
        (line(), "a line with nothing known in it"),
        (line(closed=3), "a line with nothing known in it"),
        (line(step=-1), "step that is no whole number"),
        (line(step="3"), "step that is no whole number"),
        (line(step=None), "step that is no whole number"),
    ],
)
def test_a_fact_that_makes_no_sense_ends_it(later: bytes, why: str) -> None:
    with pytest.raises(Nonsense) as caught:
        begun().received(later)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("what", "told"),
    [("x" * 999, "x" * 200), ("two\nlines\tand  more", "two lines and more"), ("a\ud800", "a\\ud800"), ("", "")],
)
def test_what_a_worker_closed_is_one_short_line(what: str, told: str) -> None:
    assert begun().received(line(closed=what)) == [Closed(told)]


def test_a_line_as_long_as_it_may_be_is_read() -> None:
    longest = b'{"step": 7' + b" " * (LINE_LIMIT - 11) + b"}"
    assert len(longest) == LINE_LIMIT
    assert begun().received(longest) == []
    conversation = begun()
    assert conversation.received(longest[:100]) + conversation.received(longest[100:] + b"\n") == [Step(7)]


FACTS = st.builds(Step, st.integers(0, (1 << 62) - 1)) | st.builds(Closed, st.text("abc", min_size=1, max_size=9))


@given(st.lists(FACTS, max_size=8), st.lists(st.integers(0, 400), max_size=6))
def test_the_cuts_between_chunks_do_not_matter(facts: list[Step | Closed], cuts: list[int]) -> None:
    said = HELLO + b"".join(line(step=f.step) if isinstance(f, Step) else line(closed=f.what) for f in facts)
    bounds = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    conversation, heard = Conversation(), list[Fact]()
    for start, stop in pairwise(bounds):
        heard += conversation.received(said[start:stop])
    assert heard == [Hello(0, 2), *facts]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["relight", "local_rank", "round", "step", "closed"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(st.lists(st.binary(max_size=50) | JSON.map(lambda said: json.dumps(said).encode() + b"\n"), max_size=8))
def test_no_bytes_do_more_than_end_the_conversation(chunks: list[bytes]) -> None:
    conversation = Conversation()
    try:
        for chunk in chunks:
            for fact in conversation.received(chunk):
                assert conversation.who is not None
                assert repr(fact).encode()
    except Nonsense as error:
        assert str(error)


def test_a_worker_may_say_that_its_script_has_returned() -> None:
    conversation = Conversation()
    conversation.received(line(relight=1, local_rank=0, round=0))
    assert conversation.received(line(returned=True)) == [Returned()]
    with pytest.raises(Nonsense):
        conversation.received(line(returned="yes"))
