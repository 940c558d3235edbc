"""One process of a gang of JAX processes: says JSON lines, joins the others, and fails fast.

Shipped to workers beside the programs that use it: standard library and jax (0.4.35 and later) alone, Python 3.10 and later.

Environment, set for each worker by whoever launches (all optional on a TPU, where jax finds them by itself):
    SLICETOWER_COORDINATOR       HOST:PORT of process 0
    SLICETOWER_PROCESS_ID        0 to SLICETOWER_NUM_PROCESSES - 1
    SLICETOWER_NUM_PROCESSES     over all slices
    SLICETOWER_SLICE_ID          0 to SLICETOWER_NUM_SLICES - 1
    SLICETOWER_NUM_SLICES
    SLICETOWER_SLICE_DEVICES     JAX devices that each slice must have
    JAX_PLATFORMS=cpu            asks for CPU; without it a TPU is required, and anything else is an error
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import json
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, NoReturn

EXIT_ERROR = 1
EXIT_ARGUMENTS = 2
EXIT_STUCK = 70
EXIT_INTERRUPTED = 130
WATCH_INTERVAL_S = 1.0


class ProgramError(Exception):
    """What ends the program: told as one JSON line. `kind` is a word for machines, the text a sentence for people."""

    def __init__(self, kind: str, what: str, cure: str = "", code: int = EXIT_ERROR) -> None:
        super().__init__(f"{what} {cure}".strip())
        self.kind = kind
        self.what = what
        self.cure = cure
        self.code = code


def say(message: Mapping[str, Any]) -> None:
    """Writes one JSON line in one system call: C++ libraries write to the same file, and must not fall into its midst."""
    sys.stdout.flush()
    data = (json.dumps(message, separators=(",", ":"), allow_nan=False, default=str) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def leave(code: int) -> NoReturn:
    """Ends at once: the exit handlers of jax wait for the other processes, for minutes when one of them failed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fail(error: BaseException) -> NoReturn:
    """Tells an error as a JSON line and ends."""
    if isinstance(error, ProgramError):
        say({"error": {"kind": error.kind, "what": error.what, "cure": error.cure, "process": process_id()}})
        leave(error.code)
    text = f"{type(error).__name__}: {error}"
    say({"error": {"kind": _kind_of(text), "what": text[:4000], "cure": "", "process": process_id()}})
    leave(EXIT_ERROR)


def _kind_of(text: str) -> str:
    if "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text:
        return "memory"
    if "Failed to start RPC server" in text:
        return "port"
    if "Unable to initialize backend" in text or "already in use by process" in text:
        return "platform"
    return "exception"


def process_id() -> int:
    """This process's number, 0 when nobody gave it one."""
    text = os.environ.get("SLICETOWER_PROCESS_ID", "0")
    return int(text) if text.isdigit() else 0


class Watchdog:
    """Ends the process when a phase takes longer than its limit: nothing in jax notices a peer that lives but is stuck."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phase = ""
        self._deadline = float("inf")
        self._limit_s = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def enter(self, phase: str, limit_s: float) -> None:
        """A new phase, which also starts the clock again; a limit of 0 or less means none."""
        with self._lock:
            self._phase, self._limit_s = phase, limit_s
            self._deadline = time.monotonic() + limit_s if limit_s > 0 else float("inf")

    def close(self) -> None:
        """Watches no longer."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(WATCH_INTERVAL_S):
            with self._lock:
                late = time.monotonic() > self._deadline
                phase, limit_s = self._phase, self._limit_s
            if late:
                faulthandler.dump_traceback(file=sys.stderr)
                what = f"{phase} took longer than {limit_s:g} s: this process or one that it waits for is stuck."
                say({"error": {"kind": "stuck", "phase": phase, "what": what, "process": process_id()}})
                leave(EXIT_STUCK)


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    initialize_s: float = 120.0
    heartbeat_s: float = 30.0
    shutdown_s: float = 15.0


