"""What the words mean together: options, the environment and the machine become one Launch, or a UsageError.

The only place that reads the environment for the launcher. Starts nothing and writes nothing; looks at the disk
only to tell a user early that a program or a folder cannot be used. A value is named by where it came from.
"""

from __future__ import annotations

import os

from relight.cli.asked import Asked
from relight.cli.meeting import meeting
from relight.cli.printing import write
from relight.cli.table import BY_DEST, closest, shown
from relight.core.launch import Budget, ExitCodes, How, Launch, Output, why_not_handled
from relight.core.names import UsageError
from relight.core.streams import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from relight.core.streams import StreamChoice

    class Facts(Protocol):
        """What only the machine can answer."""

        def slots(self, word: str) -> int:
            """How many workers `auto`, `cpu`, `gpu`, `xpu` or a device plug-in's word means here."""

        def numa_cpus(self, mode: str, nproc: int) -> tuple[tuple[int, ...], ...]:
            """The CPUs each of the workers is to be kept on."""


_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")


def plan(
    chosen: argparse.Namespace,
    environ: Mapping[str, str],
    facts: Facts,
    warn: Callable[[str], None] | None = None,
) -> Launch:
    """The launch that was asked for. `warn` hears of words that are understood but not used."""
    asked = Asked(chosen, environ)
    _check_unused(asked)
    how, python = _entry(asked)
    min_nodes, max_nodes = _nodes(asked)
    nproc = _nproc(asked, facts)
    run_id, store, place = meeting(asked, max_nodes, warn or _warn_on_stderr)
    if place is not None and place.on_store:
        min_nodes = max_nodes  # the static backend knows one size
    numa = asked.value("numa_binding")
    return Launch(
        entrypoint=str(asked.value("training_script") or ""),
        args=tuple([str(word) for word in asked.value("training_script_args") or ()]),
        how=how,
        nproc_per_node=nproc,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        role=asked.text("role"),
        run_id=run_id,
        budget=_budget(asked),
        store=store,
        output=_output(asked),
        shutdown_timeout_s=_shutdown_timeout(asked),
        signals=_signals(asked),
        virtual_local_rank=bool(asked.value("virtual_local_rank")),
        cpus=facts.numa_cpus(str(numa), nproc) if numa else (),
        python=python,
        threads="1" if nproc > 1 and "OMP_NUM_THREADS" not in environ else None,
        passes_local_rank=not getattr(chosen, "use_env", True),
        exit_codes=ExitCodes(asked.value("exit_codes")),
        forgives_teardown=not asked.value("no_forgive_teardown"),
        stuck_timeout_s=_stuck_timeout(environ),
        meeting=place,
    )


def _nodes(asked: Asked) -> tuple[int, int]:
    parts = asked.text("nnodes").split(":")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise asked.wrong("nnodes", "is neither a number of nodes nor MIN:MAX", "--nnodes 1, or --nnodes 1:4")
    least, most = numbers[0], numbers[-1]
    if least < 1 or most < 1:
        raise asked.wrong("nnodes", "asks for no node at all", "--nnodes 1")
    if most < least:
        raise asked.wrong("nnodes", f"asks for at least {least} and at most {most} nodes", f"--nnodes {most}:{least}")
    if most > 1 and asked.value("standalone"):
        raise UsageError(
            f"{asked.name('standalone')} means a job of one node, and {asked.shown('nnodes')} asks for more",
            "--standalone --nnodes 1",
        )
    return least, most


def _nproc(asked: Asked, facts: Facts) -> int:
    word = asked.text("nproc_per_node").strip()
    try:
        number = int(word)
    except ValueError:
        number = _slots(asked, word, facts)
    if number < 1:
        raise asked.wrong("nproc_per_node", "asks for no worker at all", "--nproc-per-node 1, or more")
    return number


def _slots(asked: Asked, word: str, facts: Facts) -> int:
    """What the machine answers. torch lets a device plug-in add its own word, so the machine is always asked."""
    known = ("auto", "gpu", "cpu", "xpu")
    if not word.isidentifier():
        raise asked.wrong("nproc_per_node", "is neither a number nor auto, gpu, cpu or xpu", "--nproc-per-node 4")
    try:
        return facts.slots(word)
    except UsageError as refused:
        what = refused.what.replace(f"--nproc-per-node {word}", asked.shown("nproc_per_node"), 1)
        meant = "" if word in known else closest(word.lower(), known)
        raise UsageError(what, f"--nproc-per-node {meant}" if meant else refused.remedy) from None


