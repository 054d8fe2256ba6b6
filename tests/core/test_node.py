"""Node, rule by rule: which commands follow from what happens, and what it says of itself."""

from __future__ import annotations

import signal

import pytest

from relight.core.documents import JobView, Phase, Standing, Verdict
from relight.core.ending import KILL_WAIT_S
from relight.core.failure import Cause, Words, WorkerEnd
from relight.core.names import ExitStatus
from relight.core.node import HURRY_S, Command, Leave, LookAtGroup, Node, NodeRules, StartWorkers, TellWorker
from relight.core.roster import Applicant, Part, seat
from relight.core.values import replace

TERM, KILL = signal.SIGTERM, signal.SIGKILL
N1 = Applicant("n1", 2, life="one")
LEASE_S = 10.0  # the fence: asks at 6, kills at 8


def part(*others: str) -> Part:
    """n1's in a round with these others."""
    return seat([N1, *(Applicant(name, 1, life=name) for name in others)], None, 9).parts()["n1"]


def gather(serial: int, round_: int) -> JobView:
    return JobView(serial, Phase.GATHERING, round_, "waiting for nodes")


def run(serial: int, round_: int, mine: Part | None = part()) -> JobView:  # noqa: B008
    return JobView(serial, Phase.RUNNING, round_, "round it is", part=mine)


def over(serial: int, verdict: Verdict = Verdict.SUCCEEDED) -> JobView:
    return JobView(serial, Phase.ENDED, 0, "that was it", verdict=verdict)


def new(rules: NodeRules | None = None) -> Node:
    return Node(Applicant("n1", 2), "one", rules or NodeRules(), 0.0)


def working(rules: NodeRules | None = None) -> Node:
    """A node whose two workers have started at 0."""
    node = new(rules)
    node.see(0.0, gather(0, 0), 0.0)
    assert [type(command) for command in node.see(0.0, run(1, 0), 0.0)] == [StartWorkers]
    return node


def standing(node: Node) -> Standing:
    return node.report(99.0).standing


def end(node: Node, local_rank: int, code: int, now: float = 1.0, others: bool = False) -> list[Command]:
    return node.ended(now, [(WorkerEnd(local_rank, local_rank, 100, ExitStatus(code), now), others)])


# -- following ----------------------------------------------------------------------------------------------


def test_a_new_node_is_ready_and_has_seen_nothing() -> None:
    node = new()
    report = node.report(3.0)
    assert (report.node, report.life, report.seen, report.round) == ("n1", "one", -1, -1)
    assert (report.standing, report.sent_at, report.cause) == (Standing.READY, 3.0, None)
    assert (node.ends, node.stop_signals) == ({}, [])


def test_a_round_that_seats_it_starts_its_workers() -> None:
    node = new()
    view = replace(run(1, 0, part("n2")), restarts=2)
    assert node.see(0.0, view, 0.0) == [StartWorkers(0, 2, part("n2"))]
    report = node.report(1.0)
    assert (report.standing, report.round, report.seen) == (Standing.WORKING, 0, 1)


@pytest.mark.parametrize("serial", [1, 0])
def test_a_view_that_is_not_newer_is_not_followed(serial: int) -> None:
    node = working()
    assert node.see(1.0, gather(serial, 1), 1.0) == []
    assert standing(node) is Standing.WORKING


def test_a_round_without_it_starts_nothing_and_ends_what_works() -> None:
    assert new().see(0.0, run(1, 0, None), 0.0) == []
    assert working().see(1.0, run(2, 1, None), 1.0) == [TellWorker(0, TERM, False), TellWorker(1, TERM, False)]


def test_workers_that_live_are_not_started_over() -> None:
    assert working().see(1.0, run(2, 1), 1.0) == [TellWorker(0, TERM, False), TellWorker(1, TERM, False)]


def test_a_gathering_ends_the_workers_once() -> None:
    node = working()
    assert len(node.see(1.0, gather(2, 1), 1.0)) == 2
    assert node.see(2.0, gather(3, 2), 2.0) == []
    assert standing(node) is Standing.WORKING
    end(node, 0, -TERM)
    end(node, 1, -TERM)
    assert standing(node) is Standing.READY


