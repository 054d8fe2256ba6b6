"""What the user got wrong: usage errors, which both end with 2, and values, which torchrun meets with a traceback."""

from __future__ import annotations

import os

from .making import ABSENT, Difference, accepted, case, told_in_two_lines

C10D = "--rdzv-backend=c10d --rdzv-endpoint=localhost:0"


def _has_gpu() -> bool:
    return os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvidiactl")


USAGE = [
    case("nothing", ""),
    case("options without a script", "--standalone"),
    case("an unknown option", "--nope plain.py"),
    case("an unknown short option", "-x plain.py"),
    accepted(
        "an abbreviation of both spellings of one option",
        "--nproc 2 plain.py",
        "abbreviations",
    ),
    case("another ambiguous abbreviation", "--rdzv c10d plain.py"),
    case("a bad choice", "--start-method=thread plain.py"),
    case("a bad number", "--max-restarts=many plain.py"),
    case("a fraction of a restart", "--max-restarts=1.5 plain.py"),
    case("an empty number", "--max-restarts= plain.py"),
    case("a bad interval", "--monitor-interval=often plain.py"),
    case("a bad node rank", "--node-rank=first plain.py"),
    case("a bad port", "--master-port=http plain.py"),
    case("a bad shutdown timeout", "--shutdown-timeout=1.5 plain.py"),
    case("a missing value", "--nproc-per-node"),
    case("a flag with a value", "--standalone=1 plain.py"),
    case("a bad numa choice", "--numa-binding=none plain.py"),
]

VALUES = [
    told_in_two_lines("nnodes 2:1", "--nnodes 2:1 plain.py"),
    told_in_two_lines("nnodes 0", "--nnodes=0 plain.py"),
    told_in_two_lines("nnodes 1:2:3", "--nnodes=1:2:3 plain.py"),
    told_in_two_lines("nnodes abc", "--nnodes=abc plain.py"),
    told_in_two_lines("max restarts below zero", "--max-restarts -1 plain.py"),
    told_in_two_lines("nproc foo", "--nproc-per-node=foo plain.py"),
    told_in_two_lines("nproc 0", "--nproc-per-node=0 plain.py"),
    told_in_two_lines("nproc below zero", "--nproc-per-node=-2 plain.py"),
    told_in_two_lines("nproc 1.5", "--nproc-per-node=1.5 plain.py"),
    told_in_two_lines("gpu without one", "--nproc-per-node=gpu plain.py", unless=_has_gpu),
    told_in_two_lines("xpu without one", "--nproc-per-node=xpu plain.py"),
    told_in_two_lines("interval 0", "--monitor-interval=0 plain.py"),
    told_in_two_lines("an empty PYTHON_EXEC", "plain.py", env={"PYTHON_EXEC": ""}),
    told_in_two_lines("redirects 4", "-r 4 plain.py"),
    told_in_two_lines("redirects abc", "-r abc plain.py"),
    told_in_two_lines("tee map with a bad mask", "-t 0:9 plain.py"),
    told_in_two_lines("filter a", "--local-ranks-filter a plain.py"),
    told_in_two_lines("conf without a value", f"{C10D} --rdzv-conf foo plain.py"),
    told_in_two_lines("conf with an empty value", f"{C10D} --rdzv-conf foo= plain.py"),
    told_in_two_lines("conf with a hole", f"{C10D} --rdzv-conf a=1,,b=2 plain.py"),
    told_in_two_lines("conf join_timeout abc", f"{C10D} --rdzv-conf join_timeout=abc plain.py"),
    told_in_two_lines("conf join_timeout 0", f"{C10D} --rdzv-conf join_timeout=0 plain.py"),
    told_in_two_lines("conf names a parameter", f"{C10D} --rdzv-conf backend=1 plain.py"),
    told_in_two_lines("conf is_host maybe", f"{C10D} --rdzv-conf is_host=maybe plain.py"),
    told_in_two_lines("conf store_type redis", f"{C10D} --rdzv-conf store_type=redis plain.py"),
    told_in_two_lines("an unknown backend", "--rdzv-backend=nope --rdzv-endpoint=localhost:0 plain.py"),
    told_in_two_lines("static endpoint without a port", "--rdzv-backend=static --rdzv-endpoint=localhost plain.py"),
    told_in_two_lines("an endpoint with bad letters", "--rdzv-backend=c10d --rdzv-endpoint=lo/cal:1 plain.py"),
    told_in_two_lines("a port beyond the last", "--rdzv-backend=c10d --rdzv-endpoint=localhost:65536 plain.py"),
    told_in_two_lines("no python and a module", "--no-python -m pkg.mod"),
    told_in_two_lines("log folder is a file", "--log-dir plain.py plain.py"),
    told_in_two_lines("shutdown timeout below zero", "--shutdown-timeout=-1 plain.py"),
    told_in_two_lines("a bad shutdown timeout variable", "plain.py", env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "abc"}),
    told_in_two_lines("an unknown event handler", "--event-log-handler=nope plain.py"),
    told_in_two_lines("unknown logs specs", "--logs-specs=nope plain.py"),
    told_in_two_lines("SIGKILL cannot be handled", "--signals-to-handle=SIGKILL job.py", body="me.say('ran')"),
    told_in_two_lines("a missing program", "--no-python ./missing"),
    told_in_two_lines("a missing program on PATH", "--no-python no-such-program-anywhere"),
    told_in_two_lines("a program that may not be run", "--no-python ./look.py"),
    case(
        "an unknown signal",
        "--signals-to-handle=SIGFOO plain.py",
        differs={
            "exit": Difference("unknown-signals", [2]),
            "world/*": Difference("unknown-signals", ABSENT),
            "std*": Difference("unknown-signals", []),
        },
    ),
    case("an unknown conf key", f"{C10D} --rdzv-conf heartbeat=5 plain.py"),
    case(
        "a rank with two digits",
        "-r 0:3,10:1 --log-dir @LOGS@ plain.py",
        differs={
            "exit": Difference("ranks-with-two-digits", [0]),
            "manner/traceback": Difference("ranks-with-two-digits", False),
            "world/*": Difference("ranks-with-two-digits", lambda first, second: first != second),
            "logs/*": Difference("ranks-with-two-digits", lambda first, second: first != second),
        },
    ),
]

CASES = USAGE + VALUES
