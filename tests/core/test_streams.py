"""The grammar of -r and -t, prefixes, and where each stream goes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.launch import Output
from relight.core.names import UsageError
from relight.core.streams import NOWHERE, Route, StreamChoice, Streams, prefix, route, streams

NONE, OUT, ERR, BOTH = Streams.NONE, Streams.OUT, Streams.ERR, Streams.BOTH


@pytest.mark.parametrize(
    ("text", "by_rank"),
    [
        ("0", {0: NONE, 1: NONE}),
        ("1", {0: OUT, 7: OUT}),
        ("2", {0: ERR}),
        ("3", {0: BOTH, 100: BOTH}),
        ("0:3", {0: BOTH, 1: NONE}),
        ("0:1,1:2,3:0", {0: OUT, 1: ERR, 2: NONE, 3: NONE}),
        ("10:3,123:1", {10: BOTH, 123: OUT, 1: NONE}),
        ("0:1,0:2", {0: ERR}),
    ],
)
def test_streams_are_named_for_all_or_by_local_rank(text: str, by_rank: dict[int, Streams]) -> None:
    choice = streams(text)
    assert {local_rank: choice.of(local_rank) for local_rank in by_rank} == by_rank


@pytest.mark.parametrize(
    "text",
    ["", "4", "-1", "03", "x", "0:4", "0:", ":3", "0:3,", ",", "0:3,10", "-1:3", "+1:3", " 1:3", "1_0:3", "٣:3",
     "1:3:2", "9" * 5000 + ":3"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_flag_it_came_from(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        streams(text, "--tee")
    assert caught.value.what == f"--tee {text!r} names no streams"
    assert caught.value.remedy.startswith("--tee 3 for everyone, or --tee 0:3,1:2 by local rank")


def test_the_flag_is_redirects_unless_told() -> None:
    with pytest.raises(UsageError, match="--redirects 'all' names no streams"):
        streams("all")


@given(st.text(alphabet="0123456789:,-x", max_size=12))
def test_whatever_torchrun_takes_is_taken_alike(text: str) -> None:
    """torchrun's grammar: one digit, or a list of rank:mask with ranks of one digit."""
    if re.fullmatch(r"[0-3]", text):
        assert streams(text) == StreamChoice(Streams(int(text)))
    elif re.fullmatch(r"(\d:[0-3],)*(\d:[0-3])", text):
        asked = dict(part.split(":") for part in text.split(","))
        assert streams(text).by_rank == tuple(sorted((int(r), Streams(int(m))) for r, m in asked.items()))
    elif not re.fullmatch(r"(\d+:[0-3],)*(\d+:[0-3])", text):
        with pytest.raises(UsageError):
            streams(text)


@pytest.mark.parametrize(
    ("template", "role", "written"),
    [
        (None, "default", "[default1]:"),
        ("", "default", "[default1]:"),
        (None, "", "[1]:"),
        ("${role_name}/$rank/${local_rank}@${hostname} ", "trainer", "trainer/5/1@node7 "),
        ("$$ ${unknown} ", "default", "$ ${unknown} "),
        ("> ", "default", "> "),
    ],
)
def test_a_prefix_tells_whose_line_it_is(template: str | None, role: str, written: str) -> None:
    assert prefix(template, role=role, local_rank=1, rank=5, hostname="node7.cluster.example") == written


T, R = StreamChoice(BOTH), StreamChoice(BOTH)


@pytest.mark.parametrize(
    ("output", "out_of_0", "out_of_1"),
    [
        (Output(), Route.INHERIT, Route.INHERIT),
        (Output(redirects=R), Route.FILE, Route.FILE),
        (Output(tee=T), Route.TEE, Route.TEE),
        (Output(redirects=R, tee=T), Route.TEE, Route.TEE),
        (Output(redirects=StreamChoice(ERR)), Route.INHERIT, Route.INHERIT),
        (Output(tee=StreamChoice(NONE, ((1, OUT),))), Route.INHERIT, Route.TEE),
        (Output(local_ranks=(0,)), Route.INHERIT, Route.HIDE),
        (Output(local_ranks=()), Route.INHERIT, Route.INHERIT),
        (Output(local_ranks=(9,)), Route.HIDE, Route.HIDE),
        (Output(redirects=R, local_ranks=(0,)), Route.FILE, Route.FILE),
        (Output(tee=T, local_ranks=(0,)), Route.TEE, Route.TEE_HIDDEN),
        (Output(log_dir="/dev/null", redirects=R, tee=T), Route.INHERIT, Route.INHERIT),
        (Output(log_dir="/dev/null", redirects=R, tee=T, local_ranks=(0,)), Route.INHERIT, Route.HIDE),
    ],
)
def test_where_stdout_goes(output: Output, out_of_0: Route, out_of_1: Route) -> None:
    assert (route(output, 0, OUT), route(output, 1, OUT)) == (out_of_0, out_of_1)


def test_the_two_streams_go_their_own_ways() -> None:
    output = Output(redirects=StreamChoice(OUT), tee=StreamChoice(ERR))
    assert (route(output, 0, OUT), route(output, 0, ERR)) == (Route.FILE, Route.TEE)


CHOICES = st.builds(
    StreamChoice,
    st.sampled_from(list(Streams)),
    st.dictionaries(st.integers(0, 3), st.sampled_from(list(Streams))).map(lambda by: tuple(sorted(by.items()))),
)
OUTPUTS = st.builds(
    Output,
    log_dir=st.sampled_from([None, "logs", "/dev/null"]),
    redirects=CHOICES,
    tee=CHOICES,
    local_ranks=st.none() | st.lists(st.integers(0, 3), max_size=3).map(tuple),
)


@given(OUTPUTS, st.integers(0, 3), st.sampled_from([OUT, ERR]))
def test_the_filter_hides_from_the_console_and_from_nothing_else(output: Output, rank: int, stream: Streams) -> None:
    taken = route(output, rank, stream)
    asked = output.keeps_files and bool(stream & (output.tee.of(rank) | output.redirects.of(rank)))
    assert (taken in (Route.FILE, Route.TEE, Route.TEE_HIDDEN)) == asked
    if output.local_ranks and rank not in output.local_ranks:
        assert taken in (Route.HIDE, Route.FILE, Route.TEE_HIDDEN)
    else:
        assert taken in (Route.INHERIT, Route.FILE, Route.TEE)


def test_nowhere_is_nowhere() -> None:
    assert NOWHERE.of(0) is NONE