# --- what the workers run -------------------------------------------------------------------------------------


def _entry(asked: Asked) -> tuple[How, str]:
    script, chosen = asked.text("training_script"), asked.chosen
    no_python, module = bool(asked.value("no_python")), bool(asked.value("module"))
    if no_python and not getattr(chosen, "use_env", True):
        raise UsageError(
            f"{asked.name('no_python')} leaves nobody to take --local-rank",
            f"--use-env {asked.name('no_python')} {shown(script)}",
        )
    if asked.value("run_path"):
        return How.RUN_PATH, ""
    if not no_python:
        return How.MODULE if module else How.SCRIPT, _python(asked.environ)
    if module:
        raise UsageError(
            f"{asked.name('no_python')} and {asked.name('module')} contradict each other: a module needs python",
            f"one of them, as in --no-python {shown(script)}",
        )
    if script:
        _check_program(script, asked.environ, "--no-python")
    return How.PROGRAM, ""


def _python(environ: Mapping[str, str]) -> str:
    python = environ.get("PYTHON_EXEC")
    if python is None:
        return ""
    if not python:
        raise UsageError("PYTHON_EXEC is empty", "unset PYTHON_EXEC, or PYTHON_EXEC=/usr/bin/python3")
    _check_program(python, environ, "PYTHON_EXEC")
    return python


def _check_program(program: str, environ: Mapping[str, str], name: str) -> None:
    """Refuses what exec would refuse, as long as it can be told from outside."""
    by_path = "/" in program or program in (".", "..")
    folders = [""] if by_path else environ.get("PATH", os.defpath).split(os.pathsep)
    found = [place for folder in folders if os.path.exists(place := os.path.join(folder, program))]
    if any(os.path.isfile(place) and os.access(place, os.X_OK) for place in found):
        return
    typed = f"{name} " if name.startswith("-") else f"{name}="
    place = found[0] if found else program  # what PATH does not lead to may lie here
    if os.path.isdir(place):
        raise UsageError(f"{name}: {place} is a folder", f"{typed}{shown(os.path.join(place, 'PROGRAM'))}")
    if found:
        raise UsageError(f"{name}: {place} may not be executed", f"chmod +x {shown(place)}")
    if by_path:
        raise UsageError(f"{name}: there is no {program}", f"ls {shown(os.path.dirname(program) or '.')}")
    missing = f"{name}: {program} is in no folder of PATH"
    if not os.path.exists(program):
        raise UsageError(missing, "the whole path of the program")
    here = shown(f"./{program}")
    if os.access(program, os.X_OK):
        raise UsageError(missing, f"{typed}{here}")
    raise UsageError(f"{missing}, and {here} may not be executed", f"chmod +x {here}, then {typed}{here}")


# --- restarts, the end, and what is printed -------------------------------------------------------------------


def _budget(asked: Asked) -> Budget:
    restarts = asked.number("max_restarts")
    rate = asked.text("restart_rate")
    if not rate:
        return Budget(restarts)
    often, _, period = rate.partition("/")
    try:
        intensity, period_s = int(often), float(period)
    except ValueError:
        raise asked.wrong("restart_rate", "is not a number of restarts / a number of seconds") from None
    if intensity < 1 or not 0 < period_s < float("inf"):
        raise asked.wrong("restart_rate", "is not a rate")
    if restarts == 0:
        raise asked.wrong(
            "restart_rate",
            "limits restarts, and none is allowed",
            f"--max-restarts 100 --restart-rate {shown(rate)}",
        )
    return Budget(restarts, intensity, period_s)


def _shutdown_timeout(asked: Asked) -> float:
    if asked.value("shutdown_timeout") is not None:
        return float(asked.number("shutdown_timeout"))
    variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    word = asked.environ.get(variable, "30")
    try:
        timeout = int(word)
    except ValueError:
        timeout = -1
    if timeout < 0:
        raise UsageError(f"{variable}={shown(word)} is not a whole number of seconds", f"{variable}=30")
    return float(timeout)


def _stuck_timeout(environ: Mapping[str, str]) -> float:
    variable = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"
    word = environ.get(variable, "")
    try:
        timeout = float(word or 0)
    except ValueError:
        timeout = float("nan")
    if timeout != timeout:
        raise UsageError(f"{variable}={shown(word)} is not a number of seconds", f"{variable}=300, or 0 for no limit")
    return max(0.0, timeout)


