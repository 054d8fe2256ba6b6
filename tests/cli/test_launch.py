"""`python -m relight.launch`: the old form goes to the same launcher, and says that it is the old form."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import relight.cli.main
from relight import launch


def test_the_old_form_is_told_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []

    def main(argv: Sequence[str] | None = None, *, legacy: bool = False) -> int:
        heard.append((argv, legacy))
        return 7

    monkeypatch.setattr(relight.cli.main, "main", main)
    assert launch.main(["--use-env", "s.py"]) == 7
    assert heard == [(["--use-env", "s.py"], True)]
