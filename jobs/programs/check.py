"""Looks at one worker without touching it, and never imports jax (on a pod that would hang and hold the chips).

Prints one JSON object: device nodes and who holds them, libtpu's lockfile and its owner, versions, disks, memory, limits,
clock, boot, Multislice settings, startup script, package locks, and whether a coordinator answers. What could not be
read is listed under `unreadable`, never guessed: without root, other users' processes stay invisible.

Shipped to workers together with its sibling outside.py: the standard library alone, Python 3.8 and newer.
Field names: bytes and `_s` seconds; `None` where the worker does not say.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import http.client
import json
import os
import platform
import pwd
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import time
from concurrent import futures
from importlib import metadata
from typing import Any, Callable, Dict  # noqa: UP035 (Python 3.8 evaluates the alias below)

try:
    from jobs.programs import outside
except ImportError:
    import outside  # type: ignore[import-not-found,no-redef]

Facts = Dict[str, Any]  # noqa: UP006
PACKAGES = ("jax", "jaxlib", "libtpu", "libtpu-nightly")
LOCKFILE = "/tmp/libtpu_lockfile"
APT_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
DISKS = ("/", "/tmp", "/dev/shm", "~", "/var/lib/docker")
TPU_ENV = "/computeMetadata/v1/instance/attributes/tpu-env"
NUMBER = re.compile(r"(\d+)")
METADATA_LIMIT_S = 2.0
COORDINATOR_LIMIT_S = 3.0
SYSTEMCTL_LIMIT_S = 5.0
WAYS_AT_ONCE = 16
TOKENS = ("WANDB_", "HF_", "HUGGING_FACE_")
COMMAND_LENGTH = 400
"""Characters of a command line that are shown."""


class Machine:
    """A worker's files, below `root`. Its /proc is the real one unless `root` has its own."""

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.abspath(root)
        self.proc = self.path("/proc") if os.path.isdir(self.path("/proc/self")) else "/proc"
        self.unreadable = 0
        """Processes of others whose open files could not be seen."""

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/")) if self.root != "/" else path

    def read(self, name: str) -> str:
        """A file of /proc; raises OSError."""
        with open(os.path.join(self.proc, name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def pids(self) -> list[int]:
        return sorted(int(name) for name in os.listdir(self.proc) if name.isdigit())

    def nodes(self) -> list[str]:
        """Device nodes of chips: /dev/accel* (v2 to v4) or /dev/vfio/* (v5e and later), in numeric order.

        /dev/vfio/vfio is the driver's own node: it may be held, but is no chip.
        """
        found = glob.glob(self.path("/dev/accel[0-9]*")) + glob.glob(self.path("/dev/accel/accel[0-9]*"))
        found += glob.glob(self.path("/dev/vfio/[0-9]*"))
        return sorted(
            found,
            key=lambda path: [int(part) if place % 2 else part for place, part in enumerate(NUMBER.split(path))],
        )

    def holders(self, paths: list[str]) -> dict[int, list[str]]:
        """Which processes have which of `paths` open or mapped, by pid; found by identity, not by name."""
        wanted = {}
        for path in paths:
            with contextlib.suppress(OSError):
                wanted[identity(os.stat(path))] = path
        held: dict[int, list[str]] = {}
        self.unreadable = 0
        for pid in self.pids() if wanted else []:
            open_here: set[str] = set()
            try:
                descriptors = os.listdir(f"{self.proc}/{pid}/fd")
            except FileNotFoundError:
                continue
            except OSError:
                self.unreadable += 1
                continue
            for name in descriptors:
                with contextlib.suppress(OSError):
                    open_here.add(wanted.get(identity(os.stat(f"{self.proc}/{pid}/fd/{name}")), ""))
            with contextlib.suppress(OSError):
                mapped = {line.split(None, 5)[5] for line in self.read(f"{pid}/maps").splitlines() if "/" in line}
                open_here.update(path for path in wanted.values() if os.path.realpath(path) in mapped)
            open_here.discard("")
            if open_here:
                held[pid] = sorted(open_here)
        return held

    def locked_by(self, path: str) -> list[int]:
        """Processes that have a lock (flock or fcntl) on the file."""
        try:
            status = os.stat(path)
            lines = self.read("locks").splitlines()
        except OSError:
            return []
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return sorted({int(line.split()[4]) for line in lines if "->" not in line and line.split()[5] == place})

    def start_ticks(self, pid: int) -> int:
        """When the process started, in ticks since boot; 0 if there is none (or only a zombie)."""
        with contextlib.suppress(OSError, IndexError):
            fields = self.read(f"{pid}/stat").rpartition(")")[2].split()
            if fields[0] not in ("Z", "X"):
                return int(fields[19])
        return 0

    def uptime_s(self) -> float:
        return float(self.read("uptime").split()[0])

    def about(self, pid: int) -> Facts:
        """Pid, command, user and age of a process."""
        facts: Facts = {"pid": pid, "command": "", "user": "", "age_s": None}
        with contextlib.suppress(OSError):
            words = self.read(f"{pid}/cmdline").split("\0")
            facts["command"] = (" ".join(words).strip() or self.read(f"{pid}/comm").strip())[:COMMAND_LENGTH]
            uid = os.stat(f"{self.proc}/{pid}").st_uid
            facts["user"] = str(uid)
            with contextlib.suppress(KeyError):
                facts["user"] = pwd.getpwuid(uid).pw_name
            ticks = self.start_ticks(pid)
            if ticks:
                facts["age_s"] = round(self.uptime_s() - ticks / os.sysconf("SC_CLK_TCK"), 2)
        return facts


def identity(status: os.stat_result) -> tuple[int, int, int]:
    """What makes two names one file: a device node's number (a container has own nodes), else its inode."""
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        return (1, status.st_rdev, 0)
    return (0, status.st_dev, status.st_ino)


def devices(machine: Machine) -> Facts:
    nodes = machine.nodes()
    driver = [path for path in (machine.path("/dev/vfio/vfio"),) if nodes and os.path.exists(path)]
    held = machine.holders(nodes + driver)
    holders = [dict(machine.about(pid), nodes=paths) for pid, paths in held.items()]
    return {"nodes": nodes, "count": len(nodes), "holders": holders, "processes_not_seen": machine.unreadable}


def lockfile(machine: Machine) -> Facts:
    """libtpu's lockfile. `stale`: it is there, and nobody who lives holds a lock on it or has it open.

    Where processes of others cannot be seen, only a lockfile of our own user can be called stale.
    """
    path = machine.path(LOCKFILE)
    facts: Facts = {"path": path, "exists": os.path.lexists(path), "owners": [], "stale": False}
    if facts["exists"]:
        owners = sorted({*machine.holders([path]), *machine.locked_by(path)})
        facts["owners"] = [machine.about(pid) for pid in owners if machine.start_ticks(pid)]
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            facts["age_s"] = round(time.time() - status.st_mtime, 2)
            seen = not machine.unreadable or status.st_uid == os.geteuid()
            facts["stale"] = not facts["owners"] and seen
    return facts


def versions(machine: Machine) -> Facts:
    found: Facts = {"python": platform.python_version(), "executable": sys.executable, "kernel": platform.release()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def disks(machine: Machine) -> list[Facts]:
    """One entry per file system, the fullest figures for an ordinary user."""
    found: dict[int, Facts] = {}
    paths = [machine.path(os.path.expanduser(path)) for path in DISKS] + sorted(glob.glob(machine.path("/mnt/*")))
    for path in paths:
        with contextlib.suppress(OSError):
            device, room = os.stat(path).st_dev, os.statvfs(path)
            found.setdefault(
                device,
                {
                    "path": path,
                    "bytes": room.f_blocks * room.f_frsize,
                    "free_bytes": room.f_bavail * room.f_frsize,
                    "inodes": room.f_files,
                    "free_inodes": room.f_favail,
                },
            )
    return list(found.values())


def memory(machine: Machine) -> Facts:
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", machine.read("meminfo"), re.MULTILINE))
    killed = re.search(r"^oom_kill (\d+)", machine.read("vmstat"), re.MULTILINE)
    return {
        "bytes": int(fields["MemTotal"]) * 1024,
        "available_bytes": int(fields["MemAvailable"]) * 1024,
        "oom_kills": int(killed.group(1)) if killed else None,
    }


def limits(machine: Machine) -> Facts:
    facts = {}
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("memlock", resource.RLIMIT_MEMLOCK)):
        soft, hard = resource.getrlimit(number)
        facts[name] = [None if value == resource.RLIM_INFINITY else value for value in (soft, hard)]
    return facts


def boot(machine: Machine) -> Facts:
    path = os.environ.get("SLICETOWER_BOOT_ID_FILE") or os.path.join(machine.proc, "sys/kernel/random/boot_id")
    with open(path, encoding="utf-8") as file:
        return {"id": file.read().strip(), "uptime_s": machine.uptime_s()}


def clock(machine: Machine) -> Facts:
    return {"time": time.time(), "zone": time.strftime("%z")}


def processes(machine: Machine) -> Facts:
    """How many Python processes run, this one and its parents not counted, and which of them are of this login.

    A login's own are those of the same user and the same HOME: before a launch there should be none.
    """
    own = {os.getpid()}
    with contextlib.suppress(OSError):
        pid = os.getppid()
        while pid > 1 and pid not in own:
            own.add(pid)
            pid = int(machine.read(f"{pid}/stat").rpartition(")")[2].split()[1])
    count = 0
    mine = []
    home = b"HOME=" + os.fsencode(os.environ.get("HOME", ""))
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            if pid in own or not machine.read(f"{pid}/comm").startswith("python"):
                continue
            count += 1
            with open(f"{machine.proc}/{pid}/environ", "rb") as file:
                if home in file.read().split(b"\0") and os.stat(f"{machine.proc}/{pid}").st_uid == os.geteuid():
                    mine.append(machine.about(pid))
    return {"python": count, "own": mine}


def settings(machine: Machine) -> Facts:
    """What the environment says about JAX, and tokens that are set to nothing: an empty one is worse than none."""
    names = sorted(name for name, value in os.environ.items() if name.startswith(TOKENS) and not value)
    return {"jax_platforms": os.environ.get("JAX_PLATFORMS"), "empty": names}


def multislice(machine: Machine) -> Facts:
    """MEGASCALE_* of this environment, and those of the VM's metadata (`tpu-env`) where there is a metadata server."""
    facts: Facts = {"environment": {}, "metadata": None}
    facts["environment"] = {name: value for name, value in os.environ.items() if name.startswith("MEGASCALE_")}
    host = metadata_host(machine)
    if host:
        # No urllib: it would ask a proxy for the machine's own metadata.
        connection = http.client.HTTPConnection(host, timeout=METADATA_LIMIT_S)
        with contextlib.closing(connection):
            connection.request("GET", TPU_ENV, headers={"Metadata-Flavor": "Google"})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace") if answer.status == 200 else ""
        pairs = re.findall(r"^(\w+): *'?([^'\n]*)'?$", text, re.MULTILINE)
        wanted = ("MEGASCALE_", "ACCELERATOR_TYPE", "WORKER_ID", "TOPOLOGY", "NODE_ID", "ZONE")
        facts["metadata"] = {name: value for name, value in pairs if name.startswith(wanted)}
    return facts


def metadata_host(machine: Machine) -> str:
    return os.environ.get("GCE_METADATA_HOST") or ("metadata.google.internal" if on_google(machine) else "")


def on_google(machine: Machine) -> bool:
    with contextlib.suppress(OSError), open(machine.path("/sys/class/dmi/id/product_name"), encoding="utf-8") as file:
        return "Google" in file.read()
    return False


def startup(machine: Machine) -> Facts:
    """State of the startup script's unit: `active` while it runs; None where there is no systemd."""
    if not os.path.isdir(machine.path("/run/systemd/system")) or not shutil.which("systemctl"):
        return {"state": None, "result": None}
    show = ["systemctl", "show", "-p", "ActiveState", "-p", "Result", "google-startup-scripts.service"]
    done = subprocess.run(show, capture_output=True, text=True, timeout=SYSTEMCTL_LIMIT_S, check=False)
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {"state": said.get("ActiveState"), "result": said.get("Result")}


def packages(machine: Machine) -> Facts:
    """Who holds apt's locks: at first boot unattended upgrades do, for minutes."""
    owners: dict[int, list[str]] = {}
    for path in APT_LOCKS:
        for pid in machine.locked_by(machine.path(path)):
            owners.setdefault(pid, []).append(path)
    return {"lock_holders": [dict(machine.about(pid), locks=locks) for pid, locks in owners.items()]}


def bundles(machine: Machine) -> Facts:
    """The code that was shipped here last."""
    return outside.bundles(machine.path(os.path.expanduser("~")))


def coordinator(address: str) -> Facts:
    """Whether HOST:PORT takes a connection."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=COORDINATOR_LIMIT_S):
            return {"address": address, "reachable": True, "latency_s": round(time.monotonic() - began, 6)}
    except (OSError, ValueError, OverflowError) as error:
        # A refusal travelled the whole way: the port is free and no firewall stands between.
        refused = isinstance(error, ConnectionRefusedError)
        return {"address": address, "reachable": False, "refused": refused, "error": str(error)}


SECTIONS: tuple[tuple[str, Callable[[Machine], Any]], ...] = (
    ("devices", devices),
    ("lockfile", lockfile),
    ("versions", versions),
    ("disks", disks),
    ("memory", memory),
    ("limits", limits),
    ("clock", clock),
    ("boot", boot),
    ("processes", processes),
    ("settings", settings),
    ("multislice", multislice),
    ("startup", startup),
    ("packages", packages),
    ("bundles", bundles),
)


def probe(machine: Machine) -> Facts:
    """All sections; one that fails is None, with its reason under `unreadable`."""
    facts: Facts = {"hostname": socket.gethostname(), "name": os.environ.get("HOSTNAME") or socket.gethostname()}
    unreadable: Facts = {}
    for name, look in SECTIONS:
        try:
            facts[name] = look(machine)
        except (
            OSError,
            ValueError,
            KeyError,
            IndexError,
            subprocess.SubprocessError,
            http.client.HTTPException,
        ) as error:
            facts[name] = None
            unreadable[name] = f"{type(error).__name__}: {error}"
    facts["unreadable"] = unreadable
    return facts


def asked(machine: Machine, arguments: argparse.Namespace) -> Facts:
    """What is looked at on request alone, all at once: each has a bound of its own."""
    host, home = metadata_host(machine), machine.path(os.path.expanduser("~"))
    with futures.ThreadPoolExecutor(max_workers=WAYS_AT_ONCE) as pool:
        ways = [pool.submit(outside.reach, url) for url in arguments.reach]
        buckets = [pool.submit(outside.bucket, name, host) for name in arguments.bucket]
        facts: Facts = {
            "ways": [way.result() for way in ways],
            "buckets": [found.result() for found in buckets],
            "docker": [outside.docker(registry, home) for registry in arguments.docker],
            "folders": [outside.code(machine.path(os.path.expanduser(path))) for path in arguments.code],
        }
    return {name: found for name, found in facts.items() if found}


def main() -> int:
    parser = argparse.ArgumentParser(prog="check", description="Looks at one worker and prints JSON.")
    parser.add_argument("--root", default="/", help="where /dev, /tmp and, if it is there, /proc are looked for")
    parser.add_argument("--coordinator", default="", metavar="HOST:PORT", help="see whether it takes a connection")
    parser.add_argument("--reach", action="append", default=[], metavar="URL", help="see whether a server answers")
    parser.add_argument("--bucket", action="append", default=[], metavar="NAME", help="see whether it can be read")
    parser.add_argument(
        "--docker", action="append", default=[], metavar="REGISTRY", help="see whether docker can pull"
    )
    parser.add_argument("--code", action="append", default=[], metavar="DIR", help="the digest of its contents")
    arguments = parser.parse_args()
    machine = Machine(arguments.root)
    facts = probe(machine)
    facts.update(asked(machine, arguments))
    if arguments.coordinator:
        facts["coordinator"] = coordinator(arguments.coordinator)
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