def test_programs_are_asked_together_with_their_children() -> None:
    node = working(NodeRules(asks_groups=True))
    assert node.see(1.0, gather(2, 1), 1.0) == [TellWorker(0, TERM, True), TellWorker(1, TERM, True)]


def test_the_next_round_starts_afresh() -> None:
    node = working()
    end(node, 0, 1)
    node.see(2.0, gather(2, 1), 2.0)
    end(node, 1, -TERM)
    assert [type(one) for one in node.see(3.0, run(3, 1), 3.0)] == [StartWorkers]
    assert node.ends == {}
    assert standing(node) is Standing.WORKING


# -- what becomes of the workers ----------------------------------------------------------------------------


def test_done_when_all_have_finished() -> None:
    node = working()
    end(node, 0, 0)
    assert standing(node) is Standing.WORKING
    end(node, 1, 0, others=True)
    assert standing(node) is Standing.DONE


def test_broken_when_one_has_failed_and_the_first_is_the_cause() -> None:
    node = working()
    words = Words("ValueError: no", raised_at=1.0)
    first = WorkerEnd(1, 1, 101, ExitStatus(1), 5.0, words=words)
    node.ended(5.0, [(WorkerEnd(0, 0, 100, ExitStatus(7), 2.0), False), (first, False)])
    report = node.report(6.0)
    assert report.standing is Standing.BROKEN
    assert report.cause is not None
    assert report.cause.sentence == "rank 1 on n1 (local rank 1) exited with 1: ValueError: no"


def test_broken_when_the_workers_could_not_be_started() -> None:
    node = working()
    node.not_started("the workers could not be started: no python")
    report = node.report(1.0)
    assert report.standing is Standing.BROKEN
    assert report.cause is not None
    assert report.cause.sentence == "the workers could not be started: no python"
    assert node.see(2.0, gather(2, 1), 2.0) == []
    assert standing(node) is Standing.READY


def test_broken_when_something_is_wrong_that_no_workers_end_tells() -> None:
    node = working()
    node.fail("local rank 1 does not move")
    report = node.report(1.0)
    assert report.standing is Standing.BROKEN
    assert report.cause is not None
    assert report.cause.sentence == "local rank 1 does not move"
    end(node, 0, 3)
    report = node.report(2.0)
    assert report.cause is not None
    assert report.cause.sentence == "rank 0 on n1 (local rank 0) exited with 3"


def test_what_a_group_leaves_behind_is_waited_for() -> None:
    node = working()
    end(node, 0, 1, others=True)
    end(node, 1, 0)
    asked = [TellWorker(0, TERM, True), LookAtGroup(0)]
    assert node.see(2.0, gather(2, 1), 2.0) == asked
    assert node.looked(2.0, 0, True) == []
    assert standing(node) is Standing.WORKING
    assert node.wake_at() == 2.001
    assert node.tick(2.001) == [LookAtGroup(0)]
    assert node.looked(2.001, 0, False) == []
    assert standing(node) is Standing.READY


def test_two_that_end_at_once_are_each_looked_after() -> None:
    node = working(NodeRules(shutdown_timeout_s=3.0))
    node.see(1.0, gather(2, 1), 1.0)
    ends = [WorkerEnd(rank, rank, 100, ExitStatus(-TERM), 2.0) for rank in (0, 1)]
    asked = [TellWorker(0, TERM, True), LookAtGroup(0), TellWorker(1, TERM, True), LookAtGroup(1)]
    assert node.ended(2.0, [(end, True) for end in ends]) == asked
    assert node.looked(4.0, 1, True) == [TellWorker(1, KILL, True), LookAtGroup(1)]


def test_it_offers_a_port_for_the_store() -> None:
    node = new()
    node.offer(29500)
    assert node.report(1.0).applicant == Applicant("n1", 2, store_port=29500, life="one")


# -- leaving ------------------------------------------------------------------------------------------------


def test_it_leaves_once_when_the_job_has_ended_and_nothing_is_alive() -> None:
    node = working()
    end(node, 0, 0)
    end(node, 1, 0)
    assert node.see(2.0, over(2), 2.0) == [Leave(Verdict.SUCCEEDED, "that was it")]
    assert node.tick(3.0) == []
    assert standing(node) is Standing.LEFT


def test_it_ends_its_workers_before_it_leaves() -> None:
    node = working()
    assert len(node.see(2.0, over(2, Verdict.FAILED), 2.0)) == 2
    assert end(node, 0, -TERM) == []
    assert end(node, 1, -TERM) == [Leave(Verdict.FAILED, "that was it")]


