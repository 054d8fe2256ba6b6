"""What one console shows of many workers: whole lines, prefixes, unfinished lines, progress bars."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.lines import BAR_LINE_S, BAR_S, LONGEST, PATIENCE_S, QUIET_S, Lines, Pace, Picker, Screen


class Scene:
    """Workers A, B, ... on one screen, and the text that the screen was given."""

    def __init__(self, terminal: bool = False, columns: int = 0) -> None:
        self.screen = Screen(terminal, columns)
        self.workers = {name: Lines(f"[{name}]:".encode(), self.screen) for name in "AB"}
        self.text = b""
        self.now = 100.0

    def say(self, name: str, data: bytes) -> Scene:
        self.text += b"".join(self.workers[name].feed(data, self.now))
        return self

    def after(self, seconds: float) -> Scene:
        self.now += seconds
        for worker in self.workers.values():
            self.text += worker.show(self.now)
        return self

    def end(self) -> bytes:
        for worker in self.workers.values():
            self.text += worker.end()
        return self.text


def test_every_line_has_its_prefix() -> None:
    assert Scene().say("A", b"one\n\ntwo\n").say("B", b"three\n").text == b"[A]:one\n[A]:\n[A]:two\n[B]:three\n"


def test_an_unfinished_line_waits_for_its_end() -> None:
    scene = Scene().say("A", b"one\ntw").say("B", b"three\n").say("A", b"o\n")
    assert scene.text == b"[A]:one\n[B]:three\n[A]:two\n"


@pytest.mark.parametrize("before", [b"", b"one\n", b"\r1%\n"])
def test_an_unfinished_line_is_shown_after_some_quiet_whatever_came_before(before: bytes) -> None:
    scene = Scene().say("A", before)
    shown = scene.text
    assert scene.say("A", b"tail").after(QUIET_S).text == shown + b"[A]:tail"
    assert Scene().say("A", before + b"tail").after(QUIET_S).text == shown + b"[A]:tail"


def test_an_unfinished_line_is_shown_after_some_quiet() -> None:
    scene = Scene().say("A", b"password: ").after(QUIET_S - 0.01)
    assert scene.text == b""
    assert scene.after(0.02).text == b"[A]:password: "
    assert scene.workers["A"].wake_at() is None


def test_the_rest_of_a_line_follows_where_the_cursor_stands() -> None:
    scene = Scene().say("A", b"half").after(QUIET_S).say("A", b" whole\nnext\n")
    assert scene.text == b"[A]:half whole\n[A]:next\n"


def test_the_rest_of_a_broken_off_line_has_a_prefix_again() -> None:
    scene = Scene().say("A", b"half").after(QUIET_S).say("B", b"other\n").say("A", b" whole\nnext\n")
    assert scene.text == b"[A]:half\n[B]:other\n[A]: whole\n[A]:next\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_broken_off_line_that_only_missed_its_end_shows_nothing_more(end: bytes) -> None:
    scene = Scene().say("A", b"half").after(QUIET_S).say("B", b"other\n").say("A", end + b"next\n")
    assert scene.text == b"[A]:half\n[B]:other\n[A]:next\n"


def test_more_of_a_broken_off_line_is_shown_after_quiet_on_a_fresh_line() -> None:
    scene = Scene().say("A", b"a1").after(QUIET_S).say("B", b"b1").after(QUIET_S).say("A", b"a2").after(QUIET_S)
    assert scene.text == b"[A]:a1\n[B]:b1\n[A]:a2"
    assert scene.end() == b"[A]:a1\n[B]:b1\n[A]:a2\n"


def test_more_of_an_unfinished_line_follows_it() -> None:
    assert Scene().say("A", b"a").after(QUIET_S).say("A", b"b").after(QUIET_S).text == b"[A]:ab"


def test_a_line_that_grows_without_pause_is_shown_after_a_second() -> None:
    scene = Scene()
    for _ in range(round(PATIENCE_S / 0.125)):
        assert scene.text == b""
        scene.say("A", b".").after(0.125)
    assert scene.text == b"[A]:........"


def test_a_line_too_long_to_remember_is_shown_in_parts() -> None:
    scene = Scene().say("A", b"x" * LONGEST)
    assert scene.text == b""
    scene.say("A", b"y").say("A", b"z").say("A", b"\n")
    assert scene.text == b"[A]:" + b"x" * LONGEST + b"yz\n"


def test_the_end_of_a_stream_ends_its_line() -> None:
    assert Scene().say("A", b"last").end() == b"[A]:last\n"
    assert Scene().say("A", b"last").after(QUIET_S).end() == b"[A]:last\n"
    assert Scene().say("A", b"last").after(QUIET_S).say("B", b"b\n").end() == b"[A]:last\n[B]:b\n"
    assert Scene().say("A", b"all\n").end() == b"[A]:all\n"


def test_our_own_message_begins_a_fresh_line() -> None:
    screen = Scene().say("A", b"half").after(QUIET_S).screen
    assert (screen.fresh(), screen.fresh()) == (b"\n", b"")


def test_windows_ends_of_lines_pass_unchanged() -> None:
    for cut in range(8):
        data = b"ab\r\ncd\r\n"
        assert Scene().say("A", data[:cut]).say("A", data[cut:]).text == b"[A]:ab\r\n[A]:cd\r\n"


BAR = b"".join(b"\r%3d%%" % percent for percent in range(0, 101, 10))


def test_a_bar_in_a_pipe_shows_its_last_state() -> None:
    assert Scene().say("A", BAR + b"\ndone\n").text == b"[A]:100%\n[A]:done\n"


def test_a_bar_in_a_pipe_shows_at_most_one_state_a_second() -> None:
    scene = Scene()
    for percent in range(100):
        scene.say("A", b"\r%d%%" % percent).after(0.0625)
    lines = scene.text.splitlines()
    assert lines[0] == b"[A]:3%"
    assert len(lines) == 1 + int(100 * 0.0625 / BAR_LINE_S)  # the first, and one for each second after it
    scene.say("A", b"\r100%").after(BAR_LINE_S)
    assert scene.text.endswith(b"%\n[A]:100%\n")
    shown = scene.text
    assert scene.after(10).say("A", b"\n").text == shown


def test_a_bar_on_a_terminal_stays_in_its_place() -> None:
    scene = Scene(terminal=True).say("A", b"\r 10%").after(BAR_S).say("A", b"\r 20%").say("A", b"\r 30%").after(BAR_S)
    assert scene.text == b"[A]: 10%\r[A]: 30%\x1b[K"
    assert scene.say("A", b"\r100%\n").text == b"[A]: 10%\r[A]: 30%\x1b[K\r[A]:100%\x1b[K\n"


def test_a_bar_on_a_terminal_that_lost_its_place_takes_a_fresh_line_once_a_second() -> None:
    scene = Scene(terminal=True).say("A", b"\r1%").after(BAR_S).say("B", b"\r7%").after(QUIET_S)
    assert scene.text == b"[A]:1%\n[B]:7%"
    scene.say("A", b"\r2%").after(QUIET_S)
    assert scene.text == b"[A]:1%\n[B]:7%"
    scene.after(BAR_LINE_S)
    assert scene.text == b"[A]:1%\n[B]:7%\n[A]:2%"
    assert scene.say("B", b"\n").say("A", b"\r3%\n").text == b"[A]:1%\n[B]:7%\n[A]:2%\r[A]:3%\x1b[K\n"


def test_a_bar_whose_last_state_is_shown_only_ends_its_line() -> None:
    assert Scene(terminal=True).say("A", b"\r100%").after(BAR_S).say("A", b"\n").text == b"[A]:100%\n"


def test_a_bar_with_its_return_behind_it_is_a_bar_too() -> None:
    scene = Scene().say("A", b"10%\r").after(QUIET_S)
    assert scene.text == b"[A]:10%\n"
    assert scene.say("A", b"20%\r").say("A", b"30").say("A", b"%\n").text == b"[A]:10%\n[A]:30%\n"


@pytest.mark.parametrize("parts", [(b"1%\r2\n",), (b"1%\r2", b"\n"), (b"1%\r", b"2\n"), (b"1%", b"\r2\n")])
def test_a_state_may_be_a_single_letter(parts: tuple[bytes, ...]) -> None:
    scene = Scene()
    for part in parts:
        scene.say("A", part)
    assert scene.text == b"[A]:2\n"


def test_a_bar_of_two_states_is_a_bar_before_its_line_ends() -> None:
    assert Scene().say("A", b"1%\r2").after(QUIET_S).text == b"[A]:2\n"


def test_each_new_state_of_a_bar_has_its_own_time() -> None:
    scene = Scene(terminal=True).say("A", b"10%\r")
    assert scene.workers["A"].wake_at() == scene.now + BAR_S
    scene.after(BAR_S)
    assert scene.workers["A"].wake_at() is None
    scene.after(5.0).say("A", b"20%\r")
    assert scene.workers["A"].wake_at() == scene.now + BAR_S


def test_states_that_were_replaced_are_forgotten() -> None:
    scene = Scene()
    for _ in range(10):
        scene.say("A", b"\r" + b"X" * (LONGEST // 3) + b"\r" + b"X" * (LONGEST // 3))
    assert scene.text == b""


def test_the_line_after_a_bar_on_a_terminal_is_the_next_one() -> None:
    assert Scene(terminal=True).say("A", b"\r1%\n").say("B", b"b\n").text == b"[A]:1%\n[B]:b\n"


def test_a_line_that_says_what_the_bar_before_it_said_is_shown() -> None:
    assert Scene().say("A", b"\r1%").after(QUIET_S).say("A", b"\n").say("A", b"1%\n").text == b"[A]:1%\n[A]:1%\n"


def test_an_erased_bar_does_not_erase_its_prefix() -> None:
    assert Scene().say("A", b"\r 50%\r     \rafterwards\n").text == b"[A]:afterwards\n"
    assert Scene().say("A", b"\r 50%\r     \r\n").text == b"[A]: 50%\n"
    assert Scene().say("A", b"\r  \r\n").text == b"[A]:\n"


def test_a_nested_bar_does_not_move_the_cursor_up() -> None:
    assert Scene().say("A", b"\n\rinner 1\x1b[A\n\rinner 2\x1b[A\n").text == b"[A]:\n[A]:inner 1\n[A]:inner 2\n"


def test_a_line_that_becomes_a_bar() -> None:
    assert Scene().say("A", b"0%").after(QUIET_S).say("A", b"\r9%\n").text == b"[A]:0%\n[A]:9%\n"
    scene = Scene(terminal=True).say("A", b"0%").after(QUIET_S).say("A", b"\r9%\n")
    assert scene.text == b"[A]:0%\r[A]:9%\x1b[K\n"


def test_a_bar_is_cut_to_the_width_of_the_terminal_until_it_ends() -> None:
    scene = Scene(terminal=True, columns=12).say("A", b"\r" + "█████████".encode()).after(BAR_S)
    assert scene.text.decode() == "[A]:███████"
    assert scene.say("A", b"\n").text.decode() == "[A]:███████\r[A]:█████████\x1b[K\n"
    broken = Scene(terminal=True, columns=8).say("A", b"\r" + b"\xff" * 9).after(BAR_S)
    assert broken.text == b"[A]:\xff\xff\xff"
    assert Scene(terminal=True, columns=3).say("A", b"\r100%").after(BAR_S).text == b"[A]:"
    coloured = b"\x1b[32m" + b"x" * 20 + b"\x1b[0m"
    assert Scene(terminal=True, columns=12).say("A", b"\r" + coloured).after(BAR_S).text == b"[A]:" + coloured


def test_a_bar_too_long_to_remember() -> None:
    scene = Scene().say("A", b"\r" + b"x" * (LONGEST + 1))
    assert scene.text == b"[A]:" + b"x" * (LONGEST + 1)
    assert scene.say("A", b"\nb\n").text.endswith(b"xx\n[A]:b\n")
    scene = Scene().say("A", b"\r" + b"x" * (LONGEST + 1)).say("B", b"b\n").say("A", b"\n")
    assert scene.text.endswith(b"xx\n[B]:b\n")


def test_a_screen_is_no_terminal_and_of_any_width_unless_told() -> None:
    screen = Screen()
    assert (screen.terminal, screen.columns, screen.owner) == (False, 0, None)


def test_the_numbers_are_those_that_the_rules_name() -> None:
    assert (QUIET_S, PATIENCE_S, BAR_S, BAR_LINE_S, LONGEST) == (0.2, 1.0, 0.1, 1.0, 256 * 1024)


def test_nothing_is_due_before_its_time() -> None:
    scene = Scene().after(1)
    assert scene.text == b""
    assert scene.workers["A"].wake_at() is None
    assert scene.say("A", b"x").workers["A"].wake_at() == scene.now + QUIET_S


chunks = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b" ", b"\xff\x00", b"line\n"]), max_size=30)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(edge % (len(data) + 1) for edge in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(chunks, st.lists(st.integers(0, 200), max_size=10), st.booleans())
def test_it_makes_no_difference_how_the_bytes_were_cut(words: list[bytes], cuts: list[int], terminal: bool) -> None:
    data = b"".join(words)
    whole, parts = Scene(terminal), Scene(terminal)
    whole.say("A", data)
    for part in cut(data, cuts):
        parts.say("A", part)
    assert whole.text == parts.text
    assert whole.end() == parts.end()


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 300), st.sampled_from([0.0, 0.15, 0.3, 2.0]))))
def test_without_prefixes_it_is_what_was_said(data: bytes, pauses: list[tuple[int, float]]) -> None:
    """One worker, no carriage returns: whatever time passes between the parts."""
    data = data.replace(b"\r", b"")
    scene = Scene()
    waits = [wait for _, wait in pauses] + [0.0]
    for part, wait in zip(cut(data, [at for at, _ in pauses]), waits, strict=True):
        scene.say("A", part).after(wait)
    shown = scene.end()
    expected = data if data.endswith(b"\n") or not data else data + b"\n"
    assert shown.count(b"\n") == expected.count(b"\n")
    assert b"\n".join(line[4:] for line in shown.split(b"\n")) == expected


events = st.lists(
    st.tuples(
        st.sampled_from("AB"),
        st.sampled_from([b"x", b"\n", b"y\n", b"\rz", b"q\r", b"\r\n"]),
        st.sampled_from([0, 0.25, 1.5]),
    ),
    max_size=40,
)


@given(events)
def test_two_workers_never_share_a_line(story: list[tuple[str, bytes, float]]) -> None:
    scene = Scene()
    for name, data, wait in story:
        scene.say(name, data.replace(b"x", b"x" + name.encode()).replace(b"y", b"y" + name.encode())).after(wait)
    for line in scene.end().split(b"\n")[:-1]:
        assert line[:4] in (b"[A]:", b"[B]:")
        other = b"B" if line.startswith(b"[A") else b"A"
        assert other not in line
        assert line.count(b"]:") == 1


# Lines that hold a needle.


def test_lines_with_a_needle_are_found_whole() -> None:
    picker = Picker(b"[A]:", (b"loss", b"err"))
    assert picker.feed(b"lo") == b""
    assert picker.feed(b"ss=1\nnothing\nan err") == b"[A]:loss=1\n"
    assert picker.feed(b"or\n") == b"[A]:an error\n"
    assert picker.feed(b"nothing\n") == b""
    assert picker.feed(b"loss=2") == b""
    assert (picker.end(), picker.end()) == (b"[A]:loss=2\n", b"")


def test_all_lines_with_a_needle_are_found_at_once() -> None:
    picker = Picker(b"[A]:", (b"loss",))
    assert picker.feed(b"loss=1\nloss=2\n") == b"[A]:loss=1\n[A]:loss=2\n"
    assert picker.feed(b"loss" + b"x" * (LONGEST - 4)) == b""


def test_an_empty_needle_finds_every_line_and_no_other() -> None:
    picker = Picker(b"[A]:", (b"",))
    assert picker.feed(b"a\n\nb\nc") == b"[A]:a\n[A]:\n[A]:b\n"
    assert picker.end() == b"[A]:c\n"


def test_of_a_bar_the_last_state_with_a_needle_is_taken() -> None:
    picker = Picker(b"", (b"loss", b"a\rb"))
    assert picker.feed(b"\rloss=1\rloss=2\rgone\n") == b"loss=2\n"
    assert picker.feed(b"a\rb\n") == b"a\rb\n"


def test_a_line_too_long_to_remember_counts_as_several() -> None:
    picker = Picker(b"", (b"needle",))
    found = picker.feed(b"needle" + b"x" * LONGEST)
    assert found == b"needle" + b"x" * LONGEST + b"\n"
    assert picker.feed(b"y" * 10 + b"\n") == b""
    assert picker.feed(b"needle\nneedle" + b"x" * LONGEST) == b"needle\nneedle" + b"x" * LONGEST + b"\n"
    prefixed = Picker(b"[A]:", (b"needle",))
    assert prefixed.feed(b"needle" + b"x" * LONGEST) == b"[A]:needle" + b"x" * LONGEST + b"\n"


# How long to let small writes gather.


def test_rare_lines_are_never_made_to_wait() -> None:
    pace = Pace()
    assert {pace.after(0.01, 0.001) for _ in range(10)} == {0.0}


def test_a_steady_stream_gathers_for_longer_and_longer() -> None:
    pace = Pace()
    pauses = [pace.after(0.0, 0.01) for _ in range(8)]
    assert pauses == [0, 0, 0, pace.FIRST_S, 2 * pace.FIRST_S, pace.MOST_S, pace.MOST_S, pace.MOST_S]
    assert pace.after(0.0, 0.3) == pace.MOST_S
    assert pace.after(0.0, 0.6) == 0.0
    assert pace.after(0.0, 0.01) == 0.0


@pytest.mark.parametrize(
    ("waited_s", "fullness", "pause_s"),
    [
        (Pace.RARE_S, 0.0, 0.0),
        (Pace.RARE_S / 2, 0.25, Pace.MOST_S),
        (0.0, 0.251, Pace.FIRST_S),
        (0.0, 0.5, Pace.FIRST_S),
        (0.0, 0.501, 0.0),
    ],
)
def test_when_the_pause_grows_stays_and_ends(waited_s: float, fullness: float, pause_s: float) -> None:
    pace = Pace()
    for _ in range(4):
        pace.after(0.0, 0.0)
    for _ in range(3):
        paused = pace.after(waited_s, fullness)
    assert paused == pause_s


def test_after_a_rare_line_a_stream_has_to_prove_itself_anew() -> None:
    pace = Pace()
    pace.after(1.0, 0.0)
    assert [pace.after(0.0, 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, pace.FIRST_S]
