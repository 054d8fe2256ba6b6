"""The command line's parser: argparse's own, built from the table, because other programs look inside it.

Owns the grammar and the two lines that every complaint is. Knows nothing of machines, files or jobs.
"""

from __future__ import annotations

import argparse
import os
import sys

from relight.cli.printing import error_text, show
from relight.cli.table import (
    BY_DEST,
    OPTIONS,
    SHELLS,
    USE_ENV,
    BadValue,
    FromEnvironment,
    closest,
    one_of,
    shown,
    switch,
    text,
)
from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import IO, Any, NoReturn

    from relight.cli.table import Option

# What other launchers call it.
_ELSEWHERE = {
    "-n": "--nproc-per-node",
    "-np": "--nproc-per-node",
    "--np": "--nproc-per-node",
    "--nprocs": "--nproc-per-node",
    "--num-processes": "--nproc-per-node",
    "--num-gpus": "--nproc-per-node",
    "--num-workers": "--nproc-per-node",
    "--num-nodes": "--nnodes",
    "--num-machines": "--nnodes",
    "--restarts": "--max-restarts",
    "--rdzv-config": "--rdzv-conf",
}


class Choices(argparse.Namespace):
    """What was chosen, under torchrun's own names, and beside it how each explicit choice was spelled."""

    __slots__ = ("said",)
    said: dict[str, str]

    def __init__(self, **named: Any) -> None:
        self.said = {}
        super().__init__(**named)


class _Chosen(argparse.Action):
    """Takes a value, or turns a flag on, and remembers the spelling where there is room to."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, True if self.nargs == 0 else values)
        if isinstance(namespace, Choices) and option_string:
            namespace.said[self.dest] = option_string


class _Several(argparse.Action):
    """Stands for an abbreviation of more than one option; complains only if it is really met as one."""

    def __call__(self, *_rest: object) -> None:
        raise UsageError(f"{self.metavar} could be {' or '.join(self.option_strings)}", self.option_strings[0])


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from relight import __version__

        show(f"relight {__version__}\n")
        parser.exit()


class _Completion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, _namespace: object, values: object, *_rest: object) -> None:
        from relight.cli.completion import script

        show(script(str(values)))
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse, with three differences: one option in two spellings is not ambiguous, an abbreviation is only
    looked at before the script's name, and every complaint is two lines."""

    refuse: Callable[[UsageError], NoReturn]
    _argv: list[Any]

    def _get_option_tuples(self, option_string: str) -> list[tuple[argparse.Action, str, str | None]]:
        found: dict[argparse.Action, Any] = {}
        for candidate in super()._get_option_tuples(option_string):
            found.setdefault(candidate[0], candidate)
        if len(found) > 1:
            found = {action: candidate for action, candidate in found.items() if not _is_ours(action)} or found
        if len(found) < 2:
            return list(found.values())
        spelled = [action.option_strings[-1].replace("_", "-") for action in found]
        several = _Several(spelled, dest=argparse.SUPPRESS, nargs="*", metavar=option_string.partition("=")[0])
        return [(several, *next(iter(found.values()))[1:])]

    # The parameters' names are argparse's own: callers pass them by keyword.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._argv = sys.argv[1:] if args is None else list(args)
        try:
            return super().parse_known_args(self._argv, Choices() if namespace is None else namespace)
        except UsageError as refused:
            self.refuse(refused)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        chosen, rest = self.parse_known_args(args, namespace)
        if rest:
            self.refuse(_unknown(str(rest[0]), self))
        return chosen

    def error(self, message: str) -> NoReturn:
        if "training_script" in message:
            self.refuse(self._no_script())
        self.refuse(_complaint(message, sys.exception()))

    def _no_script(self) -> UsageError:
        # argparse misses the script before it minds a word that it does not know.
        for word in self._argv:
            name = str(word).partition("=")[0]
            is_option = name[:1] == "-" and name.strip("-") and not name[1:2].isdigit()
            if is_option and name not in self._option_string_actions and not self._get_option_tuples(name):
                return _unknown(name, self)
        return UsageError("no script was named", f"{self.prog} [options] train.py [its arguments]")

    def format_usage(self) -> str:
        return f"usage: {self.prog} [options] script.py [the script's own arguments]\n"

    def format_help(self) -> str:
        from relight.cli.help import render

        return render(self, colour=False)

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        from relight.cli.help import render, wants_colour, width

        out = sys.stdout if file is None else file
        (show if file is None else file.write)(render(self, colour=wants_colour(out, os.environ), width=width(out)))


