"""Job, rule by rule: what a report, a loss or the clock makes of it."""

from __future__ import annotations

import pytest

from relight.core.documents import NodeReport, Phase, Standing, Verdict
from relight.core.failure import Cause
from relight.core.job import ORPHANS_S, Decision, Job, JobRules
from relight.core.launch import Budget
from relight.core.roster import Applicant


class Bench:
    """A job, and nodes that say what a test wants."""

    def __init__(self, rules: JobRules) -> None:
        self.job = Job(rules, 0.0)

    @property
    def view(self) -> Decision:
        return self.job.decision

    def say(
        self,
        node: str,
        standing: Standing = Standing.READY,
        at: float = 0.0,
        *,
        seen: int | None = None,
        round_: int | None = None,
        sent_at: float | None = None,
        life: str = "",
        cause: Cause | None = None,
    ) -> None:
        """A report; where nothing else is said, by a node that has seen everything and speaks of this round."""
        self.job.hear(
            at,
            NodeReport(
                applicant=Applicant(node, 1, life=life or f"{node}#1"),
                seen=self.view.serial if seen is None else seen,
                standing=standing,
                round=self.view.round if round_ is None else round_,
                sent_at=at if sent_at is None else sent_at,
                cause=cause,
            ),
        )

    def seats(self) -> list[str]:
        assert self.view.phase is Phase.RUNNING
        assert self.view.roster is not None
        return [seat.node for seat in self.view.roster.seats]


def running(*nodes: str, rules: JobRules | None = None) -> Bench:
    """A job whose first round runs on these nodes."""
    bench = Bench(rules or JobRules(len(nodes), len(nodes), lease_s=10.0))
    for node in nodes:
        bench.say(node)
    bench.job.tick(0.5)
    assert bench.seats() == list(nodes)
    for node in nodes:
        bench.say(node, Standing.WORKING, 0.5)
    return bench


def gathering(bench: Bench) -> bool:
    return bench.view.phase is Phase.GATHERING


# -- beginning ----------------------------------------------------------------------------------------------


def test_a_fixed_size_begins_as_soon_as_it_is_complete() -> None:
    bench = Bench(JobRules(2, 2, settle_s=5.0))
    bench.say("n2", at=1.0)
    assert gathering(bench)
    bench.say("n1", at=2.0)
    assert bench.seats() == ["n1", "n2"]
    assert bench.view.reason == "round 0 on n1, n2"


def test_an_elastic_job_waits_a_while_after_the_last_arrival() -> None:
    bench = Bench(JobRules(2, 4, settle_s=5.0))
    bench.say("n1", at=1.0)
    assert bench.job.wake_at() == 600.0
    bench.say("n2", at=2.0)
    assert bench.job.wake_at() == 7.0
    bench.say("n3", at=6.0)
    bench.say("n1", at=6.5)
    assert bench.job.wake_at() == 11.0
    bench.job.tick(10.9)
    assert gathering(bench)
    bench.job.tick(11.0)
    assert bench.seats() == ["n1", "n2", "n3"]


def test_a_full_job_leaves_the_others_waiting() -> None:
    bench = Bench(JobRules(1, 2, settle_s=5.0))
    for node in ("n3", "n10"):
        bench.say(node, Standing.WORKING)
    bench.say("n2")
    bench.say("n3", at=1.0)
    bench.say("n10", at=2.0)
    assert bench.seats() == ["n2", "n3"]
    bench.say("n10", at=3.0)
    assert bench.seats() == ["n2", "n3"]


@pytest.mark.parametrize("standing", [Standing.WORKING, Standing.LEAVING, Standing.BROKEN, Standing.DONE])
def test_nobody_begins_while_someone_present_is_not_ready(standing: Standing) -> None:
    bench = Bench(JobRules(1, 3, settle_s=0.0))
    bench.say("n3", Standing.WORKING)
    bench.say("n1", at=0.1)
    bench.say("n3", standing, 0.2)
    bench.say("n2", at=1.0)
    assert gathering(bench)
    assert bench.job.wake_at() is None


