"""What a worker inherits from the launcher's own process, and what it does not."""

from __future__ import annotations

from .making import Difference, case

NOHUP = {"world/*/signals/SigIgn": Difference("nohup", "0000000001001001")}

CASES = [
    case("umask", before="umask 077"),
    case("umask reaches the logs", "-r 3 --log-dir @LOGS@ plain.py", before="umask 027"),
    case("working folder", "../plain.py", before="cd pkg"),
    case("stdin is read", "job.py", "print('~0', repr(sys.stdin.read()))", stdin="line one\nline two\n"),
    case("stdin from nothing", "job.py", "print('~0', repr(sys.stdin.read()))", before="exec </dev/null"),
    case(
        "stdin is shared by two workers",
        "--nproc-per-node 2 job.py",
        "if me.rank == 1: print('~1', repr(sys.stdin.read()))\n",
        stdin="for whoever comes first\n",
    ),
    case("stdin closed", "job.py", "print('~0', sys.stdin is None)", before="exec <&-"),
    case("other descriptors are closed", before="exec 7</dev/null 8>&1"),
    case("nice", before="renice -n 5 $$ >/dev/null"),
    case(
        "limits",
        "job.py",
        "import resource\nprint('~0', resource.getrlimit(resource.RLIMIT_NOFILE))",
        before="ulimit -n 512",
    ),
    case("affinity", "job.py", "print('~0', len(os.sched_getaffinity(0)))", before="taskset -p -c 0 $$ >/dev/null"),
    case("ignored SIGHUP", before="trap '' HUP", differs=NOHUP),
    case("ignored SIGUSR1 and SIGTERM", before="trap '' USR1 TERM"),
    case("ignored SIGPIPE", before="trap '' PIPE"),
    case("ignored SIGINT as in a background job", before="trap '' INT"),
    case(
        "interpreter flags are not inherited",
        "job.py",
        "print('~0', sys.flags.dev_mode, sys.warnoptions)",
        env={"PYTHONHASHSEED": "1"},
    ),
    case("PYTHONWARNINGS passes", "job.py", "print('~0', sys.warnoptions)", env={"PYTHONWARNINGS": "ignore"}),
    case(
        "PYTHONPATH passes",
        "-m other.mod",
        env={"PYTHONPATH": "@WORK@/lib"},
        files={"lib/other/mod.py": "import plain"},
    ),
    case(
        "script in another folder",
        "scripts/deep.py",
        files={"scripts/deep.py": "import sys; sys.path.insert(0, '@WORK@'); import plain"},
    ),
    case("absolute script", "@WORK@/plain.py"),
]
