"""Signals as events: a descriptor that says which ones came. Handlers are installed once and put back at the end."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any

    from relight.shell.loop import Loop


class Signals:
    """Calls back in the loop for each signal that arrived. Off the main thread it does nothing: Python has it so."""

    def __init__(self, loop: Loop, numbers: Iterable[int], on_signal: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}
        self._wakeup_before: int | None = None
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        try:
            self._wakeup_before = signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        except ValueError:  # not the main thread
            self.close()
            return
        for number in numbers:
            if number in self._before:
                continue
            if number in (signal.SIGHUP, signal.SIGTSTP) and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup, or a shell without job control
            self._before[number] = signal.signal(number, noted)
        loop.watch(self._readable, self._arrived)

    def suspend(self) -> None:
        """Stops this process as an unhandled SIGTSTP would; returns when it is continued."""
        mine = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, mine)

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before = {}
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            self._wakeup_before = None
        if self._readable >= 0:
            self._loop.unwatch(self._readable)
            os.close(self._readable)
            os.close(self._writable)
            self._readable = -1

    def _arrived(self) -> None:
        for number in os.read(self._readable, 4096):
            if number in self._before:
                self._on_signal(number)


def noted(_number: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has already told the loop."""
