"""Signals to the launcher: which reach the workers, what the exit status is, what is left."""

from __future__ import annotations

from ..case import Send
from .making import ABSENT, Difference, case

LOGS = "--log-dir @LOGS@"
FOUR = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


def _leaves(name: str, code: int) -> str:
    return f"me.on('{name}', {code})\nme.all_here()\nme.stay()\n"


def _default(name: str) -> str:
    return f"signal.signal(signal.{name}, signal.SIG_DFL)\nme.stay()\n"


STUBBORN = "for name in ('SIGTERM', 'SIGINT'): me.on(name)\nme.ready()\nwhile True: time.sleep(0.05)\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nme.stay()\n"
GOODBYE = """def end(n, f):
    time.sleep(0.5)
    me.note('saved')
    os._exit(0)
signal.signal(signal.SIGTERM, end)
me.stay()
"""
HURRIED = {"notes/0.0": Difference("second-signal", ["got SIGTERM"])}
STOPPED = {
    "parent": Difference("stopped-is-not-an-error", None),
    "parent/*": Difference("stopped-is-not-an-error", ABSENT),
}
LEFT = {"left_running": Difference("nothing-is-left-running", [])}

CASES = [
    *(case(f"{n}, the worker leaves with 0", f"{LOGS} job.py", _leaves(n, 0), send=Send((n,))) for n in FOUR),
    *(case(f"{n}, the worker dies of it", f"{LOGS} job.py", _default(n), send=Send((n,))) for n in FOUR),
    *(
        case(
            f"{n}, two workers, codes 0 and 7",
            f"--nproc-per-node 2 {LOGS} job.py",
            f"me.on('{n}', 7 * me.rank)\nme.all_here()\nme.stay()\n",
            send=Send((n,), 2),
        )
        for n in FOUR
    ),
    case("SIGTERM uses no restart", f"--max-restarts 3 {LOGS} job.py", _leaves("SIGTERM", 1), send=Send(("SIGTERM",))),
    case(
        "SIGTERM with tee", f"-t 3 {LOGS} job.py", "me.say('before')\n" + _leaves("SIGTERM", 0), send=Send(("SIGTERM",))
    ),
    case(
        "shutdown timeout ends the stubborn", f"--shutdown-timeout 1 {LOGS} job.py", STUBBORN, send=Send(("SIGTERM",))
    ),
    case(
        "shutdown_timeout by variable",
        f"{LOGS} job.py",
        STUBBORN,
        send=Send(("SIGINT",)),
        env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"},
    ),
    case(
        "shutdown timeout option beats the variable",
        f"--shutdown_timeout=1 {LOGS} job.py",
        STUBBORN,
        send=Send(("SIGTERM",)),
        env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "50"},
    ),
    case("shutdown timeout zero", f"--shutdown-timeout 0 {LOGS} job.py", DEAF, send=Send(("SIGTERM",))),
    case(
        "PET_SHUTDOWN_TIMEOUT ends the stubborn",
        f"{LOGS} job.py",
        STUBBORN,
        send=Send(("SIGTERM",)),
        env={"PET_SHUTDOWN_TIMEOUT": "1"},
    ),
    case(
        "time to say goodbye",
        f"{LOGS} job.py",
        GOODBYE,
        send=Send(("SIGTERM",)),
    ),
    case(
        "SIGUSR1 on the list",
        f"--signals-to-handle=SIGUSR1 {LOGS} job.py",
        _leaves("SIGUSR1", 0),
        send=Send(("SIGUSR1",)),
    ),
    case(
        "signals_to_handle keeps SIGTERM",
        f"--signals_to_handle SIGUSR2,SIGTERM {LOGS} job.py",
        _leaves("SIGTERM", 0),
        send=Send(("SIGTERM",)),
    ),
    case("SIGUSR1 not on the list", f"{LOGS} job.py", _leaves("SIGUSR1", 0), differs=LEFT, send=Send(("SIGUSR1",))),
    case(
        "SIGTERM taken off the list",
        f"--signals-to-handle=SIGINT {LOGS} job.py",
        _leaves("SIGTERM", 0),
        differs=LEFT,
        send=Send(("SIGTERM",)),
    ),
    case(
        "SIGKILL of the launcher",
        f"--nproc-per-node 2 {LOGS} job.py",
        "me.stay()",
        differs=LEFT,
        send=Send(("SIGKILL",), 2),
    ),
    case(
        "SIGTERM twice",
        f"{LOGS} --shutdown-timeout 3 job.py",
        STUBBORN,
        differs=HURRIED,
        send=Send(("SIGTERM", "SIGTERM")),
        slow=True,
    ),
    case(
        "a child of the worker at SIGTERM",
        f"{LOGS} job.py",
        "subprocess.Popen(['sleep', '30'])\n" + _default("SIGTERM"),
        send=Send(("SIGTERM",)),
    ),
    case(
        "the parent's error file after SIGTERM",
        f"{LOGS} job.py",
        _default("SIGTERM"),
        send=Send(("SIGTERM",)),
        differs=STOPPED,
        env={"TORCHELASTIC_ERROR_FILE": "@OUT@/parent.json"},
    ),
]
