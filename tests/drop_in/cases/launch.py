"""The older form, `python -m torch.distributed.launch`."""

from __future__ import annotations

from .making import case, told_in_two_lines

CASES = [
    case("legacy plain", how="launch"),
    case("legacy, two workers with arguments", "--nproc_per_node=2 plain.py a --b=c", how="launch"),
    case("legacy --use-env", "--use-env --nproc-per-node=2 plain.py a", how="launch"),
    case("legacy --use_env", "--use_env plain.py a", how="launch"),
    case("legacy module", "--nproc-per-node=2 -m pkg.mod a", how="launch"),
    case("legacy no-python with use-env", "--use-env --no-python ./plain.py a", how="launch"),
    case("legacy standalone", "--standalone plain.py", how="launch"),
    case(
        "legacy static", "--master_addr=127.0.0.1 --master_port=@PORT@ --nnodes=1 --node_rank=0 plain.py", how="launch"
    ),
    case("legacy failure", "job.py", "sys.exit(3)", how="launch"),
    case("legacy two dashes", "plain.py -- --x", how="launch"),
    case("legacy without a script", "", how="launch"),
    told_in_two_lines("legacy no-python without use-env", "--no-python ./plain.py", how="launch"),
    case("use-env belongs to the older form", "--use-env plain.py"),
]
