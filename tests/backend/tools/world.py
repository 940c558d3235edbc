"""Simulated workers with homes that a test may prepare."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.simulator import Simulator

HOLD = "import sys, time\nfile = open(sys.argv[1], 'rb')\nprint('held', flush=True)\ntime.sleep(600)\n"


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The JSON lines of a verb."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def home_of(simulator: Simulator, target: str) -> Path:
    """The home of a simulated worker, as it says itself."""
    done = simulator.cli("run", target, "--format", "json", "--shell", "--", "echo $HOME")
    assert done.returncode == 0, done.stderr
    return Path(lines(done)[0]["output"].strip())


def fake_python(home: Path, version: str) -> None:
    """A venv at the place of `setup`, whose Python has another jax."""
    import sys
    import venv

    folder = home / ".slicetower" / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    dist = site / f"jax-{version}.dist-info"
    dist.mkdir(parents=True)
    (dist / "METADATA").write_text(f"Metadata-Version: 2.1\nName: jax\nVersion: {version}\n")
