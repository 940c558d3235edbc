"""`slicetower qr list` against `gcloud compute tpus queued-resources list`, on one simulated service, run in turns.

Budget (design.md, section 7): at most 0.9 of gcloud's wall time. Without a gcloud on this machine: not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulator import ROOT, own_environment, start_simulator

ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    gcloud = shutil.which("gcloud")
    with TemporaryDirectory() as folder:
        simulator = start_simulator(Path(folder) / "sim", speed=1.0)
        try:
            context = simulator.context
            project, zone = context.project, context.zones[0]
            home = own_environment(Path(folder))
            ours = [sys.executable, "-m", "tui.cli.main", "--context-file", str(simulator.context_file)]
            commands: dict[str, tuple[list[str], Mapping[str, str]]] = {
                "slicetower": ([*ours, "qr", "list", "--zone", zone], home)
            }
            if gcloud is not None:
                theirs = [
                    gcloud,
                    "compute",
                    "tpus",
                    "queued-resources",
                    "list",
                    f"--project={project}",
                    f"--zone={zone}",
                ]
                aimed = {
                    **home,
                    "CLOUDSDK_CONFIG": f"{folder}/gcloud",
                    "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{simulator.rest}/",
                    "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
                    "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
                    "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
                }
                commands["gcloud"] = (theirs, aimed)
            seconds: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(rounds + 1):
                for name, (command, environment) in commands.items():
                    seconds[name].append(timed(command, environment))
        finally:
            simulator.stop()
    # The first round fills the file caches.
    medians = {name: round(statistics.median(values[1:]), 3) for name, values in seconds.items()}
    ratio = round(medians["slicetower"] / medians["gcloud"], 2) if "gcloud" in medians else None
    print(
        json.dumps({"median_s": medians, "ratio": ratio or "not run: no gcloud here", "budget_ratio": 0.9}, indent=2)
    )


def timed(command: list[str], environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode != os.EX_OK:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    if "train-a" not in done.stdout:
        raise RuntimeError(f"{' '.join(command)} did not list train-a:\n{done.stdout[-2000:]}")
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
