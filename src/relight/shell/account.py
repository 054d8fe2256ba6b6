"""The account of a job: what the workers of a round said of themselves, how each ended, and who is told of it."""

from __future__ import annotations

from relight.core.failure import WorkerEnd
from relight.core.page import as_json
from relight.core.room import Closed, Returned, Step
from relight.core.values import replace
from relight.shell.errorfiles import pass_on, words_in, write_whole
from relight.shell.logfiles import last_lines
from relight.shell.patience import TELLING_S, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relight.core.failure import Words
    from relight.core.names import ExitStatus
    from relight.core.page import Story
    from relight.core.room import Fact, Hello
    from relight.core.roster import Place

MOST_REMARKS = 8  # of different kinds, by the workers' start-up shims


class Account:
    """One round. Whoever is not of it is not heard."""

    def __init__(self, round_: int, places: Iterable[Place]) -> None:
        self.round = round_
        self._places = {place.local_rank: place for place in places}
        self._steps: dict[int, int] = {}
        self._returned: set[int] = set()
        self._files_answer = True  # until reading one took too long: others in the same place would, too
        self._remarks: dict[str, set[int]] = {}  # what to say at the end, once, and of which local ranks

    def heard(self, who: Hello, fact: Fact) -> None:
        """A worker has said something of itself."""
        if who.round != self.round or who.local_rank not in self._places:
            return
        if isinstance(fact, Step):
            self._steps[who.local_rank] = fact.step
        elif isinstance(fact, Returned):
            self._returned.add(who.local_rank)
        elif isinstance(fact, Closed):
            self._remark(fact.what, who.local_rank)

    def end_of(
        self, local_rank: int, pid: int, status: ExitStatus, at: float, error_file: str, stderr_file: str
    ) -> WorkerEnd:
        """A worker's end with everything it left behind to say about it."""
        words, tail = (None, ()) if status.ok else self._left_behind(error_file, stderr_file)
        end = WorkerEnd(
            rank=self._places[local_rank].rank,
            local_rank=local_rank,
            pid=pid,
            status=status,
            at=at,
            words=words,
            error_file=error_file,
            step=self._steps.get(local_rank),
            returned=local_rank in self._returned,
            stderr_file=stderr_file,
            tail=tail,
        )
        if end.forgiven:
            self._remark(f"{status} after its script had returned, and counts as finished", local_rank)
        return end

    def _left_behind(self, error_file: str, stderr_file: str) -> tuple[Words | None, tuple[str, ...]]:
        """What its files say."""
        if self._files_answer and (error_file or stderr_file):
            try:
                return within(TELLING_S, error_file, lambda: (words_in(error_file), last_lines(stderr_file)))
            except OSError:
                self._files_answer = False
        return None, ()

    def remarks(self) -> list[str]:
        """What is worth a line when all is over."""
        return [f"local rank {', '.join(map(str, sorted(who)))} {what}" for what, who in self._remarks.items()]

    def _remark(self, what: str, local_rank: int) -> None:
        if what in self._remarks or len(self._remarks) < MOST_REMARKS:
            self._remarks.setdefault(what, set()).add(local_rank)


def hand_in(story: Story, report: str, parent: str, say: Callable[[str], object]) -> Story:
    """Writes `report`, and the first cause where a parent launcher looks for it; an empty path is nobody's.

    Says what could not be written. The story that comes back names the report, if there is one.
    """
    if report:
        told = replace(story, report=report)
        try:
            within(TELLING_S, report, lambda: write_whole(report, as_json(told)))
            story = told
        except OSError as error:
            say(f"{report} could not be written: {error.strerror}")
    first = story.first_cause
    end = first.end if first else None
    if parent and end:
        try:
            trouble = within(TELLING_S, parent, lambda: pass_on(end, parent))
        except OSError as error:
            trouble = f"{parent} could not be written: {error.strerror}"
        if trouble:
            say(trouble)
    return story
