"""The same case under torchrun (recorded) and under relight (now) shows the same world.

RELIGHT_DROP_IN_SECOND=/path/to/torchrun puts torchrun in relight's place: a check of the harness itself, in
which nothing may differ.
"""

from __future__ import annotations

import os

import pytest

from .case import Case
from .cases import GROUPS
from .comparing import compare
from .documented import entries, untested
from .everywhere import EVERYWHERE
from .recording import load, seen
from .running import HERE, RELIGHT, TORCHRUN, Launcher

DOCUMENT = os.path.normpath(f"{HERE}/../../docs/differences.md")
SECOND = os.environ.get("RELIGHT_DROP_IN_SECOND", "relight")
ALL = [(group, case) for group, cases in GROUPS.items() for case in cases]


def _second() -> Launcher:
    return TORCHRUN if os.path.basename(SECOND) == "torchrun" else RELIGHT


def _parameters(cases: list[tuple[str, Case]]) -> list[object]:
    return [
        pytest.param(
            group,
            case,
            id=f"{group}: {case.name}",
            marks=[pytest.mark.slow] if case.slow else [],
        )
        for group, case in cases
    ]


def _may_run(case: Case) -> None:
    if case.unless is not None and case.unless():
        pytest.skip("this machine is not like the one of the recording")
    if case.torch:
        pytest.importorskip("torch")


@pytest.mark.parametrize(("group", "case"), _parameters(ALL))
def test_same_world(group: str, case: Case) -> None:
    _may_run(case)
    recorded = load(group)[case.name]["seen"]
    alike = _second() is TORCHRUN
    verdict = compare(case, recorded, seen(case, _second()), EVERYWHERE, alike)
    assert not verdict.surprises, f"{' '.join(case.words)}\n" + "\n".join(verdict.surprises)


@pytest.mark.slow
@pytest.mark.skipif(not TORCHRUN.exists(), reason="torchrun is not installed beside this python")
@pytest.mark.parametrize(("group", "case"), _parameters([pair for pair in ALL if not pair[1].slow][::12]))
def test_recording_is_what_torchrun_does_today(group: str, case: Case) -> None:
    _may_run(case)
    verdict = compare(case, load(group)[case.name]["seen"], seen(case, TORCHRUN), {}, alike=True)
    assert not verdict.surprises, "\n".join(verdict.surprises)


def test_every_case_has_its_recording() -> None:
    stale = [
        f"{group}: {case.name}"
        for group, case in ALL
        if load(group).get(case.name, {}).get("case") != case.fingerprint()
    ]
    assert not stale, "run `python -m tests.drop_in.record` where torch 2.13 is installed"


def test_no_recording_without_its_case() -> None:
    for group, cases in GROUPS.items():
        assert set(load(group)) == {case.name for case in cases}


def test_names_are_unique_and_there_are_enough() -> None:
    assert len({(group, case.name) for group, case in ALL}) == len(ALL) >= 110


def _keys() -> set[str]:
    declared = {difference.key for _, case in ALL for difference in case.differs.values()}
    return declared | {difference.key for difference in EVERYWHERE.values()}


def _document() -> dict[str, str]:
    with open(DOCUMENT) as file:
        return entries(file.read())


def test_every_declared_difference_is_explained() -> None:
    assert not sorted(_keys() - _document().keys())


def test_every_explained_difference_is_shown_by_a_case() -> None:
    shown = _keys()
    assert not [key for key, text in _document().items() if key not in shown and not untested(text)]
    assert not [key for key, text in _document().items() if key in shown and untested(text)]
