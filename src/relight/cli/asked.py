"""One choice at a time, with the name by which a complaint about it should call it."""

from __future__ import annotations

from relight.cli.table import BY_DEST, shown
from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any


class Asked:
    """The choices, each with the name by which a complaint should call it."""

    def __init__(self, chosen: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self.chosen = chosen
        self.environ = environ

    def value(self, dest: str) -> Any:
        """A choice; a Namespace made by another program may lack what it never heard of."""
        option = BY_DEST.get(dest)
        return getattr(self.chosen, dest, option.default if option else None)

    def text(self, dest: str) -> str:
        found = self.value(dest)
        return "" if found is None else str(found)

    def given(self, dest: str) -> bool:
        """Whether a person or a scheduler said anything about it."""
        return dest in getattr(self.chosen, "said", {}) or BY_DEST[dest].variable in self.environ

    def name(self, dest: str) -> str:
        """`--tee`, `-t` or `PET_TEE`, whichever the value came from."""
        option = BY_DEST[dest]
        spelled: str | None = getattr(self.chosen, "said", {}).get(dest)
        if spelled is None and option.variable in self.environ:
            return option.variable
        return spelled or option.long

    def shown(self, dest: str) -> str:
        """`--nnodes abc` or `PET_NNODES=abc`."""
        name = self.name(dest)
        return f"{name}{'=' if name.startswith('PET_') else ' '}{shown(self.value(dest))}"

    def wrong(self, dest: str, complaint: str, remedy: str = "") -> UsageError:
        option = BY_DEST[dest]
        return UsageError(f"{self.shown(dest)} {complaint}", remedy or f"{option.long} {shown(option.example)}")

    def number(self, dest: str, least: int = 0) -> int:
        """A whole number; other programs hand it over as text."""
        try:
            number = int(self.value(dest))
        except (TypeError, ValueError):
            raise self.wrong(dest, "is not a whole number") from None
        if number < least:
            raise self.wrong(dest, f"is below {'zero' if least == 0 else least}")
        return number