def test_ready_without_having_seen_the_newest_view_does_not_count() -> None:
    bench = running("n1", "n2")
    bench.say("n1", Standing.LEAVING, 1.0)
    bench.say("n1", Standing.LEFT, 2.0)
    bench.say("n2", at=3.0, seen=bench.view.serial - 1)
    bench.say("n3", at=3.0)
    assert gathering(bench)
    bench.say("n2", at=4.0)
    assert bench.seats() == ["n2", "n3"]


# -- who takes part -----------------------------------------------------------------------------------------


def test_an_overtaken_report_says_nothing() -> None:
    bench = Bench(JobRules(2, 2))
    bench.say("n1", Standing.WORKING, 1.0)
    bench.say("n1", at=2.0)
    bench.say("n1", Standing.WORKING, 3.0, sent_at=1.5)
    bench.say("n2", at=3.0)
    assert bench.seats() == ["n1", "n2"]


@pytest.mark.parametrize("standing", [Standing.LEAVING, Standing.LEFT])
def test_who_comes_only_to_go_changes_nothing(standing: Standing) -> None:
    bench = Bench(JobRules())
    bench.say("n1", standing)
    assert bench.view.serial == 0


def test_a_newcomer_that_has_not_seen_the_newest_view_holds_nobody_up() -> None:
    bench = Bench(JobRules(1, 3, settle_s=1.0))
    bench.say("n1")
    bench.say("n2", at=0.9, seen=-1)
    bench.job.tick(1.0)
    assert bench.seats() == ["n1"]
    bench.say("n2", at=1.1, seen=0)
    assert bench.seats() == ["n1"]


def test_a_new_life_waits_until_the_old_ones_workers_are_gone() -> None:
    bench = running("n1", "n2")
    bench.say("n2", Standing.READY, 5.0, life="n2#2", round_=-1)
    assert bench.view.reason == "n2 was started anew"
    bench.say("n2", Standing.READY, 5.1, life="n2#2", round_=-1)
    bench.say("n1", at=5.2)
    assert gathering(bench)
    assert bench.job.wake_at() == 5.0 + ORPHANS_S
    bench.job.tick(5.0 + ORPHANS_S)
    assert bench.seats() == ["n1", "n2"]


def test_an_earlier_life_says_nothing() -> None:
    bench = running("n1", "n2")
    bench.say("n2", Standing.READY, 5.0, life="n2#2", round_=-1)
    serial = bench.view.serial
    bench.say("n2", Standing.WORKING, 6.0, sent_at=4.9, life="n2#1")
    bench.say("n2", at=6.0, life="n2#2")
    bench.say("n1", at=6.0)
    assert bench.view.serial == serial + 1
    assert bench.seats() == ["n1", "n2"]


def test_a_lost_node_comes_back_as_a_newcomer() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 2, lease_s=10.0))
    bench.say("n1", Standing.WORKING, 9.0)
    bench.job.tick(10.5)
    assert bench.view.reason == "n2 fell silent for 10.0 s"
    bench.say("n1", at=11.0)
    bench.job.tick(11.0)
    assert bench.seats() == ["n1"]
    bench.say("n2", Standing.WORKING, 12.0, seen=1)
    assert bench.seats() == ["n1"]
    bench.say("n2", at=12.1)
    bench.job.tick(12.3)
    assert bench.view.reason == "n2 joined"


def test_the_loss_of_an_unknown_node_is_no_news() -> None:
    bench = running("n1")
    bench.job.lost(1.0, "n7", "is proved dead")
    assert bench.seats() == ["n1"]


def test_a_lease_is_over_only_when_it_is() -> None:
    bench = running("n1", "n2")
    assert bench.job.wake_at() == 10.5
    bench.job.tick(10.499)
    assert not gathering(bench)
    bench.job.tick(10.5)
    assert gathering(bench)


# -- while a round runs -------------------------------------------------------------------------------------


def test_a_failure_spends_a_restart_until_none_is_left() -> None:
    bench = running("n1", rules=JobRules(budget=Budget(1)))
    cause = Cause("n1", "rank 0 exited with 1")
    bench.say("n1", Standing.BROKEN, 1.0, cause=cause)
    assert (bench.view.phase, bench.view.restarts, bench.view.reason) == (Phase.GATHERING, 1, cause.sentence)
    assert bench.view.cause == cause
    bench.say("n1", at=2.0)
    bench.say("n1", Standing.BROKEN, 3.0)
    assert (bench.view.verdict, bench.view.restarts) == (Verdict.FAILED, 1)
    assert bench.view.reason == "n1 failed; 1 of 1 restarts used"
    assert bench.view.cause == Cause("n1", "n1 failed")


