"""No orphan survives: a tiny shell that outlives the agent just long enough to end its workers.

It reads from a pipe that only the agent can write to. When the agent ends in any way, SIGKILL included, the pipe
ends, and the guardian kills every process group it was told of; then whatever carries the agent's mark in its
environment, which finds those that left their group by setsid or a double fork. It is a /bin/sh of about one
megabyte, started in half a millisecond, in a session and with an environment of its own, so that neither Ctrl-C
nor another guardian takes it for a worker. PR_SET_PDEATHSIG would not do: it reaches no grandchildren.
"""

from __future__ import annotations

import os
import subprocess

MARK = "RELIGHT_AGENT"  # the variable that carries the mark in the workers' environment

_SCRIPT = r"""
trap '' HUP INT QUIT TERM TSTP USR1 USR2
groups=' ' folders=
while read -r verb what; do
  case $verb in
    +) groups="$groups$what " ;;
    -) groups="${groups%% "$what" *} ${groups#* "$what" }" ;;
    d) folders="$what $folders" ;;
    q) exit 0 ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
for turn in 1 2 3 4 5; do
  found=$(grep -l -a -F "$0" /proc/[0-9]*/environ)  # its exit code also tells of files that are not ours to read
  [ -n "$found" ] || break
  for file in $found; do
    pid=${file#/proc/}
    kill -s KILL "${pid%/environ}"
  done
done
for folder in $folders; do rm -f "$folder/agent.sock"; rmdir "$folder"; done
"""


class Guardian:
    """The agent's end of the pipe."""

    def __init__(self, mark: str) -> None:
        readable, self._pipe = os.pipe()
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, f"{MARK}={mark}"],
                stdin=readable,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
            )
        except OSError:  # no /bin/sh
            self._process = None
        finally:
            os.close(readable)

    @property
    def watches(self) -> bool:
        """Whether there is a guardian at all."""
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def protect(self, group: int) -> None:
        self._tell(f"+ {group}")

    def release(self, group: int) -> None:
        self._tell(f"- {group}")

    def tidy(self, folder: str) -> None:
        """Names a folder to be removed, if it is empty, should the agent die."""
        if " " not in folder and "\n" not in folder:
            self._tell(f"d {folder}")

    def dismiss(self) -> None:
        """The agent ends in good order: nothing is to be killed."""
        self._tell("q")
        os.close(self._pipe)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, f"{line}\n".encode())
        except BrokenPipeError:
            self._process = None
