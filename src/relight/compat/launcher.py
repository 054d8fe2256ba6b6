"""`LaunchConfig` and `elastic_launch`: a job from Python, in the shapes of `torch.distributed.launcher`.

Reads any object with LaunchConfig's attributes, torch's own and subclasses of it included. The agent runs in the
caller's thread and ends with the call: afterwards the caller's signal handlers and environment are as before.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from relight.compat.errors import (
    NOT_AVAILABLE,
    TORCH_ERRORS,
    TORCH_MULTIPROCESSING,
    ChildFailedError,
    ProcessFailure,
    SignalException,
    also_torchs,
)
from relight.compat.logs import DefaultLogsSpecs, LogsSpecs, output_of, specs_are_default
from relight.core.documents import Verdict
from relight.core.launch import C10D_PORT, Budget, How, Launch, Meeting, Store, why_not_handled
from relight.core.names import JobFailed, UsageError
from relight.core.page import for_people
from relight.core.values import replace
from relight.program import random_number
from relight.shell.log_plug_ins import layout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relight.core.failure import WorkerEnd
    from relight.shell.agent import Outcome


@dataclasses.dataclass
class LaunchConfig:
    """What a program asks for. Attributes may be assigned until the launch."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = dataclasses.field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = dataclasses.field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", 900)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))
        if self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout is {self.shutdown_timeout}: seconds are not below zero")


class elastic_launch:
    """`elastic_launch(config, entrypoint)(*args)`: runs a function or a command in every worker.

    Returns {global rank: what the function returned}; for a command the values are None.
    """

    def __init__(
        self, config: Any, entrypoint: Callable[..., Any] | str | None, health_check_server: object = None
    ) -> None:
        self._config = config
        self._entrypoint = entrypoint
        self._health_check_server = health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)


def launch_agent(
    config: Any,
    entrypoint: Callable[..., Any] | str | None,
    args: Sequence[Any],
    health_check_server: object = None,
) -> dict[int, Any]:
    """Raises ChildFailedError if the job fails, SignalException if a signal ended it. No health port is served."""
    if not config.run_id:
        config.run_id = random_number()
    launch = launch_of(config, entrypoint, args)
    if not callable(entrypoint):
        return answer(_carry_out(launch, config))
    from relight.compat.functions import Calls

    with Calls(entrypoint, args, str(config.start_method), launch.nproc_per_node) as calls:
        outcome = _carry_out(launch, config, calls.commands)
        round_ = outcome.story.round
        first = outcome.story.first_cause
        cause = first.end if first else None
        raised = calls.exception(round_, cause) if cause is not None else None
        ranks = answer(outcome, raised)
        return {end.rank: calls.result(round_, end) for end in outcome.story.ends if end.rank in ranks}


