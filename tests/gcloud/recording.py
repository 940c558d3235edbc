"""Runs the commands of commands.txt with the real gcloud on a simulator, and writes down what it said.

`python -m tests.gcloud.recording` records transcript.txt anew.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from backend.sim import control
from backend.sim.faults import FAULTS
from backend.sim.scenario import load
from backend.sim.served import Simulator, running
from tui.cli.sim import add_arguments

FOLDER = Path(__file__).parent
COMMANDS = FOLDER / "commands.txt"
TRANSCRIPT = FOLDER / "transcript.txt"
SPEED = 400.0
COMMAND_LIMIT_S = 120.0
VOLATILE = (
    (r"operation-[0-9]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+", "operation-ID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"AAAAC3NzaC1lZDI1NTE5AAAAI\S+", "HOST-KEY"),
    (r"t1v-n-[0-9a-f]{8}", "t1v-n-HEX"),
    (r"id: '\d{18,19}'", "id: 'UID'"),
    (r"http://127\.0\.0\.1:\d+", "http://SIMULATOR"),
    (r"'(date|server|content-length)': '[^']*'", r"'\1': '...'"),
    (r"127\.1\.\d+\.\d+", "ADDRESS"),
    (r"\.+(done|failed)\.", r"...\1."),
    (r"(?m)^\.+$\n", ""),
    (r"(?m)[ \t]+$", ""),
)
"""What differs from run to run, and what is written in its place."""


@dataclass(frozen=True, slots=True)
class Said:
    command: str
    code: int
    text: str


def commands() -> list[str]:
    lines = COMMANDS.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


async def version(gcloud: str) -> str:
    """`Google Cloud SDK 528.0.0`"""
    code, text = await _run([gcloud, "--version"], dict(os.environ))
    return text.splitlines()[0] if code == 0 and text else "unknown"


async def record(gcloud: str, folder: Path) -> list[Said]:
    """Runs every command in order, each waiting for the one before."""
    said = []
    async with running(folder / "sim", load("default"), speed=SPEED) as simulator:
        environment = isolated(simulator, folder / "home")
        for command in commands():
            words = shlex.split(command)
            if words[:2] == ["sim", "inject"]:
                said.append(Said(command, 0, await asyncio.to_thread(_inject, simulator.directory, words[2:])))
            else:
                code, text = await _run([gcloud, *words], environment)
                said.append(Said(f"gcloud {command}", code, steady(text)))
    return said


def isolated(simulator: Simulator, home: Path) -> dict[str, str]:
    """An environment in which gcloud knows nothing but the simulator."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "GOOGLE_"))}
    return {
        **kept,
        "HOME": str(home),
        "CLOUDSDK_CONFIG": str(home / "gcloud"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{simulator.rest}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{simulator.rest}/compute/v1/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "demo-project",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
        "CLOUDSDK_METRICS_ENVIRONMENT": "",
        "COLUMNS": "200",
    }


def steady(text: str) -> str:
    """Without what differs from run to run."""
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def written(version_line: str, said: list[Said]) -> str:
    """The transcript's text."""
    parts = [f"# {version_line}, on the default scenario of the simulator (recording.py)"]
    parts += [f"$ {item.command}\n{item.text}\nexit {item.code}" for item in said]
    return "\n\n".join(parts) + "\n"


def read() -> tuple[str, list[Said]]:
    """The version line and what was recorded."""
    head, *parts = TRANSCRIPT.read_text("utf-8").rstrip("\n").split("\n\n$ ")
    said = []
    for part in parts:
        command, _, rest = part.partition("\n")
        text, _, code = rest.rpartition("\nexit ")
        said.append(Said(command, int(code), text))
    return head.removeprefix("# ").partition(",")[0], said


def _inject(directory: Path, words: list[str]) -> str:
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(["inject", "--dir", str(directory), *words])
    names = [argument.name.lstrip("-").replace("-", "_") for argument in FAULTS[arguments.fault].arguments]
    return control.inject(directory, arguments.fault, {name: getattr(arguments, name) for name in names})


async def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(COMMAND_LIMIT_S):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode("utf-8", "replace")


async def main() -> None:
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        raise SystemExit("There is no gcloud on this machine.")
    with tempfile.TemporaryDirectory() as folder:
        said = await record(gcloud, Path(folder))
    text = written(await version(gcloud), said)
    await asyncio.to_thread(TRANSCRIPT.write_text, text, "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
