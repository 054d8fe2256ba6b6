"""`relight.step(n)`: tells the agent how far training has come, so that a failure can say what it cost."""

from __future__ import annotations

from relight.core.room import LARGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from relight.worker.room import Voice


class _Teller:
    """The one connection of this process, made when it is first needed; a fork makes its own."""

    def __init__(self) -> None:
        self._pid = 0
        self._voice: Voice | None = None

    def tell(self, number: int) -> None:
        import os

        if self._pid != os.getpid():
            from relight.worker.room import voice_from_environment

            self._pid = os.getpid()
            self._voice = voice_from_environment()
        if self._voice is not None:
            self._voice.tell(step=number)


_teller = _Teller()


def step(number: SupportsIndex) -> None:
    """Says that step `number` is complete: any whole number, torch's and NumPy's too; what is none is not told.

    Costs microseconds, never raises, and does nothing without relight's launcher.
    """
    try:
        number = number.__index__()
    except Exception:  # a courtesy must not end anybody's training
        return
    if 0 <= number <= LARGEST:
        _teller.tell(number)
