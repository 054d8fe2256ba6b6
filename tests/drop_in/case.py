"""A case: one command line and its surroundings, to be run under two launchers that must agree.

A case knows nothing of processes. `running` runs it, `observing` says what was seen, `comparing` judges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# One observed value: a leaf of the JSON that `observing` makes.
Leaf = str | int | bool | None | list[str]


class Mark:
    """A value that only says what it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ABSENT = Mark("ABSENT")  # this observation does not exist on that side
ANYTHING = Mark("ANYTHING")  # what the second launcher shows here is not pinned


@dataclass(frozen=True)
class Difference:
    """A place where relight differs on purpose: why (a key of docs/differences.md) and what it does instead.

    `instead` is the second launcher's exact value, ABSENT, ANYTHING, or a question asked of both values.
    """

    key: str
    instead: Any

    def explains(self, first: Any, second: Any) -> bool:
        if self.instead is ANYTHING:
            return True
        if callable(self.instead):
            return bool(self.instead(first, second))
        return bool(second == self.instead)


@dataclass(frozen=True)
class Send:
    """Signals for the launcher, each once so many workers are ready (`me.ready()` or `me.stay()`)."""

    names: tuple[str, ...]
    after: int = 1


@dataclass(frozen=True)
class Case:
    """One command line, its surroundings, and the differences that are declared for it.

    In words, values and texts `@WORK@`, `@LOGS@`, `@OUT@` stand for folders of the run, `@PORT@` for a free port.
    """

    name: str
    words: tuple[str, ...]
    body: str | None = None  # what job.py does once `me = look()` has run
    env: Mapping[str, str] = field(default_factory=dict)
    how: str = "main"  # main: the command; module: python -m; launch: the legacy form
    files: Mapping[str, str] = field(default_factory=dict)  # more files in the working folder
    before: str = ""  # shell words run in the launcher's process before it becomes the launcher
    stdin: str = ""
    send: Send | None = None
    runs: int = 1
    deadline_s: float = 60.0
    slow: bool = False
    torch: bool = False  # the workers import torch
    unless: Callable[[], bool] | None = None  # this machine cannot repeat the recording
    differs: Mapping[str, Difference] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Changes whenever the recording no longer belongs to this case."""
        told = asdict(self)
        for silent in ("differs", "unless", "slow", "torch", "deadline_s"):
            del told[silent]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
