"""Several nodes: they find each other, lose each other, come and go; and every agent ends with the same story."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import pytest

from .nodes import Nodes, free_port, soon
from .running import Runs, until

WORKS = 'told("go")\n'
LIVES = "forever()\n"
WAITS = "round 0 runs without this node, which waits until it is needed"


def go(nodes: Nodes) -> None:
    for run in nodes.runs.values():
        run.tell("go")


def test_a_fixed_number_begins_when_it_is_complete_and_everybody_succeeds(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "3")
    for name in ("a", "b", "c"):
        nodes.add(name)
    seats = nodes.works(3)
    assert [seats[rank]["GROUP_RANK"] for rank in ("0", "1", "2")] == ["0", "1", "2"]
    assert {seat["node"] for seat in seats.values()} == {"a", "b", "c"}
    assert len({(seat["MASTER_ADDR"], seat["MASTER_PORT"]) for seat in seats.values()}) == 1
    assert {seat["TORCHELASTIC_RUN_ID"] for seat in seats.values()} == {"job"}
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0, "c": 0}


def test_nodes_may_differ_in_workers_and_roles(relight: Runs) -> None:
    nodes = Nodes(relight, 'tell("role", RANK, os.environ["ROLE_NAME"], os.environ["ROLE_RANK"])\n' + WORKS, "2")
    nodes.hosted("a")
    nodes.add("b", "--nproc-per-node=2", "--role=reader")
    seats = nodes.works(3)
    assert [seats[rank]["node"] for rank in ("0", "1", "2")] in (["a", "b", "b"], ["b", "b", "a"])
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0}
    roles = sorted(event.split()[2:] for event in nodes.told if event.startswith("role "))
    assert roles == [["default", "0"], ["reader", "0"], ["reader", "1"]]


def test_a_failure_anywhere_is_everybodys_and_its_cause_is_told_everywhere_once(relight: Runs) -> None:
    nodes = Nodes(relight, 'if NODE == "b":\n    told("fail")\n    sys.exit("no more")\nforever()\n', "3")
    nodes.hosted("a")
    nodes.add("b", "--tee=3")
    nodes.add("c")
    nodes.works(3)
    nodes.runs["b"].tell("fail")
    assert nodes.end() == {"a": 1, "b": 1, "c": 1}
    for run in nodes.runs.values():
        first = [line for line in run.err.splitlines() if "first cause" in line]
        assert len(first) == 1 and "(local rank 0, pid" in first[0], run.err
        assert "no more" in run.err


def test_a_failure_that_may_be_tried_again_restarts_all_with_one_count(relight: Runs) -> None:
    script = 'if NODE == "b" and ROUND == 0:\n    told("fail")\n    sys.exit(3)\n' + WORKS
    nodes = Nodes(relight, script, "3", "--max-restarts=1")
    nodes.hosted("a")
    nodes.add("b")
    nodes.add("c")
    before = nodes.works(3, 0)
    nodes.runs["b"].tell("fail")
    after = nodes.works(3, 1)
    assert {seat["TORCHELASTIC_RESTART_COUNT"] for seat in after.values()} == {"1"}
    assert [after[rank]["node"] for rank in "012"] == [before[rank]["node"] for rank in "012"], "ranks are stable"
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0, "c": 0}


def test_an_agent_that_dies_is_noticed_and_the_others_go_on(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "1:3")
    nodes.hosted("a")
    lost = nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    died_at = time.monotonic()
    lost.signal(signal.SIGKILL)
    seats = nodes.works(2)
    soon(died_at, 4.0, "the new round")  # a lease would take five seconds
    lost.nothing_is_left()
    assert {seat["node"] for seat in seats.values()} == {"a", "c"}
    assert {seat["TORCHELASTIC_RESTART_COUNT"] for seat in seats.values()} == {"0"}
    go(nodes)
    del nodes.runs["b"]
    assert nodes.end() == {"a": 0, "c": 0}
    assert "has died; starting again, no restart spent" in nodes.runs["a"].err


@pytest.mark.slow
def test_where_rank_0_hosts_the_store_a_death_is_noticed_as_well(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "1:3")
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    nodes.hosted("a", own)
    lost = nodes.add("b", env=own)
    nodes.add("c", env=own)
    nodes.works(3)
    died_at = time.monotonic()
    lost.signal(signal.SIGKILL)
    nodes.works(2)
    soon(died_at, 4.0, "the new round")
    lost.nothing_is_left()
    go(nodes)
    del nodes.runs["b"]
    assert nodes.end() == {"a": 0, "c": 0}


def test_workers_that_fail_because_a_node_died_cost_no_restart(relight: Runs) -> None:
    """As DDP does: the peers of a dead worker raise within milliseconds."""
    script = """
