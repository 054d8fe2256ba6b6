"""What a worker of the drop-in cases sees, written down for the harness; it runs inside the worker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

OUT = os.environ["DROP_IN_OUT"]


def _write(descriptor: int, line: str) -> None:
    """Write the line in one piece: without a tee several workers share a descriptor."""
    rest = line.encode()
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Me:
    """This worker: who it is, and the few things the cases let it do."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "-1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "-1"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "-1"))
        self.key = f"{self.attempt}.{self.rank}"

    def say(self, text: str) -> None:
        _write(1, f"~{self.rank} {text}\n")

    def tell(self, text: str) -> None:
        _write(2, f"~{self.rank} {text}\n")

    def note(self, text: str) -> None:
        with open(f"{OUT}/{self.key}.notes", "a") as notes:
            notes.write(text + "\n")

    def ready(self) -> None:
        with open(f"{OUT}/{self.key}.ready", "w"):
            pass

    def all_here(self) -> None:
        """Wait until every worker of this attempt has looked around."""
        self._wait(lambda: self._count(".json") >= self.world_size)

    def all_ready(self) -> None:
        self._wait(lambda: self._count(".ready") >= self.world_size)

    def wait_for_others(self) -> None:
        """Wait until every other worker of this attempt stands still."""
        self._wait(lambda: self._count(".ready") >= self.world_size - 1)

    def _count(self, ending: str) -> int:
        ours = f"{self.attempt}."
        return sum(name.startswith(ours) and name.endswith(ending) for name in os.listdir(OUT))

    def _wait(self, come: Callable[[], bool]) -> None:
        end = time.monotonic() + 40
        while not come():
            if time.monotonic() > end:
                os._exit(87)
            time.sleep(0.005)

    def stay(self) -> None:
        """Stand still until somebody ends this worker; 86 says that nobody did."""
        self.ready()
        time.sleep(60)
        os._exit(86)

    def on(self, name: str, then: int | None = None) -> None:
        """Note the signal's arrival; `then` is the exit code to leave with, None to carry on."""

        def arrived(number: int, _frame: FrameType | None) -> None:
            self.note(f"got {signal.Signals(number).name}")
            if then is not None:
                os._exit(then)

        signal.signal(getattr(signal, name), arrived)

    def error_file(self, text: str) -> None:
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as out:
            out.write(text)

    def nest(self, *words: str) -> int:
        """Run the same launcher again inside this worker; its workers write into their own folder."""
        import subprocess

        inner = f"{OUT}/inner"
        os.makedirs(inner, exist_ok=True)
        env = {**os.environ, "DROP_IN_OUT": inner}
        return subprocess.run([*json.loads(os.environ["DROP_IN_LAUNCHER"]), *words], env=env).returncode


def _descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            where = os.readlink(f"/proc/self/fd/{name}")
            if not where.startswith("/proc/"):
                found[name] = where.split(":")[0]
    return found


def _signals() -> dict[str, str]:
    with open("/proc/self/status") as status:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    # 32 and 33 belong to the C library, which catches them once there are threads
    return {name: f"{int(lines[name], 16) & ~(3 << 31):016x}" for name in ("SigBlk", "SigIgn", "SigCgt")}


def look(read: bool = False) -> Me:
    """Write this worker's world into the folder of the run and return the worker."""
    me = Me()
    umask = os.umask(0)
    os.umask(umask)
    main = sys.modules["__main__"]
    world = {
        "argv": sys.argv,
        "command": sys.orig_argv,
        "main": [getattr(main, "__name__", None), getattr(main, "__file__", None)],
        "path0": sys.path[0],
        "env": {k: v for k, v in os.environ.items() if not k.startswith("DROP_IN_")},
        "cwd": os.getcwd(),
        "umask": oct(umask),
        "descriptors": _descriptors(),
        "signals": _signals(),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "leads_group": os.getpgid(0) == os.getpid(),
        "leads_session": os.getsid(0) == os.getpid(),
        "nice": os.nice(0),
        "stdin": sys.stdin.read() if read else None,
    }
    with open(f"{OUT}/{me.key}.half", "w") as out:
        json.dump(world, out)
    os.rename(f"{OUT}/{me.key}.half", f"{OUT}/{me.key}.json")
    return me
