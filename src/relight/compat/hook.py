"""`install()`: relight answers where tools import torch's own launcher.

Imports nothing of torch: a finder waits until the modules in question are imported, and then replaces the names
below in them. What is replaced is remembered, and `uninstall()` puts it back. This file is read at the start of
every Python process below `relightctl as-torchrun`, so it imports next to nothing itself.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_LAUNCHER = {
    "elastic_launch": "relight.compat.launcher",
    "launch_agent": "relight.compat.launcher",
}
_RUN = {
    "elastic_launch": "relight.compat.launcher",
    "config_from_args": "relight.compat.commandline",
    "get_args_parser": "relight.compat.commandline",
    "main": "relight.compat.commandline",
    "parse_args": "relight.compat.commandline",
    "run": "relight.compat.commandline",
}
REPLACED = {
    "torch.distributed.launcher.api": _LAUNCHER,
    "torch.distributed.launcher": _LAUNCHER,
    "torch.distributed.run": _RUN,
    "torch.distributed.launch": {name: _RUN[name] for name in ("get_args_parser", "run")},
}


class _Finder:
    """Lets others find the module, and replaces names in it once it has been executed; remembers what was there."""

    def __init__(self) -> None:
        self.originals: dict[tuple[str, str], Any] = {}
        self.at_work = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in REPLACED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                execute = getattr(spec.loader, "exec_module", None)
                if execute is not None:
                    spec.loader.exec_module = self._then_replace(execute)
                found: ModuleSpec = spec
                return found
        return None

    def replace_in(self, module: ModuleType) -> None:
        import importlib

        for name, source in REPLACED[module.__name__].items():
            ours = getattr(importlib.import_module(source), name)
            theirs = getattr(module, name, None)
            if theirs is ours:  # copied from a module in which it was replaced before
                theirs = next(before for (_, known), before in self.originals.items() if known == name)
            if theirs is not None:
                self.originals.setdefault((module.__name__, name), theirs)
                setattr(module, name, ours)

    def put_back(self) -> None:
        self.at_work = False
        for (module, name), original in self.originals.items():
            if module in sys.modules:
                setattr(sys.modules[module], name, original)

    def _then_replace(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self.at_work and module.__name__ in REPLACED:  # `python -m` executes it under another name
                self.replace_in(module)

        return exec_module


def install() -> None:
    """Makes relight answer in this process; doing it again changes nothing."""
    if _installed() is not None:
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    for name in REPLACED:
        module = sys.modules.get(name)
        if module is not None:
            finder.replace_in(module)


def uninstall() -> None:
    """Puts torch's own back."""
    finder = _installed()
    if finder is not None:
        sys.meta_path.remove(finder)
        finder.put_back()


def _installed() -> _Finder | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, _Finder)), None)
