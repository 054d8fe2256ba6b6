"""The worker's side of the room: says who it is, then one fact a line. Without an agent it is silent."""

from __future__ import annotations

import os

from relight.core.room import VERSION, line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class Voice:
    """A worker's connection to its agent. Never blocks training and never raises: telling is a courtesy."""

    def __init__(self, path: str, local_rank: int, round_: int) -> None:
        import socket

        self._socket: socket.socket | None = None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(1.0)
            connection.connect(path)
            connection.sendall(line(relight=VERSION, local_rank=local_rank, round=round_))
            connection.setblocking(False)
            self._socket = connection
        except OSError:
            connection.close()

    def tell(self, **facts: object) -> bool:
        """Says something; False if nobody listens, or the agent is too busy to take it now."""
        if self._socket is None:
            return False
        message = line(**facts)
        try:
            if self._socket.send(message) == len(message):
                return True
        except BlockingIOError:
            return False
        except OSError:
            pass
        self.close()  # gone, or cut in the middle of a line
        return False

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def voice_from_environment() -> Voice | None:
    """A connection to the agent that started this worker, if there is one."""
    try:
        return Voice(
            os.environ["RELIGHT_SOCKET"],
            int(os.environ.get("RELIGHT_LOCAL_RANK", "0")),
            int(os.environ["RELIGHT_ROUND"]),
        )
    except (KeyError, ValueError):
        return None