@dataclass(frozen=True)
class Place:
    """Where this process stands among the others, as it was told."""

    coordinator: str
    process: int
    processes: int
    slice: int
    slices: int
    slice_devices: int
    """0 when nobody said."""


def place(environ: Mapping[str, str]) -> Place:
    """Reads SLICETOWER_*.

    Raises:
        ProgramError: A number is wrong, or they contradict each other.
    """

    def number(name: str, default: int) -> int:
        text = environ.get(name, "")
        if text and not text.isdigit():
            raise ProgramError("environment", f"{name} is '{text}', not a number.", code=EXIT_ARGUMENTS)
        return int(text) if text else default

    found = Place(
        environ.get("SLICETOWER_COORDINATOR", ""),
        number("SLICETOWER_PROCESS_ID", 0),
        number("SLICETOWER_NUM_PROCESSES", 1),
        number("SLICETOWER_SLICE_ID", 0),
        number("SLICETOWER_NUM_SLICES", 1),
        number("SLICETOWER_SLICE_DEVICES", 0),
    )
    if not 0 <= found.process < found.processes or not 0 <= found.slice < found.slices:
        raise ProgramError("environment", f"process or slice out of range: {found}.", code=EXIT_ARGUMENTS)
    if found.processes % found.slices:
        raise ProgramError(
            "environment", f"{found.processes} processes can't be {found.slices} equal slices.", code=EXIT_ARGUMENTS
        )
    return found


def wanted_platform(environ: Mapping[str, str]) -> str:
    """`cpu` when JAX_PLATFORMS asks for exactly that, else `tpu`.

    Raises:
        ProgramError: JAX_PLATFORMS names something else first.
    """
    names = [name.strip() for name in environ.get("JAX_PLATFORMS", "").split(",") if name.strip()]
    if not names or names[0] == "tpu":
        return "tpu"
    if names == ["cpu"]:
        return "cpu"
    raise ProgramError(
        "platform",
        f"JAX_PLATFORMS is '{environ['JAX_PLATFORMS']}': this program runs on TPU, or on CPU when it is exactly 'cpu'.",
        "Unset JAX_PLATFORMS on the worker.",
        EXIT_ARGUMENTS,
    )


