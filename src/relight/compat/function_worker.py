"""A worker that is a Python function: runs in the child, and leaves its result in a file without a name.

Function, arguments and results travel through temporary files that have no name and are only inherited: nothing
comes over a socket, and nothing is left behind however a launch ends. A child that delivers nothing (`sys.exit()`,
`os._exit(0)`) simply has the result None.
"""

from __future__ import annotations

import io
import os
import pickle
import string
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

RESULT, ERROR, NOTHING = b"r", b"e", b""
_HEADER = struct.Struct("<cQ")  # what follows, and of which round it is
_PIECE = 1 << 30  # no system call takes more than two gigabytes


def main(payload: str, *results: str) -> None:
    """A spawned child: becomes what the parent was, as far as `multiprocessing` can, then works."""
    from multiprocessing.spawn import prepare

    own = int(results[int(os.environ["RELIGHT_LOCAL_RANK"])])
    content = io.BytesIO(_whole(int(payload)))
    for descriptor in {int(payload), *map(int, results)} - {own}:
        os.close(descriptor)
    os.set_inheritable(own, False)
    prepare(pickle.load(content))
    function, args = pickle.load(content)
    work(function, args, own)


def work(function: Callable[..., Any], args: Sequence[Any], results: int) -> None:
    """Calls the function and delivers what came of it; an exception goes on to end the process."""
    from relight.compat.errors import ErrorHandler, explain

    local_rank, round_ = os.environ["RELIGHT_LOCAL_RANK"], int(os.environ["RELIGHT_ROUND"])
    handler = ErrorHandler()
    handler.initialize()
    try:
        result = function(*[filled_in(one, local_rank) for one in args])
        deliver(results, round_, RESULT, result)
    except Exception as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next  # the user's own frames are the account of it
        explain(error, handler)
        try:
            deliver(results, round_, ERROR, error)
        except Exception:
            pass  # not every exception can be pickled; the error file has its words
        raise


def filled_in(one: Any, local_rank: str) -> Any:
    """An argument, `${local_rank}` filled in as in a command line."""
    return string.Template(one).safe_substitute(local_rank=local_rank) if type(one) is str else one


def deliver(results: int, round_: int, kind: bytes, what: object) -> None:
    """Writes what came of it, and last of all the header: without it nothing was delivered."""
    with open(results, "wb", closefd=False) as file:
        file.seek(_HEADER.size)
        pickle.dump(what, file)
        file.flush()
        file.seek(0)
        file.write(_HEADER.pack(kind, round_))


def delivered(results: int, round_: int) -> tuple[bytes, bytes]:
    """What a worker of this round has delivered: its kind, and the pickle. The file may hold an earlier round's."""
    content = _whole(results)
    if len(content) > _HEADER.size:
        kind, found = _HEADER.unpack_from(content)
        if found == round_:
            return kind, content[_HEADER.size :]
    return NOTHING, b""


def _whole(descriptor: int) -> bytes:
    """A file from its beginning. Its offset, which others share, stays as it is."""
    pieces = [b""]
    while piece := os.pread(descriptor, _PIECE, sum(map(len, pieces))):
        pieces.append(piece)
    return b"".join(pieces)
