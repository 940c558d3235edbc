"""Cold fan-out of `true` over one sshd that answers on many loopback addresses, beside the peers that are installed.

    [PEERS=VENV] python -m tests.benchmarks.fanout [--hosts 256] [--rounds 5] [--only pdsh ...]

Tools take turns, round after round, so that load of the machine hits all alike; medians are compared, and client CPU is
that of the tool and the processes it waited for. The sshd runs on the same cores, which favours nobody. Also told: the
same on open connections, and the share of peers at their own key exchange (OpenSSH's post-quantum default costs 80 ms).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.outcomes import Outcome
from backend.ssh import lean
from tests.backend.openssh import Sshd, sshd, worker
from tests.backend.runs.run_world import sshd_desk

ROOT = Path(__file__).parents[2]
CONCURRENCY = 64
"""Of the peers; each gets what the research found best for it."""
WARM_ROUNDS = 5
TOOL_TIMEOUT_S = 300.0

PSSH_CLIENT = """
import sys
from pssh.clients import ParallelSSHClient
hosts = open(sys.argv[1]).read().split()
client = ParallelSSHClient(hosts, user=sys.argv[2], port=int(sys.argv[3]), pkey=sys.argv[4], pool_size=64, num_retries=3)
output = client.run_command("true")
client.join(output)
sys.exit(any(each.exit_code != 0 for each in output))
"""


@dataclass
class Figures:
    """What one tool took, round by round."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    failures: int = 0


def tools(server: Sshd, hosts: Sequence[str], directory: Path) -> dict[str, list[str]]:
    """Name -> command line of ours and of every peer that is installed here."""
    listing = directory / "hosts"
    listing.write_text("\n".join(hosts) + "\n")
    user = server.context().ssh.user
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    options += ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", str(server.key), "-p", str(server.port)]
    flat = " ".join(options)
    found = {
        "slicetower": [
            sys.executable,
            "-m",
            "tests.benchmarks.fanout_client",
            str(directory / "server.json"),
            str(len(hosts)),
        ],
    }
    python = peer_python()
    if python:
        found["parallel-ssh"] = [
            python,
            "-c",
            PSSH_CLIENT,
            str(listing),
            user,
            str(server.port),
            str(server.key),
        ]
    if shutil.which("xargs") and shutil.which("ssh"):
        ssh = f"xargs -a {listing} -P {CONCURRENCY} -I HOST ssh {flat} -l {user} HOST true"
        found["xargs ssh"] = ["sh", "-c", ssh]
        found["xargs ssh (curve25519)"] = [
            "sh",
            "-c",
            ssh.replace("ssh -o", "ssh -o KexAlgorithms=curve25519-sha256 -o", 1),
        ]
    if shutil.which("pdsh"):
        text = f"PDSH_SSH_ARGS_APPEND='{flat}' pdsh -R ssh -f {CONCURRENCY} -l {user} -w ^{listing} true"
        found["pdsh"] = ["sh", "-c", text]
    if shutil.which("parallel-ssh"):
        found["pssh"] = ["parallel-ssh", "-p", str(CONCURRENCY), "-l", user, "-h", str(listing), "-x", flat, "true"]
    if shutil.which("clush"):
        found["clush"] = [
            "clush",
            "-b",
            "-f",
            str(CONCURRENCY),
            "-l",
            user,
            "-o",
            flat,
            "--hostfile",
            str(listing),
            "true",
        ]
    return found


def peer_python() -> str:
    """An interpreter that has parallel-ssh: PEERS names the folder of a virtual environment for it, else our own."""
    own = os.environ.get("PEERS", "")
    if own:
        return str(Path(own) / "bin" / "python")
    return sys.executable if importlib.util.find_spec("pssh") is not None else ""


def measure(command: Sequence[str], figures: Figures) -> None:
    """Runs one tool once."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    figures.wall_s.append(time.perf_counter() - began)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures.cpu_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    if done.returncode != 0:
        figures.failures += 1
        print(f"  {command[0]} ended with {done.returncode}: {done.stderr[-300:]!r}", file=sys.stderr)


async def warm(server: Sshd, directory: Path, count: int) -> tuple[float, float]:
    """Wall and client CPU in seconds of one command on each of `count` open connections (median of rounds)."""
    workers = [worker(index) for index in range(count)]
    lean.garbage()
    async with sshd_desk(directory, server, workers) as desk:
        await desk.run("true")
        walls, cpus = [], []
        for _ in range(WARM_ROUNDS):
            began, cpu = time.perf_counter(), time.process_time()
            run = await desk.run("true")
            walls.append(time.perf_counter() - began)
            cpus.append(time.process_time() - cpu)
            assert run.summary == {Outcome.OK: count}
    return statistics.median(walls), statistics.median(cpus)


async def main(count: int, rounds: int, only: Sequence[str] = ()) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with sshd(directory) as server:
            user = server.context().ssh.user
            description = {"port": server.port, "user": user, "key": str(server.key), "host_key": server.host_key}
            (directory / "server.json").write_text(json.dumps(description))
            hosts = [worker(index).external_ip for index in range(count)]
            commands = tools(server, hosts, directory)
            if only:
                commands = {tool: command for tool, command in commands.items() if tool in {"slicetower", *only}}
            figures = {tool: Figures() for tool in commands}
            for number in range(rounds):
                for tool, command in commands.items():
                    each = figures[tool]
                    await asyncio.to_thread(measure, command, each)
                    told = f"round {number + 1}: {tool} {each.wall_s[-1]:.2f} s, {each.cpu_s[-1]:.2f} s CPU"
                    print(told, file=sys.stderr, flush=True)
            report(figures, count)
            wall, cpu = await warm(server, directory / "warm", count)
            cold = statistics.median(figures["slicetower"].wall_s)
            faster = f"{wall:.2f} s ({cold / wall:.1f} x faster than cold)"
            print(f"on open connections: {faster}, {cpu * 1000 / count:.2f} ms CPU a command")


def report(figures: dict[str, Figures], count: int) -> None:
    ours = statistics.median(figures["slicetower"].wall_s)
    print(f"{'tool':<24}{'wall s':>8}{'CPU s':>8}{'ms CPU/host':>13}{'ours / it':>11}{'failed':>8}")
    for tool, each in figures.items():
        wall, cpu = statistics.median(each.wall_s), statistics.median(each.cpu_s)
        print(f"{tool:<24}{wall:>8.2f}{cpu:>8.2f}{cpu * 1000 / count:>13.1f}{ours / wall:>11.2f}{each.failures:>8}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], metavar="TOOL", help="beside slicetower")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.hosts, arguments.rounds, arguments.only))