def _signals(asked: Asked) -> tuple[int, ...]:
    import signal

    names = [name.strip() for name in asked.text("signals_to_handle").split(",")]
    known = signal.Signals.__members__
    numbers: list[int] = []
    for name in filter(None, names):
        if name not in known:
            plain = name.upper()
            meant = closest(plain if plain.startswith("SIG") else f"SIG{plain}", list(known))
            raise asked.wrong(
                "signals_to_handle",
                f"names {shown(name)}, which is no signal",
                f"--signals-to-handle {meant}" if meant else "",
            )
        number = int(known[name])
        if why := why_not_handled(number):
            rest = ",".join(other for other in names if other and other != name) or "SIGTERM"
            raise asked.wrong(
                "signals_to_handle",
                f"names {name}, {why}",
                f"--signals-to-handle {rest}",
            )
        if number not in numbers:
            numbers.append(number)
    return tuple(numbers)


def _output(asked: Asked) -> Output:
    log_dir = asked.text("log_dir") or None
    if log_dir is not None:
        _check_folder(asked, log_dir)
    template = asked.text("log_line_prefix_template") or asked.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
    return Output(
        log_dir=log_dir,
        redirects=_streams(asked, "redirects"),
        tee=_streams(asked, "tee"),
        local_ranks=_ranks(asked),
        stdout_needles=tuple(asked.value("duplicate_stdout_filters") or ()),
        stderr_needles=tuple(asked.value("duplicate_stderr_filters") or ()),
        prefix_template=template or None,
        plug_in=_logs_plug_in(asked),
    )


def _check_folder(asked: Asked, folder: str) -> None:
    if folder == "/dev/null":
        return
    place = folder
    while place and not os.path.lexists(place):
        place = os.path.dirname(place.rstrip("/"))
    if place and not os.path.isdir(place):
        raise asked.wrong(
            "log_dir",
            "is not a folder" if place == folder else f"cannot be made: {place} is not a folder",
            f"--log-dir {shown(os.path.dirname(place.rstrip('/')) or '.')}",
        )


def _streams(asked: Asked, dest: str) -> StreamChoice:
    try:
        return streams(asked.text(dest), BY_DEST[dest].long)
    except UsageError as wrong:
        raise asked.wrong(dest, "names no streams", wrong.remedy) from None


def _ranks(asked: Asked) -> tuple[int, ...] | None:
    said = asked.text("local_ranks_filter")
    if not said:
        return None
    try:
        return tuple(sorted({int(word) for word in said.split(",")}))
    except ValueError:
        raise asked.wrong("local_ranks_filter", "is not a list of local ranks", "--local-ranks-filter 0,1") from None


def _logs_plug_in(asked: Asked) -> str | None:
    name = asked.value("logs_specs")
    if name is None or name == "default":
        return None
    from importlib.metadata import entry_points

    known = sorted({"default", *(entry.name for entry in entry_points(group="torchrun.logs_specs"))})
    if name not in known:
        meant = closest(str(name), known)
        raise asked.wrong("logs_specs", f"is not one of {', '.join(known)}", f"--logs-specs {meant}" if meant else "")
    return str(name)


# --- words that are understood, checked, and not used ---------------------------------------------------------


def _check_unused(asked: Asked) -> None:
    try:
        interval = float(asked.value("monitor_interval"))
    except (TypeError, ValueError):
        raise asked.wrong("monitor_interval", "is not a number of seconds") from None
    if not interval > 0:
        raise asked.wrong("monitor_interval", "is not above zero")
    handler = asked.text("event_log_handler")
    if handler not in ("null", "console", "dynamic_rendezvous"):
        meant = closest(handler, ("null", "console"))
        raise asked.wrong("event_log_handler", "is neither null nor console", f"--event-log-handler {meant or 'null'}")
    level = asked.environ.get("LOGLEVEL", "")
    if level and level.upper() not in _LEVELS and not level.isdigit():
        raise UsageError(
            f"LOGLEVEL={shown(level)} is no level of logging", f"LOGLEVEL={closest(level.upper(), _LEVELS) or 'INFO'}"
        )


def _warn_on_stderr(sentence: str) -> None:
    write(f"relight: warning: {sentence}\n")
