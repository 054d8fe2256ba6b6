"""`relight.run`: what it refuses, and what it fills in."""

from __future__ import annotations

import os
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