def check_hostname() -> None:
    """Gloo, which carries CPU collectives, binds the address of this machine's own name.

    Raises:
        ProgramError: The name has no address.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None, socket.AF_INET)
    except OSError as error:
        raise ProgramError(
            "hostname",
            f"This machine's name '{name}' has no address ({error}), and CPU collectives need it.",
            f"Add the line '127.0.0.1 {name}' to /etc/hosts of the worker.",
        ) from None


def join(where: Place, watchdog: Watchdog, limits: Limits) -> Any:
    """Imports jax on the wanted platform, joins the other processes, and returns the module.

    Raises:
        ProgramError: No TPU where one is required, or another number of devices or processes than was told.
    """
    wanted = wanted_platform(os.environ)
    os.environ.setdefault("JAX_ENABLE_PREEMPTION_SERVICE", "false")  # else SIGTERM is swallowed
    if wanted == "cpu":
        if where.processes > 1:
            check_hostname()
        _count_cpu_devices()
    else:
        os.environ["JAX_PLATFORMS"] = "tpu,cpu"  # named, so that a missing TPU is an error and no silent CPU
        port = where.coordinator.rpartition(":")[2]
        if port.isdigit():
            os.environ.setdefault("JAX_COORDINATOR_PORT", port)
    watchdog.enter("importing jax", limits.initialize_s)
    try:
        jax: Any = importlib.import_module("jax")
    except ImportError as error:
        raise ProgramError(
            "jax", f"jax can't be imported by {sys.executable}: {error}.", "`slicetower setup TARGET` installs it."
        ) from None
    if wanted == "cpu" and where.processes > 1 and jax.__version_info__ < (0, 5):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")  # the default since 0.5
    if where.processes > 1:
        watchdog.enter("joining the other processes", limits.initialize_s + limits.heartbeat_s)
        _initialize(jax, wanted, where, limits)
    watchdog.enter("finding the devices", limits.initialize_s + limits.heartbeat_s)
    devices = jax.devices()
    found = devices[0].platform
    if found != wanted:
        raise ProgramError(
            "platform",
            f"The devices are {found}, but {wanted} is required: jax fell back in silence.",
            "Look who holds the TPU (`slicetower check TARGET`), or set JAX_PLATFORMS=cpu on the worker to mean it.",
        )
    if jax.process_count() != where.processes and where.processes > 1:
        raise ProgramError("processes", f"{jax.process_count()} processes joined, {where.processes} were launched.")
    expected = where.slice_devices * where.slices
    if expected and len(devices) != expected:
        raise ProgramError(
            "devices",
            f"jax sees {len(devices)} devices, but {where.slices} x {where.slice_devices} = {expected} are expected.",
            "Launch on every worker of every slice at once.",
        )
    return jax


def _count_cpu_devices() -> None:
    """JAX_NUM_CPU_DEVICES is jax's own since 0.5.0; before, XLA's flag did it."""
    count = os.environ.get("JAX_NUM_CPU_DEVICES", "")
    try:
        version = tuple(int(part) for part in metadata.version("jax").split(".")[:2])
    except (metadata.PackageNotFoundError, ValueError):
        return
    if count.isdigit() and version < (0, 5):
        flag = f"--xla_force_host_platform_device_count={count}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()


def _initialize(jax: Any, wanted: str, where: Place, limits: Limits) -> None:
    told: dict[str, Any] = {
        "initialization_timeout": int(limits.initialize_s),
        "heartbeat_timeout_seconds": int(limits.heartbeat_s),
        "shutdown_timeout_seconds": int(limits.shutdown_s),
    }
    if wanted == "cpu":
        # A TPU's own numbers come from its metadata; here they are ours.
        told["coordinator_address"] = where.coordinator
        told["num_processes"] = where.processes
        told["process_id"] = where.process
        told["coordinator_bind_address"] = where.coordinator
    known = inspect.signature(jax.distributed.initialize).parameters
    jax.distributed.initialize(**{name: value for name, value in told.items() if name in known})


def barrier(jax: Any, name: str, limit_s: float) -> None:
    """Waits for all processes without touching a device. Skipped where jax doesn't offer it."""
    if jax.process_count() == 1:
        return
    client = getattr(getattr(getattr(jax, "_src", None), "distributed", None), "global_state", None)
    wait = getattr(getattr(client, "client", None), "wait_at_barrier", None)
    if wait is not None:
        wait(name, int(limit_s * 1000))


def finish(jax: Any, watchdog: Watchdog, limits: Limits) -> NoReturn:
    """Leaves together with the others: process 0 holds the coordination service, and must not go first."""
    watchdog.enter("leaving together", limits.shutdown_s * 2)
    if jax.process_count() > 1:
        jax.distributed.shutdown()
    leave(0)


def slices_of(devices: list[Any], where: Place) -> dict[Any, int]:
    """Device -> slice: by the runtime's own `slice_index`, on CPU (which has none) by process, in equal parts."""
    if devices[0].platform == "tpu":
        return {device: int(getattr(device, "slice_index", 0)) for device in devices}
    per_slice = max(1, where.processes // where.slices)
    if where.processes == 1:
        share = max(1, len(devices) // where.slices)
        return {device: position // share for position, device in enumerate(devices)}
    return {device: device.process_index // per_slice for device in devices}


def about(jax: Any, where: Place) -> dict[str, Any]:
    """What this process sees, for its first line."""
    devices, local = jax.devices(), jax.local_devices()
    versions = {}
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ""
    return {
        "platform": devices[0].platform,
        "kind": devices[0].device_kind,
        "process": jax.process_index(),
        "processes": jax.process_count(),
        "slice": slices_of(list(devices), where)[local[0]],
        "slices": len(set(slices_of(list(devices), where).values())),
        "devices": len(devices),
        "local_devices": len(local),
        "hostname": socket.gethostname(),
        "python": platform.python_version(),
        **versions,
    }
