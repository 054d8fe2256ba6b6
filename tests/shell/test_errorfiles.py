"""Reading what workers say of their own failure, and handing it up. Nothing that lies there may hurt."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from relight.core.failure import WORDS_LIMIT, Words, WorkerEnd, write_words
from relight.core.names import ExitStatus
from relight.shell.errorfiles import pass_on, words_in, write_whole


def end_with(path: Path) -> WorkerEnd:
    return WorkerEnd(0, 0, 1234, ExitStatus(3), time.time(), words=words_in(str(path)), error_file=str(path))


def test_relights_own_words_keep_their_moment(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    at = time.time() - 100.123456
    path.write_text(json.dumps(write_words(Words("ValueError: no", "Traceback ...", at))))
    words = words_in(str(path))
    assert words is not None and (words.message, words.callstack) == ("ValueError: no", "Traceback ...")
    assert words.raised_at == pytest.approx(at, abs=1e-5)


def test_torchs_whole_seconds_give_way_to_the_moment_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    seconds = str(int(time.time()))
    extra = {"py_callstack": "Traceback", "timestamp": seconds}
    path.write_text(json.dumps({"message": {"message": "ValueError: no", "extraInfo": extra}}))
    os.utime(path, (1_700_000_000.25, 1_700_000_000.25))
    words = words_in(str(path))
    assert words is not None and words.raised_at == 1_700_000_000.25


STRANGE = [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"message": 3}', b"[" * 100_000, b"x" * (WORDS_LIMIT + 10)]


@pytest.mark.parametrize("content", STRANGE, ids=lambda content: repr(content[:10]))
def test_strange_content_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "error.json"
    path.write_bytes(content)
    assert words_in(str(path)) is None
    assert pass_on(end_with(path), str(tmp_path / "parent.json")) == ""
    assert not (tmp_path / "parent.json").exists()


def test_no_path_no_file_a_folder_and_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    begin = time.monotonic()
    assert [words_in(path) for path in ("", f"{tmp_path}/none", str(tmp_path), f"{tmp_path}/fifo")] == [None] * 4
    assert time.monotonic() - begin < 1


def test_the_cause_is_handed_up_with_its_exit_code(tmp_path: Path) -> None:
    path, parent = tmp_path / "error.json", tmp_path / "parent.json"
    path.write_text(json.dumps(write_words(Words("ValueError: no", "Traceback ...", 1.7e9))))
    parent.write_text("from an earlier life")
    assert pass_on(end_with(path), str(parent)) == ""
    message = json.loads(parent.read_text())["message"]
    assert (message["message"], message["errorCode"]) == ("ValueError: no", 3)
    assert [file.name for file in tmp_path.iterdir() if "partial" in file.name] == []


def test_a_file_that_became_a_fifo_after_it_was_read(tmp_path: Path) -> None:
    path, parent = tmp_path / "error.json", tmp_path / "parent.json"
    path.write_text(json.dumps(write_words(Words("ValueError: no", "", 1.7e9))))
    end = end_with(path)
    path.unlink()
    os.mkfifo(path)
    assert "could not be copied" in pass_on(end, str(parent))


def test_a_parent_that_cannot_be_written_is_said_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_text(json.dumps(write_words(Words("ValueError: no", "", 1.7e9))))
    assert "could not be copied to /nowhere/parent.json" in pass_on(end_with(path), "/nowhere/parent.json")


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_whole(str(tmp_path / "file"), b"all of it")
    assert (tmp_path / "file").read_bytes() == b"all of it"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_whole(str(tmp_path / "folder"), b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
