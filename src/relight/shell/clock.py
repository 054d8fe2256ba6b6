"""The two clocks: one that only goes forward, for every decision, and the wall's, for printing."""

from __future__ import annotations

import time

TYPE_CHECKING = False


def monotonic() -> float:
    """Seconds on the clock that also counts while a machine is suspended (CLOCK_BOOTTIME where there is one)."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
