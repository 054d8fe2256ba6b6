"""Whether somebody listens at a port: an agent whose connection was lost has its door, as long as it lives."""

from __future__ import annotations

import errno
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.shell.loop import Loop


class Probe:
    """Knocks at a door once. `on_answer` hears 0, or the error that came back; never, if nothing does."""

    def __init__(self, loop: Loop, address: str, port: int, on_answer: Callable[[int], object]) -> None:
        self._loop = loop
        self._on_answer = on_answer
        self._socket: socket.socket | None = None
        try:
            knocking = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            return  # no descriptor is left: this knock tells nothing
        knocking.setblocking(False)
        self._socket = knocking
        error = knocking.connect_ex((address, port))
        if error == errno.EINPROGRESS:
            loop.watch(knocking.fileno(), self._came, writable=True)
        else:
            self._end(error)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _came(self) -> None:
        assert self._socket is not None
        self._end(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _end(self, error: int) -> None:
        self.close()
        self._on_answer(error)
