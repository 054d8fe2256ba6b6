"""What callers of torchrun's Python API catch, read and decorate with.

Owns the shapes of a failure as other programs know them. torch is never imported here; but where the caller has
imported it, what is raised is also an instance of torch's own class, so that `except ChildFailedError` works
whichever of the two was meant.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from relight.core.failure import WORDS_LIMIT, Words, read_words, write_words
from relight.core.names import signal_name, visible
from relight.core.page import TRACEBACK_HELP

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
    C = TypeVar("C", bound=type)

NOT_AVAILABLE = "<N/A>"
TORCH_ERRORS = "torch.distributed.elastic.multiprocessing.errors"
TORCH_MULTIPROCESSING = "torch.distributed.elastic.multiprocessing.api"


def also_torchs(ours: C, module: str) -> C:
    """`ours`, derived from torch's class of the same name as well where that is loaded."""
    theirs = getattr(sys.modules.get(module), ours.__name__, None)
    if not isinstance(theirs, type) or issubclass(ours, theirs):
        return ours
    known: Any = ours
    both: C = _joined(known, theirs)
    return both


@functools.cache
def _joined(ours: Any, theirs: Any) -> Any:
    return type(ours)(ours.__name__, (ours, theirs), {"__module__": ours.__module__, "__doc__": ours.__doc__})


@dataclasses.dataclass
class ProcessFailure:
    """One worker that ended badly. What it says itself comes from its error file; a torn file never hurts."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = dataclasses.field(init=False)
    message: str | dict[str, Any] = dataclasses.field(init=False)
    timestamp: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data = {"message": "<NONE>"}
        self.timestamp = int(time.time())
        raw = _content(self.error_file)
        words = read_words(raw)
        if words is None:
            self.error_file = NOT_AVAILABLE
            self.message = ""
        else:
            self.error_file_data = json.loads(raw)
            self.message = self.error_file_data["message"]
            if words.raised_at is not None:
                self.timestamp = int(words.raised_at)
        if not self.message:
            said = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
            self.message = said if self.exitcode < 0 else TRACEBACK_HELP

    def signal_name(self) -> str:
        return signal_name(-self.exitcode) if self.exitcode < 0 else NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """Local time, as `2026-01-31_12:00:00`."""
        return datetime.datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(WORDS_LIMIT + 1)
    except (OSError, ValueError):
        return b""


class ChildFailedError(Exception):
    """The job failed. `failures` holds every worker that ended badly, by global rank, the first cause first."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure], page: str = "") -> None:
        assert failures, "a ChildFailedError without a failure"
        self.name = name
        self.failures = failures
        self.page = page  # relight's own account of it
        Exception.__init__(self, page + self.format_msg())

    def __reduce__(self) -> tuple[Any, ...]:
        return ChildFailedError, (self.name, self.failures, self.page)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The first cause, with its global rank."""
        rank = min(self.failures, key=lambda one: self.failures[one].timestamp)
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The block that tools look for in a launcher's output."""
        root, _ = self.get_first_failure()
        blocks = {rank: _block(at, rank, failure) for at, (rank, failure) in enumerate(self.failures.items())}
        title = f"{self.name} FAILED"
        width = min(60, max(len(line) for text in (title, *blocks.values()) for line in text.splitlines()))
        others = [block for rank, block in blocks.items() if rank != root] or ["  <NO_OTHER_FAILURES>"]
        thick, thin = boarder_delim * width, section_delim * width
        first = ["Root Cause (first observed failure):", blocks[root]]
        return "\n".join(["", thick, title, thin, "Failures:", *others, thin, *first, thick])


def _block(at: int, rank: int, failure: ProcessFailure) -> str:
    said = failure.message
    if isinstance(said, dict):
        words = read_words(json.dumps({"message": said}).encode()) or Words("")
        said = words.callstack or words.message or NOT_AVAILABLE
        said = said.replace("\n", "\n  ")
    name = f" ({failure.signal_name()})" if failure.exitcode < 0 else ""
    fields = {
        "time": failure.timestamp_isoformat(),
        "host": socket.getfqdn(),
        "rank": f"{rank} (local_rank: {failure.local_rank})",
        "exitcode": f"{failure.exitcode} (pid: {failure.pid}){name}",
        "error_file": failure.error_file,
        "traceback": visible(said),
    }
    return "\n".join([f"[{at}]:", *[f"  {name:<10}: {entry}" for name, entry in fields.items()]])


class SignalException(Exception):
    """The launcher was asked to end by a signal, and has ended its workers."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        Exception.__init__(self, msg)
        self.sigval = sigval


class ErrorHandler:
    """Writes what a worker has to say about its failure. Programs subclass it to say more."""

    def _get_error_file_path(self) -> str | None:
        return os.environ.get("TORCHELASTIC_ERROR_FILE")

    def initialize(self) -> None:
        """Called before the work begins: a native crash shall dump its stacks."""
        import faulthandler

        try:
            faulthandler.enable(all_threads=True)
        except (OSError, ValueError, AttributeError, RuntimeError):  # stderr is closed or no file
            pass

    def record_exception(self, e: BaseException) -> None:
        """Writes the error file, whole or not at all."""
        from relight.worker.record import words_of

        self._write(write_words(words_of(e)))

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Notes the exit code, which the process that failed could not know itself."""
        if isinstance(rootcause_error.get("message"), dict):
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Passes a child's error file on as our own."""
        try:
            cause = json.loads(_content(rootcause_error_file))
        except ValueError:
            return
        if error_code and isinstance(cause, dict):
            self.override_error_code_in_rootcause_data(rootcause_error_file, cause, error_code)
        self._write(cause)

    def _write(self, document: object) -> None:
        from relight.shell.errorfiles import write_whole

        path = self._get_error_file_path()
        if path:
            try:
                write_whole(path, json.dumps(document).encode())
            except (OSError, TypeError, ValueError):
                pass  # the failure itself matters more than its file


def get_error_handler() -> ErrorHandler:
    return ErrorHandler()


def record(fn: Callable[P, R], error_handler: ErrorHandler | None = None) -> Callable[P, R | None]:
    """Decorates a main function: what it fails of reaches the launcher above. `sys.exit(0)` is a plain return.

    A failed job inside it (ChildFailedError, of whichever launcher) passes its first cause on.
    """
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def recorded(*args: P.args, **named: P.kwargs) -> R | None:
        handler.initialize()
        try:
            return fn(*args, **named)
        except SystemExit as leaving:
            if leaving.code == 0:
                return None
            raise
        except Exception as error:
            explain(error, handler)
            raise

    return recorded


def explain(error: Exception, handler: ErrorHandler) -> None:
    """Writes the error file for an exception; the cause of a failed job below is passed on as it is."""
    if not hasattr(error, "get_first_failure"):
        handler.record_exception(error)
        return
    _, failure = error.get_first_failure()
    if failure.error_file != NOT_AVAILABLE:
        handler.dump_error_file(failure.error_file, failure.exitcode)
