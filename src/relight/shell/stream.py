"""One connection on the loop: bytes in by a callback, bytes out as fast as the other side reads them.

Whoever does not read what it is sent is not read either, and is given up when too much waits for it.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from relight.shell.loop import Loop

CHUNK = 64 << 10
MOST_UNSENT = 4 << 20


class Stream:
    """`on_bytes` hears what comes in, `on_end` once that nothing more will; after `close` neither is called."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        on_bytes: Callable[[bytes], object],
        on_end: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._connection: socket.socket | None = connection
        self._fd = connection.fileno()
        self._on_bytes = on_bytes
        self._on_end = on_end
        self._unsent: deque[memoryview] = deque()
        self._waiting = 0
        loop.watch(self._fd, self._readable)

    @property
    def open(self) -> bool:
        return self._connection is not None

    def send(self, data: bytes) -> None:
        """Sends at once what the other side takes, and the rest later."""
        if self._connection is None or not data:
            return
        self._unsent.append(memoryview(data))
        self._waiting += len(data)
        if len(self._unsent) == 1:
            self._flush()
        if self._waiting > MOST_UNSENT:
            self._end()

    def close(self) -> None:
        """Ends the connection; what was not sent yet is lost."""
        if self._connection is not None:
            self._loop.unwatch(self._fd)
            self._connection.close()
            self._connection = None

    def _flush(self) -> None:
        connection = self._connection
        if connection is None:
            return
        blocked = bool(self._unsent)
        try:
            while self._unsent:
                sent = connection.send(self._unsent[0])
                self._waiting -= sent
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
            blocked = False
        except BlockingIOError:
            pass
        except OSError:
            self._end()
            return
        self._loop.watch(self._fd, self._flush if blocked else self._readable, writable=blocked)

    def _readable(self) -> None:
        if self._connection is None:
            return
        try:
            chunk = self._connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._on_bytes(chunk)
        else:
            self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self.close()
            self._on_end()
