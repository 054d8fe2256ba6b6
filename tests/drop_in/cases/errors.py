"""Workers that fail: exit codes, signals, error files, the parent's copy, nesting, missing programs."""

from __future__ import annotations

from .making import Difference, case

ERROR = (
    '{"message": {"message": "ValueError: no", "extraInfo": '
    '{"py_callstack": "Traceback (most recent call last):\\n  here\\nValueError: no\\n", "timestamp": "7"}}}'
)
PLAIN_ERROR = '{"message": "out of luck", "timestamp": 7}'
PARENT = {"TORCHELASTIC_ERROR_FILE": "@OUT@/parent.json"}
LOGS = "--log-dir @LOGS@"


def _fails(how: str) -> str:
    return f"me.all_here()\nif me.rank == 1:\n    me.wait_for_others()\n    {how}\nme.stay()\n"


def _writes(text: str, then: str = "sys.exit(1)") -> str:
    return f"me.error_file({text!r})\n{then}\n"


def _has_report(first: list[list[str]], second: list[list[str]]) -> bool:
    """torchrun broke over the file and reported nothing; the second launcher reports the worker's exit."""
    return first == [] and [block[:3] for block in second] == [["job.py FAILED", "---", "Failures:"]]


TORN = {"report": Difference("torn-error-file", _has_report)}
CAPTURED = {
    "report": Difference(
        "captured-traceback", lambda first, second: second[0][-1].endswith("no") and "<hostname>" in str(second)
    )
}
QUOTED = {"stderr": Difference("captured-traceback", lambda first, second: set(first) < set(second))}
LEFT = {"left_running": Difference("nothing-is-left-running", [])}

