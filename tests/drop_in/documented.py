"""The entries of docs/differences.md, read back: `### <a id="key"></a>Title`, then text.

An entry that no case can show says so in a line that begins with `Untested:` and gives the reason.
"""

from __future__ import annotations

import re

HEADING = re.compile(r'^### <a id="([a-z0-9-]+)"></a>\s*(\S.*)$')


def entries(text: str) -> dict[str, str]:
    """The text of each entry by its key; a key that comes twice is a mistake of the document."""
    found: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if heading := HEADING.match(line):
            key = heading[1]
            if key in found:
                raise ValueError(f"docs/differences.md explains {key!r} twice")
            found[key] = ""
        elif line.startswith("#"):
            key = ""
        elif key:
            found[key] += line + "\n"
    return found


def untested(text: str) -> bool:
    return any(line.startswith("Untested: ") and len(line) > 20 for line in text.splitlines())