@pytest.mark.parametrize("standing", [Standing.BROKEN, Standing.DONE])
def test_what_a_node_says_of_another_round_changes_nothing(standing: Standing) -> None:
    bench = running("n1", rules=JobRules(budget=Budget(1)))
    before = bench.view
    bench.say("n1", standing, 1.0, round_=before.round - 1)
    assert bench.view == before


def test_everybody_is_back_so_nobody_waits() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 4, Budget(1), settle_s=0.5))
    bench.say("n1", Standing.BROKEN, 5.0)
    bench.say("n2", at=5.1)
    assert gathering(bench)
    bench.say("n1", at=5.2)
    assert bench.seats() == ["n1", "n2"]


def test_survivors_do_not_wait_for_who_is_lost() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 4))
    bench.say("n2", Standing.LEAVING, 6.0)
    bench.say("n2", Standing.LEFT, 6.1)
    bench.say("n1", at=6.2)
    assert bench.seats() == ["n1"]


def test_who_comes_while_a_round_is_gathered_is_waited_for_a_moment_more() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 5, batch_s=0.2))
    bench.say("n2", Standing.LEFT, 6.0)
    bench.say("n3", at=6.1)
    bench.say("n1", at=6.2)
    assert gathering(bench)
    assert bench.job.wake_at() == pytest.approx(6.3)
    bench.job.tick(6.3001)
    assert bench.seats() == ["n1", "n3"]


def test_the_last_call_is_counted_from_when_there_are_enough() -> None:
    bench = Bench(JobRules(2, 9, settle_s=2.0, last_call_s=5.0))
    for number in range(6):
        bench.say(f"n{number}", at=float(number))
    assert bench.job.wake_at() == 6.0, "five seconds after the second one"
    bench.say("n1", Standing.LEFT, 5.1)
    for number in (2, 3, 4, 5):
        bench.say(f"n{number}", Standing.LEFT, 5.2)
    bench.say("n8", at=5.9)
    assert bench.job.wake_at() == 7.9, "there were too few in between"


def test_those_who_come_one_after_another_break_a_round_off_once() -> None:
    bench = running("n1", rules=JobRules(1, 4, batch_s=0.2))
    bench.say("n3", at=2.0)
    bench.say("n2", at=2.1)
    assert bench.job.wake_at() == 2.2
    bench.job.tick(2.19)
    assert not gathering(bench)
    bench.job.tick(2.2)
    assert bench.view.reason == "n2, n3 joined"


def test_who_came_and_went_breaks_nothing_off() -> None:
    bench = running("n1", rules=JobRules(1, 4, batch_s=0.2))
    bench.say("n3", at=2.0)
    bench.say("n3", Standing.LEFT, 2.1)
    bench.job.tick(2.2)
    assert bench.seats() == ["n1"]
    assert bench.job.wake_at() is None
    bench.job.tick(9.0)
    assert bench.seats() == ["n1"]


def test_too_few_are_waited_for_from_the_moment_at_which_newcomers_broke_it_off() -> None:
    bench = running("n1", "n2", rules=JobRules(2, 3, join_timeout_s=60.0, batch_s=0.2))
    bench.say("n3", at=2.0)
    bench.job.tick(2.25)
    bench.say("n3", Standing.LEFT, 3.0)
    bench.say("n2", Standing.LEFT, 3.0)
    assert bench.job.wake_at() == 62.25


def test_a_round_that_somebody_finished_meanwhile_goes_on_without_who_came() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 4, batch_s=0.2))
    bench.say("n3", at=2.0)
    bench.say("n1", Standing.DONE, 2.1)
    bench.job.tick(2.2)
    assert bench.seats() == ["n1", "n2"]


