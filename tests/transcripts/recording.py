"""Runs the commands of commands.txt on a simulator and writes docs/transcripts.md.

`python -m tests.transcripts.recording` records it anew.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.simulator import ROOT, Simulator, run_cli, start_simulator

COMMANDS = Path(__file__).parent / "commands.txt"
TRANSCRIPTS = ROOT / "docs" / "transcripts.md"
SEED = 7
LONG_S = 300.0
FIXED = (
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
    said = []
    for section, command in wanted:
        words = shlex.split(command)
        if words[:2] == ["sim", "inject"]:
            words = ["sim", "inject", "--dir", str(simulator.directory), *words[2:]]
            done = run_cli(*words, home=simulator.directory, timeout_s=LONG_S)
        else:
            done = simulator.cli(*words, timeout_s=LONG_S)
        said.append(Said(section, command, done.returncode, fixed(done.stdout + done.stderr, simulator.directory)))
    return said


def fixed(text: str, home: Path) -> str:
    """As it may stand in a document."""
    text = text.replace(str(home), "~")
    for pattern, replacement in FIXED:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def comparable(text: str) -> str:
    """Without what depends on when it was run."""
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text


def written(said: Iterable[Said]) -> str:
    parts = [
        "# What each verb says",
        "Recorded from the simulator (default scenario) by `python -m tests.transcripts.recording`; ids, ports and times of\n"
        "day are replaced. `tests/transcripts` compares the first of them with what the program says now.",
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
