"""What nobody plans for: folders that vanish, paths that are no text, consoles that are gone, programs that fork."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .running import RELIGHT

DEADLINE_S = 30


def relight(*words: str | bytes, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [RELIGHT, *words], capture_output=True, timeout=DEADLINE_S, env={**os.environ, **(env or {})}, check=False
    )


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("options", [[], ["-t", "3"]])
def test_a_restart_survives_a_cleaner_that_took_the_folders(tmp_path: Path, options: list[str]) -> None:
    work = script(
        tmp_path,
        "import os, shutil, sys\n"
        "folder = os.path.dirname(os.path.dirname(os.path.dirname(os.environ['TORCHELASTIC_ERROR_FILE'])))\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    shutil.rmtree(folder)\n"
        "    sys.exit(3)\n",
    )
    ended = relight("--max-restarts", "1", *options, work, env={"TMPDIR": str(tmp_path)})
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False), ended.stderr.decode()


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("inodes", [3, 5, 9])
def test_a_file_system_without_room_for_folders_ends_in_a_sentence(tmp_path: Path, inodes: int) -> None:
    work = script(tmp_path, "import sys; sys.exit(3)")
    mount = tmp_path / "small"
    mount.mkdir()
    command = f"mount -t tmpfs -o nr_inodes={inodes} none {mount} && exec {RELIGHT} --log-dir {mount}/logs"
    ended = subprocess.run(
        ["unshare", "-m", "bash", "-c", f"{command} --max-restarts 2 --nproc-per-node 2 -t 3 {work}"],
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode in (1, 2), ended.stderr.decode()
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()


def test_paths_and_words_that_are_no_text_are_taken_as_they_are(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/a \xff"
    work = script(tmp_path, "print('needle')")
    words: list[str | bytes] = ["--log-dir", odd, "--duplicate-stdout-filters", b"need\xff,needle", "-t", "3", work]
    ended = relight(*words)
    assert (ended.returncode, ended.stdout) == (0, b"[default0]:needle\n"), ended.stderr.decode()
    shutil.rmtree(odd)


@pytest.mark.parametrize(
    "words", [["--exit-codes", "detailed", "--no-python", "sh", "-c", "exit 7"], ["--bogus", "x.py"]]
)
def test_the_exit_code_is_true_although_nobody_can_read_stderr(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        code = subprocess.run([RELIGHT, *words], stderr=full, timeout=DEADLINE_S, check=False).returncode
    assert code == (7 if "sh" in words else 2)


def test_a_fork_of_the_program_does_not_keep_workers_of_a_killed_one(tmp_path: Path) -> None:
    mark = f"{tmp_path.name}-{os.getpid()}"
    program = script(
        tmp_path,
        "import os, threading, time, relight\n"
        "def fork():\n"
        "    time.sleep(0.5)\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(8)\n"
        "        os._exit(0)\n"
        "    print('forked', flush=True)\n"
        "threading.Thread(target=fork, daemon=True).start()\n"
        "relight.run(relight.Launch('sh', args=('-c', 'exec sleep 55'), how=relight.How.PROGRAM))\n",
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", program], stdout=subprocess.PIPE, env={**os.environ, "MISHAP": mark}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"forked\n"
    workers = [pid for pid in carrying(f"MISHAP={mark}") if b"sleep" in command_of(pid)]
    assert workers, "the worker runs"
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE_S)
    until = time.monotonic() + 2
    while any(pid in carrying(f"MISHAP={mark}") for pid in workers):
        assert time.monotonic() < until, "waited 2 s for the worker of a killed program to go"
        time.sleep(0.01)
    process.stdout.close()
    for pid in carrying(f"MISHAP={mark}"):
        os.kill(pid, signal.SIGKILL)


def carrying(mark: str) -> list[int]:
    """The processes with this in their environment; zombies have none."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("limit", ["-n 8", "-n 12"])
def test_without_descriptors_it_ends_in_two_lines(tmp_path: Path, limit: str) -> None:
    work = script(tmp_path, "print('not reached')")
    line = f"ulimit {limit}; exec {RELIGHT} --nproc-per-node=2 {work}"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()
    assert b"Too many open files" in ended.stderr or b"descriptor" in ended.stderr, ended.stderr.decode()