def launch_of(config: Any, entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> Launch:
    """The same job in relight's words. Raises UsageError where it cannot be carried out."""
    specs = config.logs_specs
    how, entry, rest = _entry(entrypoint, args)
    meeting = _meeting(config) if int(config.max_nodes) > 1 else None
    return Launch(
        entrypoint=entry,
        args=tuple(rest),
        how=how,
        nproc_per_node=int(config.nproc_per_node),
        min_nodes=int(config.max_nodes if meeting and meeting.on_store else config.min_nodes),
        max_nodes=int(config.max_nodes),
        role=str(config.role),
        run_id=str(config.run_id),
        budget=Budget(int(config.max_restarts)),
        store=_store(config, meeting),
        meeting=meeting,
        output=replace(
            output_of(specs),
            stdout_needles=tuple(getattr(config, "duplicate_stdout_filters", None) or ()),
            stderr_needles=tuple(getattr(config, "duplicate_stderr_filters", None) or ()),
            prefix_template=config.log_line_prefix_template or None,
        ),
        shutdown_timeout_s=_shutdown_timeout(config),
        signals=_signals(getattr(config, "signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")),
        virtual_local_rank=bool(getattr(config, "virtual_local_rank", False)),
        cpus=_cpus(getattr(config, "numa_options", None), int(config.nproc_per_node)),
    )


def answer(outcome: Outcome, raised: BaseException | None = None) -> dict[int, Any]:
    """What a launch comes to: None for each local worker's rank, or the exception that says why not."""
    story = outcome.story
    if outcome.verdict is Verdict.SUCCEEDED:
        return {end.rank: None for end in story.ends}
    if outcome.stop_signal is not None:
        number = signal.Signals(outcome.stop_signal)
        raise also_torchs(SignalException, TORCH_MULTIPROCESSING)(f"Process {os.getpid()} got signal: {number}", number)
    root = story.first_cause.end if story.first_cause else None
    if root is None:
        raise JobFailed(for_people(story) if outcome.verdict is Verdict.FAILED else f"relight: {outcome.reason}")
    bad = [root, *(end for end in story.ends if not end.ok and end.rank != root.rank)]
    failures = {end.rank: _failure(end) for end in bad}
    raise also_torchs(ChildFailedError, TORCH_ERRORS)(story.name, failures, for_people(story)) from raised


def _failure(end: WorkerEnd) -> ProcessFailure:
    failure = also_torchs(ProcessFailure, TORCH_ERRORS)(
        end.local_rank, end.pid, end.status.number, end.error_file if end.words else NOT_AVAILABLE
    )
    failure.timestamp = int(end.failed_at)
    return failure


def _carry_out(launch: Launch, config: Any, commands: Any = None) -> Outcome:
    from relight.program import carry_out

    specs = config.logs_specs
    return carry_out(launch, os.environ, commands, None if specs_are_default(specs) else layout_of(specs))


def _entry(entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> tuple[How, str, list[str]]:
    """A function, a script under this very interpreter, or any other command."""
    if callable(entrypoint):
        return How.PROGRAM, get_entrypoint_name(entrypoint, args), []
    words = [str(word) for word in args]
    if entrypoint == sys.executable and len(words) > 1 and words[0] == "-u":
        if not words[1].startswith("-"):
            return How.SCRIPT, words[1], words[2:]
        if words[1] == "-m" and len(words) > 2:
            return How.MODULE, words[2], words[3:]
    return How.PROGRAM, entrypoint or "", words


def get_entrypoint_name(entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> str:
    """What a failure names: the function, the script, or the command."""
    if callable(entrypoint):
        return getattr(entrypoint, "__name__", type(entrypoint).__name__)
    if entrypoint == sys.executable:
        return next((str(word) for word in args if not str(word).startswith("-")), "")
    return entrypoint or ""


def _store(config: Any, meeting: Meeting | None) -> Store:
    """One node meets nobody: of the rendezvous only the store's own address is left."""
    address = str(getattr(config, "local_addr", None) or ("" if meeting else "127.0.0.1"))
    if config.rdzv_backend == "static":
        host, port = _static_endpoint(config)
        return Store(address=host, port=port) if meeting is None or meeting.hosts else Store(address=address)
    shared = config.rdzv_backend != "etcd" and os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1"
    return Store(shared=shared, address=address)


def _static_endpoint(config: Any) -> tuple[str, int]:
    endpoint = str(config.rdzv_endpoint or "").strip()
    host, colon, port = endpoint.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 65536):
        raise UsageError(
            f"rdzv_backend='static' needs an address and a port, and rdzv_endpoint is {endpoint!r}",
            "rdzv_endpoint='127.0.0.1:29500', or rdzv_backend='c10d'",
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def _meeting(config: Any) -> Meeting:
    """Where the nodes of a job of several meet."""
    from relight.cli.conf import hosts, patience
    from relight.cli.meeting import token_of

    backend, conf = str(config.rdzv_backend), {key: str(said) for key, said in dict(config.rdzv_configs or {}).items()}
    token = token_of(os.environ)
    waits: dict[str, Any] = patience(conf, backend)
    if backend == "static":
        rank = int(conf.get("rank", 0))
        return Meeting(*_static_endpoint(config), rank == 0, True, token, rank, **waits)
    if backend != "c10d":
        raise UsageError(
            f"rdzv_backend={backend!r}: in this version several nodes meet by 'c10d' and 'static' only",
            "rdzv_backend='c10d', rdzv_endpoint='HOST:29400'",
        )
    endpoint = str(config.rdzv_endpoint or "localhost").strip()
    host, _, port = endpoint.rpartition(":") if endpoint.count(":") == 1 or "]:" in endpoint else (endpoint, "", "")
    return Meeting(host.strip("[]"), int(port or C10D_PORT), hosts(conf), False, token, **waits)


def _shutdown_timeout(config: Any) -> float:
    asked = getattr(config, "shutdown_timeout", None)
    return 30.0 if asked is None else float(asked)


def _signals(names: str) -> tuple[int, ...]:
    found = []
    for name in filter(None, (word.strip() for word in names.split(","))):
        number = signal.Signals.__members__.get(name)
        why = "which is no signal" if number is None else why_not_handled(number)
        if number is None or why:
            raise UsageError(f"signals_to_handle names {name}, {why}", "signals_to_handle='SIGTERM,SIGINT'")
        found.append(int(number))
    return tuple(dict.fromkeys(found))


def _cpus(options: Any, nproc: int) -> tuple[tuple[int, ...], ...]:
    if options is None:
        return ()
    from relight.shell.machine import Machine

    mode = options.affinity_mode
    try:
        return Machine(dict(os.environ)).numa_cpus(str(getattr(mode, "value", mode)), nproc)
    except UsageError:
        if getattr(options, "should_fall_back_if_binding_fails", False):
            return ()
        raise
