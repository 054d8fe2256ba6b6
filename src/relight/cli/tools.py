"""The command `relightctl`: what is not launching. One row for each tool; nothing is imported for the others."""

from __future__ import annotations

import argparse
import os
import sys

from relight.cli.completion import TOOLS
from relight.cli.printing import complain, show
from relight.cli.table import SHELLS
from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

_EXAMPLES = """\
examples
  relightctl version
  relightctl env > report.txt            for a bug report; secrets are hidden
  eval "$(relightctl completion bash)"   in ~/.bashrc; zsh and fish likewise
  relightctl as-torchrun accelerate launch --multi_gpu train.py
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with complaints of two lines."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")

    def print_help(self, file: object = None) -> None:
        show(self.format_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one tool; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words[:1] == ["as-torchrun"]:  # what follows is another command's line, not ours to parse
            from relight.cli.as_torchrun import main as become

            return become(words[1:])
        chosen = _parser().parse_args(words)
        act: Callable[[argparse.Namespace], int] = chosen.act
        return act(chosen)
    except UsageError as refused:
        complain(refused)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="relightctl",
        description="Tools around relight, which keeps distributed training alive.",
        epilog=_EXAMPLES,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32),
    )
    parser.set_defaults(act=_nothing)
    tools = parser.add_subparsers(title="tools", metavar="TOOL")
    acts = {"version": _version, "env": _env, "completion": _completion}
    for name, what in TOOLS.items():
        tool = tools.add_parser(name, help=what, description=what[:1].upper() + what[1:] + ".")
        tool.set_defaults(act=acts.get(name, _nothing))
        if name == "env":
            tool.add_argument("--json", action="store_true", help="as JSON, for programs")
        if name == "completion":
            tool.add_argument("shell", metavar="SHELL", help=" or ".join(SHELLS))
    return parser


def _nothing(_chosen: argparse.Namespace) -> int:
    raise UsageError("no tool was named", "relightctl --help")


def _version(_chosen: argparse.Namespace) -> int:
    from relight.cli.surroundings import versions

    show("".join(f"{name:<8} {version}\n" for name, version in versions().items()))
    return 0


def _env(chosen: argparse.Namespace) -> int:
    from relight.cli.surroundings import as_text, surroundings

    report = surroundings(os.environ)
    if chosen.json:
        import json

        show(json.dumps(report, indent=2, default=str) + "\n")
    else:
        show(as_text(report))
    return 0


def _completion(chosen: argparse.Namespace) -> int:
    from relight.cli.completion import script

    show(script(chosen.shell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
