"""The simulator as a process: its ready line, faults by command, and that nothing of it is left when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import asyncssh
import psutil
import pytest

from backend.outcomes import ExitCode, OperatorError
from backend.sim import control
from tests.backend.sim.sim_world import LIMIT_S
from tui.cli import demo
from tui.cli.main import main

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(directory: Path, *more: str) -> list[str]:
    own = [sys.executable, "-m", "tui.cli.main", "sim", "serve", "--dir", str(directory), "--speed", "200"]
    return [*own, *more]


@contextmanager
def served(directory: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(command(directory), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd="/")
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()


def wait_for(reached: Callable[[], bool], what: str) -> None:
    deadline = monotonic() + LIMIT_S
    while not reached():
        assert monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        sleep(0.02)


async def start_sleeper(directory: Path, address: str) -> tuple[asyncssh.SSHClientConnection, int]:
    """A real process on a worker, and the connection that started it."""
    text = await asyncio.to_thread((directory / "context.toml").read_text)
    port = next(int(line.split("=")[1]) for line in text.splitlines() if line.startswith("port"))
    connection = await asyncssh.connect(
        address,
        port,
        username="operator",
        client_keys=[str(directory / "id_ed25519")],
        known_hosts=None,
        config=None,
    )
    process = await connection.create_process("setsid sleep 600 >/dev/null 2>&1 & echo $!")
    return connection, int(await asyncio.wait_for(process.stdout.readline(), LIMIT_S))


async def test_preempting_by_command_kills_real_processes_and_connections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "sim"
    with served(directory) as (_, ready):
        assert Path(ready["context_file"]) == directory / "context.toml"
        connection, pid = await start_sleeper(directory, "127.1.0.1")
        assert psutil.pid_exists(pid)
        inject = ["sim", "inject", "--dir", str(directory), "preempt", "train-a", "--notice", "0"]
        assert await asyncio.to_thread(main, inject) == ExitCode.OK
        assert "train-a was preempted" in capsys.readouterr().out
        await asyncio.to_thread(wait_for, lambda: not psutil.pid_exists(pid), "the worker's process is gone")
        await asyncio.wait_for(connection.wait_closed(), LIMIT_S)


def test_a_folder_is_served_once_at_a_time_and_a_new_world_starts_with_empty_disks(tmp_path: Path) -> None:
    directory = tmp_path / "sim"
    with served(directory) as (_, first):
        with pytest.raises(OperatorError, match=r"serves in .* already"):
            main(["sim", "serve", "--dir", str(directory)])
        left = directory / "workers" / "1" / "0" / "home" / "left"
        left.parent.mkdir(parents=True)
        left.write_text("x")
    with served(directory) as (_, second):
        assert second["seed"] != first["seed"]
        assert not left.exists()


async def test_sigterm_ends_everything_with_exit_code_0_and_takes_the_context_file_away(tmp_path: Path) -> None:
    directory = tmp_path / "sim"
    with served(directory) as (process, ready):
        assert process.pid == ready["pid"]
        connection, pid = await start_sleeper(directory, "127.1.0.1")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, LIMIT_S) == 0
        await asyncio.to_thread(wait_for, lambda: not any(child.is_running() for child in children), "children gone")
        assert not psutil.pid_exists(pid)
        await asyncio.wait_for(connection.wait_closed(), LIMIT_S)
    assert not (directory / "context.toml").exists()
    assert not (directory / control.CONTROL_FILE).exists()


def test_a_simulator_ends_with_the_process_that_started_it_even_when_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()",
            *command(tmp_path / "sim", "--exit-with-parent"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert json.loads(parent.stdout.readline())["pid"] == child
        parent.kill()
        parent.wait(LIMIT_S)
        wait_for(lambda: not psutil.pid_exists(child), "the simulator is gone")
    finally:
        parent.stdout.close()
        if psutil.pid_exists(child):
            os.kill(child, signal.SIGKILL)


def test_faults_that_cannot_be_brought_about_exit_with_2_and_without_a_simulator_with_3(tmp_path: Path) -> None:
    directory = tmp_path / "sim"
    with served(directory):
        with pytest.raises(OperatorError, match="no queued resource 'nobody'") as raised:
            main(["sim", "inject", "--dir", str(directory), "fail", "nobody"])
        assert raised.value.exit_code == ExitCode.USAGE
        token = json.loads((directory / control.CONTROL_FILE).read_text())
        (directory / control.CONTROL_FILE).write_text(json.dumps({**token, "token": "guessed"}))
        with pytest.raises(OperatorError, match="token is wrong"):
            main(["sim", "inject", "--dir", str(directory), "fail", "train-a"])
    with pytest.raises(OperatorError, match="No simulator serves") as raised:
        main(["sim", "inject", "--dir", str(directory), "fail", "train-a"])
    assert raised.value.exit_code == ExitCode.UNREACHABLE


@pytest.mark.parametrize("more", [["--scenario", "nowhere"], ["--speed", "0"]])
def test_a_simulator_that_cannot_start_says_why(tmp_path: Path, more: list[str]) -> None:
    with pytest.raises(OperatorError, match=r"no scenario 'nowhere'|speed must be above 0"):
        main(["sim", "serve", "--dir", str(tmp_path / "sim"), *more])


def test_the_demos_simulator_is_ready_inside_its_block_and_gone_after_it(tmp_path: Path) -> None:
    with demo.simulator(tmp_path / "sim", ["--scenario", "empty"]) as context_file:
        assert context_file.exists()
        pids = [child.pid for child in psutil.Process().children() if "tui.cli.main" in " ".join(child.cmdline())]
        assert len(pids) == 1
    assert not psutil.pid_exists(pids[0])
    assert not context_file.exists()


DEMO = """
import sys, tempfile, time
from pathlib import Path
from tui.cli import demo
with demo.signals_as_exits(), tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
    with demo.simulator(Path(folder), ["--scenario", "empty"]) as context_file:
        print(context_file, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_demo_whose_terminal_is_closed_leaves_neither_a_simulator_nor_its_folder(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", DEMO, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert process.stdout is not None
    context_file = Path(process.stdout.readline().strip())
    assert context_file.exists()
    pids = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert pids
    process.send_signal(number)
    assert process.wait(LIMIT_S) == 128 + number
    process.stdout.close()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the simulator is gone")
    assert not context_file.parent.exists()


def test_the_demo_tells_what_a_simulator_said_that_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="There is no scenario 'nowhere'"):  # noqa: SIM117
        with demo.simulator(tmp_path / "sim", ["--scenario", "nowhere"]):
            raise AssertionError("it must not start")
