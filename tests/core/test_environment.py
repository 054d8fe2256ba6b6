"""What a worker finds in os.environ, and the command that it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.environment import Round, check_inherited, signals_text, worker_command, worker_environment
from relight.core.launch import Budget, How, Launch, Store
from relight.core.names import UsageError
from relight.core.roster import Applicant, Place, seat
from relight.core.values import replace

TWO_NODES = seat(
    [
        Applicant("n1", 2, "trainer", "10.0.0.1", 29511),
        Applicant("n2", 3, "trainer", "10.0.0.2", 29512),
        Applicant("n3", 1, "reader", "10.0.0.3", 29513),
    ],
    None,
    3,
)
LAUNCH = Launch("train.py", run_id="job-7", nproc_per_node=3, role="trainer", budget=Budget(5))
PLACE = TWO_NODES.parts()["n2"].places()[1]


def environment(
    launch: Launch = LAUNCH, inherited: Mapping[str, str] = MappingProxyType({}), place: Place = PLACE
) -> dict[str, str]:
    return worker_environment(
        inherited, launch, Round(4, 2, TWO_NODES.parts()["n2"]), place, "/logs/attempt_4/1/error.json"
    )


def test_every_variable_of_torchrun_has_its_value() -> None:
    assert environment(
        inherited={"HOME": "/root", "RANK": "99", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "outer"}
    ) == {
        "HOME": "/root",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_NAME": "trainer",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "5",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29511",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "job-7",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": "/logs/attempt_4/1/error.json",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def test_another_role_has_ranks_of_its_own() -> None:
    found = environment(place=TWO_NODES.parts()["n3"].places()[0])
    assert [found[name] for name in ("RANK", "GROUP_RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE")] == [
        "5", "2", "reader", "0", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inherited", "launch", "name", "found"),
    [
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, LAUNCH, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": ""}, LAUNCH, "TORCH_NCCL_ASYNC_ERROR_HANDLING", ""),
        ({}, LAUNCH, "OMP_NUM_THREADS", None),
        ({"OMP_NUM_THREADS": "4"}, LAUNCH, "OMP_NUM_THREADS", "4"),
        ({}, replace(LAUNCH, threads="1"), "OMP_NUM_THREADS", "1"),
        ({}, replace(LAUNCH, store=Store(shared=False)), "TORCHELASTIC_USE_AGENT_STORE", "False"),
        ({"PET_NNODES": "1"}, LAUNCH, "PET_NNODES", "1"),
        ({}, replace(LAUNCH, signals=(15, 10)), "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"),
        ({}, replace(LAUNCH, signals=()), "TORCHELASTIC_SIGNALS_TO_HANDLE", ""),
        ({}, LAUNCH, "CUDA_VISIBLE_DEVICES", None),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, LAUNCH, "CUDA_VISIBLE_DEVICES", "4,5"),
    ],
)
def test_what_is_inherited_and_what_is_not(
    inherited: dict[str, str], launch: Launch, name: str, found: str | None
) -> None:
    assert environment(launch, inherited).get(name) == found


def test_signals_have_the_names_they_are_written_by() -> None:
    assert signals_text((15, 2, 33)) == "SIGTERM,SIGINT,signal 33"


VIRTUAL = replace(LAUNCH, virtual_local_rank=True)


@pytest.mark.parametrize(
    ("inherited", "cuda", "hip"),
    [
        ({}, "1", None),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6"}, "5", None),
        ({"CUDA_VISIBLE_DEVICES": " 4 , GPU-8b1d ,6"}, "GPU-8b1d", None),
        ({"CUDA_VISIBLE_DEVICES": ""}, "", None),
        ({"CUDA_VISIBLE_DEVICES": "  "}, "", None),
        ({"HIP_VISIBLE_DEVICES": "2,3,4"}, "3", "3"),
        ({"HIP_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "7"}, "3", "3"),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "7,8"}, "8", ""),
        ({"HIP_VISIBLE_DEVICES": ""}, "1", ""),
    ],
)
def test_a_virtual_local_rank_sees_one_device_and_calls_it_0(
    inherited: dict[str, str], cuda: str, hip: str | None
) -> None:
    found = environment(VIRTUAL, inherited)
    assert (found["LOCAL_RANK"], found["RANK"]) == ("0", "3")
    assert (found.get("CUDA_VISIBLE_DEVICES"), found.get("HIP_VISIBLE_DEVICES")) == (cuda, hip)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_too_few_devices_are_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        environment(VIRTUAL, {name: "0"})
    assert caught.value.what == f"--virtual-local-rank: {name} lists 1 devices, too few for local rank 1"
    assert caught.value.remedy == f"--nproc-per-node 1, or list more devices in {name}"


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=5))
def test_everything_else_is_inherited_untouched(inherited: dict[str, str]) -> None:
    ours = environment()
    found = environment(inherited=inherited)
    assert {name: found[name] for name in inherited if name not in ours} == {
        name: text for name, text in inherited.items() if name not in ours
    }
    assert found.keys() == ours.keys() | inherited.keys()


ARGS = ("--seed=${local_rank}", "$$HOME", "$other", "")


@pytest.mark.parametrize(
    ("launch", "command"),
    [
        (Launch("train.py", ARGS), ["py", "-u", "train.py", "--seed=1", "$HOME", "$other", ""]),
        (Launch("t${local_rank}.py"), ["py", "-u", "t1.py"]),
        (Launch("pkg.train", ARGS[:1], How.MODULE), ["py", "-u", "-m", "pkg.train", "--seed=1"]),
        (Launch("./run$local_rank", ARGS[:2], How.PROGRAM), ["./run$local_rank", "--seed=1", "$HOME"]),
        (Launch("train.py", ARGS[:1], passes_local_rank=True), ["py", "-u", "train.py", "--local-rank=1", "--seed=1"]),
        (Launch("m", (), How.MODULE, passes_local_rank=True), ["py", "-u", "-m", "m", "--local-rank=1"]),
    ],
)
def test_the_command_of_a_worker(launch: Launch, command: list[str]) -> None:
    assert worker_command(launch, PLACE, "py") == command


def test_with_a_virtual_local_rank_the_template_still_tells_the_real_one() -> None:
    assert worker_command(replace(VIRTUAL, args=("$local_rank",)), PLACE, "py")[-1] == "1"


def test_the_script_of_run_path_comes_after_the_code_that_runs_it() -> None:
    command = worker_command(Launch("t$local_rank.py", ("a",), How.RUN_PATH), PLACE, "py")
    assert command[:3] == ["py", "-u", "-c"]
    assert command[4:] == ["t1.py", "a"]


def run_path(folder: Path, script: str, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    return subprocess.run(
        worker_command(Launch("script.py", args, How.RUN_PATH), PLACE, sys.executable),
        cwd=folder, capture_output=True, text=True, timeout=30, env={**os.environ, **more},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('so long')", 1),
        ("raise ValueError('boom')", 1),
        ("raise KeyboardInterrupt", -2),
        ("pass", 0),
    ],
)
def test_a_run_path_worker_ends_as_a_script_does(tmp_path: Path, script: str, code: int) -> None:
    assert run_path(tmp_path, script).returncode == code


def test_a_run_path_worker_is_main_and_sees_the_folder_it_was_started_in(tmp_path: Path) -> None:
    said = run_path(
        tmp_path,
        "import json, sys\n"
        "main = sys.modules['__main__'].__dict__ is globals()\n"
        "print(json.dumps([__name__, __file__, sys.argv, sys.path[0], main]))\n",
        "--lr=3", "-x",
    )  # fmt: skip
    assert json.loads(said.stdout) == ["__main__", "script.py", ["script.py", "--lr=3", "-x"], str(tmp_path), True]


def test_an_exception_under_run_path_leaves_an_error_file(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    done = run_path(tmp_path, "raise ValueError('boom')", TORCHELASTIC_ERROR_FILE=str(path))
    document: Any = json.loads(path.read_text())
    assert document["message"]["message"] == "ValueError: boom"
    assert done.stderr.rstrip().endswith("ValueError: boom")


def test_run_path_works_without_relight_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "relight.py").write_text("no_package = True")
    assert run_path(tmp_path, "import sys; sys.exit(5)").returncode == 5


@pytest.mark.parametrize(
    ("inherited", "what", "remedy"),
    [
        (
            {"A": "b\0c"},
            "the variable 'A' holds 'b\\x00c', and a NUL character ends a word",
            "the same without it",
        ),
        ({"A\0": "b"}, "'A\\x00' is no name of a variable", 'environ={"NAME": "value"}'),
        ({"A=": "b"}, "'A=' is no name of a variable", 'environ={"NAME": "value"}'),
        ({"": "b"}, "'' is no name of a variable", 'environ={"NAME": "value"}'),
        ({7: "b"}, "7 is no name of a variable", 'environ={"NAME": "value"}'),
        ({"EPOCHS": 7}, "the variable 'EPOCHS' is 7, which is no text", "environ={'EPOCHS': '7'}"),
    ],
)
def test_an_environment_that_no_worker_can_have_is_refused(inherited: dict[Any, Any], what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_inherited(inherited)
    assert (caught.value.what, caught.value.remedy) == (what, remedy)
    check_inherited(dict(os.environ))


def test_the_jobs_token_stays_with_the_agent() -> None:
    given = environment(inherited={"RELIGHT_TOKEN": "secret", "A": "b"})
    assert "RELIGHT_TOKEN" not in given
    assert given["A"] == "b"
