"""No orphan survives: a tiny shell that outlives the agent just long enough to end its workers.

It reads from a pipe that only the agent can write to. When the agent ends in any way, SIGKILL included, the pipe
ends, and the guardian kills every process group it was told of; then whatever carries the agent's mark in its
environment, which finds those that left their group by setsid or a double fork. It is a /bin/sh of about one
megabyte, started in half a millisecond, in a session and with an environment of its own, so that neither Ctrl-C
nor another guardian takes it for a worker. PR_SET_PDEATHSIG would not do: it reaches no grandchildren. Should the
guardian itself be killed, the agent starts another and tells it all that this one knew. Where there is none, or
none any more, the user is told.
"""

from __future__ import annotations

import os
import subprocess

from relight.shell.exits import exit_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.shell.loop import Loop

MARK = "RELIGHT_AGENT"  # the variable that carries the mark in the workers' environment
MOST_LIVES = 8  # what kills a guardian so often will kill the next one too
WITHOUT = "should relight itself be killed, its workers may outlive it"

_SCRIPT = r"""
trap '' HUP INT QUIT TERM TSTP USR1 USR2
groups=' ' folders= socket=
while read -r verb what; do
  case $verb in
    +) groups="$groups$what " ;;
    -) groups="${groups%% "$what" *} ${groups#* "$what" }" ;;
    d) folders="$what
$folders" ;;
    s) socket=$what ;;
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
rm -f "$socket"
IFS='
'
for folder in $folders; do rmdir "$folder"/attempt_*/* "$folder"/attempt_* "$folder"; done
"""


_pipes: set[int] = set()  # what only the agent may hold: a program that runs relight may fork, and the child live on


def _close_in_child() -> None:
    for fd in _pipes:
        os.close(fd)
    _pipes.clear()


os.register_at_fork(after_in_child=_close_in_child)


class Guardian:
    """The agent's end of the pipe. `tell` hears, as a sentence, that there is no guardian or none any more."""

    def __init__(self, mark: str, loop: Loop, tell: Callable[[str], object]) -> None:
        self._mark = mark
        self._loop = loop
        self._say = tell
        self._known: list[str] = []  # what the next guardian would have to be told
        self._lives = 0
        self._begin()

    @property
    def pid(self) -> int:
        """0 if there is none."""
        return self._process.pid if self._process else 0

    def protect(self, group: int) -> None:
        self._learn(f"+ {group}")

    def release(self, group: int) -> None:
        if f"+ {group}" in self._known:
            self._known.remove(f"+ {group}")
            self._tell(f"- {group}")

    def remove(self, socket: str) -> None:
        """Names the workers' socket, to be removed should the agent die."""
        if "\n" not in socket:  # it would end the line, and the rest would be an order of its own
            self._learn(f"s {socket}")

    def tidy(self, folder: str) -> None:
        """Names a folder to be removed, if nothing was written there, should the agent die."""
        if "\n" not in folder:
            self._learn(f"d {folder}")

    def dismiss(self) -> None:
        """The agent ends in good order: nothing is to be killed. Killing the guardian first makes sure of that."""
        if self._process is not None:
            self._process.kill()
            self._end()
        self._hang_up()

    def _begin(self) -> None:
        self._lives += 1
        readable, self._pipe = os.pipe()
        _pipes.add(self._pipe)
        os.set_blocking(self._pipe, False)
        self._process = self._shell(readable)
        os.close(readable)
        if self._process is not None:
            self._descriptor = exit_descriptor(self._process.pid)
            self._loop.watch(self._descriptor, self._died)

    def _shell(self, stdin: int) -> subprocess.Popen[bytes] | None:
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, f"{MARK}={self._mark}"],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
            )
        except OSError as error:  # no /bin/sh, or no room for another process
            self._say(f"no guardian could be started ({error.strerror}): {WITHOUT}")
            return None

    def _end(self) -> None:
        """Takes leave of a guardian that has ended or is about to."""
        assert self._process is not None
        self._loop.unwatch(self._descriptor)
        os.close(self._descriptor)
        self._process.wait()
        self._process = None

    def _died(self) -> None:
        """Someone killed it, or it does not listen and was killed: another one takes over."""
        self._end()
        if self._lives == MOST_LIVES:
            self._say(f"the guardian has died {MOST_LIVES} times and is not started again: {WITHOUT}")
            return
        self._hang_up()
        self._begin()
        for line in self._known:
            self._tell(line)

    def _hang_up(self) -> None:
        _pipes.discard(self._pipe)
        os.close(self._pipe)

    def _learn(self, line: str) -> None:
        self._known.append(line)
        self._tell(line)

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, os.fsencode(f"{line}\n"))
        except BrokenPipeError:  # it has ended; the loop will say so
            pass
        except BlockingIOError:  # stopped, and the pipe is full
            if self._process is not None:
                self._process.kill()
