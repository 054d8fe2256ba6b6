from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from relight import compat
from relight.core.names import UsageError

WRITE = "import os, sys; open(sys.argv[1] + '/' + os.environ['RANK'], 'w').write(' '.join(sys.argv[2:]))"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(WRITE)
    return str(path)


def written(tmp_path: Path) -> dict[str, str]:
    return {name: (tmp_path / name).read_text() for name in sorted(os.listdir(tmp_path)) if name.isdigit()}


def test_the_parser_is_argparses_and_the_callers_own() -> None:
    one, other = compat.get_args_parser(), compat.get_args_parser()
    assert isinstance(one, argparse.ArgumentParser)
    one.allow_abbrev = False
    one.add_argument("--network-check", action="store_true")
    chosen = one.parse_args(["--network-check", "--nnodes=1", "s.py", "--network-check"])
    assert (chosen.network_check, chosen.nnodes, chosen.training_script_args) == (True, "1", ["--network-check"])
    assert not any(action.dest == "network_check" for action in other._actions)


def test_main_runs_a_command_line(script: str, tmp_path: Path) -> None:
    compat.main(["--nproc-per-node=2", script, str(tmp_path), "a", "${local_rank}"])
    assert written(tmp_path) == {"0": "a 0", "1": "a 1"}


def test_main_reads_this_process_when_it_is_given_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchrun", script, str(tmp_path)])
    compat.main()
    assert list(written(tmp_path)) == ["0"]


@pytest.mark.parametrize("argv", [["--nnodes=2:1", "s.py"], ["--no-such-thing", "s.py"], []])
def test_a_mistake_is_two_lines_and_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        compat.main(argv)
    said = capsys.readouterr().err.splitlines()
    assert leaving.value.code == 2
    assert [line[:16] for line in said] == ["relight: error: ", said[1][:16]]
    assert said[1].startswith("  try: ")


def test_a_failed_job_is_an_exception(tmp_path: Path) -> None:
    script = tmp_path / "bad.py"
    script.write_text("raise SystemExit(5)")
    with pytest.raises(compat.ChildFailedError) as caught:
        compat.main([str(script)])
    assert caught.value.get_first_failure()[1].exitcode == 5


def test_run_takes_a_namespace_of_another_program(script: str, tmp_path: Path) -> None:
    """Numbers as text, and nothing that torchrun did not have years ago."""
    chosen = argparse.Namespace(
        nnodes="1",
        nproc_per_node="2",
        master_addr="127.0.0.1",
        master_port=None,
        node_rank="0",
        rdzv_backend="static",
        rdzv_endpoint="",
        rdzv_id="none",
        rdzv_conf="",
        standalone=False,
        max_restarts="0",
        monitor_interval="0.1",
        start_method="spawn",
        role="default",
        module=False,
        no_python=False,
        run_path=False,
        log_dir=None,
        redirects="0",
        tee="0",
        training_script=script,
        training_script_args=[str(tmp_path), 1],
    )
    compat.run(chosen)
    assert written(tmp_path) == {"0": "1", "1": "1"}


def test_run_raises_what_is_wrong() -> None:
    with pytest.raises(UsageError, match="-3"):
        compat.run(compat.parse_args(["--max-restarts=-3", "s.py"]))


def test_a_list_among_the_words_as_accelerate_puts_it(script: str, tmp_path: Path) -> None:
    words: list[Any] = ["--training_script", script, "--training_script_args", [str(tmp_path), "x"]]
    chosen, _ = compat.get_args_parser().parse_known_args(words)
    theirs = argparse.Namespace(training_script=script, training_script_args=[str(tmp_path), "x"], mixed="no")
    for name, entry in vars(theirs).items():
        if name in vars(chosen):
            setattr(chosen, name, entry)
    chosen.nproc_per_node = "2"
    chosen.master_port = "29517"
    compat.run(chosen)
    assert written(tmp_path) == {"0": "x", "1": "x"}


