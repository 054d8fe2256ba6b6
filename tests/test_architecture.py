"""The walls of the house. Purity that is only documented decays, so every wall here is a test."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent / "src"
FILES = sorted(path.relative_to(ROOT / "relight").as_posix() for path in (ROOT / "relight").rglob("*.py"))

CORE_MAY_IMPORT = {
    "__future__", "abc", "base64", "bisect", "collections", "contextlib", "copy", "enum", "errno", "fractions",
    "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools", "json", "math", "numbers", "operator",
    "posixpath", "re", "signal", "statistics", "string", "struct", "textwrap", "types",
}  # fmt: skip

# Who may know whom. `program`, `launch` and `__main__` stand at the top beside `cli`.
ROOMS = {
    "core": {"core"},
    "shell": {"shell", "core"},
    "worker": {"worker", "core"},
    "cli": {"cli", "shell", "core", "program"},
    "compat": {"compat", "cli", "shell", "worker", "core", "program"},
    "program.py": {"shell", "core"},
    "launch.py": {"cli"},
    "__main__.py": {"cli"},
    "__init__.py": {"core", "worker", "program"},
}

# Exceptions that someone still has to argue for or remove: file -> room.
DEBTS_OF_ROOMS: dict[str, set[str]] = {}

DOORS = ("cli/main.py", "cli/tools.py", "program.py", "launch.py", "worker/", "compat/")
# Reads of the environment beyond the doors.
DEBTS_OF_DOORS = {
    "cli/as_torchrun.py",  # a door of its own: runs a whole command under a changed environment
    "cli/help.py",  # COLUMNS, for the width of --help
    "cli/options.py",  # NO_COLOR for --help, and the default of build_parser()
    "shell/forked.py",  # a forked function worker takes on its own environment; it is not the agent any more
}

# Nothing that comes over a socket is unpickled or executed. These read files that only the agent and its workers have.
PICKLES = {"compat/functions.py", "compat/function_worker.py"}


class Import(NamedTuple):
    """One imported module, by its whole name, and where the import stands."""

    module: str
    line: int
    at_top: bool  # runs when the importing module is loaded
    for_types: bool  # only the type checker sees it


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / "relight" / file).read_text(), file)


def room(file: str) -> str:
    """The package a file lives in, or its own name at the top."""
    return file.partition("/")[0]


def imports(file: str) -> list[Import]:
    return list(_imports(tree(file), at_top=True, for_types=False))


def called(file: str) -> Iterator[tuple[str, int]]:
    """Every name that is called, `a.b.c(...)` as "a.b.c"."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def _imports(node: ast.AST, at_top: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, child.lineno, at_top, for_types)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0 and module, f"line {child.lineno}: a relative import"
                for alias in names:
                    inner = f"{module}.{alias.name}"
                    yield Import(inner if _is_module(inner) else module, child.lineno, at_top, for_types)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for part in child.body:
                    yield from _imports(ast.Module([part], []), at_top, for_types=True)
                for part in child.orelse:
                    yield from _imports(ast.Module([part], []), at_top, for_types)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, at_top=False, for_types=for_types)
            case _:
                yield from _imports(child, at_top, for_types)


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def of(prefix: str) -> list[str]:
    return [file for file in FILES if file.startswith(prefix)]


def test_every_file_lives_in_a_known_room() -> None:
    assert {room(file) for file in FILES} <= ROOMS.keys()


@pytest.mark.parametrize("file", of("core/"))
def test_core_imports_only_what_is_allowed(file: str) -> None:
    for one in imports(file):
        if one.module.partition(".")[0] == "relight":
            assert one.module.startswith("relight.core"), f"line {one.line}: {one.module}"
        elif not one.for_types:
            assert one.module.partition(".")[0] in CORE_MAY_IMPORT, f"line {one.line}: {one.module}"


@pytest.mark.parametrize("file", of("core/"))
def test_core_touches_nothing(file: str) -> None:
    forbidden = {"open", "print", "input", "__import__", "exec", "eval", "compile", "breakpoint", "globals"}
    assert [(name, line) for name, line in called(file) if name in forbidden] == []
    assert [node.lineno for node in ast.walk(tree(file)) if isinstance(node, ast.Global)] == []


