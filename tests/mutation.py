"""Runs every mutant of the core and compares who survived with the list in docs/proofs/mutants.md.

    python tests/mutation.py                           all of them, which takes some ten minutes
    python tests/mutation.py 'relight.core.budget.*'   some, by their names in mutmut

A survivor in the list has a reason there. One that is not has to be killed by a test, or join the list.
"""

from __future__ import annotations

import collections
import difflib
import fnmatch
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import libcst as cst
from mutmut.__main__ import _run
from mutmut.configuration import ForkServerWarmup, ProcessIsolation, config
from mutmut.mutation import file_mutation
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.mutators import mutation_operators
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name, orig_function_and_class_names_from_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Arranged = tuple[Sequence[cst.CSTNode], Sequence[cst.CSTNode], Sequence[cst.CSTNode], Sequence[str]]

CORE = Path("src/relight/core")
LIST = Path("docs/proofs/mutants.md")
STATS = Path("mutants/mutmut-stats.json")  # mutmut's notes: which test reaches what
AT_ONCE = 2
# What pytest and mutmut say where no test noticed: they passed, there were none, there are none, it was not run.
UNNOTICED = {0: "survived", 5: "without tests", 33: "without tests", None: "not run"}
TIMED_OUT = {-signal.SIGXCPU, -signal.SIGKILL}


# -- what is changed, besides what mutmut changes by itself: sentences, plain conditions, answers, calls, properties --

PLAIN = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.NamedExpr)  # mutmut itself turns comparisons and `not`


def _sentence(node: cst.FormattedStringText) -> Iterable[cst.CSTNode]:
    yield node.with_changes(value=f"XX{node.value}XX")


def _condition(node: cst.If | cst.While | cst.CompIf) -> Iterable[cst.CSTNode]:
    if isinstance(node.test, PLAIN):
        yield node.with_changes(test=_opposite(node.test))


def _guard(node: cst.MatchCase) -> Iterable[cst.CSTNode]:
    if isinstance(node.guard, PLAIN):
        yield node.with_changes(guard=_opposite(node.guard))


def _opposite(test: cst.BaseExpression) -> cst.BaseExpression:
    return cst.UnaryOperation(cst.Not(), test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]))


def _answer(node: cst.Return) -> Iterable[cst.CSTNode]:
    if node.value is not None and not (isinstance(node.value, cst.Name) and node.value.value == "None"):
        yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))


def _call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def _is_property(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.FunctionDef) and [
        one.decorator.value for one in node.decorators if isinstance(one.decorator, cst.Name)
    ] == ["property"]


def install() -> None:
    """Teaches mutmut. It has no door for this: its list is added to, and two of its functions are wrapped."""
    mutation_operators.extend(
        [
            (cst.FormattedStringText, _sentence),
            (cst.If, _condition),
            (cst.While, _condition),
            (cst.CompIf, _condition),
            (cst.MatchCase, _guard),
            (cst.Return, _answer),
            (cst.Expr, _call),
        ]
    )
    skips = file_mutation.MutationVisitor._skip_node_and_children
    arrange = file_mutation.function_trampoline_arrangement

    def skips_but_no_property(self: file_mutation.MutationVisitor, node: cst.CSTNode) -> bool:
        return not _is_property(node) and skips(self, node)

    def arrange_with_property(function: cst.FunctionDef, mutants: Iterable[object], class_name: str | None) -> Arranged:
        """The copies of a property are plain functions; only what chooses between them is a property."""
        plain = function.with_changes(decorators=()) if _is_property(function) else function
        before, (chooser, *copies), after, names = arrange(plain, mutants, class_name)
        if plain is not function:
            chooser = chooser.with_changes(decorators=[*function.decorators, *chooser.decorators])
        return before, [chooser, *copies], after, names

    file_mutation.MutationVisitor._skip_node_and_children = skips_but_no_property
    file_mutation.function_trampoline_arrangement = arrange_with_property


# -- the run, and what came out --


class Change(NamedTuple):
    """What a mutant changes, by text, so that it keeps its name while the lines around it move."""

    file: str
    function: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"@@ {self.function}", *self.lines])


