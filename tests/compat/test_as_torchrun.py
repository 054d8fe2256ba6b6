from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relight.cli.as_torchrun import first_folder, main, surroundings
from relight.core.names import UsageError

START = "import sys; from relight.cli.as_torchrun import main; sys.exit(main(sys.argv[1:]))"
SEEN = """
import os, sys
seen = [os.environ["RANK"], os.environ.get("RELIGHT_ROUND", "not relight"), *sys.argv[1:]]
os.write(1, (" ".join(seen) + "\\n").encode())
"""
FIRST = first_folder()


def ran(*command: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-c", START, *command],
        cwd=cwd,
        env={**os.environ, "PATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SEEN)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--nproc-per-node=2", "script.py", "a"],
        ["--", "torchrun", "--nproc-per-node=2", "script.py", "a"],
        ["bash", "-c", "torchrun --nproc-per-node=2 script.py a"],
        ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "script.py", "a"],
        ["python", "-uW", "ignore", "-Xutf8", "-bm", "torch.distributed.run", "--nproc-per-node=2", "script.py", "a"],
        ["python", "-mtorch.distributed.launch", "--use-env", "--nproc-per-node=2", "script.py", "a"],
        [sys.executable, "-c", START, "torchrun", "--nproc-per-node=2", "script.py", "a"],
    ],
)
def test_every_way_to_torchrun_is_relight(command: list[str], script: Path) -> None:
    found = ran(*command, cwd=script.parent)
    assert sorted(found.stdout.splitlines()) == ["0 0 a", "1 0 a"], found.stderr


def test_the_exit_code_is_the_commands_own(tmp_path: Path) -> None:
    assert ran("bash", "-c", "exit 7", cwd=tmp_path).returncode == 7
    assert ran("torchrun", "--no-such-thing", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ([], "no command was named"),
        (["--"], "no command was named"),
        (["/no/such/program"], "there is no command"),
        (["/etc/passwd"], "may not be executed"),
    ],
)
def test_what_cannot_be_run_is_said_so(command: list[str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        main(command)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: relightctl as-torchrun COMMAND")


def test_a_torchrun_that_cannot_be_executed_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="torchrun may not be executed"):
        first_folder()


def test_nested_it_changes_nothing_more() -> None:
    outside = {"PATH": "/bin", "PYTHONPATH": "/mine", "OTHER": "x"}
    once = surroundings(outside, FIRST, "/py")
    assert once == {
        "PATH": f"{FIRST}:/bin",
        "PYTHONPATH": f"{FIRST}:/mine",
        "OTHER": "x",
        "RELIGHT_PYTHON": "/py",
    }
    assert surroundings(once, FIRST, "/py") == once
    assert surroundings({"PATH": "/bin"}, FIRST, "/py")["PYTHONPATH"] == FIRST


def test_the_users_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__")
    show = "import builtins, sys; print(builtins.mine, sys.modules['sitecustomize'].__file__)"
    own = str(tmp_path / "sitecustomize.py")
    assert ran("python", "-c", show, cwd=tmp_path, PYTHONPATH=str(tmp_path)).stdout == f"{own} {own}\n"


def test_a_python_without_relight_is_left_as_it_is(tmp_path: Path) -> None:
    """-S hides every installed package; the sitecustomize is then run by hand."""
    run = f"import runpy, sys; runpy.run_path({FIRST + '/sitecustomize.py'!r}); print('relight' in sys.modules)"
    found = subprocess.run([sys.executable, "-I", "-S", "-c", run], capture_output=True, text=True, timeout=30)
    assert (found.stdout, found.stderr) == ("False\n", "")


def test_a_python_process_pays_little(tmp_path: Path) -> None:
    """Nothing heavy is imported in processes that never launch anything."""
    show = "import sys; print(*sys.modules)"
    loaded = set(ran("python", "-c", show, cwd=tmp_path).stdout.split())
    assert "relight.compat.hook" in loaded
    assert not loaded & {
        "importlib.util",
        "argparse",
        "dataclasses",
        "torch",
        "relight.compat.launcher",
        "relight.cli.options",
    }
