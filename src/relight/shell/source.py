"""One worker's stream on its way to a file and a console: what the pump knows about it."""

from __future__ import annotations

import fcntl
import os

from relight.core.lines import Lines, Picker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.shell.console import Console
    from relight.shell.rawlog import RawLog

_PIPE_SIZES = ((8, 1 << 20), (32, 1 << 18))  # the first streams get big pipes; a user's pipe memory is limited


class Source:
    """One worker's stream. For the main thread only a name, and `finished`."""

    def __init__(self, fd: int, prefix: bytes, console: Console | None) -> None:
        self.finished = False  # carried to its end: all of it is in the file (where there is one)
        self.fd = fd
        self.prefix = prefix
        self.console = console
        self.lines = Lines(prefix, console.screen) if console is not None else None
        self.log: RawLog | None = None
        self.picker: Picker | None = None
        self.filtered: RawLog | None = None
        self.capacity = 1 << 16
        self.end_by: float | None = None  # when the pipe is closed though somebody still holds its other end
        self.behind = False  # the console lags: it gets what follows from the file
        self.seen = 0  # as far as this offset in the file the console's text was made
        self.unseen = 0  # bytes that are lost to the console: it lagged, and the file did not take them

    @property
    def may_show(self) -> bool:
        return not self.behind and self.console is not None and not self.console.full

    @property
    def missed(self) -> int:
        """How many bytes the console was not given yet."""
        return self.unseen + (self.log.size - self.seen if self.log is not None else 0)

    def wake_at(self) -> float | None:
        """When the console's text changes because time passes."""
        return self.lines.wake_at() if self.lines is not None and self.may_show else None

    def prepare(self, others: int) -> None:
        """Makes the pipe ready to be read without waiting, with room for a burst as far as the system allows."""
        os.set_blocking(self.fd, False)
        for count, size in _PIPE_SIZES:
            if others < count:
                try:
                    fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, size)
                except OSError:
                    pass
                break
        try:
            self.capacity = fcntl.fcntl(self.fd, fcntl.F_GETPIPE_SZ)
        except OSError:
            pass

    def let_go(self) -> None:
        """The end of the stream, on its console too."""
        if self.console is not None and self.lines is not None:
            self.console.write(self.lines.end())
        if self.log is not None:
            self.log.close()
