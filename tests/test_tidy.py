"""Style that is a test: what every source file owes its reader."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "relight"
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 450, 60

# Files that are longer than they should be, with the length they may not pass. Entries only shrink or go.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}


@cache
def text(file: str) -> str:
    return (ROOT / file).read_text()


@cache
def tree(file: str) -> ast.Module:
    return ast.parse(text(file), file)


@pytest.mark.parametrize("file", FILES)
def test_a_file_opens_with_what_it_owns(file: str) -> None:
    assert ast.get_docstring(tree(file)), "a docstring comes first"


@pytest.mark.parametrize("file", FILES)
def test_a_file_can_be_held_in_the_head(file: str) -> None:
    assert len(text(file).splitlines()) <= LONG_FILES.get(file, MOST_LINES)


@pytest.mark.parametrize("file", FILES)
def test_a_function_fits_a_page(file: str) -> None:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            assert length <= LONG_FUNCTIONS.get(f"{file}:{node.name}", MOST_LINES_OF_A_FUNCTION), node.name


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_left_for_later(file: str) -> None:
    assert re.findall(r"\b(TODO|FIXME|XXX|HACK)\b", text(file)) == []


@pytest.mark.parametrize("file", FILES)
def test_only_the_command_line_prints(file: str) -> None:
    if not file.startswith("cli/"):
        calls = [node for node in ast.walk(tree(file)) if isinstance(node, ast.Call)]
        assert [call.lineno for call in calls if ast.unparse(call.func) == "print"] == []


@pytest.mark.parametrize("file", FILES)
def test_no_vague_names(file: str) -> None:
    """A name should be able to stand in a letter. compat repeats the names that torch's callers use."""
    if not file.startswith("compat/"):
        classes = [node.name for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)]
        assert [name for name in classes if re.search(r"(Manager|Handler|Context|Spec|Helper|Util)s?$", name)] == []
        assert not re.search(r"(utils?|helpers?|misc|common|manager)\.py$", file)
