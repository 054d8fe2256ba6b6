"""The folder of a run: `<log-dir>/<run id>_<random>/attempt_<round>/<local rank>/`, as torchrun lays it out.

A folder is named by its round, so no round can ever delete another's. Without --log-dir everything lives in a
private temporary folder, and what nothing was written to is gone at the end.
"""

from __future__ import annotations

import errno
import os
import stat

from relight.core.names import UsageError
from relight.shell.patience import MAKING_S, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from relight.core.launch import Output

SOCKET = "agent.sock"
SOCKET_PATH_LIMIT = 100  # the kernel takes 107 bytes
NAME_LIMIT = 200  # a file name may have 255 bytes


def temporary_folder(environ: Mapping[str, str]) -> str:
    """Where temporary files go, as Python's own tempfile finds it: the first of these that can be written to."""
    named = [place for place in map(environ.get, ("TMPDIR", "TEMP", "TMP")) if place]
    for place in (*named, "/tmp", "/var/tmp", "/usr/tmp", "."):
        try:
            where = os.path.abspath(place)
            _try_to_write(where)
        except OSError:  # it is not there, or full, or somebody else's; the working folder may be gone
            continue
        return where
    return "/tmp"


def _try_to_write(folder: str) -> None:
    """Only writing tells whether a folder can be written to."""
    path = os.path.join(folder, f"relight_{os.urandom(4).hex()}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"relight")
    finally:
        os.close(fd)
        os.unlink(path)


class RunFolder:
    """Where one run of the launcher keeps its files. `announce` hears of each temporary folder before there is one."""

    def __init__(
        self, output: Output, run_id: str, temporary: str, announce: Callable[[str], object] = lambda _path: None
    ) -> None:
        self._parent = temporary  # where temporary folders go
        self._announce = announce
        self._keeps = output.keeps_files
        self._private: list[str] = []  # temporary folders of ours, in the order in which they were made
        self.path = ""
        if self._keeps:
            name = f"{_as_name(run_id)}_{os.urandom(4).hex()}"
            try:
                base = os.path.abspath(output.log_dir) if output.log_dir else self._temporary(temporary)
                self.path = os.path.join(base, name)
                if not output.log_dir:
                    self._own(self.path)
                within(MAKING_S, self.path, lambda: os.makedirs(self.path, mode=0o700))
            except OSError as error:
                where = f"--log-dir {output.log_dir}" if output.log_dir else f"a temporary folder in {temporary}"
                raise UsageError(
                    f"{where}: {error.strerror}", "--log-dir with a folder that can be written to"
                ) from None

    def socket_path(self) -> str:
        """Where the workers' socket may be: short enough for the kernel, and private."""
        inside = os.path.join(self.path, SOCKET)
        if self.path and len(os.fsencode(inside)) < SOCKET_PATH_LIMIT:
            return inside
        roomy = len(os.fsencode(self._parent)) < SOCKET_PATH_LIMIT - len(f"/relight_12345678/{SOCKET}")
        return os.path.join(self._temporary(self._parent if roomy else "/tmp"), SOCKET)

    def other_socket_path(self) -> str:
        """Another place for the socket, should the first one not take it."""
        return os.path.join(self._temporary("/tmp"), SOCKET)

    def worker_folder(self, round_: int, local_rank: int) -> str:
        """The folder of one worker in one round; empty where no files are kept."""
        return os.path.join(self.round_folder(round_), str(local_rank)) if self._keeps else ""

    def round_folder(self, round_: int) -> str:
        return os.path.join(self.path, f"attempt_{round_}") if self._keeps else ""

    def make(self, round_: int, local_ranks: int) -> None:
        """Makes the folders of a round."""
        if self._keeps:
            within(MAKING_S, self.path, lambda: self._make(round_, local_ranks))

    def _make(self, round_: int, local_ranks: int) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)  # whatever cleans up in /tmp may have taken it
        os.mkdir(self.round_folder(round_))
        for local_rank in range(local_ranks):
            os.mkdir(self.worker_folder(round_, local_rank))

    def tidy(self) -> None:
        """Removes what is empty in temporary folders of ours, and those folders if nothing is left."""
        for ours in self._private:
            for folder in _from_the_leaves(ours):
                try:
                    _drop_empty_logs(folder)
                    os.rmdir(folder)
                except OSError:  # something was written there: it stays
                    pass

    def _temporary(self, parent: str) -> str:
        path = os.path.join(parent, f"relight_{os.urandom(4).hex()}")
        self._own(path)
        try:
            os.mkdir(path, mode=0o700)
        except OSError as error:
            raise UsageError(
                f"no temporary folder can be made in {parent}: {error.strerror}",
                "TMPDIR=<a folder that can be written to> relight ...",
            ) from None
        return path

    def _own(self, path: str) -> None:
        self._private.append(path)
        self._announce(path)


def _drop_empty_logs(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".log") and entry.stat(follow_symlinks=False).st_size == 0:
                os.unlink(entry.path)


def _from_the_leaves(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # already gone, or no longer ours to read
        return
    for path in inner:
        yield from _from_the_leaves(path)
    yield folder


def _as_name(run_id: str) -> str:
    """A run id as part of a file name."""
    return run_id.replace("/", "_").encode(errors="replace")[:NAME_LIMIT].decode(errors="ignore")


def open_regular(path: str) -> int:
    """Opens a file for reading that a worker may have replaced by anything. A FIFO would make its reader wait."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def open_log(path: str) -> int:
    """A log file that a worker writes to itself. Appending keeps several writers from overwriting each other."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def last_lines(path: str, count: int = 20, most_bytes: int = 1 << 16) -> tuple[str, ...]:
    """The last lines of a file, for people to read; nothing if it cannot be read."""
    try:
        with open(open_regular(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            text = file.read(most_bytes).decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.replace("\r", "\n").splitlines() if line.strip())[-count:]
