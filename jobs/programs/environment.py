"""What a benchmark has to know of a worker before it is launched there: one JSON line. Standard library, Python 3.8.

Run as `python3 - HOST PORT`, with this text on stdin. HOST:PORT is the coordinator's address; the worker that has it
says whether the port is free. jax is looked for, never imported: importing it on a TPU can take the device or hang.
"""

import importlib.util
import json
import os
import platform
import socket
import sys


def version_of(name: str) -> str:
    """Of an installed package, by metadata; empty when there is none."""
    try:
        from importlib import metadata

        return metadata.version(name) if importlib.util.find_spec(name) else ""
    except Exception:  # a broken installation is told as none
        return ""


def port_state(host: str, port: int) -> str:
    """`free`, `taken`, or `elsewhere` when the address isn't this machine's."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return "taken" if error.errno == 98 else "elsewhere"
    return "free"


def free_port(host: str) -> int:
    """A port of this address that nobody has now; 0 when the address isn't this machine's."""
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def read(path: str) -> str:
    """A small file, or nothing."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def main() -> None:
    """Prints the line."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = ""
    available = 0
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    host, port = (sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 2 else ("", 0)
    print(
        json.dumps(
            {
                "jax_platforms": os.environ.get("JAX_PLATFORMS", ""),
                "cpu_devices": os.environ.get("JAX_NUM_CPU_DEVICES", ""),
                "python": platform.python_version(),
                "jax": version_of("jax"),
                "jaxlib": version_of("jaxlib"),
                "libtpu": version_of("libtpu"),
                "machine": read("/proc/sys/kernel/random/boot_id").strip(),
                "machine_name": name,
                "machine_address": address,
                "cpus": os.cpu_count() or 1,
                "memory_available": available,
                "port": port_state(host, port) if host else "",
                "free_port": free_port(host) if host else 0,
            }
        )
    )


main()
