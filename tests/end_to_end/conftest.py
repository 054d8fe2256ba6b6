"""What every end-to-end test starts with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import Runs, runs_in


@pytest.fixture
def relight(tmp_path: Path) -> Iterator[Runs]:
    """`relight("--nproc-per-node=2", relight.script("..."))` starts a launcher; whatever it leaves is ended."""
    with runs_in(tmp_path) as runs:
        yield runs
