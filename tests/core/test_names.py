"""How a process ended in words, the error families, and text that came from outside."""

from __future__ import annotations

import signal
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.names import (
    Broken,
    ExitStatus,
    JobFailed,
    RelightError,
    UsageError,
    fill_in,
    legible,
    never,
    signal_name,
    visible,
    why_no_word,
)


@pytest.mark.parametrize(
    ("number", "ok", "killer", "words"),
    [
        (0, True, None, "exited with 0"),
        (3, False, None, "exited with 3"),
        (255, False, None, "exited with 255"),
        (-9, False, 9, "was killed by SIGKILL"),
        (-15, False, 15, "was killed by SIGTERM"),
        (-33, False, 33, "was killed by signal 33"),
    ],
)
def test_an_exit_status_reads_as_a_sentence(number: int, ok: bool, killer: int | None, words: str) -> None:
    status = ExitStatus(number)
    assert (status.ok, status.signal, str(status)) == (ok, killer, words)


def test_a_signal_without_a_name_keeps_its_number() -> None:
    assert signal_name(signal.SIGINT) == "SIGINT"
    assert signal_name(200) == "signal 200"


@pytest.mark.parametrize("family", [UsageError, JobFailed, Broken])
def test_an_error_says_what_is_wrong_and_what_to_do(family: type[RelightError]) -> None:
    error = family("--nnodes 4:2 is upside down", "--nnodes 2:4")
    assert isinstance(error, RelightError)
    assert str(error) == error.what == "--nnodes 4:2 is upside down"
    assert error.remedy == "--nnodes 2:4"
    assert family("so it is").remedy == ""


def test_an_impossible_branch_says_what_reached_it() -> None:
    with pytest.raises(AssertionError, match="unexpected 'surprise'"):
        never("surprise")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("--seed=${local_rank}", "--seed=3"),
        ("$local_rank/$local_rank", "3/3"),
        ("$$", "$"),
        ("$$local_rank", "$local_rank"),
        ("$$$local_rank", "$3"),
        ("$HOME ${HOME} $ ${ $local_rankx $LOCAL_RANK $1", "$HOME ${HOME} $ ${ $local_rankx $LOCAL_RANK $1"),
        ("${local_rank", "${local_rank"),
        ("", ""),
        ("nothing to fill", "nothing to fill"),
    ],
)
def test_templates_are_filled_in_as_torchrun_does(template: str, filled: str) -> None:
    assert fill_in(template, local_rank=3) == filled


@given(st.text(alphabet="${}a_rlocnk \\\n", max_size=30))
def test_no_template_is_an_error(template: str) -> None:
    assert fill_in(template, local_rank=0) == string.Template(template).safe_substitute(local_rank=0)


@given(st.text(alphabet=st.characters()))
def test_legible_text_can_always_be_written(text: str) -> None:
    assert legible(text).encode().decode() == legible(text)
    assert legible(text) == legible(legible(text))


@pytest.mark.parametrize(("text", "written"), [("naïve ✓", "naïve ✓"), ("a\ud800b", "a\\ud800b")])
def test_only_what_cannot_be_written_is_changed(text: str, written: str) -> None:
    assert legible(text) == written


@given(st.text(alphabet=st.characters()))
def test_nothing_in_visible_text_steers_a_terminal(text: str) -> None:
    shown = visible(text)
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in shown)
    assert shown == visible(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\tb\nnaïve ✓ \\x1b", "a\tb\nnaïve ✓ \\x1b"),
        ("\0 \a \r \x7f \x9b", "\\x00 \\x07 \\x0d \\x7f \\x9b"),
    ],
)
def test_only_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a word, \t\n any", ""),
        ("caf\u00e9 \udcff", ""),
        ("a\0b", "a NUL character ends a word"),
        ("\ud800", "half a surrogate pair stands for no bytes"),
    ],
)
def test_what_a_command_or_a_path_can_hold(text: str, why: str) -> None:
    assert why_no_word(text) == why
