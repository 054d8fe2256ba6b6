"""The agent's side of the room, with real sockets and no agent."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.core.launch import Output
from relight.core.names import UsageError
from relight.core.room import Closed, Fact, Hello, Step
from relight.shell import room as rooms
from relight.shell.logfiles import RunFolder
from relight.shell.loop import Loop
from relight.shell.room import Room, open_room
from relight.worker.room import Voice

DEADLINE_S = 10.0


class Place:
    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.heard: list[tuple[Hello, Fact]] = []
        self.room = Room(self.loop, str(folder / "s"), lambda who, fact: self.heard.append((who, fact)))

    def until(self, count: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while len(self.heard) < count:
            assert time.monotonic() < end, f"waited {DEADLINE_S} s for {count} facts, heard {self.heard}"
            self.turn()

    def turn(self) -> None:
        self.loop.wait(time.clock_gettime(time.CLOCK_BOOTTIME) + 0.01)

    def guest(self) -> socket.socket:
        guest = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        guest.settimeout(DEADLINE_S)
        guest.connect(self.room.path)
        return guest

    def close(self) -> None:
        self.room.close()
        self.loop.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def test_a_voice_is_heard_and_greeted(place: Place) -> None:
    voice = Voice(place.room.path, 3, 2)
    assert voice.tell(step=5) and voice.tell(closed="did something")
    place.until(2)
    assert place.heard == [(Hello(3, 2), Step(5)), (Hello(3, 2), Closed("did something"))]
    assert voice._socket is not None
    voice._socket.setblocking(True)
    assert voice._socket.recv(100) == b'{"relight": 1}\n'
    voice.close()


def test_catching_up_hears_what_was_said_before_the_door_was_looked_at(place: Place) -> None:
    """As when a worker connects, speaks and dies within one turn of the loop."""
    for number in range(5):
        voice = Voice(place.room.path, number, 0)
        voice.tell(step=number)
        voice.close()
    place.room.catch_up()
    assert [fact for _, fact in place.heard] == [Step(number) for number in range(5)]


@pytest.mark.parametrize("nonsense", [b"nonsense\n", b"\xff\n", b"{}\n", b"x" * 70000])
def test_nonsense_ends_one_conversation_only(place: Place, nonsense: bytes) -> None:
    polite, rude = Voice(place.room.path, 0, 0), place.guest()
    rude.sendall(nonsense)
    place.turn()
    polite.tell(step=1)
    place.until(1)
    for _ in range(5):
        place.turn()
    try:
        assert rude.recv(100) == b""
    except ConnectionResetError:
        pass  # it was still speaking
    rude.close()
    polite.close()


def test_a_guest_who_never_reads_and_one_who_leaves_at_once(place: Place) -> None:
    hello = b'{"relight": 1, "local_rank": 0, "round": 0}\n'
    gone = place.guest()
    gone.sendall(hello)
    gone.close()
    silent = place.guest()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    silent.sendall(hello)
    for number in range(2000):
        silent.sendall(b'{"step": %d}\n' % number)
        if not number % 20:
            place.turn()
    place.until(2000)
    assert place.heard[-1] == (Hello(0, 0), Step(1999))
    silent.close()


def test_only_so_many_are_let_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_GUESTS", 3)
    guests = [place.guest() for _ in range(4)]
    for _ in range(5):
        place.turn()
    assert guests[3].recv(1) == b""
    guests[0].close()
    for _ in range(3):
        place.turn()
    late = Voice(place.room.path, 1, 1)
    late.tell(step=1)
    place.until(1)
    late.close()
    for guest in guests[1:]:
        guest.close()


def test_the_socket_is_for_this_user_only_and_gone_at_the_end(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    place = Place(tmp_path)
    assert stat.S_IMODE(os.stat(place.room.path).st_mode) == 0o600
    voice = Voice(place.room.path, 0, 0)
    place.turn()
    place.close()
    assert not os.path.exists(place.room.path)
    assert not voice.tell(step=1) or not voice.tell(step=2), "nobody listens, and nobody minds"
    voice.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_voice_without_a_room_is_silent(tmp_path: Path) -> None:
    voice = Voice(str(tmp_path / "nowhere"), 0, 0)
    assert voice.tell(step=1) is False
    voice.close()


def test_a_voice_is_never_blocked_by_a_room_that_does_not_listen(place: Place) -> None:
    voice = Voice(place.room.path, 0, 0)
    begin = time.monotonic()
    said = [voice.tell(closed="x" * 150) for _ in range(5000)]
    assert time.monotonic() - begin < 5
    assert said[0] and not said[-1]
    voice.close()


def nothing(_who: Hello, _fact: Fact) -> None:
    pass


def test_where_the_runs_folder_has_no_sockets_the_room_is_elsewhere(tmp_path: Path) -> None:
    loop, folder = Loop(), RunFolder(Output(log_dir=str(tmp_path)), "job", str(tmp_path))
    os.rmdir(folder.path)
    room = open_room(loop, folder, nothing)
    assert os.path.exists(room.path) and not room.path.startswith(str(tmp_path))
    room.close()
    folder.tidy()
    assert not os.path.exists(os.path.dirname(room.path))
    loop.close()


def test_a_room_that_can_be_nowhere_is_the_users_to_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, folder = Loop(), RunFolder(Output(log_dir=str(tmp_path)), "job", str(tmp_path))
    os.rmdir(folder.path)
    monkeypatch.setattr(folder, "other_socket_path", lambda: f"{tmp_path}/gone/agent.sock")
    with pytest.raises(UsageError, match=f"cannot be made at {tmp_path}/gone/agent.sock: No such file or directory"):
        open_room(loop, folder, nothing)
    loop.close()
