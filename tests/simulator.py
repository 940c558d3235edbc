"""The simulated Cloud TPU as a process of its own, for tests of any room.

    async def test_x(simulators: SimulatorFactory) -> None:
        simulator = simulators()                 # shared over the session: read, create under your own names
        simulator = simulators(fresh=True)       # this test's own, ended with the session at the latest
        context = load_context(file=simulator.context_file)
        simulator.inject("preempt", "train-a/0")

It is started as `slicetower sim serve` (see preloaded.py), waited for by its ready line, and ended by its process id.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from backend.context import Context, load_context
from tests.preloaded import Forked, template

ROOT = Path(__file__).parents[1]
READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
SPEED = 200.0
"""Delays are a two-hundredth of the real ones: minutes of provisioning are a second or less."""


@dataclass
class Simulator:
    """A running simulator."""

    directory: Path
    process: Forked
    ready: Mapping[str, object] = field(default_factory=dict)

    @property
    def context_file(self) -> Path:
        return Path(str(self.ready["context_file"]))

    @property
    def context(self) -> Context:
        return load_context(file=self.context_file)

    @property
    def grpc(self) -> str:
        """127.0.0.1:PORT."""
        return str(self.ready["grpc"])

    @property
    def rest(self) -> str:
        """http://127.0.0.1:PORT."""
        return str(self.ready["rest"])

    def cli(self, *arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Runs `slicetower --context-file ... ARGUMENTS` with state and configuration of its own."""
        return run_cli("--context-file", str(self.context_file), *arguments, home=self.directory, timeout_s=timeout_s)

    def inject(self, *arguments: str) -> None:
        """Brings a fault about: `inject("preempt", "train-a/0")`."""
        fault, *rest = arguments
        done = run_cli("sim", "inject", "--dir", str(self.directory), fault, *rest, home=self.directory)
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        """Ends it, and waits until its process is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


def run_cli(*arguments: str, home: Path, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs `slicetower ARGUMENTS` as an operator would whose home is `home`."""
    command = template().start(arguments, environment=own_environment(home), folder=ROOT)
    out, errors = command.communicate(timeout_s)
    assert command.returncode is not None
    return subprocess.CompletedProcess(list(arguments), command.returncode, _text(out), _text(errors))


def _text(data: bytes) -> str:
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def own_environment(home: Path) -> dict[str, str]:
    """The environment of a process that may not touch the operator's own files."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLOUDSDK_", "GOOGLE_", "XDG_"))
    }
    folders = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".state"),
        "PYTHONPATH": str(ROOT),
    }
    return {**kept, **folders}


def start_simulator(directory: Path, *, scenario: str = "default", speed: float = SPEED, seed: int = 1) -> Simulator:
    """Starts one and waits for its ready line; the caller ends it with `stop`."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["sim", "serve", "--dir", str(directory), "--seed", str(seed), "--speed", str(speed)]
    command += ["--scenario", scenario, "--exit-with-parent"]
    with (directory / "simulator.err").open("wb") as errors:
        process = template().start(command, environment=own_environment(directory), folder=ROOT, stderr=errors)
    simulator = Simulator(directory, process)
    try:
        simulator.ready = json.loads(_first_line(process, directory))
        assert simulator.ready.get("ready") is True
        assert simulator.context_file.exists()
    except BaseException:
        simulator.stop()
        raise
    return simulator


def _first_line(process: Forked, directory: Path) -> bytes:
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    ends_at = time.monotonic() + READY_TIMEOUT_S
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(ends_at - time.monotonic(), 0.0))
        piece = os.read(descriptor, 4096) if readable else b""
        if not piece:
            errors = (directory / "simulator.err").read_text("utf-8", "replace")
            reason = "ended" if readable else f"was not ready within {READY_TIMEOUT_S:.0f} s"
            raise RuntimeError(f"the simulator {reason}:\n{errors[-4000:]}")
        line += piece
    return line


class SimulatorFactory(Protocol):
    def __call__(
        self, *, scenario: str = "default", speed: float = SPEED, seed: int = 1, fresh: bool = False
    ) -> Simulator: ...


@pytest.fixture(scope="session")
def simulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatorFactory]:
    """Starts simulators on demand; one per set of arguments unless `fresh`; all have ended with the session."""
    shared: dict[tuple[str, float, int], Simulator] = {}
    running: list[Simulator] = []

    def factory(*, scenario: str = "default", speed: float = SPEED, seed: int = 1, fresh: bool = False) -> Simulator:
        key = (scenario, speed, seed)
        if not fresh and key in shared and shared[key].process.poll() is None:
            return shared[key]
        made = start_simulator(tmp_path_factory.mktemp("sim"), scenario=scenario, speed=speed, seed=seed)
        running.append(made)
        if not fresh:
            shared[key] = made
        return made

    yield factory
    for each in running:
        each.stop()