def listed(text: str) -> collections.Counter[Change]:
    """The survivors that the list explains: each `@@ function` in a block of differences under its file's heading."""
    found: list[Change] = []
    file = ""
    inside = False
    for line in text.splitlines():
        if heading := re.fullmatch(r"#+ `([\w/]+\.py)`", line):
            file = heading[1]
        elif line.startswith("```"):
            inside = line == "```diff"
        elif inside and line.startswith("@@ "):
            found.append(Change(file, line[3:], ()))
        elif inside and line:
            found[-1] = found[-1]._replace(lines=(*found[-1].lines, line))
    return collections.Counter(found)


def change_of(path: Path, mutant: str) -> Change:
    function, owner = orig_function_and_class_names_from_key(mutant)
    before: list[str] = []
    after: list[str] = []
    for line in get_diff_for_mutant(mutant, path=path).splitlines()[2:]:
        if line[:1] in " -":
            before.append(line[1:].rstrip())
        if line[:1] in " +":
            after.append(line[1:].rstrip())
    changed = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    lines = tuple(line for line in changed if not line.startswith("@@"))
    return Change(path.relative_to(CORE).as_posix(), f"{owner}.{function}" if owner else function, lines)


def results(names: list[str]) -> dict[str, tuple[Path, int | None]]:
    """The file and the exit code of each mutant that was asked for."""
    found = {}
    for path in walk_mutatable_files():
        mutants = SourceFileMutationData(path=path)
        mutants.load()
        for mutant, exit_code in mutants.exit_code_by_key.items():
            if not names or any(fnmatch.fnmatch(mutant, name) for name in names):
                found[mutant] = path, exit_code
    return found


def run(names: list[str]) -> None:
    """Forks each mutant from a process that has everything loaded: fast, but what runs at import has run before."""
    made = multiprocessing.Process(target=_run, args=(names, AT_ONCE))
    made.start()
    made.join()
    if made.exitcode != 0:
        sys.exit("mutmut itself did not come to its end")


def run_afresh(names: list[str]) -> None:
    """Each mutant in a process that loads everything anew, and with all tests of its room: to mutmut, what runs at
    import is reached by no test."""
    stats = json.loads(STATS.read_text())
    for function in {mangled_name_from_mutant_name(name) for name in names}:
        room = function.split(".")[2]
        reached = stats["tests_by_mangled_function_name"].setdefault(function, [])
        more = [test for test in stats["duration_by_test"] if test.startswith(f"tests/core/test_{room}.py::")]
        reached += set(more) - set(reached)
    STATS.write_text(json.dumps(stats))
    config().process_isolation = ProcessIsolation.FORKSERVER
    config().forkserver_warmup = ForkServerWarmup.NONE
    run(names)


def main(names: list[str]) -> int:
    os.environ["CI"] = "1"  # where Hypothesis draws the same examples every time
    install()
    if not names:
        shutil.rmtree("mutants", ignore_errors=True)
    run(names)
    survivors = [mutant for mutant, (_, exit_code) in results(names).items() if exit_code in UNNOTICED]
    if survivors:
        run_afresh(survivors)
    return told(results(names), listed(LIST.read_text()), whole=not names)


def told(found: dict[str, tuple[Path, int | None]], known: collections.Counter[Change], whole: bool) -> int:
    """Prints what came out; the exit code says whether the list is right."""
    counts = collections.Counter[str]()
    survivors = collections.Counter[Change]()
    for mutant, (path, exit_code) in found.items():
        counts[UNNOTICED.get(exit_code) or ("timed out" if exit_code in TIMED_OUT else "killed")] += 1
        if exit_code in UNNOTICED:
            survivors[change_of(path, mutant)] += 1
    print(f"\n{counts.total()} mutants:", ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    new = survivors - known
    stale = known - survivors if whole else collections.Counter[Change]()
    for what, changes in ((f"survives, and is not in {LIST}", new), (f"is in {LIST}, and does not survive", stale)):
        for change in sorted(changes.elements()):
            print(f"\n{change.file}: {what}\n{change}")
    return 1 if new or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
