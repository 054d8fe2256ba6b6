"""What the commands print, where it cannot be printed: never a traceback, and an exit code that tells the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACE = Path(sys.executable).parent
COMMANDS = [
    "relight --help",
    "relight --version",
    "relight --print-completion bash",
    "relightctl --help",
    "relightctl version",
    "relightctl env",
    "relightctl env --json",
    "relightctl completion fish",
    "relightctl as-torchrun --help",
]


def said(line: str, redirection: str, *, unbuffered: bool = False, **more: str) -> tuple[int, list[str]]:
    """The exit code, and what is left on stderr, of a command under a shell's redirection."""
    environ = {name: word for name, word in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environ |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    done = subprocess.run(
        ["bash", "-c", f"{PLACE}/{line} {redirection}"],
        capture_output=True, text=True, timeout=60, errors="replace", env=environ | more,
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("line", COMMANDS)
def test_a_full_disk_is_two_lines(line: str) -> None:
    code, lines = said(line, "> /dev/full")
    assert (code, lines) == (
        2,
        ["relight: error: stdout cannot be written: No space left on device", "  try: > a file on a disk with room"],
    )


@pytest.mark.parametrize("line", COMMANDS)
def test_a_closed_stdout_is_two_lines(line: str) -> None:
    code, lines = said(line, ">&-")
    assert (code, lines) == (2, ["relight: error: stdout is closed", "  try: > FILE instead of >&-"])


@pytest.mark.parametrize("line", COMMANDS)
def test_a_reader_that_has_gone_is_no_mistake(line: str) -> None:
    gone, write_end = os.pipe()
    os.close(gone)
    words = line.split()
    done = subprocess.run([PLACE / words[0], *words[1:]], stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("redirection", "code"), [("> /dev/full", 2), ("| head -1; exit ${PIPESTATUS[0]}", 0)])
def test_it_is_the_same_where_nothing_is_buffered(redirection: str, code: int) -> None:
    found, lines = said("relight --help", redirection, unbuffered=True)
    assert found == code
    assert all(line.startswith(("relight: error: ", "  try: ")) for line in lines)


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-"])
@pytest.mark.parametrize("line", ["relightctl nope", "relight --nope", "relight --node-rank 1 --tee no train.py"])
def test_a_mistake_that_nobody_can_read_of_is_still_one(line: str, redirection: str) -> None:
    assert said(line, redirection)[0] == 2


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_cannot_be_encoded_is_shown_as_an_escape(encoding: str) -> None:
    code, lines = said("relightctl env", "1>&2", NCCL_X="a\udcffb", PYTHONIOENCODING=encoding)
    assert code == 0
    assert [line.split()[1] for line in lines if line.split()[:1] == ["NCCL_X"]] == ["a\\udcffb"]


def test_a_page_comes_out_whole_where_stderr_does_not_wait() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    program = "from relight.cli.printing import write; write('x' * 500_000)"
    child = subprocess.Popen([sys.executable, "-c", program], stderr=writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert len(pipe.read()) == 500_000
    assert child.wait(60) == 0