def test_a_job_may_fail_when_a_loss_leaves_too_few() -> None:
    rules = JobRules(2, 3, lease_s=10.0, fails_below_min=True)
    bench = running("n1", "n2", "n3", rules=rules)
    bench.job.died(1.0, "n3", "has died")
    assert gathering(bench), "two are enough"
    bench.say("n1", at=1.0)
    bench.say("n2", at=1.0)
    bench.job.tick(1.0 + ORPHANS_S)
    bench.job.died(2.0, "n2", "has died")
    assert bench.view.verdict is Verdict.FAILED
    assert bench.view.reason == "n2 has died; 1 of 2 nodes are left, and the job was to fail then"


def test_a_failure_of_a_worker_is_no_loss_of_a_node() -> None:
    bench = running("n1", rules=JobRules(1, 1, Budget(1), fails_below_min=True))
    bench.say("n1", Standing.BROKEN, 1.0)
    assert gathering(bench)


def test_a_failure_after_too_many_have_finished_and_gone_ends_it_too() -> None:
    bench = running("n1", "n2", rules=JobRules(2, 2, Budget(1), fails_below_min=True))
    bench.say("n2", Standing.DONE, 1.0)
    bench.say("n2", Standing.LEFT, 1.1)
    cause = Cause("n1", "rank 0 exited with 1")
    bench.say("n1", Standing.BROKEN, 2.0, cause=cause)
    assert (bench.view.verdict, bench.view.cause) == (Verdict.FAILED, cause)


def test_a_crowd_is_not_listed_by_name() -> None:
    eight = [f"n{number}" for number in range(1, 9)]
    assert running(*eight).view.reason == "round 0 on n1, n2, n3, n4, n5, n6, n7, n8"
    bench = running(*eight, "n9", "n10")
    assert bench.view.reason == "round 0 on n1, n2, n3, n4, n5, n6, n7, n8 and 2 more"


def test_a_view_holds_the_part_of_who_is_told_and_of_nobody_else() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 3))
    told = bench.job.view_for(Applicant("n2", 1, life="n2#1"))
    assert told.part is not None
    assert (told.part.seat.node, told.part.world_size, told.serial, told.phase) == ("n2", 2, 1, Phase.RUNNING)
    for stranger in (Applicant("n2", 1, life="n2#2"), Applicant("n3", 1, life="n3#1")):
        assert bench.job.view_for(stranger).part is None
    bench.say("n2", Standing.LEFT, 1.0)
    after = bench.job.view_for(Applicant("n1", 1, life="n1#1"))
    assert (after.part, after.reason, after.round) == (None, "n2 left", 1)
    cause = Cause("n1", "rank 0 exited with 1")
    bench.say("n1", at=2.0)
    bench.say("n1", Standing.BROKEN, 3.0, cause=cause)
    last = bench.job.view_for(Applicant("n1", 1, life="n1#1"))
    assert (last.cause, last.verdict, last.restarts) == (cause, Verdict.FAILED, 0)


def test_a_survivor_keeps_its_place_before_newcomers() -> None:
    bench = running("n5", rules=JobRules(1, 3))
    bench.say("n1", at=2.0)
    bench.job.tick(2.2)
    assert bench.view.reason == "n1 joined"
    bench.say("n1", at=2.3)
    bench.say("n5", at=2.4)
    assert bench.seats() == ["n5", "n1"]


def test_a_newcomer_does_not_break_off_a_full_round_nor_one_that_somebody_has_finished() -> None:
    full = running("n1", "n2")
    full.say("n3", at=1.0)
    assert full.seats() == ["n1", "n2"]
    nearly_done = running("n1", "n2", rules=JobRules(2, 3))
    nearly_done.say("n1", Standing.DONE, 1.0)
    nearly_done.say("n3", at=2.0)
    assert nearly_done.seats() == ["n1", "n2"]


def test_a_node_that_ended_its_workers_by_itself_is_noticed() -> None:
    bench = running("n1", "n2")
    bench.say("n2", at=7.0, seen=0)
    assert not gathering(bench)
    bench.say("n2", at=7.1)
    assert bench.view.reason == "n2 could not hear the coordinator and ended its workers"


