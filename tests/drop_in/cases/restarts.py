"""Restarts: how many, what the workers then see, and what stays on disk."""

from __future__ import annotations

from .making import ABSENT, Difference, case

LOGS = "--log-dir @LOGS@"
ONCE = """me.all_here()
if me.attempt == 0 and me.rank == 0:
    sys.exit(3)
if me.attempt == 0: me.stay()
me.all_here()
me.say('well')
"""

QUOTED = {"report": Difference("captured-traceback", lambda first, second: "No such file" in second[0][-1])}
SURVIVED = {
    "exit": Difference("torn-error-file", [0]),
    "world/1.0/*": Difference("torn-error-file", lambda first, _: first is ABSENT),
    "logs/*/attempt_1/*": Difference("torn-error-file", lambda first, _: first is ABSENT),
}

CASES = [
    case("fails once, one allowed", f"--max-restarts 1 {LOGS} job.py", ONCE),
    case("fails once, three allowed", f"--max-restarts=3 {LOGS} job.py", ONCE),
    case("fails once, none allowed", f"--max-restarts=0 {LOGS} job.py", ONCE),
    case("two workers, one fails once", f"--max-restarts 2 --nproc-per-node 2 {LOGS} job.py", ONCE),
    case("three workers, one fails once", f"--max-restarts 1 --nproc-per-node 3 -r 3 {LOGS} job.py", ONCE),
    case("fails always", f"--max-restarts 2 {LOGS} job.py", "sys.exit(3)"),
    case("fails always, differently", f"--max-restarts 2 {LOGS} job.py", "sys.exit(10 + me.attempt)"),
    case("is killed once", f"--max-restarts 1 {LOGS} job.py", "if me.attempt == 0: os.kill(os.getpid(), 9)"),
    case("an exception once", f"--max-restarts 1 -r 3 {LOGS} job.py", "if me.attempt == 0: raise ValueError('no')"),
    case(
        "a finished worker runs again",
        f"--max-restarts 1 --nproc-per-node 2 {LOGS} job.py",
        "me.all_here()\nif me.attempt == 0 and me.rank == 1: time.sleep(0.5); sys.exit(3)\nme.note('ran')\n",
    ),
    case(
        "logs of each attempt",
        f"--max-restarts 2 -r 3 {LOGS} job.py",
        "me.say(f'attempt {me.attempt}')\nsys.exit(0 if me.attempt == 2 else 1)\n",
    ),
    case(
        "tee over attempts",
        f"--max-restarts 1 -t 3 {LOGS} job.py",
        "me.say(f'attempt {me.attempt}')\nsys.exit(0 if me.attempt == 1 else 1)\n",
    ),
    case(
        "error files of each attempt",
        f"--max-restarts 1 {LOGS} job.py",
        "me.error_file(json.dumps({'message': f'attempt {me.attempt}', 'timestamp': 7}))\nsys.exit(1)\n",
    ),
    case(
        "duplicates over attempts",
        f"--max-restarts 1 -t 1 --duplicate-stdout-filters=attempt {LOGS} job.py",
        "me.say(f'attempt {me.attempt}')\nsys.exit(0 if me.attempt == 1 else 1)\n",
    ),
    case(
        "siblings get SIGTERM before a restart",
        f"--max-restarts 1 --nproc-per-node 2 {LOGS} job.py",
        "if me.rank == 1: me.on('SIGTERM', 0)\nme.ready()\nme.all_ready()\n" + ONCE,
    ),
    case("restarts with a fixed port", f"--max-restarts 1 --master-port=@PORT@ {LOGS} job.py", ONCE),
    case(
        "restarts with rank 0's own store",
        f"--max-restarts 1 {LOGS} job.py",
        ONCE,
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    ),
    case(
        "restarts with virtual local ranks",
        f"--max-restarts 1 --virtual-local-rank --nproc-per-node 2 {LOGS} job.py",
        ONCE,
    ),
    case(
        "restarts do not touch the argument macro",
        f"--max-restarts 1 --nproc-per-node 2 {LOGS} job.py ${{local_rank}}",
        ONCE,
    ),
    case("a missing script is retried", f"--max-restarts 1 -r 2 {LOGS} missing.py", differs=QUOTED),
    case(
        "no program with restarts",
        f"--no-python --max-restarts 2 -r 1 {LOGS} sh -c 'echo $TORCHELASTIC_RESTART_COUNT; exit 4'",
    ),
    case(
        "a torn error file before a restart",
        f"--max-restarts 1 {LOGS} job.py",
        "if me.attempt == 0: me.error_file('{'); sys.exit(1)\n",
        differs=SURVIVED,
    ),
    case("PET_MAX_RESTARTS restarts", f"{LOGS} job.py", ONCE, env={"PET_MAX_RESTARTS": "1"}),
    case(
        "the parent's error file after restarts",
        f"--max-restarts 1 {LOGS} job.py",
        "me.error_file(json.dumps({'message': f'attempt {me.attempt}', 'timestamp': 7}))\nsys.exit(6)\n",
        env={"TORCHELASTIC_ERROR_FILE": "@OUT@/parent.json"},
    ),
]
