"""The harness itself: it notices what differs, forgives only what is declared, and leaves nothing running."""

from __future__ import annotations

import pytest

from .case import ABSENT, ANYTHING, Case, Difference
from .comparing import compare
from .documented import entries, untested
from .recording import unusual, whole
from .running import Launcher, TookTooLong, _processes_of, run

SHELL = Launcher("shell", ("/bin/sh",), ("/bin/sh",), ("/bin/sh",))


def _case(**differs: Difference) -> Case:
    return Case("x", ("x",), differs={name.replace("__", "/"): one for name, one in differs.items()})


def test_equal_observations_are_no_surprise() -> None:
    assert compare(_case(), {"exit": [0]}, {"exit": [0]}, {}).surprises == []


def test_a_difference_names_its_path_and_both_values() -> None:
    (surprise,) = compare(_case(), {"world": {"0": {"RANK": "0"}}}, {"world": {"0": {}}}, {}).surprises
    assert "world/0/RANK" in surprise
    assert "'0'" in surprise
    assert "ABSENT" in surprise


@pytest.mark.parametrize(
    ("instead", "surprised"),
    [
        ([2], False),
        ([3], True),
        (ANYTHING, False),
        (ABSENT, True),
        (lambda first, second: first == [1] and second == [2], False),
        (lambda first, second: False, True),
    ],
)
def test_a_declared_difference_must_show_what_it_says(instead: object, surprised: bool) -> None:
    verdict = compare(_case(exit=Difference("key", instead)), {"exit": [1]}, {"exit": [2]}, {})
    assert bool(verdict.surprises) == surprised


def test_a_declared_difference_that_is_gone_is_a_surprise() -> None:
    verdict = compare(_case(exit=Difference("key", [2])), {"exit": [1]}, {"exit": [1]}, {})
    assert verdict.surprises == ["declared difference 'exit' is no longer seen: remove it"]


def test_a_difference_for_all_cases_need_not_show() -> None:
    assert compare(_case(), {"exit": [1]}, {"exit": [1]}, {"exit": Difference("key", [2])}).surprises == []


def test_between_two_torchruns_nothing_may_differ() -> None:
    declared = _case(exit=Difference("key", [2]))
    assert compare(declared, {"exit": [1]}, {"exit": [2]}, {}, alike=True).surprises
    assert not compare(declared, {"exit": [1]}, {"exit": [1]}, {}, alike=True).surprises


def test_what_a_run_leaves_running_is_seen_and_ended() -> None:
    # The shell ends only once its child is `sleep`: on a busy machine that may take longer than anybody waits.
    leave = "setsid sleep 30 & until grep -q sleep /proc/$!/comm; do :; done; exit 4"
    case = Case("leaves a child", ("-c", leave))
    with run(case, SHELL) as happened:
        assert happened.exits == [4]
        assert happened.left_running == ["sleep 30"]
        root = happened.root
    assert _processes_of(root) == {}


def test_a_run_beyond_its_deadline_is_ended() -> None:
    case = Case("sleeps", ("-c", "sleep 30 & sleep 31"), deadline_s=0.2)
    with pytest.raises(TookTooLong), run(case, SHELL):
        pass


def test_fingerprints_follow_what_is_run_and_not_what_is_declared() -> None:
    plain = Case("x", ("a",))
    assert plain.fingerprint() == Case("x", ("a",), differs={"exit": Difference("key", 1)}).fingerprint()
    assert plain.fingerprint() != Case("x", ("a",), env={"A": "1"}).fingerprint()


def test_entries_of_the_document() -> None:
    first = '# T\nintro\n### <a id="a-b"></a>First\none\n\n'
    text = first + '### <a id="c"></a>Second\nUntested: needs two machines\n## End\nrest\n'
    found = entries(text)
    assert found == {"a-b": "one\n\n", "c": "Untested: needs two machines\n"}
    assert [untested(entry) for entry in found.values()] == [False, True]
    with pytest.raises(ValueError, match="twice"):
        entries('### <a id="a"></a>A\n### <a id="a"></a>A\n')


def test_a_world_survives_being_written_as_what_is_unusual() -> None:
    usual = {"env/RANK": "0", "cwd": "/", "nice": 0}
    world = {"env/RANK": "1", "cwd": "/", "env/NEW": "x"}
    said = unusual(world, usual)
    assert said == {"env/RANK": "1", "env/NEW": "x", "-": ["nice"]}
    assert whole(said, usual) == world
