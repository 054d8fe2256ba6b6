"""Frames: JSON objects on a stream of bytes, each behind its length, and none larger than the limit.

What comes in is read field by field, each with its type and its bounds; anything else is Nonsense. Fields that nobody
asks for are ignored, so that a later release may say more.
"""

from __future__ import annotations

import json
import struct

from relight.core.failure import shorten
from relight.core.names import Nonsense, legible, why_no_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    import enum
    from typing import Any, TypeVar

    Choice = TypeVar("Choice", bound=enum.Enum)

LIMIT = 512 << 10  # bytes: a character takes up to twelve of them in JSON
LINE = 1000  # characters of a name or a sentence
MOST = 1 << 62
LARGEST = 1e15
_HEAD = struct.Struct(">I")


def frame(said: dict[str, Any]) -> bytes:
    """One object, ready to be sent."""
    body = json.dumps(said, separators=(",", ":")).encode()
    assert len(body) <= LIMIT, "whatever is said is bounded where it is made"
    return _HEAD.pack(len(body)) + body


def cut(text: str, most: int = LINE) -> str:
    """Text for people, such that the other side takes it."""
    return shorten(legible(text), most)


class Frames:
    """What has come in on one connection, cut into objects."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def received(self, chunk: bytes) -> list[Fields]:
        """The objects that are whole by now. Raises Nonsense; what came before that in the same chunk is lost too."""
        rest = self._rest
        rest += chunk
        found: list[Fields] = []
        at = 0
        while len(rest) - at >= _HEAD.size:
            (length,) = _HEAD.unpack_from(rest, at)
            if length > LIMIT:
                raise Nonsense(f"a frame of {length} bytes, and {LIMIT} is the most")
            end = at + _HEAD.size + length
            if len(rest) < end:
                break
            found.append(_object(bytes(rest[at + _HEAD.size : end])))
            at = end
        del rest[:at]
        return found


def _object(body: bytes) -> Fields:
    try:
        return Fields(json.loads(body))
    except (ValueError, RecursionError):
        raise Nonsense("a frame that is not JSON") from None


class Fields:
    """An object from outside. Every field is asked for by its name and its kind."""

    __slots__ = ("_said",)

    def __init__(self, said: object) -> None:
        if not isinstance(said, dict):
            raise Nonsense("something that is no JSON object")
        self._said: dict[str, Any] = said

    def __contains__(self, name: str) -> bool:
        return self._said.get(name) is not None

    def whole(self, name: str, least: int = 0, most: int = MOST) -> int:
        number = self._said.get(name)
        if type(number) is not int or not least <= number <= most:
            raise Nonsense(f"{name!r} that is no whole number from {least} to {most}")
        return number

    def number(self, name: str, least: float = -LARGEST) -> float:
        number: Any = self._said.get(name)
        if type(number) not in (int, float) or not least <= number <= LARGEST:  # a NaN is in no range
            raise Nonsense(f"{name!r} that is no number from {least:g} to {LARGEST:g}")
        return float(number)

    def text(self, name: str, most: int = LINE) -> str:
        """Something for people to read. It can be encoded; what would steer a terminal is still in it."""
        text = self._said.get(name)
        if not isinstance(text, str) or len(text) > most:
            raise Nonsense(f"{name!r} that is no text of at most {most} characters")
        return legible(text)

    def word(self, name: str, most: int = LINE) -> str:
        """A name, an address or a path, which is taken as it stands: an environment could hold it."""
        word = self._said.get(name)
        if not isinstance(word, str) or len(word) > most or why_no_word(word):
            raise Nonsense(f"{name!r} that is no word of at most {most} characters")
        return word

    def flag(self, name: str) -> bool:
        flag = self._said.get(name)
        if not isinstance(flag, bool):
            raise Nonsense(f"{name!r} that is neither true nor false")
        return flag

    def choice(self, name: str, choices: type[Choice]) -> Choice:
        try:
            return choices(self._said.get(name))
        except ValueError:
            raise Nonsense(f"{name!r} that is no {choices.__name__}") from None

    def texts(self, name: str, count: int, most: int = LINE) -> tuple[str, ...]:
        texts = self._said.get(name)
        if not isinstance(texts, list) or len(texts) > count:
            raise Nonsense(f"{name!r} that is no list of at most {count} texts")
        if not all(isinstance(text, str) and len(text) <= most for text in texts):
            raise Nonsense(f"{name!r} with something that is no text of at most {most} characters")
        return tuple(legible(text) for text in texts)

    def within(self, name: str) -> Fields | None:
        """An object inside this one; None if there is none."""
        inner = self._said.get(name)
        return None if inner is None else Fields(inner)