def test_success_needs_every_node_once() -> None:
    bench = running("n1", "n2")
    bench.say("n1", Standing.DONE, 1.0)
    bench.say("n1", Standing.DONE, 2.0)
    assert bench.view.phase is Phase.RUNNING
    bench.say("n2", Standing.DONE, 3.0)
    assert (bench.view.verdict, bench.view.reason) == (Verdict.SUCCEEDED, "every worker has finished")
    assert bench.job.wake_at() is None


@pytest.mark.parametrize("how", ["silent", "left", "anew"])
def test_a_node_that_had_finished_may_go(how: str) -> None:
    bench = running("n1", "n2")
    bench.say("n2", Standing.DONE, 1.0)
    bench.say("n1", Standing.WORKING, 9.0)
    match how:
        case "silent":
            bench.job.tick(11.0)
        case "left":
            bench.say("n2", Standing.LEFT, 10.0)
        case "anew":
            bench.say("n2", at=10.0, life="n2#2", round_=-1)
    assert not gathering(bench)
    bench.say("n1", Standing.DONE, 12.0)
    assert bench.view.verdict is Verdict.SUCCEEDED


def test_finishing_a_round_that_is_broken_off_counts_for_nothing() -> None:
    bench = running("n1", "n2", rules=JobRules(2, 2, Budget(1)))
    bench.say("n1", Standing.DONE, 1.0)
    bench.say("n2", Standing.BROKEN, 2.0)
    bench.say("n1", at=3.0)
    bench.say("n2", at=3.0)
    bench.say("n2", Standing.DONE, 4.0)
    assert bench.view.phase is Phase.RUNNING
    bench.say("n1", Standing.DONE, 5.0)
    assert bench.view.verdict is Verdict.SUCCEEDED


def test_whatever_breaks_a_round_off_counts_for_the_rate() -> None:
    bench = running("n1", "n2", rules=JobRules(2, 2, Budget(9, 1, 60.0), lease_s=10.0))
    bench.say("n1", Standing.BROKEN, 1.0)
    bench.say("n1", at=2.0)
    bench.say("n2", at=2.0)
    bench.say("n1", Standing.WORKING, 8.0)
    bench.job.tick(12.0)
    assert bench.view.verdict is Verdict.FAILED
    assert bench.view.reason == "n2 fell silent for 10.0 s; 1 restart within 60 s is the limit"
    assert bench.view.restarts == 1


def test_a_newcomer_does_not_count_for_the_rate() -> None:
    bench = running("n1", rules=JobRules(1, 3, Budget(9, 1, 60.0), settle_s=0.0))
    for moment, here in enumerate((["n1", "n2"], ["n1", "n2", "n3"]), start=1):
        bench.say(here[-1], at=moment)
        bench.job.tick(moment + 0.2)
        assert gathering(bench)
        for node in here:
            bench.say(node, at=moment + 0.5)
    assert bench.seats() == ["n1", "n2", "n3"]


# -- going --------------------------------------------------------------------------------------------------


def test_when_all_are_told_to_go_the_job_is_over_at_once() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 2))
    bench.say("n1", Standing.LEAVING, 1.0)
    bench.say("n2", Standing.LEAVING, 1.1)
    assert (bench.view.verdict, bench.view.reason) == (Verdict.STOPPED, "n2 is leaving; no node is left")


def test_a_job_that_nobody_is_left_of_waits_for_who_was_lost() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 2, lease_s=10.0, join_timeout_s=60.0))
    bench.job.tick(20.0)
    assert gathering(bench)
    assert bench.job.wake_at() == 80.0
    bench.say("n1", at=30.0)
    assert bench.job.wake_at() == 30.2
    bench.job.tick(30.2)
    assert bench.seats() == ["n1"]


@pytest.mark.parametrize(("at", "ended"), [(59.9, False), (60.0, True)])
def test_too_few_nodes_are_waited_for_for_a_while(at: float, ended: bool) -> None:
    bench = Bench(JobRules(2, 3, join_timeout_s=60.0))
    bench.say("n1", at=1.0)
    bench.job.tick(at)
    assert (bench.view.verdict is Verdict.FAILED) == ended
    if ended:
        assert bench.view.reason == "waiting for nodes; only 1 of 2 nodes came within 60 s"


