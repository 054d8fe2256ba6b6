"""`relightctl as-torchrun CMD...`: runs a command in whose processes torchrun is relight.

A folder of this package goes first on PATH (it holds a `torchrun`) and first on PYTHONPATH (its sitecustomize
makes relight answer where a Python program imports torch's launcher). Then this process becomes the command, so
signals and the exit code are its own. Nothing outside its children notices.
"""

from __future__ import annotations

import os
import sys

from relight.cli.printing import show
from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELP = """\
usage: relightctl as-torchrun COMMAND [its arguments]

Runs a command in which torchrun, and torch's Python launcher, are relight.

examples
  relightctl as-torchrun accelerate launch --num_processes 2 train.py
  relightctl as-torchrun bash job.sh
  relightctl as-torchrun tune run --nproc_per_node 2 full_finetune_distributed --config my.yaml
"""


def main(argv: Sequence[str]) -> int:
    """Becomes the command. Returns only for --help; raises UsageError if there is no such command."""
    command = list(argv)
    if command[:1] in (["-h"], ["--help"]):
        show(HELP)
        return 0
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        raise UsageError("no command was named", "relightctl as-torchrun accelerate launch train.py")
    environment = surroundings(os.environ, first_folder(), sys.executable)
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        raise UsageError(f"there is no command {command[0]}", f"command -v {command[0]}") from None
    except PermissionError:
        raise UsageError(f"{command[0]} may not be executed", f"chmod +x {command[0]}") from None
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}", f"file {command[0]}") from None


def first_folder() -> str:
    """The folder that goes first; its `torchrun` has to be executable."""
    import relight

    folder = os.path.join(os.path.dirname(os.path.abspath(relight.__file__)), "compat", "first")
    torchrun = os.path.join(folder, "torchrun")
    if not os.access(torchrun, os.X_OK):
        raise UsageError(f"{torchrun} may not be executed", f"chmod +x {torchrun}")
    return folder


def surroundings(environ: Mapping[str, str], folder: str, python: str) -> dict[str, str]:
    """The command's environment. Inside another as-torchrun it is what it was."""
    return {
        **environ,
        "PATH": _first(folder, environ.get("PATH", os.defpath)),
        "PYTHONPATH": _first(folder, environ.get("PYTHONPATH", "")),
        "RELIGHT_PYTHON": python,
    }


def _first(folder: str, path: str) -> str:
    rest = [place for place in path.split(os.pathsep) if place != folder] if path else []
    return os.pathsep.join([folder, *rest])
