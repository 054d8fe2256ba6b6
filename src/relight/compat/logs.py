"""Where workers' output goes, in the shapes of torchrun's Python API: Std, LogsSpecs, LogsDest.

Owns only the shapes and what a caller's own LogsSpecs says; files are made and written in `relight.shell`.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import os
import sys
from typing import TYPE_CHECKING, Any

from relight.core.launch import Output
from relight.core.streams import Route, StreamChoice, Streams, route, streams
from relight.shell.log_plug_ins import load_plug_in

if TYPE_CHECKING:
    from collections.abc import Iterable


class Std(enum.IntFlag):
    """Which of a worker's two streams is meant."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """`3` for everyone, or `0:3,1:2` by local rank. Raises UsageError, which is a ValueError here."""
        from relight.core.names import UsageError

        try:
            chosen = streams(vm)
        except UsageError as wrong:
            raise ValueError(f"{wrong.what}; try: {wrong.remedy}") from None
        if chosen.by_rank:
            return {local_rank: cls(int(streams)) for local_rank, streams in chosen.by_rank}
        return cls(int(chosen.everyone))


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """One entry for each local rank."""
    if isinstance(val_or_map, dict):
        return {local_rank: val_or_map.get(local_rank, Std.NONE) for local_rank in range(local_world_size)}
    return dict.fromkeys(range(local_world_size), val_or_map)


@dataclasses.dataclass
class LogsDest:
    """For each kind of output, the path by local rank; an empty path is the console."""

    stdouts: dict[int, str] = dataclasses.field(default_factory=dict)
    stderrs: dict[int, str] = dataclasses.field(default_factory=dict)
    tee_stdouts: dict[int, str] = dataclasses.field(default_factory=dict)
    tee_stderrs: dict[int, str] = dataclasses.field(default_factory=dict)
    error_files: dict[int, str] = dataclasses.field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""


class LogsSpecs(abc.ABC):
    """Says where output goes; programs and plug-ins subclass it."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @abc.abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Paths for one start of the workers; names each worker's error file in its environment."""

    @property
    @abc.abstractmethod
    def root_log_dir(self) -> str:
        """The folder that everything is in."""


class DefaultLogsSpecs(LogsSpecs):
    """`<log dir>/<run>/attempt_<n>/<local rank>/`. relight makes these folders itself when it starts workers."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._run_log_dir: str | None = None
        if log_dir and log_dir != os.devnull:
            os.makedirs(log_dir, exist_ok=True)

    @property
    def root_log_dir(self) -> str:
        """Made when it is first asked for, so that a run that logs nothing leaves no folder behind."""
        if not self._root_log_dir:
            import tempfile

            self._root_log_dir = tempfile.mkdtemp(prefix="relight_")
        return self._root_log_dir

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """For subclasses that change a detail of it."""
        folder = self._attempt_folder(envs.get(0, {}))
        output = _choices(self)
        found = LogsDest()
        if folder == os.devnull:
            for local_rank, environment in envs.items():
                found.stdouts[local_rank] = found.stderrs[local_rank] = found.error_files[local_rank] = ""
                environment["TORCHELASTIC_ERROR_FILE"] = ""
            return found
        for local_rank, environment in envs.items():
            own = os.path.join(folder, str(local_rank))
            os.makedirs(own)
            kinds = (
                (Streams.OUT, "stdout.log", found.stdouts, found.tee_stdouts),
                (Streams.ERR, "stderr.log", found.stderrs, found.tee_stderrs),
            )
            for stream, name, files, tees in kinds:
                where = route(output, local_rank, stream)
                path = "" if where is Route.INHERIT else os.path.join(own, name)
                files[local_rank] = os.devnull if where is Route.HIDE else path
                if where is Route.TEE:
                    tees[local_rank] = path
            environment["TORCHELASTIC_ERROR_FILE"] = found.error_files[local_rank] = os.path.join(own, "error.json")
        found.filtered_stdout = os.path.join(folder, "filtered_stdout.log")
        found.filtered_stderr = os.path.join(folder, "filtered_stderr.log")
        return found

    def _attempt_folder(self, environment: dict[str, str]) -> str:
        if self._root_log_dir == os.devnull:
            return os.devnull
        if self._run_log_dir is None:
            name = environment.get("TORCHELASTIC_RUN_ID", "job").replace("/", "_")
            self._run_log_dir = os.path.join(self.root_log_dir, f"{name}_{os.urandom(4).hex()}")
            os.makedirs(self._run_log_dir, mode=0o700)
        attempt = environment.get("RELIGHT_ROUND") or environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        folder = os.path.join(self._run_log_dir, f"attempt_{attempt}")
        os.makedirs(folder)
        return folder

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultLogsSpecs) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def output_of(specs: Any) -> Output:
    """The choices that any LogsSpecs, ours or torch's, was made with; one with a `reify` of its own makes its own."""
    return _choices(specs) if specs_are_default(specs) else Output()


def _choices(specs: Any) -> Output:
    ranks: Iterable[int] | None = getattr(specs, "_local_ranks_filter", None)
    return Output(
        log_dir=_folder(specs),
        redirects=_choice(getattr(specs, "_redirects", 0)),
        tee=_choice(getattr(specs, "_tee", 0)),
        local_ranks=None if ranks is None else tuple(sorted(ranks)),
    )


def _folder(specs: Any) -> str | None:
    folder: str | None = getattr(specs, "_root_log_dir", None)
    if folder and os.path.basename(folder).startswith("torchelastic_") and specs_are_default(specs):
        try:
            os.rmdir(folder)  # torch made this temporary folder, for whoever logs nothing
        except OSError:
            return folder
        if not getattr(specs, "_redirects", 0) and not getattr(specs, "_tee", 0):
            return None
    return folder or None


def _choice(asked: Any) -> StreamChoice:
    if isinstance(asked, dict):
        chosen = tuple(sorted((int(local_rank), Streams(int(streams))) for local_rank, streams in asked.items()))
        return StreamChoice(Streams.NONE, chosen)
    return StreamChoice(Streams(int(asked)))


def specs_are_default(specs: Any) -> bool:
    """Whether relight's own folders are what is meant; otherwise `reify` has to be asked."""
    torchs = getattr(sys.modules.get("torch.distributed.elastic.multiprocessing.api"), "DefaultLogsSpecs", None)
    reify = getattr(type(specs), "reify", None)
    return specs is None or reify in (DefaultLogsSpecs.reify, getattr(torchs, "reify", None))


def logs_specs_class(name: str | None) -> type[Any]:
    """The class behind `--logs-specs NAME`: ours, or an installed package's. Raises ValueError."""
    return DefaultLogsSpecs if name in (None, "default") else load_plug_in(str(name))
