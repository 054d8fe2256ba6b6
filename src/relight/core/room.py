"""What a worker may tell its agent over their Unix socket: one JSON object a line, versioned and bounded.

The worker speaks first: `{"relight": 1, "local_rank": 0, "round": 2}`; the agent answers `{"relight": 1}`. After
that each line is one fact. A line that is too long or makes no sense ends the conversation and changes nothing;
a worker that never connects is as good as any other.
"""

from __future__ import annotations

from relight.core.names import Nonsense, legible
from relight.core.values import value

VERSION = 1
LINE_LIMIT = 1 << 16
LARGEST = (1 << 62) - 1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@value
class Hello:
    """Who speaks."""

    local_rank: int
    round: int


@value
class Step:
    """The worker has completed this step of its training."""

    step: int


@value
class Closed:
    """The worker's start-up shim did something at its exit that the user should know of."""

    what: str


@value
class Returned:
    """The worker's script has run to its end; what is left is the teardown of its interpreter."""


Fact = Hello | Step | Closed | Returned


class Conversation:
    """The agent's side of one connection: bytes in, facts out."""

    def __init__(self) -> None:
        self._rest = b""
        self.who: Hello | None = None

    def received(self, chunk: bytes) -> list[Fact]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_LIMIT or any(len(line) > LINE_LIMIT for line in lines):
            raise Nonsense(f"a line of more than {LINE_LIMIT} bytes")
        return [self._read(line) for line in lines]

    def _read(self, line: bytes) -> Fact:
        import json

        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            raise Nonsense("a line that is not JSON") from None
        if not isinstance(said, dict):
            raise Nonsense("a line that is not a JSON object")
        if self.who is None:
            if said.get("relight") != VERSION:
                raise Nonsense(f"a greeting that is not in version {VERSION}")
            self.who = Hello(_whole(said, "local_rank"), _whole(said, "round"))
            return self.who
        if "step" in said:
            return Step(_whole(said, "step"))
        if said.get("returned") is True:
            return Returned()
        if isinstance(what := said.get("closed"), str):
            return Closed(legible(" ".join(what[:200].split())))
        raise Nonsense("a line with nothing known in it")


def _whole(said: dict[str, Any], name: str) -> int:
    number = said.get(name)
    if type(number) is not int or not 0 <= number <= LARGEST:
        raise Nonsense(f"{name} that is no whole number")
    return number


def greeting() -> bytes:
    """The agent's answer to a Hello."""
    return line(relight=VERSION)


def line(**facts: object) -> bytes:
    """One line as either side writes it."""
    import json

    return json.dumps(facts).encode() + b"\n"
