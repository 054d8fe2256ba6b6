"""--help: complete, grouped, as wide as the terminal, and coloured only for people."""

from __future__ import annotations

import io
from typing import Any

import pytest

from relight.cli.help import render, wants_colour, width
from relight.cli.options import build_parser
from relight.cli.table import GROUPS, OPTIONS


class Terminal(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def test_help_names_every_option_once_and_shows_examples() -> None:
    text = render(build_parser({}))
    lines = text.splitlines()
    for option in OPTIONS:
        named = [line for line in lines if line.startswith("  -")]
        assert len([line for line in named if option.long in line.split()]) == 1, option.dest
    assert [title for title in GROUPS if title not in lines] == []
    assert lines.index("examples") < lines.index(GROUPS[0])
    assert "relight --nproc-per-node gpu train.py" in text
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_defaults_are_shown_as_they_are_built_in_not_as_a_variable_has_them() -> None:
    line = next(line for line in render(build_parser({"PET_ROLE": "trainer"})).splitlines() if "--role NAME" in line)
    assert line.endswith("(default)")


@pytest.mark.parametrize("columns", [60, 80, 110])
def test_help_keeps_to_the_width_except_for_the_examples(columns: int) -> None:
    text = render(build_parser({}), width=columns)
    after = text[text.index(GROUPS[0]) :]
    assert max(len(line) for line in after.splitlines()) <= max(columns, 62)


def test_colour_changes_nothing_but_colour() -> None:
    import re

    plain, painted = render(build_parser({})), render(build_parser({}), colour=True)
    assert "\033" not in plain
    assert re.sub("\033\\[[0-9]*m", "", painted) == plain != painted


@pytest.mark.parametrize(
    ("environ", "is_terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_who_sees_colour(environ: dict[str, str], is_terminal: bool, coloured: bool) -> None:
    assert wants_colour(Terminal(is_terminal), environ) is coloured


@pytest.mark.parametrize(("columns", "wide"), [("80", 80), ("20", 60), ("500", 110), ("x", 100), ("", 100)])
def test_width(columns: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert width(io.StringIO()) == wide


def test_print_help_asks_the_stream_it_prints_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    told: dict[bool, Any] = {}
    for is_terminal in (True, False):
        out = Terminal(is_terminal)
        build_parser({}).print_help(out)
        told[is_terminal] = out.getvalue()
    assert "\033" in told[True]
    assert "\033" not in told[False]


def test_the_legacy_form_knows_use_env_and_its_own_name() -> None:
    text = render(build_parser({}, "python -m relight.launch", legacy=True))
    assert text.startswith("usage: python -m relight.launch ")
    assert "--use-env" in text
    assert "--use-env" not in render(build_parser({}))
