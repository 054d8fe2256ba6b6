"""Who sits where: nodes to group ranks, workers to ranks. Stable over rounds; nodes may differ in slots and role."""

from __future__ import annotations

import collections
import re

from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


@value
class Applicant:
    """A node that is ready to take part, and what it brings."""

    node: str
    slots: int
    role: str = "default"
    store_address: str = "127.0.0.1"
    store_port: int = 0
    life: str = ""  # which start of this node's agent speaks
    hint: int | None = None  # the place its user or scheduler had in mind for it


@value
class Seat:
    """A node's place in one round."""

    node: str
    group_rank: int
    slots: int
    role: str
    first_rank: int
    first_role_rank: int
    store_address: str
    store_port: int
    life: str = ""  # a seat is for this start of the node's agent, not for the next one


@value
class Place:
    """A worker's place in one round."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    group_rank: int
    group_world_size: int
    role: str
    role_rank: int
    role_world_size: int


@value
class Part:
    """What one node has to know of a round: its own seat, how large the whole is, and where the workers meet."""

    seat: Seat
    world_size: int
    group_world_size: int
    role_world_size: int
    store_address: str
    store_port: int

    def places(self) -> tuple[Place, ...]:
        """The places of this node's workers, by local rank."""
        seat = self.seat
        return tuple(
            Place(
                rank=seat.first_rank + local_rank,
                local_rank=local_rank,
                world_size=self.world_size,
                local_world_size=seat.slots,
                group_rank=seat.group_rank,
                group_world_size=self.group_world_size,
                role=seat.role,
                role_rank=seat.first_role_rank + local_rank,
                role_world_size=self.role_world_size,
            )
            for local_rank in range(seat.slots)
        )


@value
class Roster:
    """Everybody's place in one round. Workers find each other at the store of the node in seat 0."""

    seats: tuple[Seat, ...]

    @property
    def world_size(self) -> int:
        return sum(seat.slots for seat in self.seats)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(seat.node for seat in self.seats)

    def parts(self) -> dict[str, Part]:
        """Each node's part, by its name."""
        world_size, roles = self.world_size, collections.Counter[str]()
        for seat in self.seats:
            roles[seat.role] += seat.slots
        host = self.seats[0]
        return {
            seat.node: Part(seat, world_size, len(self.seats), roles[seat.role], host.store_address, host.store_port)
            for seat in self.seats
        }


def seat(applicants: Iterable[Applicant], before: Roster | None, most: int) -> Roster:
    """Seats at most `most` nodes. Survivors keep their order; newcomers sit behind them, by hint and natural order."""
    old = {taken.node: taken.group_rank for taken in before.seats} if before else {}
    order = sorted(
        applicants,
        key=lambda one: (old.get(one.node, len(old)), _NO_HINT if one.hint is None else one.hint, _natural(one.node)),
    )
    seats: list[Seat] = []
    workers, roles = 0, collections.Counter[str]()
    for one in order[:most]:
        seats.append(
            Seat(
                node=one.node,
                group_rank=len(seats),
                slots=one.slots,
                role=one.role,
                first_rank=workers,
                first_role_rank=roles[one.role],
                store_address=one.store_address,
                store_port=one.store_port,
                life=one.life,
            )
        )
        workers += one.slots
        roles[one.role] += one.slots
    return Roster(tuple(seats))


_NO_HINT = 1 << 62


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that puts node2 before node10."""
    return [(int(part), "") if turn % 2 else (-1, part) for turn, part in enumerate(re.split(r"([0-9]+)", name))]