def test_actions_copied_into_another_parser_as_torchtune_does(script: str, tmp_path: Path) -> None:
    mine = argparse.ArgumentParser(prog="tune run")
    for action in compat.get_args_parser()._actions:
        if action.dest == "training_script":
            action.dest = "recipe"
        elif action.dest == "training_script_args":
            action.dest = "recipe_args"
        elif action.dest == "help":
            continue
        mine._add_action(action)
    chosen = mine.parse_args(["--nproc_per_node", "2", script, str(tmp_path), "--config", "c"])
    named = vars(chosen)
    named["training_script"] = named.pop("recipe")
    named["training_script_args"] = named.pop("recipe_args")
    chosen.standalone = True
    compat.run(chosen)
    assert written(tmp_path) == {"0": "--config c", "1": "--config c"}


def test_config_from_args_is_what_elastic_launch_takes(script: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = [
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-conf=join_timeout=5",
        "-r3",
        f"--log-dir={tmp_path}/l",
    ]
    config, command, args = compat.config_from_args(compat.parse_args([*words, script, str(tmp_path), "y"]))
    assert (command, args) == (sys.executable, ["-u", script, str(tmp_path), "y"])
    assert (config.nproc_per_node, config.max_restarts, config.rdzv_configs["join_timeout"]) == (2, 0, "5")
    compat.elastic_launch(config, command)(*args)
    assert written(tmp_path) == {"0": "y", "1": "y"}
    assert len(list(tmp_path.glob("l/*/attempt_0/*/stdout.log"))) == 2


def test_config_from_args_for_other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHON_EXEC", raising=False)

    def command(*words: str) -> tuple[Any, list[str]]:
        return compat.config_from_args(compat.parse_args(words))[1:]

    assert command("-m", "pkg.mod", "a") == (sys.executable, ["-u", "-m", "pkg.mod", "a"])
    assert command("--no-python", "prog", "a") == ("prog", ["a"])
    assert command("--run-path", "s.py", "a") == (compat.run_script_path, ["s.py", "a"])
    with pytest.raises(ValueError, match="contradict"):
        command("--no-python", "-m", "s")


def test_run_path_is_a_function_worker(script: str, tmp_path: Path) -> None:
    config, function, args = compat.config_from_args(compat.parse_args(["--run-path", script, str(tmp_path), "z"]))
    compat.elastic_launch(config, function)(*args)
    assert written(tmp_path) == {"0": "z"}


def test_small_questions() -> None:
    assert compat.parse_min_max_nnodes("3") == (3, 3)
    assert compat.parse_min_max_nnodes("1:4") == (1, 4)
    with pytest.raises(RuntimeError, match="1:2:3"):
        compat.parse_min_max_nnodes("1:2:3")
    with pytest.raises(ValueError, match="abc"):
        compat.parse_min_max_nnodes("abc")
    assert compat.determine_local_world_size("3") == 3
    assert compat.determine_local_world_size("cpu") == len(os.sched_getaffinity(0))
    with pytest.raises(ValueError, match="8 x"):
        compat.determine_local_world_size("8 x")
    chosen = compat.parse_args(["--master-port=29501", "s.py"])
    assert compat.get_rdzv_endpoint(chosen) == "127.0.0.1:29501"
    chosen.rdzv_backend, chosen.rdzv_endpoint = "c10d", "there:1"
    assert compat.get_rdzv_endpoint(chosen) == "there:1"
    assert compat.get_use_env(chosen)
    chosen.use_env = False
    assert not compat.get_use_env(chosen)


def test_std_and_to_map() -> None:
    std = compat.Std
    assert std.from_str("3") is std.ALL
    assert std.from_str("0:1,12:2") == {0: std.OUT, 12: std.ERR}
    with pytest.raises(ValueError, match="names no streams"):
        std.from_str("4")
    assert compat.to_map(std.OUT, 2) == {0: std.OUT, 1: std.OUT}
    assert compat.to_map({1: std.ERR}, 2) == {0: std.NONE, 1: std.ERR}


def test_every_name_is_there() -> None:
    assert dir(compat) == compat.__all__
    assert all(callable(getattr(compat, name)) for name in compat.__all__)
    with pytest.raises(AttributeError, match="start_processes"):
        compat.start_processes  # noqa: B018
