"""Functions that workers run; a spawned worker imports them from here."""

from __future__ import annotations

import os
import sys
import time
from typing import Any


class Odd(Exception):
    """Cannot be made again from what it pickles to."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one)


def rank() -> int:
    return int(os.environ["RANK"])


def double(number: int) -> tuple[int, int]:
    return rank(), number * 2


def echo(*words: str) -> tuple[str, ...]:
    return words


def leave(how: object = None) -> None:
    sys.exit(how)  # type: ignore[arg-type]


def vanish() -> None:
    os._exit(0)


def fail_in_rank_1() -> None:
    if rank() == 1:
        raise KeyError("no such thing")
    time.sleep(60)


def fail_oddly() -> None:
    raise Odd("this", "that")


def unpicklable() -> Any:
    return lambda: 0


def second_time() -> str:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("the first time goes wrong")
    return os.environ["TORCHELASTIC_RESTART_COUNT"]


def descriptors() -> list[str]:
    """What this process holds open, beside the standard streams and multiprocessing's own pipe."""
    return [name for name in os.listdir("/proc/self/fd") if int(name) > 2]


def put(queue: Any) -> None:
    queue.put(rank())


def say(word: str) -> None:
    print(word, rank())


class Unloads:
    """Takes a while to go, as torch does."""

    def __del__(self) -> None:
        time.sleep(1.0)


def fail_first_and_end_last() -> None:
    import builtins

    if rank() == 0:
        builtins.unloads = Unloads()  # type: ignore[attr-defined]
        raise KeyError("the first")
    time.sleep(0.4)
    raise ValueError("the second")
