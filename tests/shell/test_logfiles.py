"""The folders of a run: named by round, never deleted while anything is in them, gone when nothing is."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from relight.core.launch import Output
from relight.core.names import UsageError
from relight.shell.logfiles import RunFolder, last_lines, open_log, open_regular, temporary_folder


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_layout_and_the_rounds(tmp_path: Path) -> None:
    announced: list[str] = []
    run = RunFolder(Output(log_dir=str(tmp_path / "logs")), "job", str(tmp_path), announced.append)
    run.make(0, 2)
    run.make(3, 1)
    (folder,) = (tmp_path / "logs").iterdir()
    assert folder.name.startswith("job_")
    assert tree(folder) == ["attempt_0", "attempt_0/0", "attempt_0/1", "attempt_3", "attempt_3/0"]
    assert run.worker_folder(3, 0) == str(folder / "attempt_3/0")
    assert run.round_folder(0) == str(folder / "attempt_0")
    assert announced == []
    run.tidy()
    assert len(tree(folder)) == 5, "what the user asked for stays, empty or not"
    with pytest.raises(FileExistsError):
        run.make(0, 2)


def test_two_runs_of_one_name_do_not_meet(tmp_path: Path) -> None:
    paths = {RunFolder(Output(log_dir=str(tmp_path)), "job", "/tmp").path for _ in range(5)}
    assert len(paths) == 5


def test_a_private_folder_is_announced_before_there_is_one(tmp_path: Path) -> None:
    announced: list[str] = []

    def announce(path: str) -> None:
        assert path.startswith(str(tmp_path)) and not os.path.exists(path)
        announced.append(path)

    run = RunFolder(Output(), "j" * 90, str(tmp_path), announce)
    run.socket_path()
    assert [os.path.isdir(path) for path in announced] == [True, True, True]
    assert announced[1] == run.path


def test_a_private_folder_goes_when_nothing_was_written(tmp_path: Path) -> None:
    run = RunFolder(Output(), "job", str(tmp_path))
    run.make(0, 2)
    assert os.stat(run.path).st_mode & 0o777 == 0o700
    assert run.path.startswith(str(tmp_path))
    run.tidy()
    assert tree(tmp_path) == []


def test_a_private_folder_stays_with_what_was_written(tmp_path: Path) -> None:
    run = RunFolder(Output(), "job", str(tmp_path))
    run.make(0, 2)
    Path(run.worker_folder(0, 1), "stderr.log").write_text("words")
    run.tidy()
    assert [Path(path).name for path in tree(tmp_path)][-3:] == ["attempt_0", "1", "stderr.log"]


def test_no_files_at_all(tmp_path: Path) -> None:
    run = RunFolder(Output(log_dir="/dev/null"), "job", str(tmp_path))
    run.make(0, 2)
    assert run.worker_folder(0, 0) == run.round_folder(0) == run.path == ""
    path = run.socket_path()
    assert path.startswith(str(tmp_path)) and os.path.isdir(os.path.dirname(path))
    run.tidy()
    assert tree(tmp_path) == []


def test_the_socket_has_a_short_path_and_its_folder_goes_too(tmp_path: Path) -> None:
    run = RunFolder(Output(), "j" * 90, str(tmp_path))
    path = run.socket_path()
    assert len(path) < 100
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
    os.unlink(path)
    run.make(0, 1)
    run.tidy()
    assert tree(tmp_path) == []


def test_the_socket_is_in_tmp_when_the_temporary_folder_is_far_away(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    run = RunFolder(Output(), "job", str(deep))
    path = run.socket_path()
    assert len(path) < 100 and path.startswith("/tmp/relight_")
    run.tidy()
    assert not os.path.exists(os.path.dirname(path))
    assert tree(deep) == []


@pytest.mark.parametrize("run_id", ["a/b/c", "x" * 300, "ä" * 200, ".."])
def test_any_run_id_is_a_folder_name(tmp_path: Path, run_id: str) -> None:
    run = RunFolder(Output(log_dir=str(tmp_path)), run_id, "/tmp")
    assert os.path.dirname(run.path) == str(tmp_path) and os.path.isdir(run.path)


def test_folders_that_cannot_be_made_are_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--log-dir"):
        RunFolder(Output(log_dir=str(tmp_path / "file")), "job", "/tmp")
    with pytest.raises(UsageError, match="no temporary folder can be made"):
        RunFolder(Output(), "job", str(tmp_path / "file"))


def test_a_relative_log_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFolder(Output(log_dir="logs"), "job", "/tmp")
    assert run.path.startswith(str(tmp_path / "logs"))


def test_logs_are_appended_to(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    first, second = open_log(path), open_log(path)
    for fd, text in ((first, b"one\n"), (second, b"two\n"), (first, b"three\n")):
        os.write(fd, text)
    os.close(first)
    os.close(second)
    assert Path(path).read_text() == "one\ntwo\nthree\n"


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * 100_000 + b"\n\n 10%\r 20%\rdone \xff\n\nlast")
    assert last_lines(str(path), 3) == (" 20%", "done \ufffd", "last")
    assert last_lines(str(tmp_path / "missing")) == ()
    assert last_lines(str(tmp_path)) == ()


def test_nothing_but_a_regular_file_is_read(tmp_path: Path) -> None:
    """A FIFO would make its reader wait for ever."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    before, begin = len(os.listdir("/proc/self/fd")), time.monotonic()
    for strange in ("fifo", "link", "."):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(str(tmp_path / strange))
        assert last_lines(str(tmp_path / strange)) == ()
    assert time.monotonic() - begin < 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_empty_log_does_not_keep_a_temporary_folder(tmp_path: Path) -> None:
    folder = RunFolder(Output(), "job", str(tmp_path))
    folder.make(0, 2)
    (Path(folder.worker_folder(0, 0)) / "stdout.log").touch()
    folder.tidy()
    assert list(tmp_path.iterdir()) == []


def test_a_log_with_something_in_it_stays(tmp_path: Path) -> None:
    folder = RunFolder(Output(), "job", str(tmp_path))
    folder.make(0, 1)
    log = Path(folder.worker_folder(0, 0)) / "stderr.log"
    log.write_text("boom\n")
    folder.tidy()
    assert log.read_text() == "boom\n"


def test_a_temporary_folder_that_cannot_be_written_to_is_passed_over(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    assert temporary_folder({"TMPDIR": "/proc", "TEMP": str(tmp_path / "none"), "TMP": str(good)}) == str(good)
    assert list(good.iterdir()) == []


def test_a_relative_log_folder_in_a_folder_that_is_gone_is_the_users_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="--log-dir logs: No such file"):
        RunFolder(Output(log_dir="logs"), "x", str(tmp_path))
    assert os.path.isabs(temporary_folder({"TMPDIR": "."}))
