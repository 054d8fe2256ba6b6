"""docs/ stays true: tables agree with the code they describe, links lead somewhere, commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import relight.compat
from relight.cli.options import parse
from relight.cli.table import OPTIONS, USE_ENV, Option
from relight.core.environment import Round, worker_environment
from relight.core.launch import Launch
from relight.core.roster import Applicant, seat

from .running import ROOT

DOCS = ROOT / "docs"
OURS = sorted(path for path in DOCS.glob("*.md") if path.name != "differences.md")
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
NOTHING = "–"


def rows(file: str) -> list[list[str]]:
    """The cells of every table row of a document, its heads included."""
    return [re.split(r" (?<!\\)\| ", row) for row in ROW.findall((DOCS / file).read_text())]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def shown_default(option: Option) -> str:
    if option.flag:
        return "off"
    return f"`{option.default}`" if option.default not in (None, "", ()) else NOTHING


@pytest.mark.parametrize("option", [*OPTIONS, USE_ENV], ids=lambda option: option.dest)
def test_every_option_is_described_as_it_is(option: Option) -> None:
    found = [row for row in rows("options.md") if option.long in codes(row[0])]
    assert len(found) == 1
    (spelled, variable, default, meaning) = found[0]
    assert codes(spelled) == list(option.spellings)
    assert variable == (f"`{option.variable}`" if option.variable else NOTHING)
    assert default == shown_default(option)
    words = "|".join(option.choices) or option.metavar
    assert spelled.rpartition("`")[2].strip().replace("\\|", "|") == words
    assert meaning.endswith(".")


def test_no_option_is_described_that_there_is_not() -> None:
    described = {code for row in rows("options.md") for code in codes(row[0])}
    assert described == {spelling for option in (*OPTIONS, USE_ENV) for spelling in option.spellings}


def test_every_variable_of_a_worker_is_described() -> None:
    launch = Launch("train.py", run_id="x", nproc_per_node=2, threads="1", virtual_local_rank=True)
    roster = seat([Applicant(node="n", slots=2)], None, 1)
    part = roster.parts()["n"]
    inherited = {"HIP_VISIBLE_DEVICES": "0,1"}
    given = worker_environment(inherited, launch, Round(0, 0, part), part.places()[0], "/e")

    orders = (ROOT / "src" / "relight" / "shell" / "orders.py").read_text()
    own = set(re.findall(r'environment\["(RELIGHT_\w+)"\]', orders)) | {"RELIGHT_AGENT"}
    assert "RELIGHT_ROUND" in own
    described = {code for row in rows("environment.md") for code in codes(row[0])}
    assert set(given) - {"HIP_VISIBLE_DEVICES"} | own <= described


def test_every_field_of_a_launch_is_described() -> None:
    described = {code for row in rows("python.md") for code in codes(row[0])}
    assert set(Launch.__annotations__) <= described
    assert set(relight.compat.__all__) <= described
    assert described - set(Launch.__annotations__) <= set(relight.compat.__all__)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            assert anchor in [title.lower().replace(" ", "-") for title in titles], target


@pytest.mark.parametrize("path", [*OURS, *sorted((ROOT / "examples").rglob("*.py"))], ids=lambda path: path.name)
def test_commands_are_understood(path: Path) -> None:
    """Every line of code that begins with `relight` and an option is a command line that relight takes."""
    for line in re.findall(r"^ {4,}(relight -.*)$", path.read_text(), re.MULTILINE):
        words = shlex.split(re.split(r" {5,}", line)[0])
        chosen = parse(words[1:], {})
        assert chosen.training_script == "-m" or not str(chosen.training_script).startswith("-"), line


def test_names_in_the_index_are_the_documents_there_are() -> None:
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", (DOCS / "index.md").read_text()))
    assert linked >= {path.name for path in OURS} - {"index.md"}


def test_lines_are_not_too_long() -> None:
    """Tables and code may be as wide as they have to be."""
    lines = [(path.name, line) for path in OURS for line in path.read_text().splitlines()]
    assert [pair for pair in lines if len(pair[1]) > 120 and not pair[1].startswith(("| ", "    "))] == []
