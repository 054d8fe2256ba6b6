"""Spellings, abbreviations, ways to name the program, `--`, macros, and where workers meet."""

from __future__ import annotations

import re

from .making import RUN_PATH, Difference, case


def _names_every_option(first: list[str], second: list[str]) -> bool:
    """relight's help names every long option of torchrun's usage."""

    def options(lines: list[str]) -> set[str]:
        return {option for line in lines for option in re.findall(r"--[a-z][a-z-]*(?![a-z_-])", line)}

    usage = first[: first.index("")]  # further down torchrun's prose names options that do not exist
    return options(usage) <= options(second)


HELP = {"stdout": Difference("help-text", _names_every_option)}

FINDS_LOOK = {"PYTHONPATH": "@WORK@"}  # --run-path does not put the script's folder on sys.path
OTHER_PYTHON = '#!/bin/sh\nexport THROUGH_OTHER_PYTHON=1\nexec python "$@"\n'

CASES = [
    case("plain"),
    case("module form of the launcher", how="module"),
    case("two workers", "--nproc-per-node 2 plain.py a b"),
    case("underscores and equals sign", "--nproc_per_node=2 plain.py"),
    case("three workers", "--nproc-per-node=3 plain.py"),
    case("the last of two wins", "--nproc-per-node=3 --nproc_per_node=1 plain.py"),
    case("nnodes alone", "--nnodes 1 plain.py"),
    case("nnodes as a range of one", "--nnodes=1:1 plain.py"),
    case("abbreviated nproc-per", "--nproc-per 2 plain.py"),
    case("abbreviated nproc_p", "--nproc_p=2 plain.py"),
    case("abbreviated max-r", "--max-r 1 plain.py"),
    case("abbreviated stand", "--stand plain.py"),
    case("abbreviated no-p", "--no-p ./plain.py"),
    case("abbreviated log-d", "--log-d @LOGS@ -r 3 plain.py"),
    case("abbreviated rdzv-b", "--rdzv-b c10d --rdzv-e localhost:0 --rdzv-i abc plain.py"),
    case("monitor interval", "--monitor-interval 0.5 plain.py"),
    case("monitor_interval", "--monitor_interval=1 plain.py"),
    case("start method fork", "--start-method=fork plain.py"),
    case("start_method forkserver", "--start_method forkserver plain.py"),
    case("event log handler null", "--event-log-handler=null plain.py"),
    case("max_restarts", "--max_restarts=2 plain.py"),
    case("node rank that does not matter", "--node-rank 3 plain.py"),
    case("module", "-m pkg.mod a -m b"),
    case("package with main", "--module pkg x"),
    case("bundled -mr 3", "-mr 3 --log-dir @LOGS@ pkg.mod --flag"),
    case("attached -r3", "-r3 --log-dir @LOGS@ plain.py"),
    case("no python with a path", "--no-python ./plain.py a"),
    case("no python searches PATH", "--no-python python -u plain.py a"),
    case("no_python with a shell", "--no_python sh -c 'echo \"~$RANK $0 $1\"' zero one"),
    case("no python true", "--no-python --nproc-per-node=2 true"),
    case("run path", "--run-path plain.py a b", env=FINDS_LOOK, slow=True, differs=RUN_PATH),
    case("run_path beats no-python", "--run_path --no-python plain.py", env=FINDS_LOOK, slow=True, differs=RUN_PATH),
    case("PYTHON_EXEC", "plain.py a", env={"PYTHON_EXEC": "@WORK@/other"}, files={"other": OTHER_PYTHON}),
    case(
        "PYTHON_EXEC and a module",
        "-m pkg.mod a",
        env={"PYTHON_EXEC": "./other"},
        files={"other": OTHER_PYTHON},
    ),
    case("options after the script are the script's", "plain.py --nproc-per-node 2 --help -r 3"),
    case("two dashes before the script", "-- plain.py a -- b"),
    case("two dashes after the script are swallowed", "plain.py -- --x"),
    case("two dashes twice", "plain.py -- -- y"),
    case("two dashes later stay", "plain.py a -- --x"),
    case("options, two dashes, script", "--nproc-per-node=2 -- plain.py --nproc-per-node=3"),
    case("empty argument", "plain.py '' a ''"),
    case("arguments with blanks and letters", "plain.py 'a b' 'ü→x' '\"q\"' \"it's\" 'line\nbreak'"),
    case("negative numbers for the script", "plain.py -1 --lr=-0.5"),
    case("macro", "--nproc-per-node 2 plain.py '${local_rank}' '$local_rank' 'x${local_rank}y'"),
    case("macro and dollars", "plain.py '$$' '$$$$x' '$$${local_rank}' '$HOME' '${other}' '$' 'a$'"),
    case(
        "macro in the script's name",
        "--nproc-per-node 2 w${local_rank}.py",
        files={"w0.py": "import plain", "w1.py": "import plain"},
    ),
    case("macro with a module", "--nproc-per-node 2 -m pkg.mod --dev=$local_rank"),
    case("macro without python", "--no-python --nproc-per-node 2 ./plain.py ${local_rank} $$"),
    case("standalone", "--standalone --nproc-per-node 2 plain.py"),
    case("standalone overrides", "--standalone --rdzv-id mine --rdzv-endpoint x:1 plain.py"),
    case("standalone overrides static", "--standalone --rdzv-backend=static --master-port=@PORT@ plain.py"),
    case("c10d on any port", "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=X plain.py"),
    case("c10d without an id", "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 plain.py"),
    case("c10d at a port", "--rdzv_backend c10d --rdzv_endpoint 127.0.0.1:@PORT@ --rdzv_id 7 plain.py"),
    case("empty run id", "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id= plain.py"),
    case(
        "known conf keys",
        "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-conf=join_timeout=20,is_host=1 plain.py",
    ),
    case("conf timeout", "--master-port=@PORT@ --rdzv-conf timeout=60 plain.py"),
    case("static at a port", "--master-port=@PORT@ --nproc-per-node=2 plain.py"),
    case("static at a name", "--master-addr=localhost --master_port @PORT@ plain.py"),
    case("static with an id", "--master-port=@PORT@ --rdzv-id=job7 plain.py"),
    case("static endpoint", "--rdzv-endpoint=127.0.0.1:@PORT@ plain.py"),
    case("static endpoint by name", "--rdzv-backend=static --rdzv-endpoint=localhost:@PORT@ plain.py"),
    case("node rank zero", "--node_rank=0 --master-port=@PORT@ plain.py"),
    case("master address alone is not used", "--master-addr=203.0.113.9 plain.py"),
    case("id alone is not used", "--rdzv-id=mine plain.py"),
    case("local address", "--local-addr=127.0.0.1 plain.py"),
    case("local_addr as a name", "--local_addr localhost --standalone plain.py"),
    case("own store of rank 0", "--nproc-per-node=2 plain.py", env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    case(
        "own store, static",
        "--master-port=@PORT@ plain.py",
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    ),
    case("old store server", "plain.py", env={"USE_LIBUV": "0"}),
    case(
        "a range of nodes, one came",
        "--nnodes=1:2 --rdzv-backend=c10d --rdzv-endpoint=localhost:@PORT@ --rdzv-id=r "
        "--rdzv-conf=last_call_timeout=1 plain.py",
        slow=True,
    ),
    case("help", "--help", differs=HELP),
    case("short help", "-h", differs=HELP),
]
