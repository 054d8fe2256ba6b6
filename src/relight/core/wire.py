"""The two documents as JSON: what a NodeReport and a JobView look like on the network, and how they are read back.

Texts that a worker or a user made are cut where they are written, so that no document is larger than a frame; numbers
and words are checked where they are read. Nothing that was read is ever evaluated.
"""

from __future__ import annotations

from relight.core.documents import JobView, NodeReport, Phase, Standing, Verdict
from relight.core.failure import Cause, Words, WorkerEnd
from relight.core.frames import LINE, cut
from relight.core.names import ExitStatus, Nonsense, legible
from relight.core.roster import Applicant, Part, Seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relight.core.frames import Fields

NAME, ADDRESS, LIFE = 300, 300, 100  # characters
PORTS = 65535
MOST_SLOTS = 1 << 20
MESSAGE, CALLSTACK = 4096, 12_000  # characters of a worker's own words
TAIL, TAIL_LINE = 20, 400  # lines of its stderr, and characters of each
PATH = 4096


def write_report(report: NodeReport) -> dict[str, Any]:
    said = {
        "applicant": _write_applicant(report.applicant),
        "seen": report.seen,
        "standing": report.standing.value,
        "round": report.round,
        "sent_at": report.sent_at,
    }
    if report.cause is not None:
        said["cause"] = _write_cause(report.cause)
    return said


def read_report(said: Fields) -> NodeReport:
    applicant = said.within("applicant")
    if applicant is None:
        raise Nonsense("a report of nobody")
    return NodeReport(
        applicant=_read_applicant(applicant),
        seen=said.whole("seen", -1),
        standing=said.choice("standing", Standing),
        round=said.whole("round", -1),
        sent_at=said.number("sent_at"),
        cause=_read_cause(said.within("cause")),
    )


def write_view(view: JobView) -> dict[str, Any]:
    said: dict[str, Any] = {
        "serial": view.serial,
        "phase": view.phase.value,
        "round": view.round,
        "reason": cut(view.reason),
        "restarts": view.restarts,
    }
    if view.part is not None:
        said["part"] = _write_part(view.part)
    if view.verdict is not None:
        said["verdict"] = view.verdict.value
    if view.cause is not None:
        said["cause"] = _write_cause(view.cause)
    return said


def read_view(said: Fields) -> JobView:
    phase = said.choice("phase", Phase)
    return JobView(
        serial=said.whole("serial"),
        phase=phase,
        round=said.whole("round"),
        reason=said.text("reason"),
        restarts=said.whole("restarts"),
        part=_read_part(said.within("part")),
        verdict=said.choice("verdict", Verdict) if "verdict" in said or phase is Phase.ENDED else None,
        cause=_read_cause(said.within("cause")),
    )


def _write_applicant(applicant: Applicant) -> dict[str, Any]:
    return {**_write_node(applicant), "hint": applicant.hint}


def _read_applicant(said: Fields) -> Applicant:
    return Applicant(**_read_node(said), hint=said.whole("hint", 0, MOST_SLOTS) if "hint" in said else None)


def _write_part(part: Part) -> dict[str, Any]:
    seat = part.seat
    return {
        **_write_node(seat),
        "group_rank": seat.group_rank,
        "first_rank": seat.first_rank,
        "first_role_rank": seat.first_role_rank,
        "world_size": part.world_size,
        "group_world_size": part.group_world_size,
        "role_world_size": part.role_world_size,
        "meet_address": part.store_address[:ADDRESS],
        "meet_port": part.store_port,
    }


def _read_part(said: Fields | None) -> Part | None:
    if said is None:
        return None
    seat = Seat(
        **_read_node(said),
        group_rank=said.whole("group_rank"),
        first_rank=said.whole("first_rank"),
        first_role_rank=said.whole("first_role_rank"),
    )
    return Part(
        seat=seat,
        world_size=said.whole("world_size", 1),
        group_world_size=said.whole("group_world_size", 1),
        role_world_size=said.whole("role_world_size", 1),
        store_address=said.word("meet_address", ADDRESS),
        store_port=said.whole("meet_port", 0, PORTS),
    )


def _write_node(node: Applicant | Seat) -> dict[str, Any]:
    """What an applicant and its seat have in common."""
    return {
        "node": node.node,
        "slots": node.slots,
        "role": node.role[:LINE],
        "store_address": node.store_address[:ADDRESS],
        "store_port": node.store_port,
        "life": node.life,
    }


def _read_node(said: Fields) -> dict[str, Any]:
    return {
        "node": said.word("node", NAME),
        "slots": said.whole("slots", 1, MOST_SLOTS),
        "role": said.word("role"),
        "store_address": said.word("store_address", ADDRESS),
        "store_port": said.whole("store_port", 0, PORTS),
        "life": said.word("life", LIFE),
    }


def _write_cause(cause: Cause) -> dict[str, Any]:
    said: dict[str, Any] = {"node": cause.node, "sentence": cut(cause.sentence)}
    if cause.end is not None:
        said["end"] = _write_end(cause.end)
    return said


def _read_cause(said: Fields | None) -> Cause | None:
    if said is None:
        return None
    return Cause(said.word("node", NAME), said.text("sentence"), _read_end(said.within("end")))


def _write_end(end: WorkerEnd) -> dict[str, Any]:
    said: dict[str, Any] = {
        "rank": end.rank,
        "local_rank": end.local_rank,
        "pid": end.pid,
        "status": end.status.number,
        "at": end.at,
        "asked": end.asked,
        "error_file": end.error_file[:PATH],
        "stderr_file": end.stderr_file[:PATH],
        "tail": [cut(line, TAIL_LINE) for line in end.tail[-TAIL:]],
        "step": end.step,
        "returned": end.returned,
    }
    if end.words is not None:
        said["message"] = cut(end.words.message, MESSAGE)
        said["callstack"] = legible(end.words.callstack)[-CALLSTACK:]
        said["raised_at"] = end.words.raised_at
    return said


def _read_end(said: Fields | None) -> WorkerEnd | None:
    if said is None:
        return None
    words = None
    if "message" in said:
        raised_at = said.number("raised_at") if "raised_at" in said else None
        words = Words(said.text("message", MESSAGE), said.text("callstack", CALLSTACK), raised_at)
    return WorkerEnd(
        rank=said.whole("rank"),
        local_rank=said.whole("local_rank"),
        pid=said.whole("pid"),
        status=ExitStatus(said.whole("status", -255, 255)),
        at=said.number("at"),
        asked=said.flag("asked"),
        words=words,
        error_file=said.word("error_file", PATH),
        stderr_file=said.word("stderr_file", PATH),
        tail=said.texts("tail", TAIL, TAIL_LINE),
        step=said.whole("step") if "step" in said else None,
        returned=said.flag("returned"),
    )
