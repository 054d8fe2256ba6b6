"""File systems that hang (NFS whose server is gone) must not hang the agent: somebody else waits, for a time.

The waiting is a thread's. If it is given up it goes on in the background, and its result is nobody's.
"""

from __future__ import annotations

import errno
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

MAKING_S = 30.0  # for what the job cannot go on without
TELLING_S = 2.0  # for what only explains


def within(limit_s: float, path: str, action: Callable[[], T]) -> T:
    """What `action` returns, or raises. OSError (ETIMEDOUT, about `path`) if that takes longer than `limit_s`."""
    returned: list[T] = []
    raised: list[BaseException] = []

    def act() -> None:
        try:
            returned.append(action())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=act, name="relight waits for a file", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread is to be had: better to wait than not to do it
        act()
    else:
        thread.join(limit_s)
    if raised:
        raise raised[0]
    if not returned:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
    return returned[0]
