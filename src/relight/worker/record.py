"""`@record`: a worker's exception reaches the launcher whole, whichever launcher it is."""

from __future__ import annotations

import os

from relight.core.failure import Words, write_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")


def record(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a worker's main function: an exception is written to the launcher's error file, then raised on.

    Works under relight and torchrun (both name the file in TORCHELASTIC_ERROR_FILE) and does nothing elsewhere.
    SystemExit and KeyboardInterrupt are no failures to be explained, and pass. A native crash dumps its stacks.
    """
    import functools

    @functools.wraps(function)
    def recorded(*args: P.args, **named: P.kwargs) -> R:
        import faulthandler

        if not faulthandler.is_enabled():
            try:
                faulthandler.enable(all_threads=True)
            except (OSError, ValueError, AttributeError):  # stderr is closed or no file
                pass
        try:
            return function(*args, **named)
        except Exception as error:
            write_error(error)
            raise

    return recorded


def write_error(error: BaseException) -> None:
    """Writes the error file, whole or not at all. Never raises: the exception itself matters more."""
    import json

    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    document = write_words(words_of(error))
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(document, file)
        os.replace(partial, path)
    except OSError:
        pass


def words_of(error: BaseException) -> Words:
    """What there is to say about an exception that has just been caught, short enough for any reader of it."""
    import time
    import traceback

    raised_at = time.time()
    told = traceback.TracebackException.from_exception(error)  # survives an exception whose own __str__ raises
    return Words(
        _bounded(f"{type(error).__name__}: {told}", 1 << 15), _bounded("".join(told.format()), 1 << 17), raised_at
    )


def _bounded(text: str, most: int) -> str:
    """Both ends of a text. Launchers read no more than a megabyte, and a tensor's repr can be larger."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