def test_a_job_that_too_few_come_back_to_ends_with_the_cause_of_its_last_round() -> None:
    bench = running("n1", "n2", rules=JobRules(2, 2, Budget(1), join_timeout_s=60.0))
    cause = Cause("n1", "rank 0 exited with 1")
    bench.say("n1", Standing.BROKEN, 1.0, cause=cause)
    bench.say("n1", Standing.LEFT, 2.0)
    bench.job.tick(61.0)
    assert (bench.view.verdict, bench.view.cause) == (Verdict.FAILED, cause)
    assert bench.view.reason == f"{cause.sentence}; only 1 of 2 nodes came within 60 s"


@pytest.mark.parametrize(
    ("node", "standing", "life", "reason"),
    [
        ("n2", Standing.READY, "n2#1", "n2 could not hear the coordinator and ended its workers"),
        ("n2", Standing.READY, "n2#2", "n2 was started anew"),
        ("n2", Standing.LEAVING, "n2#1", "n2 is leaving"),
        ("n2", Standing.LEFT, "n2#1", "n2 left"),
    ],
)
def test_too_few_are_waited_for_from_the_moment_at_which_the_round_was_broken_off(
    node: str, standing: Standing, life: str, reason: str
) -> None:
    bench = running("n1", "n2", rules=JobRules(2, 3, join_timeout_s=60.0))
    bench.say(node, standing, 2.0, life=life)
    assert (gathering(bench), bench.view.reason) == (True, reason)
    bench.say("n3", Standing.LEFT, 3.0)
    bench.say("n2", Standing.LEFT, 3.0, life=life if node == "n2" else "")
    assert bench.job.wake_at() == 62.0


def test_a_lease_may_be_over_before_the_waiting_is() -> None:
    bench = Bench(JobRules(2, 2, lease_s=10.0, join_timeout_s=60.0))
    bench.say("n1", at=1.0)
    assert bench.job.wake_at() == 11.0


def test_enough_nodes_that_only_end_their_workers_are_waited_for_longer() -> None:
    bench = running("n1", "n2", rules=JobRules(2, 2, Budget(1), join_timeout_s=60.0))
    bench.say("n1", Standing.BROKEN, 1.0)
    bench.say("n1", Standing.WORKING, 1.1)
    bench.job.tick(100.0)
    assert gathering(bench)
    assert bench.job.wake_at() is None


def test_a_job_that_ended_stays_ended() -> None:
    bench = running("n1", rules=JobRules(lease_s=10.0))
    bench.say("n1", Standing.DONE, 1.0)
    end = bench.view
    bench.say("n1", Standing.BROKEN, 2.0)
    bench.say("n2", at=3.0)
    bench.job.tick(100.0)
    bench.job.lost(101.0, "n1", "is gone")
    assert bench.view == end
    assert bench.job.wake_at() is None


def test_a_node_counts_as_alive_until_it_is_given_up() -> None:
    bench = running("n1", "n2", rules=JobRules(1, 2, lease_s=10.0))
    assert [bench.job.has(node) for node in ("n1", "n2", "n3")] == [True, True, False]
    bench.job.died(1.0, "n2", "has died")
    assert [bench.job.has(node) for node in ("n1", "n2")] == [True, False]


def test_a_job_can_be_stopped_once() -> None:
    bench = running("n1", "n2")
    bench.job.stop("n1 was told to leave")
    end = bench.view
    assert (end.phase, end.verdict, end.reason) == (Phase.ENDED, Verdict.STOPPED, "n1 was told to leave")
    bench.job.stop("n2 was told to leave")
    assert bench.view == end


def test_a_planned_leave_counts_for_no_rate_but_may_leave_too_few() -> None:
    bench = running("n1", "n2", "n3", rules=JobRules(2, 3, Budget(9, 1, 60.0), fails_below_min=True))
    bench.say("n3", Standing.LEAVING, 1.0)
    bench.say("n3", Standing.LEFT, 1.1)
    for node in ("n1", "n2"):
        bench.say(node, at=1.2)
    assert bench.seats() == ["n1", "n2"]
    bench.say("n2", Standing.LEAVING, 2.0)
    assert bench.view.verdict is Verdict.FAILED
    assert bench.view.reason == "n2 is leaving; 1 of 2 nodes are left, and the job was to fail then"