def test_a_signal_before_anything_works_is_the_end() -> None:
    node = new()
    assert node.stop(1.0, TERM) == [Leave(Verdict.STOPPED, "stopped by a signal")]
    assert standing(node) is Standing.LEFT
    assert node.see(2.0, run(1, 0), 2.0) == []


def test_three_signals() -> None:
    node = working(NodeRules(shutdown_timeout_s=30.0))
    both = (0, 1)
    assert node.stop(1.0, signal.SIGINT) == [TellWorker(rank, signal.SIGINT, False) for rank in both]
    assert standing(node) is Standing.LEAVING
    assert node.wake_at() == 31.0
    assert node.stop(2.0, signal.SIGINT) == [TellWorker(rank, TERM, False) for rank in both]
    assert node.wake_at() == 2.0 + HURRY_S
    assert node.stop(3.0, TERM) == [TellWorker(rank, KILL, True) for rank in both]
    assert node.stop_signals == [signal.SIGINT, signal.SIGINT, TERM]
    end(node, 0, -KILL)
    assert end(node, 1, -KILL) == [Leave(Verdict.STOPPED, "stopped by a signal")]


def test_a_job_that_had_failed_before_the_signal_has_failed() -> None:
    node = working()
    node.see(1.0, over(2, Verdict.FAILED), 1.0)
    node.stop(2.0, TERM)
    end(node, 0, -TERM)
    assert end(node, 1, -TERM) == [Leave(Verdict.FAILED, "that was it")]


def test_a_job_that_ended_for_the_signal_was_stopped() -> None:
    node = working()
    node.stop(1.0, TERM)
    node.see(2.0, over(2, Verdict.STOPPED), 2.0)
    end(node, 0, -TERM)
    assert end(node, 1, -TERM) == [Leave(Verdict.STOPPED, "stopped by a signal")]


def test_a_worker_that_nothing_ends_is_given_up() -> None:
    node = working(NodeRules(shutdown_timeout_s=3.0))
    node.see(1.0, gather(2, 1), 1.0)
    end(node, 0, -TERM)
    assert node.tick(4.0) == [TellWorker(1, KILL, True)]
    assert node.wake_at() == 4.0 + KILL_WAIT_S
    reason = "local rank 1 cannot be killed: it is stuck in the kernel"
    assert node.tick(4.0 + KILL_WAIT_S) == [Leave(Verdict.FAILED, reason)]


def test_all_that_nothing_ends_are_named() -> None:
    node = working()
    node.see(1.0, gather(2, 1), 1.0)
    node.tick(31.0)
    reason = "local rank 0, 1 cannot be killed: it is stuck in the kernel"
    assert node.tick(31.0 + KILL_WAIT_S) == [Leave(Verdict.FAILED, reason)]


# -- the fence ----------------------------------------------------------------------------------------------


def test_without_a_lease_it_never_wakes_for_one() -> None:
    assert working().wake_at() is None


def test_a_node_that_hears_nothing_asks_then_kills() -> None:
    node = working(NodeRules(lease_s=LEASE_S))
    assert node.wake_at() == 6.0
    assert node.tick(5.9) == []
    assert node.tick(6.0) == [TellWorker(0, TERM, False), TellWorker(1, TERM, False)]
    assert node.wake_at() == 8.0
    assert node.tick(8.0) == [TellWorker(0, KILL, True), TellWorker(1, KILL, True)]
    assert node.wake_at() == 8.0 + KILL_WAIT_S


def test_an_agent_that_wakes_too_late_kills_at_once() -> None:
    node = working(NodeRules(lease_s=LEASE_S))
    commands = node.tick(50.0)
    assert [one for one in commands if isinstance(one, TellWorker) and one.signal == KILL] == [
        TellWorker(0, KILL, True),
        TellWorker(1, KILL, True),
    ]


def test_workers_that_are_ending_anyway_are_killed_in_time_for_the_lease() -> None:
    node = working(NodeRules(shutdown_timeout_s=30.0, lease_s=LEASE_S))
    node.see(1.0, gather(2, 1), 1.0)
    assert node.wake_at() == 9.0
    assert node.tick(9.0) == [TellWorker(0, KILL, True), TellWorker(1, KILL, True)]


