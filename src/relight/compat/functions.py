"""The parent's side of function workers: how each child is started, and what came back.

spawn (and forkserver, which is carried out as spawn): an ordinary worker process that unpickles the function from a
file that it inherits. fork: a child of this very process, for notebooks whose functions cannot be pickled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

from relight.compat.function_worker import ERROR, RESULT, delivered, work
from relight.core.names import UsageError
from relight.shell.processes import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import IO

    from relight.core.failure import WorkerEnd

METHODS = ("spawn", "fork", "forkserver")
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from relight.compat.function_worker import main; main(*sys.argv[1:])"
)


class Calls:
    """One function for all workers of a job, and the files that their results come back through.

    None of these files has a name, so nothing is left behind if this process is killed.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], method: str, workers: int) -> None:
        if method not in METHODS:
            raise UsageError(f"start_method {method!r} is not one of {', '.join(METHODS)}", "start_method='spawn'")
        self._function = function
        self._args = args
        self._method = method
        self._workers = workers
        self._files = contextlib.ExitStack()
        self._results: list[int] = []  # descriptors, by local rank

    def __enter__(self) -> Calls:
        others = _open_descriptors() if self._method == "fork" else frozenset()
        try:
            self._results = [self._file().fileno() for _ in range(self._workers)]
            self.commands = self._by_fork(others) if self._method == "fork" else self._by_spawn()
        except BaseException:
            self._files.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._files.close()

    def result(self, round_: int, end: WorkerEnd) -> Any:
        """What a worker's function returned; None if the worker ended without returning."""
        kind, what = delivered(self._results[end.local_rank], round_)
        return pickle.loads(what) if kind == RESULT else None

    def exception(self, round_: int, end: WorkerEnd) -> Exception | None:
        """What a worker's function raised, if it can be brought here."""
        kind, what = delivered(self._results[end.local_rank], round_)
        try:
            error = pickle.loads(what) if kind == ERROR else None
        except Exception:  # an exception class may refuse to be made again
            return None
        if isinstance(error, Exception) and end.words is not None:
            error.add_note(f"raised in rank {end.rank}:\n{end.words.callstack}".rstrip())
            return error
        return None

    def _by_spawn(self) -> Commands:
        from multiprocessing import spawn, util

        _refuse_unreachable(self._function)
        start = spawn.get_preparation_data(getattr(self._function, "__name__", "function"))
        start.pop("authkey", None)  # pickles only inside multiprocessing, and no worker needs it
        payload = self._file()
        keeps = [*self._write_payload(start, payload), payload.fileno(), *self._results]
        flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
        python = os.fsdecode(spawn.get_executable())
        home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        command = [python, "-u", *[flag for flag in flags if flag != "-u"], "-c", _START, home]
        command += map(str, (payload.fileno(), *self._results))
        return Commands(lambda _round, _local_rank: command, tuple(keeps))

    def _write_payload(self, start: dict[str, Any], file: IO[bytes]) -> list[int]:
        """What a child needs to become a copy of this program; descriptors that the arguments need are named."""
        from multiprocessing.context import get_spawning_popen, set_spawning_popen
        from multiprocessing.reduction import ForkingPickler

        before = get_spawning_popen()
        passing = _Passing()
        set_spawning_popen(passing)  # type: ignore[arg-type]
        try:
            pickle.dump(start, file)
            ForkingPickler(file).dump((self._function, tuple(self._args)))
            file.flush()
        finally:
            set_spawning_popen(before)
        return passing.descriptors

    def _by_fork(self, others: frozenset[int]) -> Commands:
        def command(_round: int, local_rank: int) -> Callable[[], None]:
            own = self._results[local_rank]

            def call() -> None:
                _close_all_but(others | {own})
                work(self._function, self._args, own)

            return call

        return Commands(command)

    def _file(self) -> IO[bytes]:
        import tempfile

        return self._files.enter_context(tempfile.TemporaryFile())


class _Passing:
    """Stands where multiprocessing expects the process that is being started: locks and queues ask it."""

    def __init__(self) -> None:
        from multiprocessing.popen_spawn_posix import Popen

        self.descriptors: list[int] = []
        self.DupFd = Popen.DupFd

    def duplicate_for_child(self, descriptor: int) -> int:
        self.descriptors.append(descriptor)
        return descriptor


def _refuse_unreachable(function: Callable[..., Any]) -> None:
    """A child can import a function of a script, but not one typed into a notebook."""
    main = sys.modules.get("__main__")
    if getattr(function, "__module__", "") != "__main__" or main is None:
        return
    if getattr(main, "__spec__", None) is None and not os.path.exists(getattr(main, "__file__", "") or ""):
        name = getattr(function, "__qualname__", "the function")
        raise UsageError(
            f"{name} was typed into this session, and a spawned worker cannot import it from there",
            "start_method='fork', or put the function into a file and import it",
        )


def _open_descriptors() -> frozenset[int]:
    return frozenset(int(name) for name in os.listdir("/proc/self/fd"))


def _close_all_but(kept: frozenset[int]) -> None:
    """A forked child must not hold what is the agent's: the guardian, above all, waits for it to be closed."""
    from multiprocessing import parent_process

    parent = parent_process()
    own = {0, 1, 2, *kept, *([int(parent.sentinel)] if parent is not None else [])}
    for descriptor in _open_descriptors() - own:
        try:
            os.close(descriptor)
        except OSError:  # the listing's own
            pass