PEER = os.path.join(os.path.dirname(os.environ["RELIGHT_TEST_EVENTS"]), "..", "b.pid")
if NODE == "b":
    open(PEER, "w").write(str(os.getppid()))
else:
    while ROUND == 0 and not (os.path.exists(PEER) and not os.path.exists("/proc/" + (open(PEER).read() or "1"))):
        time.sleep(0.001)
    if ROUND == 0:
        sys.exit(1)
told("go")
"""
    nodes = Nodes(relight, script, "1:3", "--max-restarts=0")
    nodes.hosted("a")
    lost = nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    lost.signal(signal.SIGKILL)
    lost.process.wait(10)
    seats = nodes.works(2)
    assert {seat["TORCHELASTIC_RESTART_COUNT"] for seat in seats.values()} == {"0"}
    lost.nothing_is_left()
    go(nodes)
    del nodes.runs["b"]
    assert nodes.end() == {"a": 0, "c": 0}
    assert "has died; starting again, no restart spent" in nodes.runs["a"].err


def test_when_the_host_is_told_to_go_all_are_told_that_it_is_over(relight: Runs) -> None:
    nodes = Nodes(relight, LIVES, "1:3")
    host = nodes.hosted("a")
    nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    told_at = time.monotonic()
    host.signal(signal.SIGTERM)
    assert nodes.end() == {"a": 1, "b": 1, "c": 1}
    soon(told_at, 5.0, "the end")
    for name in ("b", "c"):
        assert "starting again" not in nodes.runs[name].err


def test_two_who_leave_cost_nothing_whatever_the_rate(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "1:3", "--max-restarts=5", "--restart-rate=1/60")
    nodes.hosted("a")
    for name in ("b", "c"):
        nodes.add(name)
    nodes.works(3)
    for name, left in (("b", 2), ("c", 1)):
        nodes.runs[name].signal(signal.SIGTERM)
        nodes.works(left)
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 1, "c": 1}


@pytest.mark.slow
def test_a_node_that_falls_silent_is_given_up_and_ends_its_own_workers(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "1:3", "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2")
    nodes.hosted("a")
    silent = nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    silent.signal(signal.SIGSTOP)  # its connection stays open, and nothing comes
    seats = nodes.works(2)
    assert {seat["node"] for seat in seats.values()} == {"a", "c"}
    assert "fell silent for" in nodes.runs["a"].err
    silent.signal(signal.SIGCONT)
    nodes.works(3, int(seats["0"]["round"]) + 1)
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0, "c": 0}


def test_a_node_that_is_told_to_go_says_so_and_the_others_go_on_at_once(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "1:3")
    nodes.hosted("a")
    leaver = nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    told_at = time.monotonic()
    leaver.signal(signal.SIGTERM)
    assert leaver.ends() == 1
    nodes.works(2)
    soon(told_at, 4.0, "the new round")
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 1, "c": 0}


def test_a_late_node_is_taken_in_and_sits_behind_the_others(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "2:4")
    nodes.hosted("a")
    nodes.add("b")
    before = nodes.works(2)
    nodes.add("c")
    after = nodes.works(3)
    assert [after[rank]["node"] for rank in "01"] == [before[rank]["node"] for rank in "01"]
    assert after["2"]["node"] == "c"
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0, "c": 0}


def test_a_spare_waits_and_steps_in(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "2")
    nodes.hosted("a")
    lost = nodes.add("b")
    nodes.works(2)
    spare = nodes.add("spare")
    until(lambda: WAITS in spare.err, "the spare to wait")
    assert not [event for event in spare.events if event.startswith("seat")]
    lost.signal(signal.SIGKILL)
    seats = nodes.works(2, 1)
    assert {seat["node"] for seat in seats.values()} == {"a", "spare"}
    lost.nothing_is_left()
    go(nodes)
    del nodes.runs["b"]
    assert nodes.end() == {"a": 0, "spare": 0}


def test_a_spare_that_was_not_needed_succeeds_with_the_others(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "2")
    nodes.hosted("a")
    nodes.add("b")
    nodes.works(2)
    spare = nodes.add("spare")
    until(lambda: WAITS in spare.err, "the spare to wait")
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0, "spare": 0}


def test_a_lost_node_of_a_fixed_number_is_replaced(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "3")
    nodes.hosted("a")
    lost = nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    lost.signal(signal.SIGKILL)
    until(lambda: "has died" in nodes.runs["a"].err, "the loss to be noticed")
    nodes.add("d")
    seats = nodes.works(3, 1)
    assert {seat["node"] for seat in seats.values()} == {"a", "c", "d"}
    lost.nothing_is_left()
    go(nodes)
    del nodes.runs["b"]
    assert nodes.end() == {"a": 0, "c": 0, "d": 0}


def test_the_job_may_fail_at_once_when_too_few_are_left(relight: Runs) -> None:
    nodes = Nodes(relight, LIVES, "3", "--on-node-loss=fail")
    nodes.hosted("a")
    lost = nodes.add("b")
    nodes.add("c")
    nodes.works(3)
    lost.signal(signal.SIGKILL)
    assert {name: nodes.runs[name].ends() for name in ("a", "c")} == {"a": 1, "c": 1}
    for name in ("a", "c"):
        assert "has died; 2 of 3 nodes are left, and the job was to fail then" in nodes.runs[name].err


@pytest.mark.slow
def test_too_few_nodes_are_waited_for_and_then_named(relight: Runs) -> None:
    nodes = Nodes(relight, LIVES, "3", "--rdzv-conf=join_timeout=4")
    nodes.hosted("a")
    nodes.add("b")
    assert nodes.end() == {"a": 1, "b": 1}
    for run in nodes.runs.values():
        assert "waiting for nodes: 2 of 3 are here (" in run.err
        assert "only 2 of 3 nodes came within 4 s" in run.err


def test_who_finishes_early_waits_without_work_and_still_hears_signals(relight: Runs) -> None:
    nodes = Nodes(relight, 'if NODE == "b":\n    told("go")\n', "2")
    nodes.hosted("a")
    nodes.add("b")
    nodes.works(2)
    early = nodes.runs["a"]
    until(
        lambda: not any("train.py" in words and "relight" not in words for words in early.alive().values()), "its end"
    )
    cpu = _cpu_s(early.pid)
    time.sleep(1.0)
    assert _cpu_s(early.pid) - cpu < 0.3
    assert early.process.poll() is None
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0}


def test_a_node_that_has_finished_may_be_told_to_go(relight: Runs) -> None:
    nodes = Nodes(relight, 'if NODE == "a":\n    told("go")\n', "2")
    nodes.hosted("a")
    early = nodes.add("b")
    nodes.works(2)
    until(lambda: not any("-u" in words.split() for words in early.alive().values()), "the end of b's worker")
    early.signal(signal.SIGTERM)
    assert early.ends(5) == 1
    nodes.runs["a"].tell("go")
    assert nodes.runs["a"].ends() == 0


@pytest.mark.slow
def test_a_job_that_has_ended_can_be_started_again_under_its_name_and_port(relight: Runs) -> None:
    nodes = Nodes(relight, "", "2")
    for again in ("", "again "):
        nodes.runs = {}
        nodes.add(f"{again}a")
        nodes.add(f"{again}b")
        nodes.works(2)
        assert set(nodes.end().values()) == {0}


def test_another_job_at_the_same_port_is_told_so(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "2")
    nodes.hosted("a")
    stranger = nodes.add("x", "--rdzv-id=another")
    assert stranger.ends() == 2
    assert "here is job 'job', and it asks for job 'another'" in stranger.err
    assert "try: --rdzv-id job" in stranger.err
    del nodes.runs["x"]
    nodes.add("b")
    nodes.works(2)
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0}


@pytest.mark.parametrize("theirs", ["", "wrong"])
def test_without_the_token_nobody_joins(relight: Runs, theirs: str) -> None:
    nodes = Nodes(relight, WORKS, "2")
    secret = {"RELIGHT_TOKEN": "right"}
    nodes.hosted("a", secret)
    stranger = nodes.add("x", env={"RELIGHT_TOKEN": theirs} if theirs else {})
    assert stranger.ends() in (2,)
    assert "token" in stranger.err and "Traceback" not in stranger.err
    del nodes.runs["x"]
    nodes.add("b", env=secret)
    nodes.works(2)
    assert "right" not in stranger.err + nodes.runs["a"].err
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0}


def test_workers_are_not_given_the_token(relight: Runs) -> None:
    nodes = Nodes(relight, 'tell("token", os.environ.get("RELIGHT_TOKEN"))\n', "2")
    for name in ("a", "b"):
        nodes.add(name, env={"RELIGHT_TOKEN": "secret"})
    nodes.works(2)
    nodes.end()
    assert [event for event in nodes.told if event.startswith("token")] == ["token None"] * 2


@pytest.mark.slow
def test_something_else_at_the_port_is_named(relight: Runs) -> None:
    """A TCPStore, as a torchrun agent has it there, closes the connection of whoever does not speak its protocol."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()
        server.settimeout(0.1)

        def close_everybody() -> None:
            while not stop.is_set():
                try:
                    server.accept()[0].close()
                except OSError:
                    continue

        thread = threading.Thread(target=close_everybody)
        thread.start()
        try:
            port = server.getsockname()[1]
            job = relight.script("")
            run = relight(
                "--nnodes=2",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{port}",
                "--rdzv-conf=join_timeout=3",
                job,
            )
            assert run.ends() == 1, "nobody has said that it is wrong"
        finally:
            stop.set()
            thread.join()
    assert f"waiting for the coordinator at 127.0.0.1:{port}: it closed the connection without a word" in run.err
    assert "Traceback" not in run.err


