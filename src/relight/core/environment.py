"""What a worker finds in os.environ, and the command that it is."""

from __future__ import annotations

from relight.core.launch import How
from relight.core.names import UsageError, fill_in, never, signal_name, why_no_word
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from relight.core.launch import Launch
    from relight.core.roster import Part, Place


@value
class Round:
    """What all workers of a node share in a round."""

    number: int
    restarts: int
    part: Part


def check_inherited(inherited: Mapping[str, str]) -> None:
    """Refuses what no process can have in its environment. What a process itself inherited needs no check."""
    for name, word in inherited.items():
        if not isinstance(name, str) or not name or "=" in name or why_no_word(name):
            raise UsageError(f"{name!r} is no name of a variable", 'environ={"NAME": "value"}')
        if not isinstance(word, str):
            raise UsageError(f"the variable {name!r} is {word!r}, which is no text", f"environ={{{name!r}: '{word}'}}")
        if why := why_no_word(word):
            raise UsageError(f"the variable {name!r} holds {word!r}, and {why}", "the same without it")


def worker_environment(
    inherited: Mapping[str, str], launch: Launch, round_: Round, place: Place, error_file: str
) -> dict[str, str]:
    """The whole environment of one worker: what the launcher inherited, then torchrun's variables."""
    part = round_.part
    environment = {
        **inherited,
        "RANK": str(place.rank),
        "LOCAL_RANK": "0" if launch.virtual_local_rank else str(place.local_rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.group_rank),
        "GROUP_WORLD_SIZE": str(place.group_world_size),
        "ROLE_NAME": place.role,
        "ROLE_RANK": str(place.role_rank),
        "ROLE_WORLD_SIZE": str(place.role_world_size),
        "MASTER_ADDR": part.store_address,
        "MASTER_PORT": str(part.store_port),
        "TORCHELASTIC_RESTART_COUNT": str(round_.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(launch.budget.restarts),
        "TORCHELASTIC_RUN_ID": launch.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": str(launch.store.shared),
        "TORCHELASTIC_ERROR_FILE": error_file,
        "TORCHELASTIC_SIGNALS_TO_HANDLE": signals_text(launch.signals),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": inherited.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    environment.pop("RELIGHT_TOKEN", None)  # who has it may join the job; workers have no use for it
    if launch.threads is not None:
        environment["OMP_NUM_THREADS"] = launch.threads
    if launch.virtual_local_rank:
        environment.update(_own_device(inherited, place.local_rank))
    return environment


def signals_text(signals: tuple[int, ...]) -> str:
    """SIGTERM,SIGINT: as the option is written."""
    return ",".join(map(signal_name, signals))


def _own_device(inherited: Mapping[str, str], local_rank: int) -> dict[str, str]:
    """The one accelerator that a worker sees under --virtual-local-rank."""
    hip = inherited.get("HIP_VISIBLE_DEVICES", "")
    name = "HIP_VISIBLE_DEVICES" if hip else "CUDA_VISIBLE_DEVICES"
    listed = hip or inherited.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        device = str(local_rank)
    elif not listed.strip():
        device = ""
    else:
        devices = [part.strip() for part in listed.split(",")]
        if local_rank >= len(devices):
            raise UsageError(
                f"--virtual-local-rank: {name} lists {len(devices)} devices, too few for local rank {local_rank}",
                f"--nproc-per-node {len(devices)}, or list more devices in {name}",
            )
        device = devices[local_rank]
    return {name: device, "CUDA_VISIBLE_DEVICES": device}


def worker_command(launch: Launch, place: Place, python: str) -> list[str]:
    """The command line of one worker. `${local_rank}` is filled in, except in a program's own name."""
    match launch.how:
        case How.SCRIPT:
            own, rest = [python, "-u"], [launch.entrypoint]
        case How.MODULE:
            own, rest = [python, "-u"], ["-m", launch.entrypoint]
        case How.PROGRAM:
            own, rest = [launch.entrypoint], []
        case How.RUN_PATH:
            own, rest = [python, "-u", "-c", _RUN_PATH], [launch.entrypoint]
        case _:
            never(launch.how)
    if launch.passes_local_rank:
        rest.append(f"--local-rank={place.local_rank}")
    return own + [fill_in(part, local_rank=place.local_rank) for part in (*rest, *launch.args)]


# The script as `__main__` in a Python child: sys.exit and exceptions end the child as they would a script. As under
# torchrun an exception leaves an error file, and the folder of the launch is on the path instead of the script's.
_RUN_PATH = """\
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = sys.path[0] or os.getcwd()
try:
    from relight.worker.record import record
except ImportError:  # an interpreter of the user's own, without relight
    record = lambda function: function
record(runpy.run_path)(sys.argv[0], run_name="__main__")
"""
