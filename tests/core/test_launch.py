"""A Launch that cannot be carried out is refused, with the words that would have been right."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.launch import Budget, Launch, Meeting, Output, Store, why_not_handled
from relight.core.names import UsageError
from relight.core.values import replace

NAN = float("nan")


def test_a_script_is_all_that_must_be_said() -> None:
    launch = Launch("train.py")
    assert (launch.nproc_per_node, launch.role, launch.shutdown_timeout_s) == (1, "default", 30.0)
    assert launch.budget == Budget(0)
    assert launch.store == Store(shared=True, address="127.0.0.1", port=0)
    assert (launch.run_id, launch.python, launch.stuck_timeout_s, launch.forgives_teardown) == ("", "", 0.0, True)
    assert launch.signals == (15, 2, 1, 3)


REFUSED: list[tuple[Callable[[], object], str, str]] = [
    (lambda: Launch(""), "no script was named", "relight [options] train.py [its arguments]"),
    (
        lambda: Launch("t.py", nproc_per_node=0),
        "--nproc-per-node 0 asks for no worker at all",
        "--nproc-per-node 1 or more",
    ),
    (
        lambda: Launch("t.py", nproc_per_node=-2),
        "--nproc-per-node -2 asks for no worker at all",
        "--nproc-per-node 1 or more",
    ),
    (
        lambda: Launch("t.py", shutdown_timeout_s=-1),
        "--shutdown-timeout -1 is not zero or more",
        "--shutdown-timeout 30, in seconds",
    ),
    (
        lambda: Launch("t.py", shutdown_timeout_s=NAN),
        "--shutdown-timeout nan is not zero or more",
        "--shutdown-timeout 30, in seconds",
    ),
    (
        lambda: Launch("t.py", min_nodes=4, max_nodes=2),
        "--nnodes 4:2 asks for at least 4 and at most 2 nodes",
        "--nnodes 2:4",
    ),
    (
        lambda: Launch("t.py", min_nodes=0, max_nodes=3),
        "--nnodes 0:3 asks for at least 0 and at most 3 nodes",
        "--nnodes 1:3",
    ),
    (
        lambda: Launch("t.py", min_nodes=0, max_nodes=0),
        "--nnodes 0:0 asks for at least 0 and at most 0 nodes",
        "--nnodes 1:1",
    ),
    (
        lambda: Launch("t.py", max_nodes=2),
        "--nnodes 2 asks for nodes that meet nowhere",
        "--rdzv-backend c10d --rdzv-endpoint HOST:29400 as well, the same on every node",
    ),
    (
        lambda: Launch("t.py", nproc_per_node=2, cpus=((0,),)),
        "1 CPU sets were given for 2 workers",
        "one set for each worker",
    ),
    (lambda: Budget(-1), "--max-restarts -1 is below zero", "--max-restarts 0 for none"),
    (
        lambda: Budget(3, intensity=-1, period_s=5),
        "--restart-rate -1/5s is not a rate",
        "--restart-rate 5/600 for at most 5 restarts in 600 seconds",
    ),
    (
        lambda: Budget(3, intensity=1),
        "--restart-rate 1/0s is not a rate",
        "--restart-rate 5/600 for at most 5 restarts in 600 seconds",
    ),
    (
        lambda: Budget(3, intensity=1, period_s=NAN),
        "--restart-rate 1/nans is not a rate",
        "--restart-rate 5/600 for at most 5 restarts in 600 seconds",
    ),
]


@pytest.mark.parametrize(("make", "what", "remedy"), REFUSED)
def test_what_cannot_be_is_refused(make: Callable[[], object], what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert (caught.value.what, caught.value.remedy) == (what, remedy)


def test_what_is_at_the_edge_is_accepted() -> None:
    assert Launch("t.py", shutdown_timeout_s=0).shutdown_timeout_s == 0
    assert Launch("t.py", nproc_per_node=2, cpus=((0,), (1,))).cpus == ((0,), (1,))
    assert Launch("t.py", nproc_per_node=10_000).nproc_per_node == 10_000
    assert Budget(0, intensity=0, period_s=0.1).intensity == 0
    assert replace(Launch("t.py"), run_id="x/y").run_id == "x/y"
    assert Launch("t.py", signals=(35,)).signals == (35,)  # one that the kernel knows and Python has no name for


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_the_remedy_for_nodes_is_itself_right(least: int, most: int) -> None:
    try:
        Launch("t.py", min_nodes=least, max_nodes=most, meeting=Meeting("h", 1))
    except UsageError as error:
        low, _, high = error.remedy.removeprefix("--nnodes ").partition(":")
        assert 1 <= int(low) <= int(high or low)
    else:
        assert 1 <= least <= most


@pytest.mark.parametrize(("log_dir", "keeps"), [(None, True), ("logs", True), ("/dev/null", False)])
def test_only_dev_null_keeps_no_files(log_dir: str | None, keeps: bool) -> None:
    assert Output(log_dir=log_dir).keeps_files is keeps


@pytest.mark.parametrize(
    ("fields", "what", "remedy"),
    [
        (
            {"nproc_per_node": 10_001},
            "--nproc-per-node 10001 asks for more workers than one node can have",
            "--nproc-per-node 10000 or fewer",
        ),
        ({"nproc_per_node": "2"}, "nproc_per_node='2' is no number", "nproc_per_node=4"),
        ({"args": "abc"}, "args='abc' is no list of words", 'args=("--epochs", "10")'),
        ({"args": (1,)}, "args=(1,) is no list of words", 'args=("--epochs", "10")'),
        ({"args": ("a", "b\0c")}, "args holds 'b\\x00c', and a NUL character ends a word", "the same without it"),
        (
            {"entrypoint": "train.py\0"},
            "entrypoint holds 'train.py\\x00', and a NUL character ends a word",
            "the same without it",
        ),
        (
            {"entrypoint": pathlib.Path("train.py")},
            "entrypoint=PosixPath('train.py') is no text",
            "entrypoint='train.py'",
        ),
        ({"role": "a\0"}, "role holds 'a\\x00', and a NUL character ends a word", "the same without it"),
        ({"run_id": "a\0"}, "run_id holds 'a\\x00', and a NUL character ends a word", "the same without it"),
        ({"run_id": 7}, "run_id=7 is no text", "run_id='7'"),
        ({"python": "a\0"}, "python holds 'a\\x00', and a NUL character ends a word", "the same without it"),
        ({"threads": "1\0"}, "threads holds '1\\x00', and a NUL character ends a word", "the same without it"),
        (
            {"store": Store(address="a\0")},
            "store.address holds 'a\\x00', and a NUL character ends a word",
            "the same without it",
        ),
        (
            {"output": Output(log_dir="a\0")},
            "output.log_dir holds 'a\\x00', and a NUL character ends a word",
            "the same without it",
        ),
        ({"signals": (15, 9)}, "signals=(15, 9) names SIGKILL, which no program can handle", "signals=(15,)"),
        ({"signals": (19,)}, "signals=(19,) names SIGSTOP, which no program can handle", "signals=(15,)"),
        ({"signals": (32,)}, "signals=(32,) names signal 32, which no program can handle", "signals=(15,)"),
        (
            {"signals": (17, 15)},
            "signals=(17, 15) names SIGCHLD, which tells relight something else: that a child has ended, or Ctrl-Z",
            "signals=(15,)",
        ),
        (
            {"signals": (20,)},
            "signals=(20,) names SIGTSTP, which tells relight something else: that a child has ended, or Ctrl-Z",
            "signals=(15,)",
        ),
        (
            {"args": ("\ud800",)},
            "args holds '\\ud800', and half a surrogate pair stands for no bytes",
            "the same without it",
        ),
        ({"signals": (0,)}, "signals=(0,) names signal 0, which no program can handle", "signals=(15,)"),
        (
            {"signals": ("SIGTERM",)},
            "signals=('SIGTERM',) names SIGTERM, which is no number of a signal",
            "signals=(signal.SIGTERM,)",
        ),
        (
            {"signals": "SIGTERM"},
            "signals='SIGTERM' names S, which is no number of a signal",
            "signals=(signal.SIGTERM,)",
        ),
    ],
)
def test_what_a_program_gets_wrong_is_named(fields: dict[str, Any], what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        Launch(**{"entrypoint": "train.py", **fields})
    assert (caught.value.what, caught.value.remedy) == (what, remedy)


def test_any_other_signal_can_end_a_job() -> None:
    assert [why_not_handled(number) for number in (1, 2, 3, 10, 12, 15, 34)] == [""] * 7


@pytest.mark.parametrize(
    ("fields", "what", "remedy"),
    [
        ({"nproc_per_node": True}, "nproc_per_node=True is no number", "nproc_per_node=4"),
        ({"budget": 3}, "budget=3 is no budget", "budget=relight.Budget(restarts=3)"),
        ({"output": Output(tee="3")}, "tee='3' is no choice of streams", "tee=relight.streams('3')"),  # type: ignore[arg-type]
        ({"output": Output(redirects=1)}, "redirects=1 is no choice", "redirects=relight.streams('3')"),  # type: ignore[arg-type]
        ({"cpus": (3,)}, "cpus=(3,) are no sets of CPUs", "cpus=((0, 1), (2, 3)), one for each worker"),
        ({"cpus": (("3",),)}, "cpus=(('3',),) are no sets", "cpus=((0, 1), (2, 3)), one for each worker"),
    ],
)
def test_what_a_type_checker_would_refuse_is_refused_in_words(fields: Any, what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        Launch("train.py", **fields)
    assert caught.value.what.startswith(what)
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("meeting", "binds"),
    [
        (None, "10.0.0.4"),
        (Meeting("localhost", 1), "127.0.0.1"),
        (Meeting("127.0.0.1", 1), "127.0.0.1"),
        (Meeting("node0", 1), ""),
    ],
)
def test_where_the_store_listens(meeting: Meeting | None, binds: str) -> None:
    assert Launch("t.py", store=Store(address="10.0.0.4"), meeting=meeting).store_binds == binds


def test_a_meeting_is_shown_without_its_token() -> None:
    assert repr(Meeting("node0", 29400, token="secret")) == "Meeting('node0', 29400)"
