"""The vocabulary every other room shares: how a process ended, the families of errors, text for people."""

from __future__ import annotations

import signal

from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Never, NoReturn


@value
class ExitStatus:
    """How a process ended, in the convention of `subprocess`: a code, or the negative number of a signal."""

    number: int

    @property
    def ok(self) -> bool:
        return self.number == 0

    @property
    def signal(self) -> int | None:
        return -self.number if self.number < 0 else None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}"
        return f"exited with {self.number}"


def signal_name(number: int) -> str:
    """SIGKILL for 9; `signal 34` for a number this system has no name for."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RelightError(Exception):
    """What relight raises on purpose. `str()` is one sentence; `remedy` says what to do."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class UsageError(RelightError):
    """You: a request that cannot be carried out as it stands."""


class JobFailed(RelightError):
    """Your program: the job failed, and no restart was left. `outcome` is all there is to know, where it ran at all."""

    outcome: Any = None


class JobStopped(RelightError):
    """A signal ended the job before it was done. `outcome` says which one."""

    outcome: Any = None


class Broken(RelightError):
    """Us: something relight relies on did not work."""


class Nonsense(Exception):
    """What came over a socket does not keep to the protocol. `str()` says in what way."""


def fill_in(template: str, **facts: object) -> str:
    """`${name}` and `$name` by what they stand for, `$$` by `$`; every other `$` stays. torchrun's rule."""
    if "$" not in template:
        return template
    import string  # not on the way to the first worker, unless it is needed

    return string.Template(template).safe_substitute(facts)


def legible(text: str) -> str:
    """Text that came from outside, such that it can be encoded: lone surrogates become escapes."""
    return text.encode(errors="backslashreplace").decode()


def why_no_word(text: str) -> str:
    """Why a command, a variable or a path cannot hold this text; nothing if it can."""
    if "\0" in text:
        return "a NUL character ends a word"
    try:
        text.encode(errors="surrogateescape")  # what was read as bytes that are no text stands for these bytes
    except UnicodeEncodeError:
        return "half a surrogate pair stands for no bytes"
    return ""


def visible(text: str) -> str:
    """Text that came from outside, as a terminal may show it: what would steer it is an escape. Tabs and lines stay."""
    return text.translate(_CONTROLS)


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def never(impossible: Never) -> NoReturn:
    """Marks a branch that no value can reach; the type checker proves it."""
    raise AssertionError(f"unexpected {impossible!r}")
