"""The two documents on the network: what goes out comes in, nothing is too large, and nothing strange comes in."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.documents import JobView, NodeReport, Phase, Standing, Verdict
from relight.core.failure import Cause, Words, WorkerEnd
from relight.core.frames import LARGEST, LINE, MOST, Fields, Frames, cut, frame
from relight.core.names import ExitStatus, Nonsense, legible
from relight.core.roster import Applicant, Part, Seat
from relight.core.values import replace
from relight.core.wire import (
    ADDRESS,
    LIFE,
    MOST_SLOTS,
    NAME,
    PORTS,
    TAIL,
    read_report,
    read_view,
    write_report,
    write_view,
)


def carried(said: dict[str, Any]) -> Fields:
    """What arrives on the other side."""
    (arrived,) = Frames().received(frame(said))
    return arrived


END = WorkerEnd(
    rank=5,
    local_rank=1,
    pid=4711,
    status=ExitStatus(-9),
    at=1_790_000_000.5,
    asked=True,
    words=Words("ValueError: boom", "Traceback ...", 1_790_000_000.25),
    error_file="/logs/error.json",
    stderr_file="/logs/stderr.log",
    tail=("one", "two"),
    step=77,
    returned=True,
)
APPLICANT = Applicant("n1", 4, "trainer", "10.0.0.1", 29400, "life1", 3)
REPORT = NodeReport(APPLICANT, 12, Standing.BROKEN, 2, 5.5, Cause("n1", "rank 5 failed", END))
SEAT = Seat("n1", 1, 4, "trainer", 6, 2, "10.0.0.1", 29400, "life1")
PART = Part(SEAT, 16, 3, 8, "10.0.0.9", 29500)
VIEW = JobView(13, Phase.ENDED, 2, "rank 5 failed", 1, PART, Verdict.FAILED, Cause("n2", "rank 5 failed", END))

END_SAID = {
    "rank": 5,
    "local_rank": 1,
    "pid": 4711,
    "status": -9,
    "at": 1_790_000_000.5,
    "asked": True,
    "error_file": "/logs/error.json",
    "stderr_file": "/logs/stderr.log",
    "tail": ["one", "two"],
    "step": 77,
    "returned": True,
    "message": "ValueError: boom",
    "callstack": "Traceback ...",
    "raised_at": 1_790_000_000.25,
}
NODE_SAID = {
    "node": "n1",
    "slots": 4,
    "role": "trainer",
    "store_address": "10.0.0.1",
    "store_port": 29400,
    "life": "life1",
}
REPORT_SAID = {
    "applicant": {**NODE_SAID, "hint": 3},
    "seen": 12,
    "standing": "broken",
    "round": 2,
    "sent_at": 5.5,
    "cause": {"node": "n1", "sentence": "rank 5 failed", "end": END_SAID},
}
VIEW_SAID = {
    "serial": 13,
    "phase": "ended",
    "round": 2,
    "reason": "rank 5 failed",
    "restarts": 1,
    "part": {
        **NODE_SAID,
        "group_rank": 1,
        "first_rank": 6,
        "first_role_rank": 2,
        "world_size": 16,
        "group_world_size": 3,
        "role_world_size": 8,
        "meet_address": "10.0.0.9",
        "meet_port": 29500,
    },
    "verdict": "failed",
    "cause": {"node": "n2", "sentence": "rank 5 failed", "end": END_SAID},
}


def test_a_report_on_the_network() -> None:
    assert write_report(REPORT) == REPORT_SAID
    assert read_report(Fields(REPORT_SAID)) == REPORT


def test_a_view_on_the_network() -> None:
    assert write_view(VIEW) == VIEW_SAID
    assert read_view(Fields(VIEW_SAID)) == VIEW


def test_what_a_document_does_not_hold_is_not_said() -> None:
    cause = replace(REPORT, cause=Cause("n1", "no workers"))
    assert write_report(cause)["cause"] == {"node": "n1", "sentence": "no workers"}
    assert "cause" not in write_report(replace(REPORT, cause=None))
    assert write_view(JobView(0, Phase.GATHERING, 0, "")) == {
        "serial": 0,
        "phase": "gathering",
        "round": 0,
        "reason": "",
        "restarts": 0,
    }


def test_fields_that_nobody_asks_for_are_ignored() -> None:
    assert read_report(Fields({**REPORT_SAID, "later": [1], "x": {"y": 2}})) == REPORT
    assert read_view(Fields({**VIEW_SAID, "later": [1], "x": {"y": 2}})) == VIEW


# -- there and back ------------------------------------------------------------------------------------------

WHOLE = st.integers(0, MOST)
SIZE = st.integers(1, MOST)
MOMENT = st.floats(-LARGEST, LARGEST)
SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.just("\udcff"), max_size=20)
PORT = st.integers(0, PORTS)
SLOTS = st.integers(1, MOST_SLOTS)
WORDS = st.builds(Words, SHORT, SHORT, st.none() | MOMENT)
ENDS = st.builds(
    WorkerEnd,
    WHOLE,
    WHOLE,
    WHOLE,
    st.builds(ExitStatus, st.integers(-255, 255)),
    MOMENT,
    st.booleans(),
    st.none() | WORDS,
    WORD,
    WORD,
    st.lists(SHORT, max_size=TAIL).map(tuple),
    st.none() | WHOLE,
    st.booleans(),
)
CAUSES = st.builds(Cause, WORD, SHORT, st.none() | ENDS)
APPLICANTS = st.builds(Applicant, WORD, SLOTS, WORD, WORD, PORT, WORD, st.none() | st.integers(0, MOST_SLOTS))
KNOWN = st.integers(-1, MOST)
REPORTS = st.builds(NodeReport, APPLICANTS, KNOWN, st.sampled_from(Standing), KNOWN, MOMENT, st.none() | CAUSES)
SEATS = st.builds(Seat, WORD, WHOLE, SLOTS, WORD, WHOLE, WHOLE, WORD, PORT, WORD)
PARTS = st.builds(Part, SEATS, SIZE, SIZE, SIZE, WORD, PORT)
VIEWS = st.builds(
    JobView,
    WHOLE,
    st.sampled_from(Phase),
    WHOLE,
    SHORT,
    WHOLE,
    st.none() | PARTS,
    st.none() | st.sampled_from(Verdict),
    st.none() | CAUSES,
).filter(lambda view: view.phase is not Phase.ENDED or view.verdict is not None)


@given(REPORTS)
def test_a_report_comes_in_as_it_went_out(report: NodeReport) -> None:
    assert read_report(carried(write_report(report))) == report


@given(VIEWS)
def test_a_view_comes_in_as_it_went_out(view: JobView) -> None:
    assert read_view(carried(write_view(view))) == view


# -- as long as it may be ------------------------------------------------------------------------------------

LONGEST = 130_000  # Linux has no longer word on a command line, and none of the others is as long


def longest_end(letter: str) -> WorkerEnd:
    text = letter * LONGEST
    return replace(END, words=Words(text, text, -1.5e-300), error_file=text, stderr_file=text, tail=(text,) * 99)


def longest_cause(letter: str) -> Cause:
    return Cause(letter * NAME, letter * LONGEST, longest_end(letter))


def longest_report(letter: str) -> NodeReport:
    text = letter * LONGEST
    applicant = Applicant(letter * NAME, MOST_SLOTS, text, text, PORTS, letter * LIFE, MOST_SLOTS)
    return NodeReport(applicant, MOST, Standing.LEAVING, MOST, -1.5e-300, longest_cause(letter))


def longest_view(letter: str) -> JobView:
    text = letter * LONGEST
    seat = Seat(letter * NAME, MOST, MOST_SLOTS, text, MOST, MOST, text, PORTS, letter * LIFE)
    part = Part(seat, MOST, MOST, MOST, text, PORTS)
    return JobView(MOST, Phase.GATHERING, MOST, text, MOST, part, Verdict.SUCCEEDED, longest_cause(letter))


LETTERS = ["x", '"', "\x01", "\x7f", "é", "\u2028", "\udcff", "\U0001f600"]


@pytest.mark.parametrize("letter", LETTERS)
def test_no_report_is_larger_than_a_frame(letter: str) -> None:
    report = longest_report(letter)
    arrived = read_report(inner(carried({"report": write_report(report), "at": 1.5}), "report"))
    applicant, cause = report.applicant, longest_cause(letter)
    assert arrived == replace(
        report,
        applicant=replace(applicant, role=letter * LINE, store_address=letter * ADDRESS),
        cause=replace(cause, sentence=cut(cause.sentence), end=cut_end(longest_end(letter))),
    )


@pytest.mark.parametrize("letter", LETTERS)
def test_no_view_is_larger_than_a_frame(letter: str) -> None:
    view = longest_view(letter)
    arrived = read_view(inner(carried({"view": write_view(view), "at": 1.5}), "view"))
    part, cause = view.part or PART, longest_cause(letter)
    seat = replace(part.seat, role=letter * LINE, store_address=letter * ADDRESS)
    assert arrived == replace(
        view,
        reason=cut(view.reason),
        part=replace(part, seat=seat, store_address=letter * ADDRESS),
        cause=replace(cause, sentence=cut(cause.sentence), end=cut_end(longest_end(letter))),
    )


def inner(said: Fields, name: str) -> Fields:
    found = said.within(name)
    assert found is not None
    return found


def cut_end(end: WorkerEnd) -> WorkerEnd:
    """What the other side hears of an end of which all is too long."""
    assert end.words is not None
    return replace(
        end,
        words=Words(cut(end.words.message, 4096), legible(end.words.callstack)[-12_000:], end.words.raised_at),
        error_file=end.error_file[:4096],
        stderr_file=end.stderr_file[:4096],
        tail=tuple(cut(line, 400) for line in end.tail[-20:]),
    )


def test_the_last_lines_and_the_end_of_a_callstack_are_what_counts() -> None:
    words = Words("m" * 4090 + "the end", "begin" + "c" * 11_999 + "!", None)
    end = replace(END, words=words, tail=tuple(f"line {number}" for number in range(25)))
    arrived = read_report(carried(write_report(replace(REPORT, cause=Cause("n1", "", end))))).cause
    assert arrived is not None and arrived.end is not None
    assert arrived.end.tail == tuple(f"line {number}" for number in range(5, 25))
    assert arrived.end.words == Words("m" * 4090 + "the...", "c" * 11_999 + "!", None)


ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=30) | st.sampled_from(["\ud800" * 4096, "x" * 13_000])


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_what_a_worker_said_is_legible_and_passed_on_as_it_came(first: str, second: str, third: str, last: str) -> None:
    end = replace(END, words=Words(first, second), tail=(third, last))
    view = replace(VIEW, reason=first, cause=Cause("n1", second, end))
    arrived = read_view(carried(write_view(view)))
    assert repr(arrived).encode()
    assert read_view(carried(write_view(arrived))) == arrived
    assert arrived.cause is not None and arrived.cause.end is not None
    assert arrived.reason == cut(first) and arrived.cause.sentence == cut(second)
    assert arrived.cause.end.tail == (cut(third, 400), cut(last, 400))


# -- what is no document -------------------------------------------------------------------------------------

END_AT, PART_AT = ("cause", "end"), ("part",)
WHOLES = [
    (REPORT_SAID, ("seen",), -1, MOST),
    (REPORT_SAID, ("round",), -1, MOST),
    (REPORT_SAID, ("applicant", "slots"), 1, 1 << 20),
    (REPORT_SAID, ("applicant", "store_port"), 0, 65535),
    (REPORT_SAID, ("applicant", "hint"), 0, 1 << 20),
    *((REPORT_SAID, (*END_AT, name), 0, MOST) for name in ("rank", "local_rank", "pid", "step")),
    (REPORT_SAID, (*END_AT, "status"), -255, 255),
    *((VIEW_SAID, (name,), 0, MOST) for name in ("serial", "round", "restarts")),
    *((VIEW_SAID, (*PART_AT, name), 0, MOST) for name in ("group_rank", "first_rank", "first_role_rank")),
    *((VIEW_SAID, (*PART_AT, name), 1, MOST) for name in ("world_size", "group_world_size", "role_world_size")),
    (VIEW_SAID, (*PART_AT, "slots"), 1, 1 << 20),
    (VIEW_SAID, (*PART_AT, "store_port"), 0, 65535),
    (VIEW_SAID, (*PART_AT, "meet_port"), 0, 65535),
]
NODE_WORDS = [("node", 300), ("role", 1000), ("store_address", 300), ("life", 100)]
WORDS_SAID = [
    *((REPORT_SAID, ("applicant", name), most) for name, most in NODE_WORDS),
    *((VIEW_SAID, (*PART_AT, name), most) for name, most in (*NODE_WORDS, ("meet_address", 300))),
    (REPORT_SAID, ("cause", "node"), 300),
    (REPORT_SAID, (*END_AT, "error_file"), 4096),
    (REPORT_SAID, (*END_AT, "stderr_file"), 4096),
]
TEXTS_SAID = [
    (VIEW_SAID, ("reason",), 1000),
    (VIEW_SAID, ("cause", "sentence"), 1000),
    (REPORT_SAID, (*END_AT, "message"), 4096),
    (REPORT_SAID, (*END_AT, "callstack"), 12_000),
]
NUMBERS = [(REPORT_SAID, ("sent_at",)), (REPORT_SAID, (*END_AT, "at")), (REPORT_SAID, (*END_AT, "raised_at"))]
FLAGS = [(REPORT_SAID, (*END_AT, "asked")), (REPORT_SAID, (*END_AT, "returned"))]
CHOICES = [(REPORT_SAID, ("standing",)), (VIEW_SAID, ("phase",)), (VIEW_SAID, ("verdict",))]
INNER = [
    (REPORT_SAID, ("applicant",)),
    (REPORT_SAID, ("cause",)),
    (REPORT_SAID, END_AT),
    (VIEW_SAID, PART_AT),
    (VIEW_SAID, ("cause",)),
]
MAY_BE_MISSING = {"cause", "end", "part", "hint", "step", "message", "raised_at"}

ODD: list[object] = [True, [1], {}]

Said = dict[str, Any]
Path = tuple[str, ...]


def changed(said: Said, path: Path, entry: object) -> Said:
    """A copy of a document with another entry at this place."""
    copied = inside = copy.deepcopy(said)
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = entry
    return copied


def read(said: Said) -> NodeReport | JobView:
    return read_report(Fields(said)) if "standing" in said else read_view(Fields(said))


def write(document: NodeReport | JobView) -> Said:
    return write_report(document) if isinstance(document, NodeReport) else write_view(document)


def why_not(said: Said) -> str:
    with pytest.raises(Nonsense) as caught:
        read(said)
    return str(caught.value)


@pytest.mark.parametrize(("said", "path", "least", "most"), WHOLES)
def test_a_whole_number_has_bounds(said: Said, path: Path, least: int, most: int) -> None:
    for entry in (least, most):
        same = changed(said, path, entry)
        assert write(read(same)) == same
    why = f"{path[-1]!r} that is no whole number from {least} to {most}"
    for bad in (least - 1, most + 1, 10**400, 1.0, "1", *ODD):
        assert why_not(changed(said, path, bad)) == why


@pytest.mark.parametrize(("said", "path", "most"), WORDS_SAID)
def test_a_word_is_one_that_an_environment_can_hold(said: Said, path: Path, most: int) -> None:
    for entry in ("", "x" * most, "\udcff"):
        same = changed(said, path, entry)
        assert write(read(same)) == same
    for bad in ("x" * (most + 1), "a\0b", "\ud800", 1, *ODD):
        assert why_not(changed(said, path, bad)) == f"{path[-1]!r} that is no word of at most {most} characters"


@pytest.mark.parametrize(("said", "path", "most"), TEXTS_SAID)
def test_a_text_has_a_length(said: Said, path: Path, most: int) -> None:
    for entry in ("", "x" * most, "two\nlines\0"):
        same = changed(said, path, entry)
        assert write(read(same)) == same
    assert write(read(changed(said, path, "\ud800"))) == changed(said, path, "\\ud800")
    for bad in ("x" * (most + 1), 1, *ODD):
        assert why_not(changed(said, path, bad)) == f"{path[-1]!r} that is no text of at most {most} characters"


@pytest.mark.parametrize(("said", "path"), NUMBERS)
def test_a_moment_is_a_number(said: Said, path: Path) -> None:
    for bad in (float("nan"), float("inf"), 1e16, 10**400, "1", *ODD):
        assert why_not(changed(said, path, bad)) == f"{path[-1]!r} that is no number from -1e+15 to 1e+15"


@pytest.mark.parametrize(("said", "path"), FLAGS)
def test_a_flag_is_true_or_false(said: Said, path: Path) -> None:
    for bad in (0, 1, "true", *ODD[1:]):
        assert why_not(changed(said, path, bad)) == f"{path[-1]!r} that is neither true nor false"


@pytest.mark.parametrize(("said", "path"), CHOICES)
def test_a_state_is_one_of_those_there_are(said: Said, path: Path) -> None:
    for bad in ("READY", "", 0, *ODD):
        assert why_not(changed(said, path, bad)) == f"{path[-1]!r} that is no {path[-1].title()}"


@pytest.mark.parametrize(("said", "path"), INNER)
def test_what_is_inside_is_an_object(said: Said, path: Path) -> None:
    for bad in ("", 0, *ODD[:-1]):
        assert why_not(changed(said, path, bad)) == "something that is no JSON object"


def test_a_tail_is_a_list_of_short_lines() -> None:
    path = (*END_AT, "tail")
    for entry in ([], ["x" * 400] * 20):
        same = changed(REPORT_SAID, path, entry)
        assert write(read(same)) == same
    for long in [["x"] * 21, *ODD[:1], *ODD[2:]]:
        assert why_not(changed(REPORT_SAID, path, long)) == "'tail' that is no list of at most 20 texts"
    for odd in (["x" * 401], [1], [None], [["x"]]):
        assert (
            why_not(changed(REPORT_SAID, path, odd))
            == "'tail' with something that is no text of at most 400 characters"
        )


ROWS: list[tuple[Any, ...]] = [*WHOLES, *WORDS_SAID, *TEXTS_SAID, *NUMBERS, *FLAGS, *CHOICES, *INNER]
PLACES: list[tuple[Said, Path]] = [row[:2] for row in ROWS]


@pytest.mark.parametrize(("said", "path"), PLACES)
def test_only_what_is_optional_may_be_missing(said: Said, path: Path) -> None:
    missing = changed(said, path, None)
    if path[-1] in MAY_BE_MISSING:
        assert read(missing) != read(said)
    elif path == ("applicant",):
        assert why_not(missing) == "a report of nobody"
    else:
        assert why_not(missing).startswith(f"{path[-1]!r} that is n")


def test_an_end_has_a_verdict_and_nothing_else_needs_one() -> None:
    said = {name: entry for name, entry in write_view(VIEW).items() if name != "verdict"}
    assert why_not(said) == "'verdict' that is no Verdict"
    assert read_view(carried({**said, "phase": "running"})).verdict is None


STRANGE: list[object] = [
    None, True, -1, 0, 1, 1 << 62, 10**30, 10**400, 1e300, float("nan"), float("-inf"), "", "a\0", "\ud800", "x" * 5000,
    "ready", "ended", [], [[]], ["a"] * 30, {}, {"node": "n1"}, {"end": {}},
]  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_whatever_comes_is_a_document_or_nonsense(seed: int) -> None:
    chance = random.Random(seed)
    said = chance.choice([REPORT_SAID, VIEW_SAID])
    places = [path for one, path in PLACES if one is said]
    for path in chance.sample(places, chance.randint(0, 3)):
        try:
            said = changed(said, path, chance.choice(STRANGE))
        except (KeyError, TypeError):  # what it is in was changed before
            pass
    body = bytearray(json.dumps(said).encode())
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randrange(len(body))
        body[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
    body = body[: chance.choice([len(body), len(body), chance.randrange(len(body))])]
    frames = Frames()
    for each in (read_report, read_view):
        try:
            (arrived,) = frames.received(len(body).to_bytes(4, "big") + bytes(body))
            document = each(arrived)
        except Nonsense as nonsense:
            assert str(nonsense)
        else:
            assert each(carried(write(document))) == document
            assert repr(document)