@pytest.mark.parametrize("file", FILES)
def test_rooms_know_only_the_rooms_below(file: str) -> None:
    known = set[str]()
    for one in imports(file):
        head, _, rest = one.module.partition(".")
        if head == "relight" and rest:
            known.add(rest.partition(".")[0])
    assert known - ROOMS[room(file)] <= DEBTS_OF_ROOMS.get(file, set())


@pytest.mark.parametrize("file", FILES)
def test_torch_is_imported_by_workers_and_compat_alone(file: str) -> None:
    """Not even lazily by the agent; and workers only when something is asked of them."""
    found = [one for one in imports(file) if one.module.partition(".")[0] == "torch"]
    dynamic = [
        ast.unparse(node)
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and node.args
        and str(getattr(node.args[0], "value", "")).startswith("torch")
    ]
    if room(file) not in ("worker", "compat"):
        assert (found, dynamic) == ([], [])
    assert room(file) != "worker" or not any(one.at_top and not one.for_types for one in found)


def test_the_two_machines_do_not_know_each_other() -> None:
    assert "relight.core.node" not in {one.module for one in imports("core/job.py")}
    assert "relight.core.job" not in {one.module for one in imports("core/node.py")}


@pytest.mark.parametrize("file", FILES)
def test_the_environment_is_read_at_the_door(file: str) -> None:
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    found = [
        node.lineno
        for node in ast.walk(tree(file))
        if (isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os")
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and names & {alias.name for alias in node.names})
    ]
    if not file.startswith(DOORS) and file not in DEBTS_OF_DOORS:
        assert found == [], "only the door reads the environment"


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_unpickled_or_executed(file: str) -> None:
    if file in PICKLES:
        return
    modules = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing.connection"}
    assert [one for one in imports(file) if one.module in modules] == []
    assert [
        one for one in called(file) if one[0] in ("eval", "exec", "compile", "builtins.eval", "builtins.exec")
    ] == []


# -- what is loaded, seen from a fresh interpreter -----------------------------------------------------------

# None of these is needed before the first worker runs. subprocess brings contextlib, locale, selectors, threading and
# warnings; argparse brings re and gettext: those cannot be avoided while these two are used.
HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "dataclasses", "importlib.metadata", "inspect", "json", "logging",
    "multiprocessing", "pathlib", "pickle", "random", "shutil", "ssl", "string", "tempfile", "torch", "typing",
    "urllib", "uuid",
}  # fmt: skip


def loaded(code: str, **environ: str) -> set[str]:
    """The modules that `code` brings into a fresh interpreter, beyond those that were there at its start."""
    program = f"import sys\nbefore = set(sys.modules)\n{code}\nnow = sorted(set(sys.modules) - before)\n"
    program += "import json\nprint('\\n' + json.dumps(now))"
    clean = {name: entry for name, entry in os.environ.items() if not name.startswith(("PET_", "COV", "RELIGHT"))}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={**clean, **environ}
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_relight_loads_nothing_else() -> None:
    assert loaded("import relight") <= {"relight", "__future__"}


def test_a_worker_that_uses_relight_loads_little() -> None:
    found = loaded("import relight\nrelight.step(1)\nrelight.record(print)")
    assert found & HEAVY == set()
    assert not any(name.startswith(("relight.shell", "relight.cli")) for name in found)


@pytest.mark.parametrize(
    "module", ["cli.main", "cli.options", "cli.plan", "program", "shell.machine", "shell.agent", "shell.outlets"]
)
def test_no_module_of_the_launch_path_loads_anything_heavy(module: str) -> None:
    assert loaded(f"import relight.{module}") & HEAVY == set()


@pytest.mark.parametrize(
    "words", [["--no-python", "true"], ["--nproc-per-node=2", "-r3", "--max-restarts=1", "--no-python", "true"]]
)
def test_a_whole_launch_loads_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    code = f"from relight.cli.main import main\nassert main({words!r}) == 0"
    found = loaded(code, TMPDIR=str(tmp_path))
    assert {"relight.shell.agent", "relight.core.environment"} <= found
    assert found & HEAVY == set()
