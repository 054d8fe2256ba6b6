from __future__ import annotations

import json
import os
import pickle
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from relight.compat import ChildFailedError, ErrorHandler, ProcessFailure, SignalException, record
from relight.compat.errors import TORCH_ERRORS, also_torchs, get_error_handler

WORDS = {
    "message": "KeyError: 'x'",
    "extraInfo": {"py_callstack": "Traceback ...\nKeyError: 'x'", "timestamp": "1700000000"},
}


def failure(tmp_path: Path, content: str | None, exitcode: int = 1) -> ProcessFailure:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
    if content is not None:
        path.write_text(content)
    return ProcessFailure(0, 4711, exitcode, str(path))


def test_a_failure_has_the_workers_own_words(tmp_path: Path) -> None:
    found = failure(tmp_path, json.dumps({"message": WORDS}))
    assert found.message == WORDS
    assert found.error_file_data == {"message": WORDS}
    assert found.timestamp == 1700000000
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d", found.timestamp_isoformat())


def test_the_older_form_of_an_error_file_is_read(tmp_path: Path) -> None:
    found = failure(tmp_path, '{"message": "it broke", "timestamp": 1700000007}')
    assert (found.message, found.timestamp) == ("it broke", 1700000007)


@pytest.mark.parametrize("content", [None, "", "{", "[1]", '{"massage": 1}'])
def test_without_words_it_says_what_can_be_said(tmp_path: Path, content: str | None) -> None:
    found = failure(tmp_path, content, exitcode=-9)
    assert found.message == "Signal 9 (SIGKILL) received by PID 4711"
    assert (found.signal_name(), found.error_file) == ("SIGKILL", "<N/A>")
    assert str(failure(tmp_path, content).message).startswith("To enable traceback see: ")
    assert failure(tmp_path, content).signal_name() == "<N/A>"


def test_the_block_names_the_first_failure_last(tmp_path: Path) -> None:
    first = failure(tmp_path, json.dumps({"message": WORDS}))
    other = failure(tmp_path, None, exitcode=-15)
    error = ChildFailedError("train.py", {3: other, 5: first})
    assert error.get_first_failure() == (5, first)
    lines = error.format_msg("#", "~").splitlines()
    assert lines[:4] == ["", "#" * 60, "train.py FAILED", "~" * 60]
    assert lines[lines.index("Root Cause (first observed failure):") + 1] == "[1]:"
    assert "  exitcode  : -15 (pid: 4711) (SIGTERM)" in lines
    assert lines[-3:] == ["  traceback : Traceback ...", "  KeyError: 'x'", "#" * 60]
    assert "<NO_OTHER_FAILURES>" in ChildFailedError("x", {0: first}).format_msg()


def test_the_block_does_not_steer_a_terminal(tmp_path: Path) -> None:
    first = failure(tmp_path, '{"message": "\\u001b[2J bad\\tword"}')
    assert "\n  traceback : \\x1b[2J bad\tword\n" in ChildFailedError("x", {0: first}).format_msg()
    assert first.message == "\x1b[2J bad\tword"


def test_a_failed_job_can_be_pickled(tmp_path: Path) -> None:
    error = ChildFailedError("train.py", {5: failure(tmp_path, None)}, "page")
    again = pickle.loads(pickle.dumps(error))
    assert (again.name, again.failures, again.page, str(again)) == (error.name, error.failures, "page", str(error))


def test_a_failed_job_has_a_failure() -> None:
    with pytest.raises(AssertionError):
        ChildFailedError("train.py", {})


def test_what_is_raised_is_also_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert also_torchs(ChildFailedError, "no.such.module") is ChildFailedError

    class Torchs(Exception):
        def get_first_failure(self) -> None:
            raise NotImplementedError

    module = types.ModuleType(TORCH_ERRORS)
    module.ChildFailedError = Torchs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, TORCH_ERRORS, module)
    both = also_torchs(ChildFailedError, TORCH_ERRORS)
    assert also_torchs(ChildFailedError, TORCH_ERRORS) is both
    with pytest.raises(Torchs) as caught:
        raise both("x", {0: failure(tmp_path, None)})
    assert isinstance(caught.value, ChildFailedError)
    assert caught.value.get_first_failure()[0] == 0
    assert type(pickle.loads(pickle.dumps(caught.value))) is ChildFailedError


def test_a_signal_is_an_exception_with_its_number() -> None:
    import signal

    assert SignalException("stopped", signal.SIGTERM).sigval is signal.SIGTERM


@pytest.fixture
def error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path


def fail(error: BaseException) -> Any:
    @record
    def main() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        main()
    return caught.value


def test_record_writes_what_an_exception_says(error_file: Path) -> None:
    error = ValueError("no")
    assert fail(error) is error
    message = json.loads(error_file.read_text())["message"]
    assert message["message"] == "ValueError: no"
    assert message["extraInfo"]["py_callstack"].startswith("Traceback")
    assert os.listdir(error_file.parent) == ["error.json"]


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit("text"), KeyboardInterrupt()])
def test_record_lets_others_pass(error_file: Path, error: BaseException) -> None:
    fail(error)
    assert not error_file.exists()


def test_record_takes_exit_0_for_a_return(error_file: Path) -> None:
    assert record(lambda: sys.exit(0))() is None
    assert record(lambda one, *, other: (one, other))(1, other=2) == (1, 2)


def test_record_passes_on_the_cause_of_a_failed_job(error_file: Path, tmp_path: Path) -> None:
    fail(ChildFailedError("inner", {0: failure(tmp_path, json.dumps({"message": WORDS}), exitcode=-11)}))
    assert json.loads(error_file.read_text()) == {"message": {**WORDS, "errorCode": -11}}


def test_record_without_a_place_to_write_only_passes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    fail(ValueError("no"))
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "error.json"))
    fail(ValueError("no"))
    fail(ChildFailedError("inner", {0: failure(tmp_path, None)}))


class Marking(ErrorHandler):
    """As programs extend it."""

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        rootcause_error["message"]["errorCode"] = error_code * 2


def test_a_handler_of_ones_own_is_asked(error_file: Path, tmp_path: Path) -> None:
    inner = failure(tmp_path, json.dumps({"message": WORDS}), exitcode=4)

    def main() -> None:
        raise ChildFailedError("inner", {0: inner})

    with pytest.raises(ChildFailedError):
        record(main, Marking())()
    assert json.loads(error_file.read_text())["message"]["errorCode"] == 8


def test_a_torn_file_of_a_child_is_not_passed_on(error_file: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.json"
    torn.write_text("{")
    get_error_handler().dump_error_file(str(torn), 1)
    assert not error_file.exists()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("x" * 2_000_000), "ValueError: xxx"), (Unspeakable(), "Unspeak")]
)
def test_what_is_too_long_or_has_no_words_is_told_as_far_as_it_can_be(
    error_file: Path, error: Exception, said: str
) -> None:
    fail(error)
    found = ProcessFailure(0, 4711, 1, str(error_file))
    assert isinstance(found.message, dict) and found.message["message"].startswith(said)
