"""Shorthand for writing cases down."""

from __future__ import annotations

import shlex
from typing import Any

from ..case import ABSENT, ANYTHING, Case, Difference

__all__ = ["ABSENT", "ANYTHING", "RUN_PATH", "Difference", "accepted", "case", "told_in_two_lines"]


# What shows whenever a script is run as a function.
RUN_PATH = {
    "world/*/command": Difference("run-path-child", lambda _, second: second[:3] == ["<python>", "-u", "-c"]),
    "world/*/leads_*": Difference("run-path-child", True),
    "world/*/path0": Difference("run-path-child", "<run>/work"),
    "world/*/descriptors/*": Difference("run-path-child", ABSENT),
}


def case(name: str, words: str = "plain.py", body: str | None = None, **more: Any) -> Case:
    """A case whose words are written as in a shell, without its expansions."""
    return Case(name, tuple(shlex.split(words)), body, **more)


def told_in_two_lines(name: str, words: str, **more: Any) -> Case:
    """torchrun answers this mistake with a traceback and 1; relight with two lines and 2."""
    differs = {
        "exit": Difference("mistakes-in-two-lines", [2]),
        "manner/traceback": Difference("mistakes-in-two-lines", False),
    }
    return case(name, words, differs=differs, **more)


def accepted(name: str, words: str, key: str, **more: Any) -> Case:
    """torchrun refuses this; relight runs it, and the workers see the usual world."""
    differs = {
        "exit": Difference(key, [0]),
        "manner/*": Difference(key, False),
        "world/*": Difference(key, lambda first, _: first is ABSENT),
        "std*": Difference(key, lambda first, second: first == [] and all("~" in line for line in second)),
    }
    return case(name, words, **{**more, "differs": {**differs, **more.get("differs", {})}})
