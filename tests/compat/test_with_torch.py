"""The same shapes as torch's own, and unmodified clients. Each part is a process of its own: this one stays free."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None or importlib.util.find_spec("accelerate") is None,
        reason="torch and accelerate are not installed",
    ),
]
AS = "import sys; from relight.cli.as_torchrun import main; sys.exit(main(sys.argv[1:]))"


def ran(body: str, cwd: Path) -> str:
    script = cwd / "client.py"
    script.write_text(textwrap.dedent(body))
    found = subprocess.run([sys.executable, script], cwd=cwd, capture_output=True, text=True, timeout=110)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_the_shapes_are_torchs(tmp_path: Path) -> None:
    body = """
        import dataclasses, inspect, json
        import torch.distributed.elastic.multiprocessing as multiprocessing
        import torch.distributed.elastic.multiprocessing.errors as errors
        import torch.distributed.launcher.api as api
        import torch.distributed.run as run
        from relight import compat

        def fields(cls):
            return [(field.name, str(field.default)) for field in dataclasses.fields(cls)]

        def parameters(function):
            found = inspect.signature(function).parameters.values()
            return [(one.name, str(one.default), one.kind.name) for one in found]

        def public(cls):
            return {name for name in dir(cls) if name[0] != "_"}

        wrong = {}
        for module, names in {
            run: ["config_from_args", "determine_local_world_size", "get_args_parser", "get_rdzv_endpoint",
                  "get_use_env", "main", "parse_args", "parse_min_max_nnodes", "run", "run_script_path"],
            api: ["launch_agent", "elastic_launch"],
            errors: ["record", "ErrorHandler", "get_error_handler", "ProcessFailure"],
            multiprocessing: ["DefaultLogsSpecs", "LogsDest", "LogsSpecs", "SignalException", "to_map"],
        }.items():
            for name in names:
                ours, theirs = parameters(getattr(compat, name)), parameters(getattr(module, name))
                if name == "parse_args":
                    theirs = ours  # torch's has the same name and no default
                if name in ("LogsDest",):
                    ours, theirs = [one[0] for one in ours], [one[0] for one in theirs]
                if ours != theirs:
                    wrong[name] = (ours, theirs)
        for module, name in ((api, "LaunchConfig"), (errors, "ProcessFailure"), (multiprocessing, "LogsDest")):
            ours, theirs = fields(getattr(compat, name)), fields(getattr(module, name))
            if name == "LogsDest":
                ours, theirs = [one[0] for one in ours], [one[0] for one in theirs]
            if ours != theirs:
                wrong[name] = (ours, theirs)
        for module, name in ((errors, "ChildFailedError"), (errors, "ErrorHandler"), (errors, "ProcessFailure"),
                             (multiprocessing, "DefaultLogsSpecs"), (multiprocessing, "SignalException")):
            missing = public(getattr(module, name)) - public(getattr(compat, name))
            if missing:
                wrong[f"{name}'s members"] = sorted(missing)
        if {one.name: int(one) for one in compat.Std} != {one.name: int(one) for one in multiprocessing.Std}:
            wrong["Std"] = list(compat.Std)
        ours, theirs = vars(compat.parse_args(["x.py"])), vars(run.parse_args(["x.py"]))
        wrong |= {f"option {name}": [ours.get(name), theirs[name]]
                  for name in theirs if name not in ours or ours[name] != theirs[name]}
        print(json.dumps(wrong))
    """
    wrong = json.loads(ran(body, tmp_path))
    # None means "the environment or the default", as it does for torch; the words they stand for are the same.
    harmless = {"option duplicate_stdout_filters", "option duplicate_stderr_filters", "option log_line_prefix_template"}
    assert {name: pair for name, pair in wrong.items() if name not in harmless} == {}


def test_torchs_names_catch_what_is_raised(tmp_path: Path) -> None:
    """As flytekit does it: torch's own names everywhere, relight behind them."""
    body = """
        import os, signal
        import relight.compat
        relight.compat.install()
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        def works(x):
            return x, os.environ["RELIGHT_ROUND"]

        def fails():
            raise ValueError("no")

        def stopped():
            os.kill(os.getppid(), signal.SIGTERM)
            signal.pause()

        def asked():
            return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", max_restarts=0,
                                rdzv_endpoint="localhost:0", run_id="x", start_method="fork")

        if __name__ == "__main__":
            assert LaunchConfig.__module__ == "torch.distributed.launcher.api"
            print(elastic_launch(config=asked(), entrypoint=works)("a"))
            try:
                elastic_launch(config=asked(), entrypoint=fails)()
            except ChildFailedError as error:
                _, failure = error.get_first_failure()
                print(isinstance(failure, ProcessFailure), failure.timestamp > 0)
                print("ValueError: no" in error.format_msg())
                print(failure.error_file_data["message"]["message"])
            try:
                elastic_launch(config=asked(), entrypoint=stopped)()
            except SignalException as error:
                print(error.sigval.name)
    """
    assert ran(body, tmp_path).splitlines() == [
        "{0: ('a', '0'), 1: ('a', '0')}",
        "True True",
        "True",
        "ValueError: no",
        "SIGTERM",
    ]


ACCELERATE = """
    import os, sys, torch
    from accelerate import Accelerator
    mine = Accelerator(cpu=True)
    total = mine.reduce(torch.tensor([float(mine.process_index + 1)])).item()
    found = (mine.process_index, mine.num_processes, total, os.environ.get("RELIGHT_ROUND", "not relight"))
    os.write(1, (" ".join(map(str, found)) + "\\n").encode())
    mine.end_training()
"""


def as_torchrun(cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AS, *command],
        cwd=cwd,
        env={**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_accelerate_launch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(ACCELERATE))
    words = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "29518", "train.py"]
    found = as_torchrun(tmp_path, *words)
    assert sorted(found.stdout.splitlines()) == ["0 2 3.0 0", "1 2 3.0 0"], found.stderr


def test_the_installed_torchrun_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os; os.write(1, os.environ.get('RELIGHT_ROUND', 'not relight').encode() + b'\\n')"
    )
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    found = as_torchrun(tmp_path, torchrun, "--nproc-per-node=2", "train.py")
    assert found.stdout.splitlines() == ["0", "0"], found.stderr


def test_notebook_launcher(tmp_path: Path) -> None:
    body = """
        import os
        import relight.compat
        relight.compat.install()
        from accelerate import notebook_launcher
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        def train(add):
            import torch
            from accelerate import Accelerator
            mine = Accelerator(cpu=True)
            total = mine.reduce(torch.tensor([float(mine.process_index + add)])).item()
            os.write(1, f"{mine.process_index} {total} {os.environ['RELIGHT_ROUND']}\\n".encode())
            mine.end_training()

        def fails():
            raise ValueError("no")

        notebook_launcher(train, (3,), num_processes=2, use_port="29519")
        try:
            notebook_launcher(fails, (), num_processes=2, use_port="29519")
        except ChildFailedError as error:
            print(repr(error.__cause__))
    """
    said = ran(body, tmp_path).splitlines()
    assert sorted(line for line in said if line[0] in "01") == ["0 7.0 0", "1 7.0 0"]
    assert said[-1] == "ValueError('no')"