CASES = [
    case("exit 3", f"{LOGS} job.py", "sys.exit(3)"),
    case("exit 255", f"{LOGS} job.py", "os._exit(255)"),
    case("exit 0 by sys.exit", f"{LOGS} job.py", "sys.exit()"),
    case("exit with a text", f"{LOGS} job.py", "sys.exit('~0 a text')"),
    case("exit True", f"{LOGS} job.py", "sys.exit(True)"),
    case("one of two exits 3", f"--nproc-per-node 2 {LOGS} job.py", _fails("sys.exit(3)")),
    case("one of three exits 1", f"--nproc-per-node 3 {LOGS} job.py", _fails("sys.exit(1)")),
    case(
        "a finished worker leaves the others alone",
        f"--nproc-per-node 2 {LOGS} job.py",
        "me.all_here()\nif me.rank == 0: me.ready(); sys.exit(0)\ntime.sleep(0.5)\nme.say('carried on')\n",
    ),
    case(
        "finished, then the other fails",
        f"--nproc-per-node 2 {LOGS} job.py",
        "me.all_here()\nif me.rank == 0: sys.exit(0)\ntime.sleep(0.5)\nsys.exit(4)\n",
    ),
    case("a plain exception", f"{LOGS} job.py", "raise ValueError('no')"),
    case("a plain exception, captured", f"-r 2 {LOGS} job.py", "raise ValueError('no')", differs=CAPTURED),
    case("a plain exception, teed", f"-t 2 {LOGS} job.py", "raise ValueError('~0 no')", differs=CAPTURED | QUOTED),
    *(
        case(f"killed by {name}", f"{LOGS} job.py", f"os.kill(os.getpid(), signal.{name})")
        for name in ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGUSR1", "SIGINT")
    ),
    case("a sibling of the killed", f"--nproc-per-node 2 {LOGS} job.py", _fails("os.kill(os.getpid(), 9)")),
    case(
        "the sibling may say goodbye",
        f"--nproc-per-node 2 {LOGS} job.py",
        "me.on('SIGTERM', 5)\n" + _fails("sys.exit(3)"),
    ),
    case(
        "the sibling ends well after SIGTERM",
        f"--nproc-per-node 2 {LOGS} job.py",
        "me.on('SIGTERM', 0)\n" + _fails("sys.exit(3)"),
    ),
    case("an error file", f"{LOGS} job.py", _writes(ERROR)),
    case("an error file with a plain message", f"{LOGS} job.py", _writes(PLAIN_ERROR)),
    case("an error file and a signal", f"{LOGS} job.py", _writes(ERROR, "os.kill(os.getpid(), 9)")),
    case("an error file and exit 0", f"{LOGS} job.py", _writes(ERROR, "sys.exit(0)")),
    case("an error file without a log folder", "job.py", _writes(ERROR)),
    case(
        "an error file, one of two",
        f"--nproc-per-node 2 {LOGS} job.py",
        _fails(f"me.error_file({ERROR!r}); sys.exit(1)"),
    ),
    case(
        "no place for an error file",
        "--log-dir /dev/null job.py",
        "print('~0', repr(os.environ['TORCHELASTIC_ERROR_FILE']))\nsys.exit(1)\n",
    ),
    case("a torn error file", f"{LOGS} job.py", _writes('{"message": {"mess'), differs=TORN),
    case("an error file that is a list", f"{LOGS} job.py", _writes("[1, 2]"), differs=TORN),
    case(
        "an error file without a time",
        f"{LOGS} job.py",
        _writes('{"message": {"message": "x", "extraInfo": {}}}'),
        differs=TORN,
    ),
    case("the parent's error file", f"{LOGS} job.py", _writes(ERROR, "sys.exit(9)"), env=PARENT),
    case("the parent's error file, plain message", f"{LOGS} job.py", _writes(PLAIN_ERROR), env=PARENT),
    case("the parent's error file, nothing to copy", f"{LOGS} job.py", "sys.exit(9)", env=PARENT),
    case("the parent's error file when all is well", "plain.py", env=PARENT),
    case(
        "the parent's error file is overwritten",
        "job.py",
        f"open('@OUT@/parent.json', 'w').write('old')\n{_writes(ERROR)}",
        env=PARENT,
    ),
    case(
        "the parent's error file, two workers",
        f"--nproc-per-node 2 {LOGS} job.py",
        _fails(f"me.error_file({ERROR!r}); sys.exit(1)"),
        env=PARENT,
    ),
    case("nested, all well", "job.py", "sys.exit(me.nest('--nproc-per-node=2', 'plain.py', 'in'))"),
    case(
        "nested, the inner fails",
        f"{LOGS} job.py",
        "sys.exit(me.nest('inner.py'))",
        files={"inner.py": "import look\nlook.look()\nraise SystemExit(5)\n"},
    ),
    case(
        "nested, the inner's words reach the outer report",
        f"{LOGS} job.py",
        "sys.exit(me.nest('inner.py'))",
        files={"inner.py": f"import look\nme = look.look()\nme.error_file({ERROR!r})\nraise SystemExit(1)\n"},
    ),
    case("nested by no-python", "job.py", "sys.exit(me.nest('--no-python', './plain.py'))"),
    case("a missing script", f"{LOGS} missing.py"),
    case("a missing module", f"{LOGS} -m missing.module"),
    case("a script with a syntax error", f"{LOGS} broken.py", files={"broken.py": "def (:\n"}),
    case("a folder as script", f"{LOGS} pkg"),
    case(
        "a child left behind by a finished worker",
        "job.py",
        "subprocess.Popen(['sleep', '30'])\n",
        differs=LEFT,
    ),
    case(
        "a child left behind by a failed worker",
        f"{LOGS} job.py",
        "subprocess.Popen(['sleep', '30'])\nsys.exit(3)\n",
        differs=LEFT,
    ),
    case(
        "a child of a worker that is ended",
        f"--nproc-per-node 2 {LOGS} job.py",
        "if me.rank == 0: subprocess.Popen(['sleep', '30'])\n" + _fails("sys.exit(3)"),
    ),
    case(
        "stuck in the kernel",  # a process that starts another waits in state D until that one is itself
        f"{LOGS} job.py",
        "os.mkfifo(fifo := '@OUT@/fifo')\n"
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])\n",
        env={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "2"},
        slow=True,
        differs={"exit": Difference("stuck-is-not-a-success", [1])},
    ),
]
