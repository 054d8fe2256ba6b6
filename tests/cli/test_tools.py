"""relightctl: versions, the report for bug reports, and completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from relight import __version__
from relight.cli import surroundings as report
from relight.cli.completion import TOOLS
from relight.cli.tools import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["relight", __version__]
    assert lines[1].split()[:2] == ["python", sys.version.split()[0]]
    assert lines[2].startswith("torch ")


@pytest.mark.parametrize(
    ("words", "what", "remedy"),
    [
        ([], "no tool was named", "relightctl --help"),
        (["nope"], "argument TOOL: invalid choice", "relightctl --help"),
        (["completion"], "the following arguments are required", "relightctl completion --help"),
        (["completion", "tcsh"], "there is completion for bash, zsh, fish, none for tcsh", "relightctl completion "),
        (["env", "--yaml"], "unrecognized arguments: --yaml", "relightctl"),
    ],
)
def test_mistakes(words: list[str], what: str, remedy: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith(f"relight: error: {what}")
    assert second.startswith(f"  try: {remedy}")


def test_help_lists_every_tool(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code
    told = capsys.readouterr().out
    assert [name for name in TOOLS if f"    {name}" not in told] == []
    assert "examples" in told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"# {shell} completion for relight" in capsys.readouterr().out


def test_env_for_people_and_for_programs() -> None:
    environ = {**os.environ, "PET_RDZV_CONF": "a=1", "HF_TOKEN": "hf_verysecret", "NCCL_DEBUG": "INFO"}
    told = {}
    for words in (["env"], ["env", "--json"]):
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from relight.cli.tools import main; sys.exit(main())", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environ,
        )
        assert done.stderr == ""
        assert "hf_verysecret" not in done.stdout
        told[words[-1]] = done.stdout
    for title in ("versions", "machine", "container", "limits", "names", "ports", "variables"):
        assert f"\n{title}\n" in f"\n{told['env']}"
    assert told["env"].endswith("\n")
    found = json.loads(told["--json"])
    assert found["variables"]["NCCL_DEBUG"] == "INFO"
    assert found["variables"]["HF_TOKEN"] == report.HIDDEN
    assert found["machine"]["host"] == os.uname().nodename
    assert set(found["ports"]) == {"29500", "29400"}


def test_env_never_imports_torch() -> None:
    program = (
        "import sys, os\nfrom relight.cli import surroundings\n"
        "surroundings.versions(); surroundings.variables(os.environ)\nprint('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "False\n"


@pytest.mark.parametrize(
    ("name", "said", "shown"),
    [
        ("HF_TOKEN", "abc", report.HIDDEN),
        ("WANDB_API_KEY", "abc", report.HIDDEN),
        ("TORCH_my_secret", "abc", report.HIDDEN),
        ("PET_PASSWORD", "abc", report.HIDDEN),
        ("SLURM_CREDENTIALS", "abc", report.HIDDEN),
        ("HF_TOKEN", "", ""),
        ("https_proxy", "http://me:pw@proxy:3128", f"http://{report.HIDDEN}@proxy:3128"),
        ("PET_RDZV_ENDPOINT", "etcd://u@h:1,etcd://v:w@i:2", "etcd://(hidden)@h:1,etcd://(hidden)@i:2"),
        ("NCCL_DEBUG", "INFO", "INFO"),
    ],
)
def test_secrets_are_hidden(name: str, said: str, shown: str) -> None:
    assert report.hidden(name, said) == shown


def test_only_variables_that_matter_are_shown() -> None:
    environ = {"PET_TEE": "3", "MASTER_ADDR": "h", "no_proxy": "x", "MY_DIARY": "private", "SHELL": "/bin/sh"}
    assert report.variables(environ) == {"MASTER_ADDR": "h", "PET_TEE": "3", "no_proxy": "x"}


def test_a_silent_resolver_is_left_alone() -> None:
    silent = threading.Event()

    def resolve(name: str) -> str:
        if name != "localhost":
            silent.wait(30)
        return "127.0.0.1"

    begun = time.monotonic()
    found = report.names("far.example", resolve, wait_s=0.2)
    silent.set()
    assert time.monotonic() - begun < 5
    assert found["far.example"] == "no answer within 0.2 s"
    assert found["localhost"].startswith("127.0.0.1 (in ")


def test_a_name_that_does_not_resolve_says_so() -> None:
    assert "does not resolve" in report._resolve("no-such-host.invalid")
    assert "127.0.0.1" in report._resolve("127.0.0.1")


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:72D8 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
"""


def test_ports_are_read_from_the_kernels_table(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    assert report._port(29500, str(tmp_path)).startswith("unknown")
    (tmp_path / "proc/net/tcp").write_text(TCP)
    assert report._port(29500, str(tmp_path)) == "in use"
    assert report._port(29400, str(tmp_path)) == "free"


def test_torch_is_told_from_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert report.torch_version() == f"in {torch}, but No such file or directory"
    (torch / "version.py").write_text(
        "__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n"
        "git_version = 'abc'\nhip: Optional[str] = None\nxpu: Optional[str] = None\n"
    )
    assert report.torch_version() == f"2.13.0+cu130, cuda 13.0, {torch}"
    monkeypatch.setattr(sys, "path", [])
    assert report.torch_version() == "not installed for this Python"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a=1,password=hunter2,b=2", "a=1,password=(hidden),b=2"),
        ("ssl_cert_key=/etc/k;x=1", "ssl_cert_key=(hidden);x=1"),
        ("join_timeout=60", "join_timeout=60"),
    ],
)
def test_a_secret_inside_a_value_is_hidden(said: str, shown: str) -> None:
    assert report.hidden("PET_RDZV_CONF", said) == shown
