"""Differences that show in many cases at once: pattern of an observation -> reason and what relight shows."""

from __future__ import annotations

import os
import re

from .case import ABSENT, Difference


def _is_ours(first: object, second: object) -> bool:
    return first is ABSENT and second is not ABSENT


def _gone(first: object, second: object) -> bool:
    return second is ABSENT


def _private_error_file(first: object, second: object) -> bool:
    """Without --log-dir both name a file in a temporary folder, each in its own."""
    shape = r"<run>/tmp/%s_<random>/.*/attempt_(\d+)/(\d+)/error\.json"
    one, two = re.fullmatch(shape % "torchelastic", str(first)), re.fullmatch(shape % "relight", str(second))
    return bool(one and two and one.groups() == two.groups())


def _private_log(first: object, second: object) -> bool:
    return str(first).startswith("<run>/tmp/torchelastic_") and (
        str(second) == str(first).replace("/torchelastic_", "/relight_") or second == "pipe"
    )


def _pipe(first: object, second: object) -> bool:
    """A teed stream is the log file itself in torchrun, and a pipe to the launcher in relight."""
    return str(first).endswith((f"{os.sep}stdout.log", f"{os.sep}stderr.log")) and second == "pipe"


def _other_host(first: object, second: object) -> bool:
    """The report is the same but for the name of the host and of the private folder."""
    if not (isinstance(first, list) and isinstance(second, list)):
        return False
    ours = [[line.replace(": <fqdn>", ": <hostname>") for line in block] for block in first]
    ours = [[line.replace("/tmp/torchelastic_", "/tmp/relight_") for line in block] for block in ours]
    return bool(ours == second)


EVERYWHERE: dict[str, Difference] = {
    "world/*/env/MASTER_ADDR": Difference("master-address", "127.0.0.1"),
    "inner/*/env/MASTER_ADDR": Difference("master-address", "127.0.0.1"),
    "world/*/env/RELIGHT_*": Difference("own-variables", _is_ours),
    "inner/*/env/RELIGHT_*": Difference("own-variables", _is_ours),
    "world/*/env/TORCHELASTIC_ERROR_FILE": Difference("temporary-folder", _private_error_file),
    "inner/*/env/TORCHELASTIC_ERROR_FILE": Difference("temporary-folder", _private_error_file),
    "tmp//torchelastic_*": Difference("temporary-folder", _gone),
    "tmp//relight_*": Difference("temporary-folder", _is_ours),
    "logs/*/report.json/*": Difference("own-files-in-the-log-folder", _is_ours),
    "logs/*/agent.sock/*": Difference("own-files-in-the-log-folder", _is_ours),
    "tmp//torchinductor_*": Difference("temporary-folder", _gone),
    "world/*/descriptors/[12]": Difference(
        "tee-through-a-pipe", lambda one, two: _pipe(one, two) or _private_log(one, two)
    ),
    "report": Difference("host-name", _other_host),
    "manner/usage": Difference("mistakes-in-two-lines", False),
    "manner/traceback": Difference("no-launcher-traceback", False),
}
