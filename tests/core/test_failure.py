"""What a failure is, which came first, and what can be had from the strangest error file."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.failure import (
    WORDS_LIMIT,
    Cause,
    Words,
    WorkerEnd,
    cause_of,
    death_of,
    earliest,
    first_of,
    read_words,
    shorten,
    summary_of,
    write_words,
)
from relight.core.names import ExitStatus
from relight.core.values import replace

T = 1_790_000_000.0  # a moment of 2026


def end(
    rank: int = 0,
    code: int = 1,
    at: float = T,
    asked: bool = False,
    words: Words | None = None,
    tail: tuple[str, ...] = (),
) -> WorkerEnd:
    return WorkerEnd(rank, rank, 100 + rank, ExitStatus(code), at, asked=asked, words=words, tail=tail)


BOOM = Words("ValueError: boom", "Traceback ...", T - 1)


@pytest.mark.parametrize(
    ("one", "ok", "own"),
    [
        (end(code=0), True, False),
        (end(code=0, asked=True), True, False),
        (end(code=1), False, True),
        (end(code=-11), False, True),
        (end(code=-15, asked=True), False, False),
        (end(code=-9, asked=True), False, False),
        (end(code=1, asked=True), False, True),
        (end(code=-6, asked=True, words=BOOM), False, True),
    ],
)
def test_a_failure_of_its_own_is_one_that_relight_did_not_bring(one: WorkerEnd, ok: bool, own: bool) -> None:
    assert (one.ok, one.own_failure) == (ok, own)


@pytest.mark.parametrize(
    ("words", "failed_at"),
    [(None, T), (Words("x"), T), (Words("x", "", T - 0.25), T - 0.25), (Words("x", "", T + 9), T)],
)
def test_it_failed_when_it_says_so_but_never_after_its_end(words: Words | None, failed_at: float) -> None:
    assert end(words=words).failed_at == failed_at


def test_the_first_failure_is_the_earliest_that_is_its_own() -> None:
    ended_by_us = end(0, -15, T - 5, asked=True)
    raised_early = end(1, 1, T + 2, words=Words("x", "", T - 0.001))
    seen_early = end(2, 1, T)
    assert first_of([ended_by_us, seen_early, raised_early]) is raised_early
    assert first_of([ended_by_us, seen_early]) is seen_early
    assert first_of([ended_by_us, end(3, 0)]) is None
    assert first_of([]) is None


def test_a_worker_was_not_asked_to_end_unless_it_says_so() -> None:
    assert WorkerEnd(0, 0, 100, ExitStatus(-9), T).own_failure


def test_of_two_failures_at_one_moment_the_first_named_is_first() -> None:
    assert first_of([end(4), end(2)]) == end(4)


DECIDED = cause_of("n1", end(1, at=T))
SOONER = end(0, at=T + 3, words=Words("ValueError: boom", "", T - 0.01))


@pytest.mark.parametrize(
    ("cause", "node", "ends", "shown"),
    [
        (DECIDED, "n1", [end(1, at=T), SOONER], cause_of("n1", SOONER)),
        (DECIDED, "n2", [SOONER], DECIDED),
        (DECIDED, "n1", [end(0, at=T)], DECIDED),
        (DECIDED, "n1", [end(1, at=T)], DECIDED),
        (DECIDED, "n1", [], DECIDED),
        (Cause("n1", "n1 could not start its workers"), "n1", [SOONER], Cause("n1", "n1 could not start its workers")),
        (None, "n1", [SOONER], None),
    ],
)
def test_a_failure_that_came_sooner_but_was_seen_later_is_the_cause(
    cause: Cause | None, node: str, ends: list[WorkerEnd], shown: Cause | None
) -> None:
    assert earliest(cause, node, ends) == shown


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (end(3, 7), "rank 3 on n1 (local rank 3) exited with 7"),
        (end(3, -9), "rank 3 on n1 (local rank 3) was killed by SIGKILL"),
        (end(3, 1, words=BOOM), "rank 3 on n1 (local rank 3) exited with 1: ValueError: boom"),
    ],
)
def test_a_cause_is_one_sentence(one: WorkerEnd, sentence: str) -> None:
    assert cause_of("n1", one) == Cause("n1", sentence, one)


@pytest.mark.parametrize(
    ("code", "heading"), [(1, "exit code 1"), (-9, "killed by SIGKILL"), (-33, "killed by signal 33")]
)
def test_how_it_died_as_a_heading(code: int, heading: str) -> None:
    assert death_of(end(code=code)) == heading


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    raise ValueError('boom')",
    "ValueError: boom",
)
FROM_TORCH = tuple(f"[rank3]: {line}" for line in TRACEBACK)
AT_EXIT = "[rank3]:[W1118 ProcessGroup.cpp:1250] Warning: WARNING: destroy_process_group() was not called"


@pytest.mark.parametrize(
    ("words", "tail", "summary"),
    [
        (Words("ValueError: boom\nand more"), (), "ValueError: boom"),
        (Words("\n  spaced  \nmore"), (), "spaced"),
        (Words(" \n "), TRACEBACK, "ValueError: boom"),
        (Words(""), (), ""),
        (Words("x" * 500), (), "x" * 197 + "..."),
        (None, (), ""),
        (None, TRACEBACK, "ValueError: boom"),
        (None, (*TRACEBACK, "a second line: of the message"), "ValueError: boom"),
        (None, FROM_TORCH, "ValueError: boom"),
        (None, (*FROM_TORCH, AT_EXIT), "ValueError: boom"),
        (None, (*TRACEBACK, "During handling of this:", *TRACEBACK[:3], "KeyError: 'x'"), "KeyError: 'x'"),
        (None, TRACEBACK[2:], "ValueError: boom"),
        (None, (*TRACEBACK[:3], "torch.OutOfMemoryError: no memory"), "torch.OutOfMemoryError: no memory"),
        (None, (*TRACEBACK[:3], "KeyboardInterrupt"), "KeyboardInterrupt"),
        (None, (*TRACEBACK[:3], "package.Stopped"), "package.Stopped"),
        (None, (*TRACEBACK[:3], "done"), ""),
        (None, (*TRACEBACK[:3], ": odd"), ": odd"),
        (None, ("Fatal Python error: Segmentation fault", '  File "x.py", line 3 in f', "Extension modules: numpy"),
         "Fatal Python error: Segmentation fault"),
        (None, ("usage: train.py [-h]", "                [--lr LR]", "train.py: error: no such option: --x"),
         "train.py: error: no such option: --x"),
        (None, ("terminate called after throwing an instance of 'c10::Error'", "  what():  oh: no"), ""),
        (None, ("step 1", "  loss: 3", "step 2"), ""),
        (None, ("note: not a traceback", "two words: said later"), "two words: said later"),
        (None, (*TRACEBACK[:3], " indented by one", "KeyError: 'x'"), "KeyError: 'x'"),
        (None, (*TRACEBACK[:3], " indented by one", "KeyboardInterrupt"), "KeyboardInterrupt"),
        (None, (*TRACEBACK, "Goodbye"), "ValueError: boom"),
        (None, (*FROM_TORCH[:3], "[rank3]: KeyError: [1]: 2"), "KeyError: [1]: 2"),
        (None, (*TRACEBACK[:3], "ValueError:", "note: more"), "ValueError:"),
        (None, (*TRACEBACK[:3], "struct.error: too short", "note: more"), "struct.error: too short"),
        (None, ("[rankless]: a: b",), "[rankless]: a: b"),
    ],
)  # fmt: skip
def test_one_line_says_most(words: Words | None, tail: tuple[str, ...], summary: str) -> None:
    assert summary_of(end(words=words, tail=tail)) == summary


@given(st.lists(st.text(max_size=30)).map(tuple), st.none() | st.builds(Words, st.text()))
def test_whatever_it_said_the_summary_is_one_short_line(tail: tuple[str, ...], words: Words | None) -> None:
    lines = tuple(line for whole in tail for line in whole.splitlines())
    summary = summary_of(end(words=words, tail=lines))
    assert len(summary.splitlines()) <= 1
    assert len(summary) <= 200


def test_a_line_is_shortened_only_if_it_must_be() -> None:
    assert shorten("x" * 200) == "x" * 200
    assert shorten("abcdef", 5) == "ab..."


def file(message: object, **more: object) -> bytes:
    return json.dumps({"message": message, **more}).encode()


def by_torch(message: object = "E: x", **extra: object) -> bytes:
    return file({"message": message, "extraInfo": extra})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (by_torch(py_callstack="Traceback", timestamp="1790000000"), Words("E: x", "Traceback", T)),
        (by_torch(py_callstack="Traceback", timestamp=1790000000), Words("E: x", "Traceback", T)),
        (by_torch(timestamp_ns="1790000000250000000", timestamp="1790000000"), Words("E: x", "", T + 0.25)),
        (by_torch(timestamp_ns="soon", timestamp="1790000000"), Words("E: x", "", T)),
        (by_torch(), Words("E: x")),
        (by_torch(py_callstack=["a", "b"], timestamp="now"), Words("E: x")),
        (by_torch(timestamp=[1]), Words("E: x")),
        (by_torch(timestamp="0"), Words("E: x")),
        (by_torch(timestamp="12345.6"), Words("E: x")),
        (by_torch(timestamp=1790000000000), Words("E: x")),
        (by_torch(timestamp=-1), Words("E: x")),
        (by_torch(timestamp="nan"), Words("E: x")),
        (by_torch(timestamp="1e999"), Words("E: x")),
        (by_torch(timestamp=10**400), Words("E: x")),
        (by_torch(timestamp=True), Words("E: x")),
        (by_torch(timestamp=10**9), Words("E: x")),
        (by_torch(timestamp=10**9 + 1), Words("E: x", "", 1e9 + 1)),
        (by_torch(timestamp=10**10 - 1), Words("E: x", "", 1e10 - 1)),
        (by_torch(timestamp=10**10), Words("E: x")),
        (by_torch(message=None), Words("")),
        (by_torch(message=["a", 1]), Words("['a', 1]")),
        (by_torch(message="a\ud800"), Words("a\\ud800")),
        (by_torch(py_callstack="a\udcff"), Words("E: x", "a\\udcff")),
        (file({"message": "E: x", "extraInfo": "none"}), Words("E: x")),
        (file({"message": "E: x", "errorCode": 3}), Words("E: x")),
        (file({}), Words("")),
        (file("plain", timestamp=1790000000), Words("plain", "", T)),
        (file("plain", timestamp="1790000000"), Words("plain", "", T)),
        (file("plain"), Words("plain")),
        (file("a\ud800"), Words("a\\ud800")),
        (file(None), None),
        (file(3), None),
        (file([]), None),
        (b"", None),
        (b"{}", None),
        (b"null", None),
        (b"3", None),
        (b'"message"', None),
        (b'["message"]', None),
        (b'{"message": {"message": "torn', None),
        (b"\xff\xfe\x00", None),
        (b'{"message": "' + b"1" * 10 + b'", "timestamp": ' + b"9" * 5000 + b"}", None),
        (b"[" * 100_000, None),
        (b'{"message": "E: x"}' + b" " * (WORDS_LIMIT - 19), Words("E: x")),
        (b'{"message": "E: x"}' + b" " * (WORDS_LIMIT - 18), None),
        (b'{"message": {"message": ' + b"[" * 5000 + b"]" * 5000 + b"}}", None),
        (b'{"message": "' + b"x" * WORDS_LIMIT + b'"}', None),
    ],
)  # fmt: skip
def test_an_error_file_gives_what_can_be_had(raw: bytes, words: Words | None) -> None:
    assert read_words(raw) == words


def test_no_depth_of_nesting_hurts() -> None:
    for depth in range(900, 1010, 3):
        read_words(b'{"message": {"message": ' + b"[" * depth + b"]" * depth + b"}}")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["message", "extraInfo", "timestamp", "timestamp_ns", "py_callstack", "x"]), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@given(ANYTHING.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=200))
def test_no_error_file_hurts(raw: bytes) -> None:
    words = read_words(raw)
    if words is not None:
        assert (words.message + words.callstack).encode() is not None
        assert words.raised_at is None or 1e9 < words.raised_at < 1e10
        torn = read_words(raw[: len(raw) // 2])
        assert torn is None or isinstance(torn, Words)


@given(st.text(), st.text(), st.floats(1.1e9, 4e9))
def test_what_is_written_is_read_again(message: str, callstack: str, raised_at: float) -> None:
    document = write_words(Words(message, callstack, raised_at))
    words = read_words(json.dumps(document).encode())
    assert words is not None
    assert (words.message, words.callstack) == (message, callstack)
    assert words.raised_at == pytest.approx(raised_at, abs=1e-6)
    assert document["message"]["extraInfo"]["timestamp"] == str(int(raised_at))


def test_a_moment_that_is_not_known_is_written_as_zero_and_read_as_unknown() -> None:
    document = write_words(Words("E: x"))
    assert document["message"]["extraInfo"]["timestamp"] == "0"
    assert read_words(json.dumps(document).encode()) == Words("E: x")


@pytest.mark.slow
def test_torch_reads_what_is_written_here(tmp_path: Path) -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    path = tmp_path / "error.json"
    words = Words("ValueError: boom", "Traceback (most recent call last):\nValueError: boom\n", T + 0.5)
    path.write_text(json.dumps(write_words(words)))
    failure: Any = errors.ProcessFailure(local_rank=1, pid=7, exitcode=3, error_file=str(path))
    assert failure.timestamp == int(T)
    assert failure.message["message"] == words.message
    report = str(errors.ChildFailedError("train.py", {5: failure}))
    assert "  traceback : Traceback (most recent call last):\n  ValueError: boom" in report
    assert f"  error_file: {path}" in report


@pytest.mark.slow
def test_what_torch_writes_is_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    handler: Any = errors.get_error_handler()
    try:
        raise ValueError("boom")
    except ValueError as error:
        handler.record_exception(error)
    words = read_words(path.read_bytes())
    assert words is not None
    assert words.message == "ValueError: boom"
    assert words.callstack.startswith("Traceback (most recent call last):")
    assert words.callstack.rstrip().endswith("ValueError: boom")
    assert words.raised_at is not None
    assert replace(words, raised_at=None).raised_at is None


@pytest.mark.parametrize(
    ("code", "returned", "ok"),
    [
        (-signal.SIGABRT, True, True),
        (-signal.SIGABRT, False, False),
        (-signal.SIGSEGV, True, False),
        (-9, True, False),
        (-15, True, False),
        (1, True, False),
    ],
)
def test_only_an_abort_after_the_script_had_returned_is_forgiven(code: int, returned: bool, ok: bool) -> None:
    worker = WorkerEnd(0, 0, 100, ExitStatus(code), 1e9, returned=returned)
    assert (worker.ok, worker.forgiven, worker.own_failure) == (ok, ok, not ok)


def test_a_warning_does_not_explain_a_signal_but_a_traceback_does() -> None:
    warning = "[W1118 reducer.cpp:1529] Warning: find_unused_parameters=True was specified"
    traceback = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: boom")
    assert summary_of(WorkerEnd(0, 0, 100, ExitStatus(-9), 1e9, tail=(warning,))) == ""
    assert summary_of(WorkerEnd(0, 0, 100, ExitStatus(1), 1e9, tail=(warning,))) == warning
    assert summary_of(WorkerEnd(0, 0, 100, ExitStatus(-6), 1e9, tail=traceback)) == "ValueError: boom"
