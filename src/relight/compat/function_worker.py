"""A worker that is a Python function: runs in the child, and leaves its result in the parent's private folder.

The way back is a file, written whole by the child and read by the parent that made the folder (0700). Nothing
comes over a socket. A child that delivers nothing (`sys.exit()`, `os._exit(0)`) simply has the result None.
"""

from __future__ import annotations

import os
import pickle
import string
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

RESULT, ERROR = b"r", b"e"


def result_path(folder: str, round_: int, local_rank: int) -> str:
    return os.path.join(folder, f"round_{round_}_{local_rank}")


def main(folder: str) -> None:
    """A spawned child: becomes what the parent was, as far as `multiprocessing` can, then works."""
    from multiprocessing.spawn import prepare

    with open(os.path.join(folder, "payload"), "rb") as file:
        prepare(pickle.load(file))
        function, args = pickle.load(file)
    work(function, args, folder)


def work(function: Callable[..., Any], args: Sequence[Any], folder: str) -> None:
    """Calls the function and delivers what came of it; an exception goes on to end the process."""
    from relight.compat.errors import ErrorHandler, explain

    local_rank = os.environ["RELIGHT_LOCAL_RANK"]
    path = result_path(folder, int(os.environ["RELIGHT_ROUND"]), int(local_rank))
    handler = ErrorHandler()
    handler.initialize()
    try:
        result = function(*[filled_in(one, local_rank) for one in args])
        deliver(path, RESULT, result)
    except Exception as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next  # the user's own frames are the account of it
        explain(error, handler)
        try:
            deliver(path, ERROR, error)
        except Exception:
            pass  # not every exception can be pickled; the error file has its words
        raise


def filled_in(one: Any, local_rank: str) -> Any:
    """An argument, `${local_rank}` filled in as in a command line."""
    return string.Template(one).safe_substitute(local_rank=local_rank) if type(one) is str else one


def deliver(path: str, kind: bytes, what: object) -> None:
    from relight.shell.errorfiles import write_whole

    write_whole(path, kind + pickle.dumps(what))


if __name__ == "__main__":
    main(sys.argv[1])
