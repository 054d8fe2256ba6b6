"""A descriptor that one thread makes readable to wake another."""

from __future__ import annotations

import os


class Bell:
    """Rung from any thread or signal handler; readable until it is hushed."""

    def __init__(self) -> None:
        self._exit, self._entry = os.pipe()
        os.set_blocking(self._exit, False)
        os.set_blocking(self._entry, False)

    def fileno(self) -> int:
        return self._exit

    def ring(self) -> None:
        """Does nothing once the bell is closed, or while it rings already."""
        try:
            if self._entry >= 0:
                os.write(self._entry, b"!")
        except BlockingIOError:
            pass

    def hush(self) -> None:
        try:
            while self._exit >= 0 and os.read(self._exit, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        entry, exit_ = self._entry, self._exit
        self._entry = self._exit = -1
        for fd in (entry, exit_):
            if fd >= 0:
                os.close(fd)
