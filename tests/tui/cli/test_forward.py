"""`slicetower forward`: real bytes through a real server, to its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from backend.tools.forward import Ports
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment

BOUND_S = 90.0


@contextmanager
def forwarding(
    context_file: Path, home: Path, target: str, ports: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The running verb and its local port."""
    before = ("--context-file", str(context_file))
    process = subprocess.Popen(
        [sys.executable, "-m", "tui.cli.main", *before, "forward", target, ports, "--format", "json"],
        cwd=ROOT,
        env=own_environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        host, _, port = told["local"].partition(":")
        assert (told["ready"], host) == (True, "127.0.0.1")
        yield process, int(port)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


def test_bytes_pass_both_ways_until_ctrl_c(simulator: Simulator) -> None:
    address = simulator.cli("shell", "train-a/0/0", "--dry-run").stdout.split()[-1]
    with socket.create_server((address, 0)) as server:
        server.settimeout(BOUND_S)
        ports = f"{server.getsockname()[1]}:0"
        with forwarding(simulator.context_file, simulator.directory, "train-a/0/0", ports) as (process, port):
            with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as ours:
                theirs, _ = server.accept()
                theirs.settimeout(BOUND_S)
                ours.sendall(b"there\x00\xff")
                assert theirs.recv(100) == b"there\x00\xff"
                theirs.sendall(b"back")
                assert ours.recv(100) == b"back"
                theirs.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(BOUND_S) == 130
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)


def test_a_lost_connection_ends_it_with_its_code(simulator: Simulator) -> None:
    with forwarding(simulator.context_file, simulator.directory, "train-a/0/1", "6006:0") as (process, _):
        simulator.inject("cut", "train-a/0/1")
        assert process.wait(BOUND_S) == 3


def test_a_taken_local_port_and_several_workers_are_refused(simulator: Simulator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        done = simulator.cli("forward", "train-a/0/0", f"6006:{taken}")
        assert done.returncode == 2
        assert f"Port {taken} of this machine can't be used" in done.stderr
    done = simulator.cli("forward", "train-a", "6006")
    assert done.returncode == 2
    assert "8 workers" in done.stderr


@pytest.mark.parametrize("text", ["", "x", "0", "70000", "1:70000", "1:2:3", "-1", "1:"])
def test_no_port_is_said_so(text: str) -> None:
    with pytest.raises(OperatorError, match="no port"):
        Ports.parse(text)


def test_both_forms_of_ports() -> None:
    assert Ports.parse("6006") == Ports(6006, 6006)
    assert Ports.parse("6006:0") == Ports(6006, 0)
