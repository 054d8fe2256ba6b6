"""The stories still go as they are written down."""

from __future__ import annotations

import pytest

from .rewrite import names, read
from .story import replay


@pytest.mark.parametrize("name", names())
def test_the_story_goes_as_written(name: str) -> None:
    text = read(name)
    assert replay(text) == text, "explain the difference, then: python -m tests.transcripts.rewrite"


def test_there_are_stories() -> None:
    assert len(names()) >= 15
