"""What the words mean together: a Launch, or two lines that say why not."""

from __future__ import annotations

import argparse
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from relight.cli.conf import SHORTEST_LEASE_S
from relight.cli.options import build_parser, parse
from relight.cli.plan import plan
from relight.core.launch import Budget, ExitCodes, How, Launch, Meeting, Store
from relight.core.names import UsageError
from relight.core.streams import Streams

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
C10D = "--rdzv-backend=c10d --rdzv-endpoint=localhost:0"


class FakeFacts:
    """A machine with six CPUs and as many accelerators as said."""

    def __init__(self, accelerators: int = 0) -> None:
        self.accelerators = accelerators

    def slots(self, word: str) -> int:
        if word == "cpu":
            return 6
        if word == "auto":
            return self.accelerators or 6
        if word == "gpu" and self.accelerators:
            return self.accelerators
        if word in ("gpu", "xpu"):
            raise UsageError(f"--nproc-per-node {word} counts devices, and there are none", "--nproc-per-node cpu")
        raise UsageError(f"--nproc-per-node {word} names no kind of accelerator", "--nproc-per-node auto")

    def numa_cpus(self, mode: str, nproc: int) -> tuple[tuple[int, ...], ...]:
        return tuple((len(mode), rank) for rank in range(nproc))


class Planned:
    def __init__(self, launch: Launch, warnings: list[str]) -> None:
        self.launch = launch
        self.warnings = warnings


def make(line: str | list[str], *, accelerators: int = 0, legacy: bool = False, **environ: Any) -> Planned:
    environ.setdefault("PATH", os.defpath)
    warnings: list[str] = []
    chosen = parse(line.split() if isinstance(line, str) else line, environ, legacy=legacy)
    return Planned(plan(chosen, environ, FakeFacts(accelerators), warnings.append), warnings)


def launch_of(line: str | list[str], **environ: Any) -> Launch:
    return make(line, **environ).launch


