"""What the commands print: on stdout what was asked for, on stderr what went wrong.

Neither is taken for granted: a reader may have gone, a disk may be full, a descriptor may be closed. The exit code
tells the truth all the same.
"""

from __future__ import annotations

import os
import sys

from relight.core.names import RelightError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def show(text: str) -> None:
    """Writes to stdout, all of it, or raises UsageError. Where the reader has gone, what it has read was enough."""
    out = sys.stdout
    if out is None:
        raise UsageError("stdout is closed", "> FILE instead of >&-")
    encoding = out.encoding or "utf-8"
    try:
        out.write(text.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except BrokenPipeError:
        _forget(out)
        raise SystemExit(0) from None
    except OSError as error:
        _forget(out)
        raise UsageError(f"stdout cannot be written: {error.strerror}", "> a file on a disk with room") from None


def complain(error: RelightError) -> None:
    """Two lines on stderr: what is wrong, and what to type."""
    write(error_text(error))


def error_text(error: RelightError) -> str:
    """The two lines a user sees."""
    return f"relight: error: {error.what}\n" + (f"  try: {error.remedy}\n" if error.remedy else "")


def write(text: str) -> None:
    """Writes to stderr. If nobody can read that, the exit code is all there is to tell."""
    from relight.shell.console import write_all

    try:
        write_all(2, text.encode(errors="backslashreplace"))
    except OSError:
        pass


def _forget(out: TextIO) -> None:
    """Python would try once more to write the rest when it ends, and complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)
    except OSError:  # no file of the system's
        pass
