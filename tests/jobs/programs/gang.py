"""Starts the processes of a gang as a launcher would, and reads what they say."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
GANG_LIMIT_S = 150.0


@dataclass(frozen=True)
class Told:
    """What one process left behind."""

    code: int
    lines: list[dict[str, Any]]
    text: str

    def message(self, kind: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = [line[kind] for line in self.lines if kind in line]
        assert found, f"no {kind!r} in {self.text}"
        return found[-1]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "step" in line and not line.get("warmup")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    program: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    slices: int = 1,
    workers: int = 1,
    devices: int = 4,
    only: int | None = None,
    own: Sequence[Sequence[str]] = (),
) -> list[subprocess.Popen[bytes]]:
    """One process per worker; output lies in folder/NUMBER, in the order of the processes.

    Args:
        only: Start this one alone: the others never come.
        own: Further arguments of each process.
    """
    port = free_port()
    processes: list[subprocess.Popen[bytes]] = []
    count = slices * workers
    for process in range(count) if only is None else [only]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
            "SLICETOWER_COORDINATOR": f"127.0.0.1:{port}",
            "SLICETOWER_PROCESS_ID": str(process),
            "SLICETOWER_NUM_PROCESSES": str(count),
            "SLICETOWER_SLICE_ID": str(process // workers),
            "SLICETOWER_NUM_SLICES": str(slices),
            "SLICETOWER_SLICE_DEVICES": str(workers * devices),
        }
        with (folder / str(len(processes))).open("wb") as output:
            command = [sys.executable, "-m", f"jobs.programs.{program}", *arguments, *(own[process] if own else ())]
            processes.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
            )
    return processes


def wait_for_text(process: subprocess.Popen[bytes], file: Path, text: str) -> None:
    """Until the output of a process holds a text; fails when it ends before, or after the limit."""
    deadline = time.monotonic() + GANG_LIMIT_S
    while text not in file.read_text(errors="replace"):
        assert process.poll() is None, file.read_text(errors="replace")
        assert time.monotonic() < deadline, file.read_text(errors="replace")
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kills those that still are, stopped ones too."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait(processes: list[subprocess.Popen[bytes]], folder: Path) -> list[Told]:
    """All of them to their end; after the limit they are killed, which their codes tell."""
    deadline = time.monotonic() + GANG_LIMIT_S
    told = []
    for number, process in enumerate(processes):
        try:
            process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        text = (folder / str(number)).read_text(errors="replace")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        told.append(Told(process.returncode, lines, text))
    return told


def run(program: str, arguments: Sequence[str], folder: Path, **shape: Any) -> list[Told]:
    return wait(start(program, arguments, folder, **shape), folder)
