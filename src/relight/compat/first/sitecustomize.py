"""Runs at the start of every Python process below `relightctl as-torchrun`; then the user's own sitecustomize.

`python -m torch.distributed.run` becomes relight before anything is imported. In every other process, torch's
launcher is replaced when (and if) it is imported. A Python that has no relight is left as it is.
"""

from __future__ import annotations

import os
import sys


def _module_and_words() -> tuple[str, list[str]]:
    """The module that `python -m` was asked to run, and its arguments; other interpreter options are skipped."""
    words = iter(getattr(sys, "orig_argv", [])[1:])
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, "")
        elif not word.startswith("-") or word.startswith("--"):
            break
        for at, letter in enumerate(word[1:], 2):
            if letter in "cmWX":  # these take what follows, here or in the next word
                argument = word[at:] or next(words, "")
                if letter in "cm":
                    return (argument, list(words)) if letter == "m" else ("", [])
                break
    return "", []


def _take_over() -> None:
    module, words = _module_and_words()
    ours = {"torch.distributed.run": "relight", "torch.distributed.launch": "relight.launch"}.get(module)
    try:
        from relight.compat.hook import install
    except ImportError:
        return
    if ours:
        os.execv(sys.executable, [sys.executable, "-m", ours, *words])
    install()


def _hand_on() -> None:
    """Runs the sitecustomize that this one stands in front of, if there is one. importlib's own tools would cost
    every Python process ten times as much as an import with this folder out of the way."""
    here = os.path.dirname(os.path.abspath(__file__))
    everything = sys.path[:]
    ours = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [place for place in everything if os.path.abspath(place or ".") != here]
    hidden = sys.path[:]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours
    finally:
        if sys.path == hidden:  # otherwise the user's own has arranged it
            sys.path[:] = everything


_take_over()
_hand_on()
