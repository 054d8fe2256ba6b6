"""Judges two observations of one case: what differs, and whether that was declared."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from .case import ABSENT, Case, Difference
from .observing import flat


class Verdict:
    """Surprises fail the case; used differences are counted; stale ones fail too."""

    def __init__(self) -> None:
        self.surprises: list[str] = []
        self.used: set[str] = set()  # patterns that explained something
        self.keys: set[str] = set()  # keys of docs/differences.md that were needed


def compare(
    case: Case,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    everywhere: Mapping[str, Difference],
    alike: bool = False,
) -> Verdict:
    """Compare torchrun's observation with the second launcher's.

    `alike` says that the second launcher is torchrun too: then nothing may differ, declared or not.
    A case's own declaration that explains nothing is a surprise; one for everywhere need not apply.
    """
    left, right = flat(first), flat(second)
    verdict = Verdict()
    for path in sorted(left.keys() | right.keys()):
        one, two = left.get(path, ABSENT), right.get(path, ABSENT)
        pattern, difference = _declared(case, path, everywhere)
        if difference is not None and not alike and one != two and difference.explains(one, two):
            verdict.used.add(pattern)
            verdict.keys.add(difference.key)
        elif one != two:
            verdict.surprises.append(f"{path}\n    torchrun: {one!r}\n    relight:  {two!r}")
    if not alike:
        for pattern in sorted(set(case.differs) - verdict.used):
            verdict.surprises.append(f"declared difference {pattern!r} is no longer seen: remove it")
    return verdict


def _declared(case: Case, path: str, everywhere: Mapping[str, Difference]) -> tuple[str, Difference | None]:
    for declared in (case.differs, everywhere):
        for pattern, difference in declared.items():
            if fnmatchcase(path, pattern):
                return pattern, difference
    return "", None
