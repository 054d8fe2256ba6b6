"""What is known of a round's workers, and who is told of it."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from relight.core.failure import Cause, WorkerEnd
from relight.core.names import ExitStatus
from relight.core.page import Story
from relight.core.room import Closed, Fact, Hello, Returned, Step
from relight.core.roster import Applicant, seat
from relight.shell import account as account_module
from relight.shell.account import MOST_REMARKS, Account, hand_in

PLACES = seat([Applicant("n0", 3), Applicant("n1", 2)], None, 9).parts()["n1"].places()  # ranks 3 and 4
FIRST, SECOND = Hello(0, 7), Hello(1, 7)
FAILED = ExitStatus(1)


def account(*said: tuple[Hello, Fact]) -> Account:
    made = Account(7, PLACES)
    for who, fact in said:
        made.heard(who, fact)
    return made


def end_of(account: Account, local_rank: int = 0, status: ExitStatus = FAILED, folder: str = "") -> WorkerEnd:
    files = [f"{folder}/error.json", f"{folder}/stderr.log"] if folder else ["", ""]
    return account.end_of(local_rank, 100, status, 5.0, *files)


def test_an_end_is_told_with_everything_that_the_worker_left(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text(json.dumps({"message": {"message": "ValueError: no"}}))
    (tmp_path / "stderr.log").write_text("one\ntwo\n")
    end = end_of(account((SECOND, Step(3)), (SECOND, Step(4))), 1, folder=str(tmp_path))
    assert (end.rank, end.local_rank, end.pid, end.at, end.step, end.returned) == (4, 1, 100, 5.0, 4, False)
    assert end.words is not None and end.words.message == "ValueError: no"
    assert end.tail == ("one", "two")


def test_files_that_do_not_answer_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hung file system must not hang the agent, for each of its workers anew."""
    asked: list[str] = []
    hung = threading.Event()
    monkeypatch.setattr(account_module, "TELLING_S", 0.01)
    monkeypatch.setattr(account_module, "words_in", lambda path: [asked.append(path), hung.wait()])  # type: ignore[func-returns-value]
    try:
        heard = account()
        ends = [end_of(heard, local_rank, folder="/logs") for local_rank in (0, 1)]
    finally:
        hung.set()
    assert [(end.words, end.tail) for end in ends] == [(None, ())] * 2
    assert asked == ["/logs/error.json"]


def test_who_ended_well_has_nothing_to_explain(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text(json.dumps({"message": "an old one"}))
    (tmp_path / "stderr.log").write_text("a warning\n")
    end = end_of(account(), status=ExitStatus(0), folder=str(tmp_path))
    assert (end.words, end.tail) == (None, ())
    assert end.stderr_file == f"{tmp_path}/stderr.log"


@pytest.mark.parametrize("who", [Hello(0, 6), Hello(2, 7)])
def test_whoever_is_not_of_the_round_is_not_heard(who: Hello) -> None:
    heard = account((who, Step(9)), (who, Returned()), (who, Closed("closed something")))
    assert [end_of(heard, local_rank).step for local_rank in (0, 1)] == [None, None]
    assert heard.remarks() == []


def test_before_the_first_round_nobody_is_heard() -> None:
    early = Account(-1, ())
    early.heard(Hello(0, 0), Closed("closed something"))
    assert early.remarks() == []


def test_what_several_workers_did_is_one_remark() -> None:
    heard = account((SECOND, Closed("left late")), (FIRST, Closed("left late")), (FIRST, Closed("left a thread")))
    assert heard.remarks() == ["local rank 0, 1 left late", "local rank 0 left a thread"]


def test_an_abort_after_the_script_had_returned_is_worth_a_remark() -> None:
    heard = account((FIRST, Returned()))
    end = end_of(heard, status=ExitStatus(-signal.SIGABRT))
    assert end.ok and end.returned
    assert not end_of(heard, 1, ExitStatus(-signal.SIGABRT)).ok, "the other one had not returned"
    assert heard.remarks() == [
        "local rank 0 was killed by SIGABRT after its script had returned, and counts as finished"
    ]


def test_a_chatty_worker_does_not_fill_the_console() -> None:
    heard = account(*[(FIRST, Closed(f"did {number}")) for number in range(99)], (SECOND, Closed("did 0")))
    assert len(heard.remarks()) == MOST_REMARKS
    assert heard.remarks()[0] == "local rank 0, 1 did 0"


def story(error_file: str = "") -> Story:
    end = end_of(account(), folder=error_file)
    cause = Cause("n1", "rank 3 failed", end)
    return Story("job", "train.py", "n1", 7, 0, 0, "rank 3 failed", cause, (end,))


def test_report_and_first_cause_are_handed_in(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text(json.dumps({"message": {"message": "ValueError: no"}}))
    report, parent = str(tmp_path / "report.json"), str(tmp_path / "parent.json")
    said: list[str] = []
    told = hand_in(story(str(tmp_path)), report, parent, said.append)
    assert (told.report, said) == (report, [])
    assert json.loads(Path(report).read_text())["reason"] == "rank 3 failed"
    assert json.loads(Path(parent).read_text()) == {"message": {"message": "ValueError: no", "errorCode": 1}}


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text(json.dumps({"message": "no"}))
    report, parent = f"{tmp_path}/none/report.json", f"{tmp_path}/none/parent.json"
    said: list[str] = []
    told = hand_in(story(str(tmp_path)), report, parent, said.append)
    assert told.report == ""
    assert said[0] == f"{report} could not be written: No such file or directory"
    assert len(said) == 2 and parent in said[1]


def test_nobody_asks_and_nothing_is_written(tmp_path: Path) -> None:
    said: list[str] = []
    assert hand_in(story(), "", "", said.append) == story()
    assert said == []
