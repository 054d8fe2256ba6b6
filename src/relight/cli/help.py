"""What --help prints: the table in groups, with examples; colour where a person reads it on a terminal.

Imported only when help is asked for. Options that another program has added to the parser are listed as well.
"""

from __future__ import annotations

import argparse
import os
import textwrap

from relight.cli.table import BY_DEST, GROUPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

EXAMPLES = (
    ("--nproc-per-node gpu train.py", "a worker for every GPU"),
    ("--nproc-per-node 4 --max-restarts 3 train.py --lr 0.1", "carries on after three failures"),
    ("--nproc-per-node 4 -t 3 --log-dir logs -m my.training", "a module; its output also in files"),
    ("--nproc-per-node 2 --no-python ./worker.sh '${local_rank}'", "any program"),
)
_COLUMN = 32
_OTHERS = "and"


def render(parser: argparse.ArgumentParser, *, colour: bool = False, width: int = 100) -> str:
    """The whole help text."""
    sections = [
        parser.format_usage().rstrip(),
        parser.description or "",
        _examples(parser.prog, colour),
        *[_group(title, rows, colour, width) for title, rows in _grouped(parser).items()],
        textwrap.fill(
            "Every long option may be written with - or _, and shortened as far as it stays unique. An option that "
            "is not given may come from a variable: PET_NPROC_PER_NODE=4 for --nproc-per-node 4.",
            width,
        ),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def wants_colour(out: IO[str] | None, environ: Mapping[str, str]) -> bool:
    """Whether to colour what is written to `out`: https://no-color.org, then FORCE_COLOR, then the terminal."""
    if environ.get("NO_COLOR"):
        return False
    forced = environ.get("FORCE_COLOR")
    if forced:
        return forced != "0"
    return environ.get("TERM") != "dumb" and out is not None and out.isatty()


def width(out: IO[str]) -> int:
    """The terminal's width, within what is pleasant to read."""
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 100
    return max(60, min(columns, 110))


def _examples(prog: str, colour: bool) -> str:
    longest = max(len(command) for command, _ in EXAMPLES)
    lines = [f"  {prog} {command:<{longest}}  {_paint(what, '2', colour)}" for command, what in EXAMPLES]
    return "\n".join([_paint("examples", "1", colour), *lines])


def _grouped(parser: argparse.ArgumentParser) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (*GROUPS, _OTHERS)}
    for action in parser._actions:
        if action.option_strings and action.help is not argparse.SUPPRESS:
            option = BY_DEST.get(action.dest)
            groups[option.group if option else _OTHERS].append(_row(action))
    return {title: rows for title, rows in groups.items() if rows}


def _row(action: argparse.Action) -> tuple[str, str]:
    # One spelling is enough to read: the underscored one is mentioned once, below.
    dashed = [spelling for spelling in action.option_strings if "_" not in spelling] or action.option_strings
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    word = "|".join(action.choices) if action.choices else metavar
    option = BY_DEST.get(action.dest)
    built_in = option.default if option else None
    line = (action.help or "") + (f" ({built_in})" if isinstance(built_in, (str, int, float)) and built_in else "")
    return ", ".join(dashed) + ("" if action.nargs == 0 else f" {word}"), line


def _group(title: str, rows: list[tuple[str, str]], colour: bool, width: int) -> str:
    lines = [_paint(title, "1", colour)]
    for left, line in rows:
        words = textwrap.wrap(line, max(30, width - _COLUMN), break_on_hyphens=False) or [""]
        first, indent = f"  {_paint(left, '36', colour)}", " " * _COLUMN
        if len(left) + 4 > _COLUMN:
            lines += [first, *[indent + part for part in words]]
        else:
            gap = " " * (_COLUMN - 2 - len(left))
            lines += [first + gap + words[0], *[indent + part for part in words[1:]]]
    return "\n".join(lines)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\033[{code}m{text}\033[0m" if colour else text
