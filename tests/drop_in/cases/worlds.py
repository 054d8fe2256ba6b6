"""The environment rows: OMP, presets, roles, virtual local ranks, words for a number of workers."""

from __future__ import annotations

from .making import case, told_in_two_lines

VIRTUAL = "--virtual-local-rank --nproc-per-node=2 plain.py ${local_rank}"
PRESETS = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"), "preset"),
    **dict.fromkeys(("GROUP_RANK", "GROUP_WORLD_SIZE"), "preset"),
    **dict.fromkeys(("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), "preset"),
    **dict.fromkeys(("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"), "preset"),
    **dict.fromkeys(("TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"), "preset"),
}
LIST = {"CUDA_VISIBLE_DEVICES": "5,3,9"}

CASES = [
    case("every preset is overwritten", env=PRESETS),
    case("nccl error handling is kept", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    case("the old nccl name is left alone", env={"NCCL_ASYNC_ERROR_HANDLING": "0"}),
    case("unrelated variables pass", env={"WANDB_MODE": "offline", "EMPTY": "", "UNI": "ü"}),
    case("cuda devices pass", "--nproc-per-node=2 plain.py", env={"CUDA_VISIBLE_DEVICES": "3,1"}),
    case("no cuda devices pass", env={"CUDA_VISIBLE_DEVICES": ""}),
    case("OMP is kept", "--nproc-per-node=2 plain.py", env={"OMP_NUM_THREADS": "6"}),
    case("OMP is kept when empty", "--nproc-per-node=2 plain.py", env={"OMP_NUM_THREADS": ""}),
    case("OMP alone is not set", env={"MKL_NUM_THREADS": "2"}),
    case("cpu counts the affinity mask", "--nproc-per-node=cpu plain.py", before="taskset -p -c 0 $$ >/dev/null"),
    case(
        "auto without an accelerator",
        "--nproc-per-node=auto plain.py",
        before="taskset -p -c 0 $$ >/dev/null",
        env={"CUDA_VISIBLE_DEVICES": ""},
    ),
    case("shutdown timeout in the environment", env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}),
    case("identical workers", "--nproc-per-node=2 plain.py", env={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}),
    case("the launcher's log level", env={"LOGLEVEL": "ERROR"}),
    case("signals from outside do not count", env={"TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGUSR2"}),
    case("role", "--role trainer --nproc-per-node=2 plain.py"),
    case("role with a colon", "--role host1:a -t 3 --log-dir @LOGS@ plain.py"),
    case("empty role", "--role '' -t 3 --log-dir @LOGS@ plain.py"),
    case("role with a blank", "--role 'two words' -t 1 --log-dir @LOGS@ plain.py"),
    case("role that looks like a macro", "--role 'x$local_rank' -t 1 --log-dir @LOGS@ plain.py"),
    case("virtual local rank", VIRTUAL),
    case("virtual_local_rank with a list", VIRTUAL.replace("-local-", "_local_"), env=LIST),
    case("virtual local rank with UUIDs", VIRTUAL, env={"CUDA_VISIBLE_DEVICES": "GPU-aaaa-1, MIG-bbbb-2 "}),
    case("virtual local rank with an empty list", VIRTUAL.replace("=2", "=1"), env={"CUDA_VISIBLE_DEVICES": ""}),
    case("virtual local rank and the prefix", f"-t 1 --log-dir @LOGS@ {VIRTUAL}"),
    told_in_two_lines("virtual local rank, list too short", VIRTUAL, env={"CUDA_VISIBLE_DEVICES": "5"}),
]
