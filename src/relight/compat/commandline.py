"""torchrun's command line as a library, in the shapes of `torch.distributed.run`.

Everything is decided by `relight.cli`; this only has the names that other programs call. A Namespace made by
another program may lack what it never heard of and may hold numbers as text.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from relight.cli.options import build_parser
from relight.cli.printing import error_text
from relight.compat.errors import record
from relight.compat.launcher import LaunchConfig, answer, elastic_launch
from relight.compat.logs import LogsSpecs, logs_specs_class
from relight.core.names import UsageError
from relight.core.streams import streams
from relight.shell.log_plug_ins import as_std

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

TORCH_LAUNCHER = "torch.distributed.launcher.api"


def get_args_parser() -> argparse.ArgumentParser:
    """A parser of the caller's own: it may add options, change actions, or copy them elsewhere."""
    return build_parser(os.environ, "torchrun")


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """Reads a command line without the program's name; None is this process's own."""
    chosen: argparse.Namespace = get_args_parser().parse_args(args)
    return chosen


def run(args: argparse.Namespace) -> None:
    """Runs the job that a Namespace asks for. Raises ChildFailedError, SignalException or UsageError."""
    from relight.cli.plan import plan
    from relight.program import carry_out
    from relight.shell.machine import Machine

    environ = dict(os.environ)
    answer(carry_out(plan(args, environ, Machine(environ)), environ))


@record
def main(args: Sequence[str] | None = None) -> None:
    """Runs one launcher; a mistake on the command line is two lines and exit code 2."""
    try:
        run(parse_args(args))
    except UsageError as refused:
        sys.stderr.write(error_text(refused))
        raise SystemExit(2) from None


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """`4` is 4 and 4; `1:4` is 1 and 4."""
    numbers = [int(part) for part in str(nnodes).split(":")]
    if len(numbers) not in (1, 2):
        raise RuntimeError(f"nnodes={nnodes} is neither a number of nodes nor MIN:MAX; try: --nnodes 1:4")
    return numbers[0], numbers[-1]


def determine_local_world_size(nproc_per_node: str) -> int:
    """A number, or what `auto`, `gpu`, `cpu` or `xpu` comes to on this machine. Raises ValueError."""
    from relight.shell.machine import Machine

    try:
        return int(nproc_per_node)
    except ValueError:
        pass
    try:
        return int(Machine(dict(os.environ)).slots(nproc_per_node))
    except UsageError as refused:
        raise ValueError(f"{refused.what}; try: {refused.remedy}") from None


def get_rdzv_endpoint(args: argparse.Namespace) -> str:
    if args.rdzv_backend == "static" and not args.rdzv_endpoint:
        return f"{args.master_addr}:{args.master_port}"
    endpoint: str = args.rdzv_endpoint
    return endpoint


def get_use_env(args: argparse.Namespace) -> bool:
    """Whether scripts read LOCAL_RANK; only the oldest form of launching says no."""
    return bool(getattr(args, "use_env", True))


def config_from_args(args: argparse.Namespace) -> tuple[Any, Callable[..., Any] | str, list[str]]:
    """A LaunchConfig (torch's own class where that is loaded), the entry point, and its arguments."""
    from relight.cli.asked import Asked

    def asked(dest: str) -> Any:
        return Asked(args, os.environ).value(dest)

    least, most = parse_min_max_nnodes(asked("nnodes"))
    nproc = determine_local_world_size(str(asked("nproc_per_node")))
    if nproc > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    static = asked("rdzv_backend") == "static" and not asked("rdzv_endpoint")
    alone = bool(asked("standalone")) or (static and asked("master_port") is None and most == 1)
    config = _config_class()(
        min_nodes=least,
        max_nodes=most,
        nproc_per_node=nproc,
        logs_specs=_logs_specs(asked),
        run_id=str(asked("rdzv_id")),
        role=asked("role"),
        rdzv_endpoint="localhost:0" if alone else get_rdzv_endpoint(args),
        rdzv_backend="c10d" if alone else asked("rdzv_backend"),
        rdzv_configs=_rdzv_configs(asked),
        max_restarts=int(asked("max_restarts")),
        monitor_interval=float(asked("monitor_interval")),
        start_method=asked("start_method"),
        log_line_prefix_template=asked("log_line_prefix_template")
        or os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=asked("local_addr"),
        event_log_handler=asked("event_log_handler"),
        numa_options=_numa_options(asked("numa_binding")),
        signals_to_handle=asked("signals_to_handle"),
        duplicate_stdout_filters=list(asked("duplicate_stdout_filters") or ()),
        duplicate_stderr_filters=list(asked("duplicate_stderr_filters") or ()),
        virtual_local_rank=bool(asked("virtual_local_rank")),
        shutdown_timeout=asked("shutdown_timeout"),
    )
    return config, *_command(args, asked)


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """A script as a function: `__main__` in this interpreter."""
    import runpy

    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def _command(args: argparse.Namespace, asked: Callable[[str], Any]) -> tuple[Callable[..., Any] | str, list[str]]:
    script = str(args.training_script)
    rest = [] if get_use_env(args) else ["--local-rank=${local_rank}"]
    rest += [str(word) for word in args.training_script_args or ()]
    if asked("run_path"):
        return run_script_path, [script, *rest]
    if asked("no_python"):
        if asked("module"):
            raise ValueError("--no-python and --module contradict each other: a module needs python")
        return script, rest
    return os.environ.get("PYTHON_EXEC", sys.executable), ["-u", *(["-m"] if asked("module") else []), script, *rest]


def _config_class() -> type[Any]:
    torchs = getattr(sys.modules.get(TORCH_LAUNCHER), "LaunchConfig", None)
    return torchs if isinstance(torchs, type) else LaunchConfig


def _logs_specs(asked: Callable[[str], Any]) -> LogsSpecs:
    ranks = str(asked("local_ranks_filter") or "")
    made: LogsSpecs = logs_specs_class(asked("logs_specs"))(
        log_dir=asked("log_dir"),
        redirects=as_std(streams(str(asked("redirects")), "--redirects")),
        tee=as_std(streams(str(asked("tee")), "--tee")),
        local_ranks_filter={int(rank) for rank in ranks.split(",")} if ranks else None,
    )
    return made


def _rdzv_configs(asked: Callable[[str], Any]) -> dict[str, Any]:
    from relight.cli.conf import parse_conf

    said = str(asked("rdzv_conf") or "")
    found: dict[str, Any] = dict(parse_conf(said, "--rdzv-conf")) if said.strip() else {}
    if asked("rdzv_backend") == "static":
        found["rank"] = int(asked("node_rank"))
    return found


def _numa_options(mode: str | None) -> Any:
    if mode is None:
        return None
    from types import SimpleNamespace

    binding = sys.modules.get("torch.numa.binding")
    if binding is not None:
        return binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    return SimpleNamespace(affinity_mode=mode, should_fall_back_if_binding_fails=False)


__all__ = [
    "config_from_args",
    "determine_local_world_size",
    "elastic_launch",
    "get_args_parser",
    "get_rdzv_endpoint",
    "get_use_env",
    "main",
    "parse_args",
    "parse_min_max_nnodes",
    "run",
    "run_script_path",
]