def refused(line: str | list[str], **environ: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        make(line, **environ)
    return caught.value


def test_a_plain_command() -> None:
    planned = make("train.py --lr 1")
    assert planned.warnings == []
    assert UUID4.fullmatch(planned.launch.run_id)
    assert planned.launch == Launch("train.py", ("--lr", "1"), run_id=planned.launch.run_id)


# --- 1.5: every row of mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("--nnodes 2:1 s.py", "--nnodes 2:1 asks for at least 2 and at most 1 nodes", "--nnodes 1:2"),
        ("--nnodes 0 s.py", "--nnodes 0 asks for no node at all", "--nnodes 1"),
        ("--nnodes 0:1 s.py", "--nnodes 0:1 asks for no node at all", "--nnodes 1"),
        ("--nnodes 1:2:3 s.py", "--nnodes 1:2:3 is neither a number of nodes nor MIN:MAX", "--nnodes 1, or"),
        ("--nnodes abc s.py", "--nnodes abc is neither a number of nodes nor MIN:MAX", "--nnodes 1, or"),
        ("--nnodes= s.py", "--nnodes '' is neither", "--nnodes 1, or"),
        (
            "--nnodes 1:4 " + C10D + " s.py",
            "--rdzv-endpoint localhost:0 is a port that only",
            "--rdzv-endpoint localhost",
        ),
        (
            "--nnodes 2 --rdzv-backend etcd --rdzv-endpoint e s.py",
            "--rdzv-backend etcd: in this version several nodes meet by the c10d and the static backend only",
            "--rdzv-backend c10d --rdzv-endpoint HOST:29400",
        ),
        (
            "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint /a --rdzv-conf store_type=file s.py",
            "store_type=file: in this version several nodes meet",
            "--rdzv-backend c10d",
        ),
        ("--nnodes 2 --node-rank 2 s.py", "--node-rank 2 has no place in a job of 2 nodes", "--node-rank 0"),
        ("--nnodes 2 --token-file /nowhere s.py", "--token-file /nowhere cannot be read: No such file", "--token-file"),
        ("--nnodes 2 --token-file /dev/null s.py", "--token-file /dev/null is empty", "head -c 24 /dev/urandom"),
        ("--on-node-loss never s.py", "--on-node-loss never is not one of wait, fail", "--on-node-loss fail"),
        ("--standalone --nnodes 2 s.py", "--standalone means a job of one node, and --nnodes 2", "--standalone"),
        ("--max-restarts -1 s.py", "--max-restarts -1 is below zero", "--max-restarts 3"),
        ("--nproc-per-node foo s.py", "--nproc-per-node foo names no kind of accelerator", "--nproc-per-node auto"),
        ("--nproc-per-node gup s.py", "--nproc-per-node gup names no kind of accelerator", "--nproc-per-node gpu"),
        ("--nproc-per-node 1.5 s.py", "--nproc-per-node 1.5 is neither a number nor", "--nproc-per-node 4"),
        ("--nproc-per-node= s.py", "--nproc-per-node '' is neither a number nor", "--nproc-per-node 4"),
        ("--nproc-per-node gpu s.py", "--nproc-per-node gpu counts devices, and there are none", "--nproc-per-node c"),
        ("--nproc-per-node xpu s.py", "--nproc-per-node xpu counts devices, and there are none", "--nproc-per-node c"),
        ("--nproc-per-node 0 s.py", "--nproc-per-node 0 asks for no worker at all", "--nproc-per-node 1"),
        ("--nproc-per-node=-2 s.py", "--nproc-per-node -2 asks for no worker at all", "--nproc-per-node 1"),
        ("--monitor-interval 0 s.py", "--monitor-interval 0.0 is not above zero", "--monitor-interval 0.1"),
        ("--monitor-interval=-1 s.py", "--monitor-interval -1.0 is not above zero", "--monitor-interval 0.1"),
        ("--monitor-interval=nan s.py", "--monitor-interval nan is not above zero", "--monitor-interval 0.1"),
        ("-r 4 s.py", "-r 4 names no streams", "--redirects 3 for everyone"),
        ("--tee 0:9 s.py", "--tee 0:9 names no streams", "--tee 3 for everyone"),
        ("--tee= s.py", "--tee '' names no streams", "--tee 3 for everyone"),
        ("--local-ranks-filter a s.py", "--local-ranks-filter a is not a list of local ranks", "--local-ranks-filter"),
        ("--local-ranks-filter 0, s.py", "--local-ranks-filter 0, is not a list", "--local-ranks-filter 0,1"),
        (C10D + " --rdzv-conf foo s.py", "--rdzv-conf: 'foo' is not KEY=VALUE", "--rdzv-conf join"),
        (C10D + " --rdzv-conf foo= s.py", "--rdzv-conf: 'foo=' is not KEY=VALUE", "--rdzv-conf join"),
        (C10D + " --rdzv-conf a=1,,b=2 s.py", "--rdzv-conf: '' is not KEY=VALUE", "--rdzv-conf join"),
        (C10D + " --rdzv-conf =1 s.py", "--rdzv-conf: '=1' is not KEY=VALUE", "--rdzv-conf join"),
        ("--rdzv-conf join_timeout=abc s.py", "--rdzv-conf: join_timeout=abc is not a whole", "--rdzv-conf join"),
        ("--rdzv-conf join_timeout=1.5 s.py", "--rdzv-conf: join_timeout=1.5 is not a whole", "--rdzv-conf join"),
        ("--rdzv-conf join_timeout=0 s.py", "--rdzv-conf: join_timeout=0 is not a whole number above", "--rdzv-conf"),
        ("--rdzv-conf read_timeout=-1 s.py", "--rdzv-conf: read_timeout=-1 is not a whole", "--rdzv-conf read"),
        ("--rdzv-conf cas_backoff_max_seconds=x s.py", "--rdzv-conf: cas_backoff_max_seconds=x is", "--rdzv-conf cas"),
        ("--rdzv-conf is_host=maybe s.py", "--rdzv-conf: is_host=maybe is not yes or no", "--rdzv-conf is_host=true"),
        ("--rdzv-conf store_type=redis s.py", "--rdzv-conf: store_type=redis is not tcp or file", "--rdzv-conf store"),
        (
            "--rdzv-backend=etcd-v2 --rdzv-conf protocol=ftp s.py",
            "--rdzv-conf: protocol=ftp is not http",
            "--rdzv-conf",
        ),
        ("--rdzv-backend=etcd --rdzv-conf timeout=x s.py", "--rdzv-conf: timeout=x is not a whole", "--rdzv-conf time"),
        ("--master-port 0 --rdzv-conf timeout=x s.py", "--rdzv-conf: timeout=x is not a whole", "--rdzv-conf timeout"),
        *[
            (f"--rdzv-conf {key}=1 s.py", f"--rdzv-conf: {key}=1 repeats what {flag} says", f"{flag} 1, without {key}=")
            for key, flag in {
                "backend": "--rdzv-backend",
                "endpoint": "--rdzv-endpoint",
                "run_id": "--rdzv-id",
                "min_nodes": "--nnodes",
                "max_nodes": "--nnodes",
                "local_addr": "--local-addr",
            }.items()
        ],
        ("--rdzv-endpoint h s.py", "--rdzv-endpoint h names no port", "--rdzv-endpoint h:29500"),
        (
            "--rdzv-backend nope s.py",
            "--rdzv-backend nope is not one of static, c10d, etcd-v2, etcd",
            "--rdzv-backend c1",
        ),
        ("--rdzv-backend c10 s.py", "--rdzv-backend c10 is not one of static", "--rdzv-backend c10d"),
        ("--rdzv-backend c10d --rdzv-endpoint lo/cal:1 s.py", "--rdzv-endpoint lo/cal:1 names no host", "--rdzv-end"),
        ("--rdzv-backend c10d --rdzv-endpoint h:65536 s.py", "--rdzv-endpoint h:65536 ends in '65536'", "--rdzv-end"),
        ("--rdzv-backend c10d --rdzv-endpoint h:http s.py", "--rdzv-endpoint h:http ends in 'http'", "--rdzv-end"),
        ("--rdzv-backend c10d --rdzv-endpoint :1 s.py", "--rdzv-endpoint :1 names no host", "--rdzv-end"),
        ("--master-port 65536 s.py", "--master-port 65536 is above 65535", "--master-port 29500"),
        ("--master-port -1 s.py", "--master-port -1 is below zero", "--master-port 29500"),
        ("--master-addr a/b --master-port 1 s.py", "--master-addr a/b names no host", "--master-addr 127.0.0.1"),
        ("--node-rank 1 --master-port 1 s.py", "--node-rank 1 has no place in a job of 1 node", "--node-rank 0"),
        ("--no-python -m pkg", "--no-python and -m contradict each other", "one of them"),
        ("--no-python ./missing", "--no-python: there is no ./missing", "ls ."),
        ("--no-python no-such-program-anywhere", "--no-python: no-such-program-anywhere is in no folder of PATH", ""),
        ("--no-python /etc/passwd", "--no-python: /etc/passwd may not be executed", "chmod +x /etc/passwd"),
        ("--no-python /etc", "--no-python: /etc is a folder", "--no-python /etc/PROGRAM"),
        ("--no-python .", "--no-python: . is a folder", "--no-python ./PROGRAM"),
        ("--no-python ..", "--no-python: .. is a folder", "--no-python ../PROGRAM"),
        ("--no-python ./", "--no-python: ./ is a folder", "--no-python ./PROGRAM"),
        ("--shutdown-timeout=-1 s.py", "--shutdown-timeout -1 is below zero", "--shutdown-timeout 30"),
        ("--signals-to-handle SIGFOO s.py", "--signals-to-handle SIGFOO names SIGFOO, which is no signal", ""),
        ("--signals-to-handle SIGTRM s.py", "--signals-to-handle SIGTRM names SIGTRM", "--signals-to-handle SIGTERM"),
        ("--signals-to-handle term s.py", "--signals-to-handle term names term", "--signals-to-handle SIGTERM"),
        (
            "--signals-to-handle SIGKILL,SIGINT s.py",
            "--signals-to-handle SIGKILL,SIGINT names SIGKILL, which no program can handle",
            "--signals-to-handle SIGINT",
        ),
        ("--signals-to-handle SIGCHLD s.py", "--signals-to-handle SIGCHLD names SIGCHLD, which tells", "--signals"),
        ("--signals-to-handle SIGSTOP s.py", "--signals-to-handle SIGSTOP names", "--signals-to-handle SIGTERM"),
        ("--event-log-handler nope s.py", "--event-log-handler nope is neither null", "--event-log-handler null"),
        ("--event-log-handler consol s.py", "--event-log-handler consol is", "--event-log-handler console"),
        ("--logs-specs nope s.py", "--logs-specs nope is not one of default", "--logs-specs default"),
        ("--restart-rate 5 s.py", "--restart-rate 5 is not a number of restarts / a number", "--restart-rate 5/600"),
        ("--restart-rate x/y s.py", "--restart-rate x/y is not a number of restarts /", "--restart-rate 5/600"),
        ("--restart-rate 0/10 s.py", "--restart-rate 0/10 is not a rate", "--restart-rate 5/600"),
        ("--max-restarts 9 --restart-rate 5/0 s.py", "--restart-rate 5/0 is not a rate", "--restart-rate 5/600"),
        ("--max-restarts 9 --restart-rate 5/inf s.py", "--restart-rate 5/inf is not a rate", "--restart-rate 5/600"),
        (
            "--restart-rate 5/60 s.py",
            "--restart-rate 5/60 limits restarts, and none is",
            "--max-restarts 100 --restart-",
        ),
    ],
)
def test_a_mistake_is_told_with_what_to_type(line: str, what: str, remedy: str) -> None:
    wrong = refused(line)
    assert wrong.what.startswith(what)
    assert wrong.remedy.startswith(remedy)
    assert wrong.remedy


