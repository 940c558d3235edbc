"""Fixtures for every room."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator

import pytest

from tests.leftovers import MARK, end_leftovers
from tests.preloaded import close_template
from tests.simulator import simulators

__all__ = ["nothing_is_left_running", "simulators"]


def pytest_configure() -> None:
    """A suite started in the background of a shell inherits a SIGINT that is ignored; what it starts must feel Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Everything that the session started, children and orphans, has ended with it (in each process of xdist)."""
    mark = secrets.token_hex(8)
    os.environ[MARK] = mark
    yield
    close_template()
    left = end_leftovers(mark, tmp_path_factory.getbasetemp())
    assert left == [], "left running by these tests, and killed now"
