"""Completion, asked of the shells themselves."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from relight.cli.completion import TOOLS, script
from relight.cli.table import OPTIONS, SHELLS
from relight.core.names import UsageError

LONG = [option.long for option in OPTIONS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a script, a text and two folders."""
    for name in ("train.py", "trial run.py", "notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "logs").mkdir()
    (tmp_path / "tools").mkdir()
    for shell in SHELLS:
        (tmp_path / f".completion.{shell}").write_text(script(shell))
    return tmp_path


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed here")
    return found


def asked_of_bash(folder: Path, line: str) -> list[str]:
    """What bash would offer at the end of `line`, broken into words as bash breaks it."""
    words = re.findall(r"[=:]|[^\s=:]+", line) + ([""] if line.endswith(" ") else [])
    if line.endswith(("=", ":")):
        words[-1] = line[-1]
    program = (
        'source .completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_"$1"; ((${#COMPREPLY[@]})) && printf "%s\\n" "${COMPREPLY[@]}"; true'
    )
    told = subprocess.run(
        [needs("bash"), "--norc", "-c", program, "bash", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert told.stderr == ""
    return told.stdout.splitlines()


BASH = [
    ("relight --nproc", ["--nproc-per-node"]),
    ("relight --nproc_", ["--nproc_per_node"]),
    ("relight --nproc-per-node ", ["auto", "gpu", "cpu", "xpu"]),
    ("relight --nproc-per-node=", ["auto", "gpu", "cpu", "xpu"]),
    ("relight --nproc-per-node=g", ["gpu"]),
    ("relight --nproc_per_node a", ["auto"]),
    ("relight --start-method f", ["fork", "forkserver"]),
    ("relight -t ", ["0", "1", "2", "3"]),
    ("relight --nnodes=1:2 --exit", ["--exit-codes"]),
    ("relight --nnodes 1:2 --exit", ["--exit-codes"]),
    ("relight --standalone --log-dir l", ["logs"]),
    ("relight --log-dir=l", ["logs"]),
    ("relight --tee 3 tr", ["train.py", "trial run.py"]),
    ("relight --tee=3 t", ["train.py", "trial run.py", "tools"]),
    ("relight -- tra", ["train.py"]),
    ("relight -m tr", []),
    ("relight -mr 3 --stand", ["--standalone"]),
    ("relight train.py --n", []),
    ("relight --tee 3 train.py --n", []),
    ("relight --print-completion ", list(SHELLS)),
    ("relightctl ", list(TOOLS)),
    ("relightctl completion ", list(SHELLS)),
    ("relightctl env --j", ["--json"]),
]


@pytest.mark.parametrize(("line", "offered"), BASH, ids=[line for line, _ in BASH])
def test_bash(folder: Path, line: str, offered: list[str]) -> None:
    assert sorted(asked_of_bash(folder, line)) == sorted(offered)


def test_bash_offers_every_option_and_programs(folder: Path) -> None:
    assert [option for option in LONG if option not in asked_of_bash(folder, "relight --")] == []
    assert "sh" in asked_of_bash(folder, "relight --no-python s")


def asked_of_fish(folder: Path, line: str) -> list[str]:
    told = subprocess.run(
        [needs("fish"), "--no-config", "-c", 'source .completion.fish; complete -C "$argv[1]"', line],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    assert told.stderr == ""
    return [offer.split("\t")[0] for offer in told.stdout.splitlines()]


FISH = [
    ("relight --nproc-p", ["--nproc-per-node"]),
    ("relight --nproc-per-node ", ["auto", "gpu", "cpu", "xpu"]),
    ("relight --nproc-per-node=g", ["--nproc-per-node=gpu"]),
    ("relight --tee 3 --exit", ["--exit-codes"]),
    ("relight --nproc_", ["--nproc_per_node"]),
    ("relight --nproc_per_node g", ["gpu"]),
    ("relight -t 3 --exit-codes ", ["torchrun", "detailed"]),
    ("relight --log-dir l", ["logs/"]),
    ("relight train.py --n", []),
    ("relight --tee 3 train.py --n", []),
    ("relight --tee 3 tra", ["train.py"]),
    ("relight --standalone train.py no", ["notes.txt"]),
    ("relightctl e", ["env"]),
    ("relightctl completion f", ["fish"]),
    ("relightctl env --j", ["--json"]),
]


@pytest.mark.parametrize(("line", "offered"), FISH, ids=[line for line, _ in FISH])
def test_fish(folder: Path, line: str, offered: list[str]) -> None:
    assert sorted(asked_of_fish(folder, line)) == sorted(offered)


def test_fish_offers_every_option(folder: Path) -> None:
    assert [option for option in LONG if option not in asked_of_fish(folder, "relight --")] == []


class Zsh:
    """An interactive zsh on a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        zsh = needs("zsh")
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            environ = {"PATH": os.defpath, "TERM": "dumb", "HOME": str(folder), "ZDOTDIR": str(folder)}
            os.execve(zsh, [zsh, "-f", "-i"], environ)
        self.type("PS1='>'; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D\n")
        self.type("source ./.completion.zsh; print re''ady\n")
        self.read_until("ready")

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def read_until(self, wanted: str) -> str:
        seen, until = "", time.monotonic() + 20
        while wanted not in seen:
            left = until - time.monotonic()
            if left < 0 or not select.select([self.terminal], [], [], left)[0]:
                raise AssertionError(f"zsh never said {wanted!r}, but {seen!r}")
            seen += os.read(self.terminal, 65536).decode(errors="replace")
        return seen

    def complete(self, line: str, wanted: str) -> str:
        """Types a line and a tab; waits until zsh has written what is wanted; throws the line away."""
        self.type(line + "\t")
        seen = self.read_until(wanted)
        self.type("\x15 print re''ady\n")
        return seen + self.read_until("ready")

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.mark.slow
def test_zsh(folder: Path) -> None:
    needs("zsh")
    zsh = Zsh(folder)
    try:
        zsh.complete("relight --nproc-p", "--nproc-per-node=")
        zsh.complete("relight --standalone --exit-codes=d", "detailed")
        zsh.complete("relight --nproc-per-node=g", "gpu")
        zsh.complete("relight --nproc_per_node a", "auto")
        zsh.complete("relight -t 3 tra", "train.py")
        zsh.complete("relight --tee 3 train.py --x no", "notes.txt")
        zsh.complete("relightctl e", "env")
        zsh.complete("relightctl completion f", "fish")
        offered = zsh.complete("relight --m", "--monitor-interval")
        assert "--max-restarts" in offered and "--no-python" not in offered
    finally:
        zsh.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_finds_no_mistake(shell: str, folder: Path) -> None:
    told = subprocess.run(
        [needs(shell), "-n", f".completion.{shell}"], cwd=folder, capture_output=True, text=True, timeout=30
    )
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_is_left_to_fill_in(shell: str) -> None:
    text = script(shell)
    assert not re.search(r"@[A-Z]+@", text)
    assert text.endswith("\n")


def test_another_shell_is_told_which_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        script("tcsh")
    assert caught.value.what == "there is completion for bash, zsh, fish, none for tcsh"
    assert caught.value.remedy.startswith("relightctl completion ")
