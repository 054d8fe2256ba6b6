"""Workers that import torch: its own view of the launcher, gloo, and its `record`."""

from __future__ import annotations

from typing import Any

from ..case import Case
from .making import ABSENT, RUN_PATH, Difference
from .making import case as _case

LOGS = "--log-dir @LOGS@"
FINDS_LOOK = {"PYTHONPATH": "@WORK@"}  # --run-path does not put the script's folder on sys.path
GROUP = """
import torch.distributed as dist, torch
dist.init_process_group("gloo")
t = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(t)
me.say(f"sum {t.item()} of {dist.get_world_size()}")
dist.barrier()
dist.destroy_process_group()
"""
RECORD = """
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    me.all_here()
    %s

main()
"""


RUN_PATH_FAILED = {
    **RUN_PATH,
    "report": Difference(
        "run-path-child",
        lambda first, second: (
            [first[0][0], second[0][0]] == ["run_script_path FAILED", "job.py FAILED"]
            and first[0][-5:] == second[0][-5:]
        ),
    ),
    "logs/*/error.json/*/py_callstack": Difference("run-path-child", lambda first, second: first[-5:] == second[-5:]),
    "logs/*/error.json/*/timestamp_ns": Difference("run-path-child", "<str>"),
    "tmp//pytorch-errorfile-*": Difference("run-path-child", ABSENT),
}
INNER = """from torch.distributed.elastic.multiprocessing.errors import record
import look

@record
def main():
    look.look()
    raise ValueError('inner')

main()
"""


def case(name: str, words: str, body: str, **more: Any) -> Case:
    return _case(name, words, body, slow=True, torch=True, deadline_s=110.0, **more)


CASES = [
    case(
        "torch knows its launcher", "job.py", "import torch.distributed as d\nme.say(str(d.is_torchelastic_launched()))"
    ),
    case("gloo adds up", "--nproc-per-node 2 job.py", GROUP),
    case("gloo adds up, static", "--nproc-per-node 2 --master-port @PORT@ job.py", GROUP),
    case(
        "gloo adds up, rank 0's own store",
        "--nproc-per-node 2 job.py",
        GROUP,
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    ),
    case(
        "gloo adds up under run-path", "--run-path --nproc-per-node 2 job.py", GROUP, differs=RUN_PATH, env=FINDS_LOOK
    ),
    case("record an exception", f"{LOGS} job.py", RECORD % "raise ValueError('no')"),
    case(
        "record an exception of one of two",
        f"--nproc-per-node 2 {LOGS} job.py",
        RECORD % "if me.rank == 1: me.wait_for_others(); raise ValueError('no')\n    me.stay()",
    ),
    case("record exit 3", f"{LOGS} job.py", RECORD % "sys.exit(3)"),
    case("record exit with a text", f"{LOGS} job.py", RECORD % "sys.exit('~0 text')"),
    case("record with restarts", f"--max-restarts 1 {LOGS} job.py", RECORD % "raise ValueError(me.attempt)"),
    case(
        "record for the parent",
        f"{LOGS} job.py",
        RECORD % "raise ValueError('no')",
        env={"TORCHELASTIC_ERROR_FILE": "@OUT@/parent.json"},
    ),
    case(
        "record in a nested job",
        f"{LOGS} job.py",
        RECORD % "sys.exit(me.nest('inner.py'))",
        files={"inner.py": INNER},
    ),
    case("record and KeyboardInterrupt", f"{LOGS} job.py", RECORD % "raise KeyboardInterrupt"),
    case(
        "exception under run-path",
        f"--run-path {LOGS} job.py",
        "raise ValueError('no')",
        differs=RUN_PATH_FAILED,
        env=FINDS_LOOK,
    ),
]
