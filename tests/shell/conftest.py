"""What the tests of meeting share: a company of agents, which is sent home at the end."""

from collections.abc import Iterator

import pytest

from relight.shell.loop import Loop
from tests.shell.company import Company


@pytest.fixture
def company(loop: Loop) -> Iterator[Company]:
    company = Company(loop)
    yield company
    company.close()
