"""What a round's workers are started with, down to the folders and streams that are made for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relight.core.launch import Launch, Output
from relight.core.node import StartWorkers
from relight.core.roster import Applicant, seat
from relight.core.streams import Route, Streams, streams
from relight.shell.logfiles import RunFolder
from relight.shell.loop import Loop
from relight.shell.orders import Orders
from relight.shell.outlets import Layout, Outlets
from relight.shell.processes import Commands

ROSTER = seat([Applicant("n0", 2)], None, 1)
START = StartWorkers(4, 1, ROSTER.parts()["n0"])


class Desk:
    """Where orders are made, and what they lean on."""

    def __init__(self, folder: Path) -> None:
        self._temporary = str(folder)
        self._loop = Loop()
        self._outlets: list[Outlets] = []

    def orders(
        self,
        launch: Launch,
        commands: Commands | None = None,
        layout: Callable[[dict[int, dict[str, str]]], Layout] | None = None,
    ) -> Orders:
        outlets = Outlets(launch.output, "n0", self._loop)
        self._outlets.append(outlets)
        folder = RunFolder(launch.output, "job", self._temporary)
        return Orders(launch, {"HOME": "/h"}, "/bin/python", folder, outlets, commands, layout)

    def close(self) -> None:
        for outlets in self._outlets:
            outlets.started()
            outlets.release()
        self._loop.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def test_one_order_for_each_place(desk: Desk, tmp_path: Path) -> None:
    kept = Output(log_dir=str(tmp_path / "logs"), redirects=streams("1"))
    orders = desk.orders(Launch("train.py", ("--lr", "1"), nproc_per_node=2, output=kept, cpus=((0,), (1,))))
    made = orders.of(START, "abcd", "/tmp/s")
    (run,) = (tmp_path / "logs").iterdir()
    for local_rank, order in enumerate(made):
        folder = f"{run}/attempt_4/{local_rank}"
        assert order.local_rank == local_rank
        assert order.command == ["/bin/python", "-u", "train.py", "--lr", "1"]
        assert (order.cpus, order.keeps) == ((local_rank,), ())
        assert order.stdout is not None and os.readlink(f"/proc/self/fd/{order.stdout}") == f"{folder}/stdout.log"
        assert order.stderr is None, "nobody redirected it"
        environment = order.environment
        assert environment["HOME"] == "/h"
        assert environment["RANK"] == environment["RELIGHT_LOCAL_RANK"] == str(local_rank)
        assert (environment["RELIGHT_AGENT"], environment["RELIGHT_SOCKET"]) == ("abcd", "/tmp/s")
        assert (environment["RELIGHT_ROUND"], environment["TORCHELASTIC_RESTART_COUNT"]) == ("4", "1")
        assert environment["RELIGHT_TIDY_EXIT"] == str(os.getpid())
        assert environment["TORCHELASTIC_ERROR_FILE"] == orders.error_files[local_rank] == f"{folder}/error.json"


def test_the_launch_has_its_say(desk: Desk) -> None:
    plain = Launch("train.py", python="/opt/python", forgives_teardown=False, output=Output(log_dir="/dev/null"))
    orders = desk.orders(plain)
    (first, _) = orders.of(START, "abcd", "/tmp/s")
    assert first.command == ["/opt/python", "-u", "train.py"]
    assert "RELIGHT_TIDY_EXIT" not in first.environment
    assert orders.error_files == {0: "", 1: ""}, "no files are kept"


def test_commands_of_a_program_take_the_place_of_the_launchs_own(desk: Desk) -> None:
    commands = Commands(lambda round_, local_rank: ["work", str(round_), str(local_rank)], keeps=(2,))
    made = desk.orders(Launch("train.py"), commands).of(START, "abcd", "/tmp/s")
    assert [order.command for order in made] == [["work", "4", "0"], ["work", "4", "1"]]
    assert [order.keeps for order in made] == [(2,), (2,)]


def test_a_layout_says_where_output_and_error_files_go(desk: Desk, tmp_path: Path) -> None:
    def layout(worlds: dict[int, dict[str, str]]) -> Layout:
        for local_rank, world in worlds.items():
            world["TORCHELASTIC_ERROR_FILE"] = f"/mine/{local_rank}.json"
        return Layout({(1, Streams.ERR): (Route.FILE, str(tmp_path / "mine.log"))}, {})

    orders = desk.orders(Launch("train.py", nproc_per_node=2), layout=layout)
    made = orders.of(START, "abcd", "/tmp/s")
    assert orders.error_files == {0: "/mine/0.json", 1: "/mine/1.json"}
    assert made[1].environment["TORCHELASTIC_ERROR_FILE"] == "/mine/1.json"
    assert [order.stderr is None for order in made] == [True, False]
    assert (tmp_path / "mine.log").exists()


def test_a_round_whose_folder_is_there_already_cannot_be_ordered(desk: Desk) -> None:
    orders = desk.orders(Launch("train.py", nproc_per_node=2))
    orders.of(START, "abcd", "/tmp/s")
    with pytest.raises(FileExistsError):
        orders.of(START, "abcd", "/tmp/s")
