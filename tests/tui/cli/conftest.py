"""Fixtures of the tests of the command line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.cli.qr_world import Done, Run
from tui.cli import main as cli


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `slicetower ARGUMENTS` in this process, without a terminal, with a state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def slicetower(simulator: Simulator, *arguments: str, before: tuple[str, ...] = ()) -> Done:
        capsys.readouterr()
        try:
            code = cli.main(["--context-file", str(simulator.context_file), *before, *arguments])
        except OperatorError as error:
            code = cli.report(error)
        except SystemExit as ended:
            code = int(ended.code or 0)
        found = capsys.readouterr()
        return Done(code, found.out, found.err)

    return slicetower


@pytest.fixture
def default(simulators: SimulatorFactory) -> Simulator:
    """The default world; shared: read only, or refused."""
    return simulators()


@pytest.fixture
def empty(simulators: SimulatorFactory) -> Simulator:
    """Nothing exists; shared: each test makes its own names and deletes them."""
    return simulators(scenario="empty")