def build_parser(environ: Mapping[str, str] | None = None, prog: str = "relight", *, legacy: bool = False) -> Parser:
    """A fresh parser. `legacy` is for `python -m relight.launch`, which also knows --use-env."""
    environ = os.environ if environ is None else environ
    parser = Parser(prog=prog, formatter_class=_plain, add_help=False, description="Keeps distributed training alive.")
    parser.refuse = _print_and_exit
    parser.add_argument("-h", "--help", action="help", help="print this and exit")
    for option in (*OPTIONS, USE_ENV) if legacy else OPTIONS:
        _add(parser, option, environ)
    parser.add_argument("--version", action=_Version, nargs=0, dest=argparse.SUPPRESS, help="print it and exit")
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        type=one_of(*SHELLS),
        dest=argparse.SUPPRESS,
        metavar="SHELL",
        help="print completion for bash, zsh or fish, and exit",
    )
    parser.add_argument("training_script", type=text, help="the script, module or program that every worker runs")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="given to it as they are")
    return parser


def parse(argv: Iterable[str], environ: Mapping[str, str], prog: str = "relight", *, legacy: bool = False) -> Choices:
    """Reads a command line without the program's name. Raises UsageError; --help and the like raise SystemExit."""
    parser = build_parser(environ, prog, legacy=legacy)
    parser.refuse = _raise
    chosen: Choices = parser.parse_args(list(argv))
    return chosen


def _add(parser: argparse.ArgumentParser, option: Option, environ: Mapping[str, str]) -> None:
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    if option.has_variable and option.variable in environ:
        default = _from_variable(option, environ[option.variable])
    parser.add_argument(
        *option.spellings,
        action=_Chosen,
        dest=option.dest,
        default=default,
        type=option.reader,
        choices=option.choices or None,
        nargs=0 if option.flag else None,
        metavar=option.metavar or None,
        help=option.line,
    )


def _is_ours(action: argparse.Action) -> bool:
    option = BY_DEST.get(action.dest)
    return option.ours if option else isinstance(action, _Version)


def _from_variable(option: Option, word: str) -> object:
    """A default for argparse to read, only if it is needed. A flag's is read now, for those who look at it."""
    raw = FromEnvironment(word, option.variable)
    if not option.flag:
        return raw
    try:
        return switch(raw)
    except BadValue:
        return raw


def _plain(prog: str) -> argparse.HelpFormatter:
    # With a width of its own the formatter does not import shutil, which takes longer than all parsing.
    return argparse.HelpFormatter(prog, width=100)


def _complaint(message: str, error: BaseException | None) -> UsageError:
    """argparse's complaint in two lines of ours."""
    if not isinstance(error, argparse.ArgumentError) or not error.argument_name:
        return UsageError(message, "relight --help")
    name = error.argument_name.split("/")[-1].replace("_", "-")
    option = BY_DEST.get(name.lstrip("-").replace("-", "_"))
    cause = error.__context__
    if isinstance(cause, BadValue):
        example = option.example if option else SHELLS[0]
        if cause.source:
            example = "1" if option and option.flag else example
            return UsageError(
                f"{cause.source}={cause.shown} {cause.complaint}",
                f"{cause.source}={shown(example)}, or unset {cause.source}",
            )
        return UsageError(f"{name} {cause.shown} {cause.complaint}", f"{name} {shown(example)}")
    if option and not option.flag:
        return UsageError(f"{name} needs a value", f"{name} {shown(option.example)}")
    if option:
        return UsageError(f"{name} takes no value", name)
    return UsageError(f"{name}: {error.message}", "relight --help")


def _unknown(word: str, parser: argparse.ArgumentParser) -> UsageError:
    name = word.partition("=")[0]
    plain = name.replace("_", "-")
    spellings = [spelling for action in parser._actions for spelling in action.option_strings]
    known = [spelling[2:] for spelling in spellings if spelling.startswith("--") and "_" not in spelling]
    near = closest(plain.lstrip("-"), known)
    meant = _ELSEWHERE.get(plain) or (near and f"--{near}")
    remedy = f"{meant}, or {parser.prog} --help for all options" if meant else f"{parser.prog} --help for all options"
    return UsageError(f"there is no option {name}", remedy)


def _raise(error: UsageError) -> NoReturn:
    raise error


def _print_and_exit(error: UsageError) -> NoReturn:
    sys.stderr.write(error_text(error))
    raise SystemExit(2)
