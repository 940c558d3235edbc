"""Runs the commands of commands.txt on a simulator and writes docs/transcripts.md.

`python -m tests.transcripts.recording` records it anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.backend.tools.wheels import make_wheel
from tests.simulator import ROOT, Simulator, own_environment, run_cli, start_simulator

COMMANDS = Path(__file__).parent / "commands.txt"
TRANSCRIPTS = ROOT / "docs" / "transcripts.md"
SEED = 7
LONG_S = 300.0
PREFLIGHT_PYTHON = os.environ.get("PREFLIGHT_PYTHON", str(ROOT / ".venv-preflight" / "bin" / "python"))
"""With libtpu; `make setup-preflight` makes it."""
FIXED = (
    (re.escape(PREFLIGHT_PYTHON), ".venv-preflight/bin/python"),
    (r"\b\d{8}-\d{6}-[a-z0-9]{4}\b", "20261130-120000-k3f9"),
    (r"\b[0-9a-f]{64}\b", "0" * 64),
    (r"uid \d{18,19}", "uid 1000000000000000000"),
    (r'"pid": \d+', '"pid": 4711'),
    (r"127\.0\.0\.1:\d{5}", "127.0.0.1:41001"),
    (r"operation-[0-9]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+", "operation-1790000000000-0000000000000-00000000-00000000"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "2026-11-30T12:00:00Z"),
    (r"AAAAC3NzaC1lZDI1NTE5AAAAI[\w+/=]+", "AAAAC3NzaC1lZDI1NTE5AAAAI..."),
    (r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:41002"),
    (r"t1v-n-[0-9a-f]{8}", "t1v-n-00000000"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "00000000-0000-4000-8000-000000000000"),
    (r"(?m)[ \t]+$", ""),
)
"""What differs from run to run and is nobody's business: one value stands for all."""
VOLATILE = (
    (r"(>= )?\b\d+(\.\d+)? s\b", "TIME"),
    (r"(>= )?\b\d+(s|m\d\ds|h\d\dm|d\d\dh)\b", "TIME"),
    (r"(>= )?[\d,]+\.\d+", "NUMBER"),
    (r"127\.\d+\.\d+\.\d+", "ADDRESS"),
    (r" {2,}", "  "),
)
"""What may differ besides when a transcript is compared: durations, amounts, the widths that follow from them."""


@dataclass(frozen=True, slots=True)
class Said:
    section: str
    command: str
    code: int
    text: str


def commands() -> list[tuple[str, str]]:
    """(section, command), in order."""
    section, found = "", []
    for line in COMMANDS.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line and not line.startswith("#"):
            found.append((section, line))
    return found


def record(simulator: Simulator, wanted: Iterable[tuple[str, str]]) -> list[Said]:
    """Runs commands one after the other, as an operator would, stderr after stdout."""
    make_wheel(_folder(simulator.directory / "wheels"), "tinytool", "1.0")
    said = []
    for section, command in wanted:
        done = _run(simulator, command)
        said.append(Said(section, command, done.returncode, fixed(done.stdout + done.stderr, simulator.directory)))
    return said


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def _run(simulator: Simulator, command: str) -> subprocess.CompletedProcess[str]:
    """One line of commands.txt.

    `ID` is the newest run or benchmark, `~` the operator's home, and a command that ends with `^C` gets that once it has
    said something.
    """
    words = [word.replace("~", str(simulator.directory)) for word in shlex.split(command)]
    if "ID" in words:
        newest = json.loads(simulator.cli("runs", "list", "--limit", "1", "--format", "json").stdout)["run"]
        words = [newest if word == "ID" else word for word in words]
    words = [PREFLIGHT_PYTHON if word == ".venv-preflight/bin/python" else word for word in words]
    if words[:2] == ["sim", "inject"]:
        words = ["sim", "inject", "--dir", str(simulator.directory), *words[2:]]
        return run_cli(*words, home=simulator.directory, timeout_s=LONG_S)
    if words[-1] == "^C":
        return _interrupted(simulator, words[:-1])
    return simulator.cli(*words, timeout_s=LONG_S)


def _interrupted(simulator: Simulator, words: list[str]) -> subprocess.CompletedProcess[str]:
    """What a verb in the foreground said until Ctrl-C, and after it."""
    before = [] if words[0] == "sim" else ["--context-file", str(simulator.context_file)]
    with (
        tempfile.TemporaryFile() as told,
        subprocess.Popen(
            [sys.executable, "-m", "tui.cli.main", *before, *words],
            cwd=ROOT,
            env=own_environment(simulator.directory),
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        end = time.monotonic() + LONG_S
        while not os.fstat(told.fileno()).st_size and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(LONG_S)
        finally:
            process.kill()
        told.seek(0)
        return subprocess.CompletedProcess(words, code, told.read().decode("utf-8"), "")


def fixed(text: str, home: Path) -> str:
    """As it may stand in a document."""
    text = text.replace(str(home), "~")
    for pattern, replacement in FIXED:
        text = re.sub(pattern, replacement, text)
    return text.strip("\n")


def comparable(text: str) -> str:
    """Without what depends on when it was run."""
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text


def written(said: Iterable[Said]) -> str:
    parts = [
        "# What each verb says",
        "Recorded from the simulator (default scenario) by `python -m tests.transcripts.recording`; ids, ports and times of day\n"
        "are replaced. `ID` stands for the newest run, `^C` for Ctrl-C. `tests/transcripts` compares those that are quick with\n"
        "what the program says now. Figures of benchmarks are those of a CPU. What the console shows is in docs/pictures/.",
    ]
    section = ""
    for item in said:
        if item.section != section:
            section = item.section
            parts.append(f"## {section}")
        end = f"\n[exit {item.code}]" if item.code else ""
        parts.append(f"```console\n$ slicetower {item.command}\n{item.text}{end}\n```")
    return "\n\n".join(parts) + "\n"


def read() -> list[tuple[str, int, str]]:
    """(command, exit code, text) of each transcript of the document."""
    found = []
    for block in re.findall(r"```console\n\$ slicetower (.*?)\n```", TRANSCRIPTS.read_text("utf-8"), re.DOTALL):
        command, _, text = block.partition("\n")
        ended = re.search(r"\n?\[exit (\d+)\]$", text)
        found.append((command, int(ended[1]) if ended else 0, text[: ended.start()] if ended else text))
    return found


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulator = await asyncio.to_thread(start_simulator, Path(folder) / "sim", seed=SEED)
        try:
            said = await asyncio.to_thread(record, simulator, commands())
        finally:
            await asyncio.to_thread(simulator.stop)
    await asyncio.to_thread(TRANSCRIPTS.write_text, written(said), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
