"""The workers' own words: reads their error files, forgivingly, and passes the first cause on to a parent launcher."""

from __future__ import annotations

import os

from relight.core.failure import WORDS_LIMIT, Words, read_words
from relight.core.values import replace
from relight.shell.logfiles import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.failure import WorkerEnd


def words_in(path: str) -> Words | None:
    """What an error file says, or None. A torn, huge or missing file never hurts."""
    if not path:
        return None
    try:
        with open(open_regular(path), "rb") as file:
            raw = file.read(WORDS_LIMIT + 1)
            written_at = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    words = read_words(raw)
    if words is not None and (words.raised_at is None or words.raised_at == int(words.raised_at)):
        # Only whole seconds inside: the moment the file was written orders failures better.
        words = replace(words, raised_at=written_at)
    return words


def pass_on(end: WorkerEnd, path: str) -> str:
    """Writes the first cause where a parent launcher looks for it. Returns what went wrong, or nothing."""
    import json

    own = end.error_file
    try:
        document = None
        if end.words is not None and own:
            with open(open_regular(own), "rb") as file:
                document = json.loads(file.read(WORDS_LIMIT))
            if isinstance(document.get("message"), dict):
                document["message"]["errorCode"] = end.status.number
        if document is None:
            return ""
        write_whole(path, json.dumps(document).encode())
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        return f"the first cause could not be copied to {path}: {error}"
    return ""


def write_whole(path: str, content: bytes) -> None:
    """Writes a file so that a reader sees all of it or none."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(content)
        os.replace(partial, path)
    except OSError:
        try:
            os.unlink(partial)
        except OSError:
            pass
        raise
