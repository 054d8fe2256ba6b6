"""Keeps distributed training alive.

For training scripts: `relight.record`. For programs that launch jobs: `relight.run(relight.Launch(...))`. Nothing is
imported until it is asked for, so that `import relight` costs nothing in a worker.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relight.core.launch import Budget, ExitCodes, How, Launch, Output, Store
    from relight.core.names import Broken, JobFailed, JobStopped, RelightError, UsageError
    from relight.core.streams import streams
    from relight.program import run
    from relight.worker.record import record
    from relight.worker.step import step

__version__ = "0.1.0"

_WHERE = {
    "Broken": "relight.core.names",
    "Budget": "relight.core.launch",
    "ExitCodes": "relight.core.launch",
    "How": "relight.core.launch",
    "JobFailed": "relight.core.names",
    "JobStopped": "relight.core.names",
    "Launch": "relight.core.launch",
    "Output": "relight.core.launch",
    "RelightError": "relight.core.names",
    "Store": "relight.core.launch",
    "UsageError": "relight.core.names",
    "record": "relight.worker.record",
    "run": "relight.program",
    "step": "relight.worker.step",
    "streams": "relight.core.streams",
}

__all__ = [
    "Broken",
    "Budget",
    "ExitCodes",
    "How",
    "JobFailed",
    "JobStopped",
    "Launch",
    "Output",
    "RelightError",
    "Store",
    "UsageError",
    "record",
    "run",
    "step",
    "streams",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'relight' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
