"""Without any console: notices and alerts by `fleet --watch` and `qr keep`, and a job that is kept."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.outcomes import ExitCode
from tests.preloaded import Forked, template
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment

LIMIT_S = 120.0
SHAPE = ("--accelerator-type=v5litepod-8", "--runtime-version=v2-alpha-tpuv5-lite", "--zone=us-west4-a")
APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


def until(condition: Callable[[], object], what: str) -> None:
    """Another process brings it about."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def configured(simulator: Simulator, notices: Path, alerts: str = "") -> None:
    """Notices of every kind go to a file."""
    folder = simulator.directory / ".config" / "slicetower"
    folder.mkdir(parents=True)
    command = json.dumps([sys.executable, "-c", APPEND, str(notices)])
    (folder / "config.toml").write_text(f"{alerts}\n[notifications]\ncommand = {command}\n", "utf-8")


def told(notices: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in notices.read_text("utf-8").splitlines()] if notices.exists() else []


@contextmanager
def running(simulator: Simulator, *arguments: str) -> Iterator[Forked]:
    """A verb in the foreground of its own process; interrupted at the end, as by Ctrl-C."""
    command = ["--context-file", str(simulator.context_file), *arguments]
    with (simulator.directory / "verb.err").open("wb") as errors:
        process = template().start(
            command, environment=own_environment(simulator.directory), folder=ROOT, stderr=errors
        )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()


def test_states_alarms_and_silence_are_told_and_reach_the_command_without_a_console(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    simulator = simulators(fresh=True)
    notices = tmp_path / "notices"
    configured(simulator, notices, "[alerts]\nsilence_s = 0.5")
    done = simulator.cli("run", "train-a/0", "--detach", "--", "sh", "-c", "echo begun; sleep 600")
    assert done.returncode == 0, done.stderr
    with running(simulator, "fleet", "--watch") as process:
        until(lambda: any("no output for" in str(each["text"]) for each in told(notices)), "silence")
        simulator.inject("unhealthy", "train-a/0")
        until(
            lambda: any("preemption" in str(each["text"]) and each["urgent"] for each in told(notices)), "the alarm"
        )
        simulator.inject("preempt", "train-a")
        until(lambda: any(each["state"] == "SUSPENDED" for each in told(notices)), "the state")
    assert process.returncode == ExitCode.INTERRUPTED
    said = (simulator.directory / "verb.err").read_text("utf-8")
    assert "ALARM: " in said
    assert "no output for" in said


def test_a_kept_request_runs_its_job_and_setup_again_and_tells_its_preemption(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    simulator = simulators(scenario="empty", fresh=True)
    notices, marks = tmp_path / "notices", tmp_path / "marks"
    configured(simulator, notices)
    made = simulator.cli(
        "qr", "create", "pod", *SHAPE, "--spot", "--setup", f"echo setup >> {marks}",
        "--job", "--", "sh", "-c", f"echo job >> {marks}; sleep 600",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr

    def lines(path: Path) -> list[str]:
        return path.read_text("utf-8").split() if path.exists() else []

    ready = tmp_path / "ready"
    again = f"sh -c 'echo $SLICETOWER_QUEUED_RESOURCE >> {ready}'"
    with running(simulator, "qr", "keep", "pod", "--yes", "--on-ready", again) as process:
        until(lambda: lines(marks) == ["setup", "job"] and lines(ready) == ["pod"], "the first boot")
        simulator.inject("preempt", "pod")
        until(lambda: lines(marks) == ["setup", "job"] * 2, "setup and job of the second boot")
        until(lambda: lines(ready) == ["pod", "pod"], "the on-ready command again")
        until(lambda: any(each["state"] == "SUSPENDED" for each in told(notices)), "the notice")
    assert process.returncode == ExitCode.INTERRUPTED
    left = simulator.cli("qr", "keep", "--format=json")
    assert json.loads(left.stdout)["running"] is False, "it may be kept again"