def test_what_a_worker_left_behind_is_fenced_too() -> None:
    node = working(NodeRules(lease_s=LEASE_S))
    end(node, 0, 0, others=True)
    end(node, 1, 0)
    assert node.wake_at() == 6.0
    assert node.tick(6.0) == [TellWorker(0, TERM, True), LookAtGroup(0)]
    assert standing(node) is Standing.DONE


def test_the_lease_counts_from_when_the_answered_report_was_sent() -> None:
    node = working(NodeRules(lease_s=LEASE_S))
    node.see(5.0, run(1, 0), 2.0)
    assert node.wake_at() == 8.0
    node.see(5.5, run(1, 0), 1.0)
    assert node.wake_at() == 8.0


def test_nobody_starts_on_an_old_lease() -> None:
    node = new(NodeRules(lease_s=LEASE_S))
    node.see(1.0, gather(0, 0), 1.0)
    assert node.see(7.0, run(1, 0), 0.5) == []
    report = node.report(7.0)
    assert (report.standing, report.seen) == (Standing.READY, 1)


@pytest.mark.parametrize("code", [0, 1, -TERM])
def test_how_a_fenced_worker_ends_says_nothing_about_its_work(code: int) -> None:
    node = working(NodeRules(lease_s=LEASE_S))
    end(node, 0, 0)
    node.tick(6.0)
    end(node, 1, code, 6.1)
    assert standing(node) is Standing.READY


def test_a_failure_before_the_fence_stays_one() -> None:
    node = working(NodeRules(lease_s=LEASE_S))
    end(node, 0, 3)
    node.tick(6.0)
    end(node, 1, 1, 6.1)
    report = node.report(7.0)
    assert report.standing is Standing.BROKEN
    assert report.cause is not None
    assert report.cause.sentence == "rank 0 on n1 (local rank 0) exited with 3"


def test_what_no_end_of_a_worker_tells_breaks_the_round_with_its_own_sentence() -> None:
    node = working()
    node.fail("local rank 1 was stuck in the kernel")
    report = node.report(2.0)
    assert report.standing is Standing.BROKEN
    assert report.cause == Cause("n1", "local rank 1 was stuck in the kernel")


# -- a pause ------------------------------------------------------------------------------------------------


def test_a_pause_of_agent_and_workers_is_not_taken_from_the_grace() -> None:
    node = working(NodeRules(shutdown_timeout_s=3.0))
    node.stop(1.0, TERM)
    node.paused(50.0)
    assert node.wake_at() == 54.0
    assert node.tick(53.9) == []
    assert node.tick(54.0) == [TellWorker(0, KILL, True), TellWorker(1, KILL, True)]


def test_a_pause_does_not_prolong_the_lease() -> None:
    node = working(NodeRules(shutdown_timeout_s=30.0, lease_s=LEASE_S))
    node.stop(1.0, TERM)
    node.paused(50.0)
    assert node.wake_at() == 8.0
    assert node.tick(51.0) == [TellWorker(0, KILL, True), TellWorker(1, KILL, True)]


def test_who_is_let_in_has_a_name_and_a_lease_that_begins_then() -> None:
    node = new()
    node.joins(100.0, "n1#2", LEASE_S)
    assert node.report(100.0).node == "n1#2"
    node.see(100.0, gather(0, 0), 100.0)
    node.see(100.0, run(1, 0), 100.0)
    assert node.wake_at() == 106.0
    assert node.tick(105.9) == []
    assert node.tick(106.0) == [TellWorker(0, TERM, False), TellWorker(1, TERM, False)]
    assert node.wake_at() == 108.0


def test_a_lease_that_begins_late_keeps_workers_from_starting_only_when_it_is_over() -> None:
    node = new(NodeRules(lease_s=LEASE_S))
    node.see(0.0, gather(0, 0), 0.0)
    node.joins(50.0, "n1", LEASE_S)
    assert [type(command) for command in node.see(50.1, run(1, 0), 0.0)] == [StartWorkers]


def test_a_report_repeats_another_if_only_its_moment_differs() -> None:
    report = new().report(1.0)
    assert not report.repeats(None)
    assert report.repeats(replace(report, sent_at=9.0))
    assert not report.repeats(replace(report, seen=7))
