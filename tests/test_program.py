"""`relight.run`: what it refuses, and what it fills in."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

import relight


def test_an_environment_that_no_worker_can_have_is_refused() -> None:
    with pytest.raises(relight.UsageError, match="NUL character"):
        relight.run(relight.Launch("train.py"), {"NAME": "a\0b"})


def test_a_job_without_a_name_is_given_a_random_uuid(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    outcome = relight.run(relight.Launch(str(tmp_path / "train.py")), {**os.environ, "TMPDIR": str(tmp_path)})
    assert str(uuid.UUID(outcome.story.job, version=4)) == outcome.story.job


def test_a_failed_job_tells_its_outcome(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    with pytest.raises(relight.JobFailed) as caught:
        relight.run(relight.Launch(str(tmp_path / "train.py")), {**os.environ, "TMPDIR": str(tmp_path)})
    first = caught.value.outcome.story.first_cause
    assert (first.end.rank, first.end.status.number) == (0, 7)


def test_a_stopped_job_is_no_failed_one(tmp_path: Path) -> None:
    """Whoever starts a failed job over must not start one over that somebody has stopped."""
    (tmp_path / "train.py").write_text("import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(60)")
    with pytest.raises(relight.JobStopped, match="stopped by a signal") as caught:
        relight.run(relight.Launch(str(tmp_path / "train.py")), {**os.environ, "TMPDIR": str(tmp_path)})
    assert not isinstance(caught.value, relight.JobFailed)
    assert caught.value.outcome.stop_signal == signal.SIGINT


def test_streams_are_written_as_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("print('a line')")
    output = relight.Output(log_dir=str(tmp_path / "logs"), tee=relight.streams("1"))
    relight.run(relight.Launch(str(tmp_path / "train.py"), output=output))
    assert capfd.readouterr().out == "[default0]:a line\n"


class Odd:
    def __index__(self) -> int:
        raise RuntimeError("no number today")


@pytest.mark.parametrize("number", [2.5, None, "7", float("nan"), -1, 1 << 70, Odd()])
def test_a_step_that_is_none_hurts_nobody(number: object, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr("relight.worker.step._teller.tell", told.append)
    relight.step(number)  # type: ignore[arg-type]
    assert told == []


class LikeNumpy:
    def __index__(self) -> int:
        return 4


def test_a_step_may_be_any_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr("relight.worker.step._teller.tell", told.append)
    relight.step(LikeNumpy())
    assert [(number, type(number)) for number in told] == [(4, int)]