@pytest.mark.parametrize(
    ("line", "variable", "word", "what"),
    [
        ("s.py", "PET_NNODES", "abc", "PET_NNODES=abc is neither"),
        ("s.py", "PET_NNODES", "", "PET_NNODES='' is neither"),
        ("s.py", "PET_NPROC_PER_NODE", "", "PET_NPROC_PER_NODE='' is neither"),
        ("s.py", "PET_NPROC_PER_NODE", "gpu", "PET_NPROC_PER_NODE=gpu counts devices"),
        ("s.py", "PET_MAX_RESTARTS", "-1", "PET_MAX_RESTARTS=-1 is below zero"),
        ("s.py", "PET_TEE", "7", "PET_TEE=7 names no streams"),
        ("s.py", "PET_RDZV_CONF", "foo", "PET_RDZV_CONF: 'foo' is not KEY=VALUE"),
        ("s.py", "PET_RDZV_BACKEND", "nope", "PET_RDZV_BACKEND=nope is not one of"),
        ("s.py", "PET_SIGNALS_TO_HANDLE", "SIGFOO", "PET_SIGNALS_TO_HANDLE=SIGFOO names SIGFOO"),
        ("s.py", "PET_MASTER_PORT", "70000", "PET_MASTER_PORT=70000 is above 65535"),
        ("s.py", "PET_EXIT_CODES", "all", "PET_EXIT_CODES=all is not one of"),
        ("s.py", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "abc", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=abc is not a whole number"),
        ("s.py", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "-1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-1 is not a whole number"),
        ("s.py", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "x", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=x is"),
        ("s.py", "PYTHON_EXEC", "", "PYTHON_EXEC is empty"),
        ("s.py", "PYTHON_EXEC", "/nowhere/python", "PYTHON_EXEC: there is no /nowhere/python"),
        ("-m pkg", "PYTHON_EXEC", "", "PYTHON_EXEC is empty"),
        ("s.py", "LOGLEVEL", "bogus", "LOGLEVEL=bogus is no level of logging"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(line: str, variable: str, word: str, what: str) -> None:
    wrong = refused(line, **{variable: word})
    assert wrong.what.startswith(what)
    assert wrong.remedy


def test_log_dir_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("")
    assert refused(f"--log-dir {file} s.py").what == f"--log-dir {file} is not a folder"
    inside = f"{file}/logs"
    assert refused(f"--log-dir {inside} s.py").what == f"--log-dir {inside} cannot be made: {file} is not a folder"
    assert launch_of(f"--log-dir {tmp_path}/new/logs s.py").output.log_dir == f"{tmp_path}/new/logs"
    assert launch_of(f"--log-dir {tmp_path} s.py").output.log_dir == str(tmp_path)
    assert launch_of("--log-dir logs/new s.py").output.log_dir == "logs/new"


def test_a_program_without_permission(tmp_path: Path) -> None:
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n")
    assert "may not be executed" in refused(f"--no-python {program}").what
    assert refused("--no-python run.sh", PATH=str(tmp_path)).remedy == f"chmod +x {program}"
    program.chmod(0o755)
    assert launch_of(f"--no-python {program}").how is How.PROGRAM
    assert launch_of("--no-python run.sh", PATH=f"/nowhere:{tmp_path}").entrypoint == "run.sh"


def test_a_program_here_but_not_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n")
    wrong = refused("--no-python run.sh", PATH="/nowhere")
    assert wrong.what == "--no-python: run.sh is in no folder of PATH, and ./run.sh may not be executed"
    assert wrong.remedy == "chmod +x ./run.sh, then --no-python ./run.sh"
    program.chmod(0o755)
    wrong = refused("--no-python run.sh", PATH="/nowhere")
    assert (wrong.what, wrong.remedy) == ("--no-python: run.sh is in no folder of PATH", "--no-python ./run.sh")
    assert refused("s.py", PYTHON_EXEC="run.sh", PATH="/nowhere").remedy == "PYTHON_EXEC=./run.sh"
    (tmp_path / "tools").mkdir()
    wrong = refused("--no-python tools", PATH="/nowhere")
    assert (wrong.what, wrong.remedy) == ("--no-python: tools is a folder", "--no-python tools/PROGRAM")


# --- what is accepted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "environ"),
    [
        ("missing.py", {}),
        ("-m no.such.module", {}),
        ("-r 10:3 s.py", {}),
        ("s.py", {"PET_STANDALONE": ""}),
        ("s.py", {"PET_STANDALONE": "true"}),
        ("--rdzv-id a/b " + C10D + " s.py", {}),
        ("--monitor-interval 30 s.py", {}),
        ("--event-log-handler console s.py", {}),
        ("--logs-specs default s.py", {}),
        ("--log-dir /dev/null s.py", {}),
        ("--log-dir= s.py", {}),
        ("--role= s.py", {}),
        ("s.py", {"LOGLEVEL": "info"}),
        ("s.py", {"LOGLEVEL": ""}),
        ("s.py", {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": ""}),
        ("--no-python sh", {"PYTHON_EXEC": ""}),
        ("--run-path s.py", {"PYTHON_EXEC": ""}),
        ("--standalone --rdzv-backend=nope s.py", {}),
    ],
)
def test_what_is_harmless_is_accepted(line: str, environ: dict[str, Any]) -> None:
    planned = make(line, **environ)
    assert planned.warnings == []


@pytest.mark.parametrize(
    ("word", "accelerators", "workers"),
    [("1", 0, 1), ("4", 0, 4), (" 2 ", 0, 2), ("cpu", 3, 6), ("auto", 0, 6), ("auto", 3, 3), ("gpu", 2, 2)],
)
def test_how_many_workers(word: str, accelerators: int, workers: int) -> None:
    planned = launch_of(["--nproc-per-node", word, "s.py"], accelerators=accelerators)
    assert planned.nproc_per_node == workers


@pytest.mark.parametrize(
    ("nproc", "environ", "threads"),
    [("1", {}, None), ("2", {}, "1"), ("2", {"OMP_NUM_THREADS": "4"}, None), ("2", {"OMP_NUM_THREADS": ""}, None)],
)
def test_threads_of_each_worker(nproc: str, environ: dict[str, str], threads: str | None) -> None:
    assert launch_of(f"--nproc-per-node {nproc} s.py", **environ).threads == threads


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("s.py", How.SCRIPT),
        ("-m pkg", How.MODULE),
        ("--no-python sh", How.PROGRAM),
        ("--run-path s.py", How.RUN_PATH),
        ("--run-path --no-python s.py", How.RUN_PATH),
        ("--run-path -m --no-python s.py", How.RUN_PATH),
    ],
)
def test_how_the_script_is_run(line: str, how: How) -> None:
    assert launch_of(line).how is how


def test_the_workers_interpreter() -> None:
    assert launch_of("s.py").python == ""
    assert launch_of("s.py", PYTHON_EXEC="/bin/sh").python == "/bin/sh"
    assert launch_of("s.py", PYTHON_EXEC="sh").python == "sh"


# --- 1.6: the meeting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "run_id", "store"),
    [
        ("s.py", UUID4, Store()),
        ("--standalone s.py", UUID4, Store()),
        ("--standalone --rdzv-id=x --rdzv-endpoint=h:1 --rdzv-backend=static --master-port 7 s.py", UUID4, Store()),
        ("--rdzv-id=mine s.py", UUID4, Store()),
        ("--nnodes 1:1 s.py", UUID4, Store()),
        ("--master-addr=203.0.113.9 s.py", UUID4, Store()),
        ("--local-addr=10.0.0.4 s.py", UUID4, Store(address="10.0.0.4")),
        ("--standalone --local-addr=h s.py", UUID4, Store(address="h")),
        ("--master-port 29511 s.py", "none", Store(port=29511)),
        ("--master-port 0 s.py", "none", Store(port=0)),
        ("--master-port 29511 --rdzv-id job7 s.py", "job7", Store(port=29511)),
        ("--master-port 29511 --master-addr h.x --local-addr y s.py", "none", Store(address="h.x", port=29511)),
        ("--master-port 29511 --master-addr [::1] s.py", "none", Store(address="::1", port=29511)),
        ("--master-port 29511 --master-addr ::1 s.py", "none", Store(address="::1", port=29511)),
        ("--rdzv-endpoint 127.0.0.1:4000 s.py", "none", Store(port=4000)),
        ("--rdzv-backend static --rdzv-endpoint [::1]:4000 s.py", "none", Store(address="::1", port=4000)),
        (C10D + " --rdzv-id=X s.py", "X", Store()),
        (C10D + " s.py", "none", Store()),
        ("--rdzv-backend=c10d --rdzv-endpoint=head:29400 --rdzv-id 7 s.py", "7", Store()),
        ("--rdzv-backend=c10d --rdzv-endpoint=head s.py", "none", Store()),
        ("--rdzv-backend=c10d --rdzv-endpoint=[::1] s.py", "none", Store()),
        ("--rdzv-backend=c10d --rdzv-endpoint=/a/b --rdzv-conf store_type=file s.py", "none", Store()),
        ("--rdzv-backend=c10d --local-addr=h --rdzv-endpoint=x:1 s.py", "none", Store(address="h")),
        ("--rdzv-backend=etcd-v2 --rdzv-endpoint=e:2379 --rdzv-id=X s.py", "X", Store()),
        ("--rdzv-backend=etcd --rdzv-endpoint=e:2379 --rdzv-id=X s.py", "X", Store(shared=False)),
    ],
)
def test_where_workers_meet(line: str, run_id: str | re.Pattern[str], store: Store) -> None:
    planned = make(line)
    assert planned.warnings == []
    assert planned.launch.store == store
    if isinstance(run_id, str):
        assert planned.launch.run_id == run_id
    else:
        assert run_id.fullmatch(planned.launch.run_id)


@pytest.mark.parametrize(
    ("line", "store", "meeting"),
    [
        ("--nnodes 2 s.py", Store(port=29500), Meeting("127.0.0.1", 29500, True, True, "", 0, 900.0)),
        (
            "--nnodes 2 --node-rank 1 --master-addr h --master-port 7 --local-addr me s.py",
            Store(address="me"),
            Meeting("h", 7, False, True, "", 1, 900.0),
        ),
        (
            "--nnodes 4 --node-rank 3 --rdzv-endpoint [::1]:9 --rdzv-conf timeout=60 s.py",
            Store(address=""),
            Meeting("::1", 9, False, True, "", 3, 60.0),
        ),
        ("--nnodes 1:4 --rdzv-backend c10d s.py", Store(address=""), Meeting("localhost", 29400)),
        (
            "--nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint head:5 --on-node-loss fail --node-rank 7 s.py",
            Store(address=""),
            Meeting("head", 5, hint=7, fails_below_min=True),
        ),
        (
            "--nnodes 2 --rdzv-backend c10d --local-addr 10.0.0.4 --rdzv-endpoint h --rdzv-conf "
            "is_host=1,join_timeout=60,last_call_timeout=9,keep_alive_interval=1,settle_timeout=0.5 s.py",
            Store(address="10.0.0.4"),
            Meeting("h", 29400, True, join_timeout_s=60.0, last_call_s=9.0, settle_s=0.5, lease_s=3.0),
        ),
        (
            "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h --rdzv-conf is_host=no,keep_alive_max_attempt=2 s.py",
            Store(address=""),
            Meeting("h", 29400, False, lease_s=10.0),
        ),
        (
            "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h "
            "--rdzv-conf keep_alive_interval=0,keep_alive_max_attempt=0 s.py",
            Store(address=""),
            Meeting("h", 29400, lease_s=SHORTEST_LEASE_S),
        ),
    ],
)
def test_where_nodes_meet(line: str, store: Store, meeting: Meeting) -> None:
    planned = make(line)
    assert planned.warnings == []
    assert planned.launch.store == store
    assert planned.launch.meeting == meeting


def test_the_static_backend_knows_one_size() -> None:
    launch = launch_of("--nnodes 2:4 s.py")
    assert (launch.min_nodes, launch.max_nodes) == (4, 4)


@pytest.mark.parametrize(
    ("environ", "hint"),
    [
        ({"SLURM_NODEID": "3"}, 3),
        ({"JOB_COMPLETION_INDEX": "0", "PBS_NODENUM": "9"}, 0),
        ({"SLURM_NODEID": "x", "PBS_NODENUM": "9"}, 9),
        ({"SLURM_NODEID": "99999999"}, None),
        ({"SLURM_NODEID": "3", "PET_NODE_RANK": "5"}, 5),
        ({}, None),
    ],
)
def test_a_scheduler_may_have_a_place_in_mind(environ: dict[str, str], hint: int | None) -> None:
    meeting = launch_of("--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint h s.py", **environ).meeting
    assert meeting is not None and meeting.hint == hint


def test_the_jobs_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  of the file\n")
    line = "--nnodes 2 s.py"
    from_environment = launch_of(line, RELIGHT_TOKEN=" of the environment ").meeting
    from_file = launch_of(f"--token-file {tmp_path}/token {line}", RELIGHT_TOKEN="x").meeting
    assert from_environment is not None and from_environment.token == "of the environment"
    assert from_file is not None and from_file.token == "of the file"
    assert "of the" not in repr(from_file)
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    assert "holds no text" in refused(f"--token-file {tmp_path}/token {line}").what


def test_every_standalone_job_has_an_id_of_its_own() -> None:
    assert len({launch_of("s.py").run_id for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("line", "shared"),
    [("s.py", False), ("--standalone s.py", False), (C10D + " s.py", False), ("--master-port 1 s.py", True)],
)
def test_the_store_that_rank_0_hosts(line: str, shared: bool) -> None:
    assert launch_of(line, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1").store.shared is shared
    assert launch_of(line, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="true").store.shared is True


def test_what_the_kubeflow_trainer_injects() -> None:
    environ: dict[str, Any] = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "0"}
    planned = make("train.py", **environ, PET_MASTER_ADDR="job-node-0-0.job", PET_MASTER_PORT="29500")
    assert planned.warnings == []
    assert planned.launch.store == Store(address="job-node-0-0.job", port=29500)
    assert (planned.launch.run_id, planned.launch.nproc_per_node) == ("none", 2)


def test_what_the_old_training_operator_injects() -> None:
    planned = make(
        "train.py",
        PET_RDZV_ENDPOINT="job-worker-0:23456",
        PET_RDZV_BACKEND="c10d",
        PET_NNODES="1:1",
        PET_MAX_RESTARTS="3",
        PET_NPROC_PER_NODE="1",
        PET_RDZV_ID="job",
        PET_RDZV_CONF="",
        PET_STANDALONE="",
    )
    assert planned.warnings == []
    assert (planned.launch.run_id, planned.launch.budget.restarts) == ("job", 3)


@pytest.mark.parametrize(
    ("line", "environ", "warning"),
    [
        ("--node-rank 3 s.py", {}, "--node-rank 3 is ignored: only the static backend reads it"),
        ("s.py", {"PET_NODE_RANK": "1"}, "PET_NODE_RANK=1 is ignored: only the static backend reads it"),
        ("--rdzv-backend=c10d --master-addr h s.py", {}, "--master-addr h is ignored: only the static backend"),
        ("--rdzv-backend=c10d --master-port 5 s.py", {}, "--master-port 5 is ignored: only the static backend"),
        ("--rdzv-backend=c10d s.py", {"PET_MASTER_ADDR": "h"}, "PET_MASTER_ADDR=h is ignored"),
        ("--rdzv-conf heartbeat=5 s.py", {}, "--rdzv-conf: nobody reads heartbeat; did you mean heartbeat_timeout?"),
        ("--rdzv-conf zzz=5 s.py", {}, "--rdzv-conf: nobody reads zzz"),
        ("--rdzv-conf timeout=5 s.py", {}, "--rdzv-conf: the c10d backend does not read timeout (static and etcd"),
        ("--master-port 5 --rdzv-conf join_timeout=5 s.py", {}, "--rdzv-conf: the static backend does not read join_"),
        (C10D + " --rdzv-id= s.py", {}, "--rdzv-id is empty: this job is called "),
    ],
)
def test_what_is_not_used_is_named(line: str, environ: dict[str, Any], warning: str) -> None:
    planned = make(line, **environ)
    assert len(planned.warnings) == 1
    assert planned.warnings[0].startswith(warning)


def test_an_empty_run_id_becomes_a_number() -> None:
    planned = make(["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id", "", "s.py"])
    assert int(planned.launch.run_id) > 0
    assert planned.warnings == [f"--rdzv-id is empty: this job is called {planned.launch.run_id}"]


@pytest.mark.parametrize(
    "conf",
    [
        "join_timeout=600,last_call_timeout=30,close_timeout=30,heartbeat_timeout=5,keep_alive_interval=5",
        "keep_alive_max_attempt=3,cas_backoff_max_seconds=0.0,read_timeout=60",
        "is_host=F",
        "store_type= TCP ",
        " ",
    ],
)
def test_known_keys_of_the_conf_pass(conf: str) -> None:
    assert make(["--rdzv-conf", conf, "s.py"]).warnings == []


def test_a_rendezvous_plug_in_is_known_but_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    entry = metadata.EntryPoint("lm", "nowhere:nothing", "torchrun.handlers")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == entry.group else [])
    planned = make("--rdzv-backend lm --rdzv-endpoint a/b --rdzv-conf own=1 --rdzv-id X s.py")
    assert planned.launch.run_id == "X"
    assert planned.warnings == ["--rdzv-backend lm is not asked: a job of one node meets nobody"]
    assert refused("--rdzv-backend ln s.py").what == "--rdzv-backend ln is not one of static, c10d, etcd-v2, etcd, lm"


def test_a_logs_plug_in_is_passed_on_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    entry = metadata.EntryPoint("mine", "nowhere:nothing", "torchrun.logs_specs")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == entry.group else [])
    assert launch_of("--logs-specs mine s.py").output.plug_in == "mine"
    assert refused("--logs-specs min s.py").remedy == "--logs-specs mine"


# --- the rest -------------------------------------------------------------------------------------------------


def test_output() -> None:
    output = launch_of(
        "--log-dir x -r 0:3,10:1 -t 2 --local-ranks-filter 2,0 --duplicate-stdout-filters a,b s.py"
    ).output
    assert (output.log_dir, output.tee.everyone, output.local_ranks) == ("x", Streams.ERR, (0, 2))
    assert output.redirects.by_rank == ((0, Streams.BOTH), (10, Streams.OUT))
    assert (output.stdout_needles, output.stderr_needles) == (("a", "b"), ())
    assert launch_of("s.py", PET_DUPLICATE_STDERR_FILTERS="").output.stderr_needles == ("",)


@pytest.mark.parametrize(
    ("line", "environ", "template"),
    [
        ("s.py", {}, None),
        ("s.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${rank}]"}, "[${rank}]"),
        ("s.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": ""}, None),
        ("--log-line-prefix-template=a s.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "b"}, "a"),
        ("s.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "b", "PET_LOG_LINE_PREFIX_TEMPLATE": "c"}, "c"),
    ],
)
def test_the_prefix(line: str, environ: dict[str, str], template: str | None) -> None:
    assert launch_of(line, **environ).output.prefix_template == template


@pytest.mark.parametrize(
    ("line", "environ", "timeout_s"),
    [
        ("s.py", {}, 30.0),
        ("--shutdown-timeout 0 s.py", {}, 0.0),
        ("s.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}, 7.0),
        ("--shutdown-timeout 3 s.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "abc"}, 3.0),
        ("s.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7", "PET_SHUTDOWN_TIMEOUT": "5"}, 5.0),
    ],
)
def test_the_time_to_end(line: str, environ: dict[str, str], timeout_s: float) -> None:
    assert launch_of(line, **environ).shutdown_timeout_s == timeout_s


@pytest.mark.parametrize(("word", "timeout_s"), [("", 0.0), ("0", 0.0), ("-5", 0.0), ("2.5", 2.5)])
def test_the_time_a_worker_may_be_stuck(word: str, timeout_s: float) -> None:
    launch = launch_of("s.py", TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=word)
    assert launch.stuck_timeout_s == timeout_s


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ("SIGTERM,SIGINT,SIGHUP,SIGQUIT", (15, 2, 1, 3)),
        ("SIGUSR1", (signal.SIGUSR1,)),
        (" SIGTERM , SIGINT,", (15, 2)),
        ("SIGTERM,SIGTERM", (15,)),
        ("", ()),
    ],
)
def test_signals(names: str, numbers: tuple[int, ...]) -> None:
    assert launch_of(["--signals-to-handle", names, "s.py"]).signals == numbers


def test_restarts_and_exit_codes_and_teardown() -> None:
    launch = launch_of("--max-restarts 9 --restart-rate 5/60 --exit-codes detailed --no-forgive-teardown s.py")
    assert launch.budget == Budget(9, 5, 60.0)
    assert (launch.exit_codes, launch.forgives_teardown) == (ExitCodes.DETAILED, False)
    plain = launch_of("--max-restarts 2 s.py")
    assert (plain.budget, plain.exit_codes, plain.forgives_teardown) == (Budget(2), ExitCodes.TORCHRUN, True)


def test_cpus_and_virtual_ranks() -> None:
    launch = launch_of("--nproc-per-node 2 --numa-binding node --virtual-local-rank s.py")
    assert launch.cpus == ((4, 0), (4, 1))
    assert launch.virtual_local_rank


def test_the_legacy_form_passes_the_local_rank_unless_told_otherwise() -> None:
    assert launch_of("s.py a", legacy=True).passes_local_rank
    assert not launch_of("--use-env s.py a", legacy=True).passes_local_rank
    assert not launch_of("--use_env --no-python sh", legacy=True).passes_local_rank
    assert not launch_of("s.py a").passes_local_rank
    wrong = refused("--no-python sh", legacy=True)
    assert (wrong.what, wrong.remedy) == (
        "--no-python leaves nobody to take --local-rank",
        "--use-env --no-python sh",
    )


def test_a_namespace_that_accelerate_has_filled() -> None:
    chosen = build_parser({}).parse_args(["--standalone", "s.py"])
    chosen.standalone, chosen.nproc_per_node, chosen.nnodes = False, 2, "1"
    chosen.master_addr, chosen.master_port, chosen.monitor_interval = "127.0.0.1", "29511", "0.1"
    chosen.training_script_args = ["--lr", 1]
    launch = plan(chosen, {}, FakeFacts())
    assert (launch.nproc_per_node, launch.store.port, launch.args) == (2, 29511, ("--lr", "1"))


def test_a_namespace_that_never_heard_of_newer_options() -> None:
    chosen = argparse.Namespace(training_script="s.py", training_script_args=[], nproc_per_node="2")
    assert plan(chosen, {}, FakeFacts()).nproc_per_node == 2


def test_without_anyone_to_tell_a_warning_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    plan(parse(["--node-rank", "1", "s.py"], {}), {}, FakeFacts())
    assert capfd.readouterr().err == ("relight: warning: --node-rank 1 is ignored: only the static backend reads it\n")
