"""The shapes of torchrun's Python API, for programs that launch jobs through it.

Use them directly (`from relight.compat import LaunchConfig, elastic_launch`), or call `install()` and they answer
where other tools import torch's own. Nothing is imported until it is asked for, and torch never is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relight.compat.commandline import (
        config_from_args,
        determine_local_world_size,
        get_args_parser,
        get_rdzv_endpoint,
        get_use_env,
        main,
        parse_args,
        parse_min_max_nnodes,
        run,
        run_script_path,
    )
    from relight.compat.errors import (
        ChildFailedError,
        ErrorHandler,
        ProcessFailure,
        SignalException,
        get_error_handler,
        record,
    )
    from relight.compat.hook import install, uninstall
    from relight.compat.launcher import LaunchConfig, elastic_launch, launch_agent
    from relight.compat.logs import DefaultLogsSpecs, LogsDest, LogsSpecs, Std, to_map

__all__ = [
    "ChildFailedError",
    "DefaultLogsSpecs",
    "ErrorHandler",
    "LaunchConfig",
    "LogsDest",
    "LogsSpecs",
    "ProcessFailure",
    "SignalException",
    "Std",
    "config_from_args",
    "determine_local_world_size",
    "elastic_launch",
    "get_args_parser",
    "get_error_handler",
    "get_rdzv_endpoint",
    "get_use_env",
    "install",
    "launch_agent",
    "main",
    "parse_args",
    "parse_min_max_nnodes",
    "record",
    "run",
    "run_script_path",
    "to_map",
    "uninstall",
]

_ROOMS = {
    "commandline": (
        *("config_from_args", "determine_local_world_size", "get_args_parser", "get_rdzv_endpoint", "get_use_env"),
        *("main", "parse_args", "parse_min_max_nnodes", "run", "run_script_path"),
    ),
    "errors": (
        *("ChildFailedError", "ErrorHandler", "ProcessFailure", "SignalException", "get_error_handler", "record"),
    ),
    "hook": ("install", "uninstall"),
    "launcher": ("LaunchConfig", "elastic_launch", "launch_agent"),
    "logs": ("DefaultLogsSpecs", "LogsDest", "LogsSpecs", "Std", "to_map"),
}
_WHERE = {name: f"relight.compat.{room}" for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'relight.compat' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