def test_a_port_that_is_taken_where_this_node_must_host(relight: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=1")
        run = relight.finish(*words, relight.script(""))
    assert run.process.returncode == 2
    assert run.err.splitlines() == [
        f"relight: error: port {port} on 127.0.0.1 is taken by another program",
        "  try: --rdzv-endpoint HOST:PORT with a port that is free there",
    ]


def test_options_that_differ_are_told(relight: Runs) -> None:
    nodes = Nodes(relight, WORKS, "2")
    host = nodes.hosted("a")
    nodes.add("b", "--max-restarts=7")
    nodes.works(2)
    assert "was started with other options than this job: --max-restarts 7 (here 0)" in host.err
    go(nodes)
    assert nodes.end() == {"a": 0, "b": 0}


@pytest.mark.slow
def test_when_the_coordinators_agent_dies_the_others_end_and_say_why(relight: Runs) -> None:
    nodes = Nodes(relight, LIVES, "1:2", "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=1")
    host = nodes.hosted("a")
    other = nodes.add("b")
    nodes.works(2)
    host.signal(signal.SIGKILL)
    assert other.ends() == 1
    other.nothing_is_left()
    host.nothing_is_left()
    assert f"the coordinator at 127.0.0.1:{nodes.port}: Connection refused" in other.err


@pytest.mark.parametrize("ranks", [(0, 1, 2), (2, 1, 0)])
def test_the_static_backend(relight: Runs, ranks: tuple[int, ...]) -> None:
    port = free_port()
    script = relight.script('tell("at", RANK, os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])\ntold("go")\n')
    runs = {
        rank: relight("--nnodes=3", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", script)
        for rank in ranks
    }
    for rank, run in runs.items():
        run.happened(f"at {rank} 127.0.0.1 {port}")
    for run in runs.values():
        run.tell("go")
    assert [run.ends() for run in runs.values()] == [0, 0, 0]


def test_a_failure_under_the_static_backend_restarts_everybody(relight: Runs) -> None:
    port = free_port()
    script = relight.script('tell("round", ROUND)\nif RANK == 1 and ROUND == 0:\n    sys.exit(1)\ntold("go")\n')
    words = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--max-restarts=1")
    first, second = (relight(*words, f"--node-rank={rank}", script) for rank in (0, 1))
    for run in (first, second):
        run.happened("round 1")
        run.tell("go")
    assert [first.ends(), second.ends()] == [0, 0]


def test_two_first_nodes_under_the_static_backend(relight: Runs) -> None:
    port = free_port()
    job = relight.script("forever()")
    words = ("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}", job)
    first = relight(*words)
    until(lambda: first.guardian(), "the first one to be up")
    second = relight(*words)
    assert second.ends() == 2
    assert f"port {port} on 127.0.0.1 is taken" in second.err
    first.signal(signal.SIGTERM)
    assert first.ends() == 1


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
