"""Compiles the sharding benchmark for a real TPU topology, on a machine without a TPU, and tells what the compiler knows.

A child process of the preflight: libtpu must be installed, and it must not look for a TPU. Prints JSON lines:
`versions` first, `progress` while it works, one `compiled` per batch size, or `error`. The program compiled is the own step of
`shardings.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from importlib import metadata
from typing import Any

from jobs.hlo import traffic_of

TOPOLOGY_VARIABLES = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
}
"""Without these libtpu asks for a metadata server, and errs about the names of workers."""


def topology_devices(jax: Any, topology: str, slices: int) -> list[Any]:
    """The devices of `slices` slices of a topology such as `v5e:4x4`.

    Raises:
        ProgramError: libtpu is missing or knows no such topology.
    """
    from jax.experimental import topologies

    from jobs.programs.process import ProgramError

    options: dict[str, Any] = {"num_slices": slices} if slices > 1 else {}
    if topology.startswith("v4:"):
        # Its topology lists two devices a chip; the runtime of a TPU VM joins them.
        options["chip_config_name"] = "megacore"
    try:
        return list(topologies.get_topology_desc(topology, platform="tpu", **options).devices)
    except Exception as error:
        raise ProgramError(
            "topology",
            f"libtpu gives no topology {topology} for {slices} slices: {type(error).__name__} {error}",
            "`pip install 'slicetower[preflight]'` brings libtpu.",
        ) from error


def versions() -> dict[str, str]:
    """Of what decides the outcome; empty where it is not installed."""
    told = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            told[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            told[name] = ""
    return told


def slice_index(device: Any) -> int:
    """0 where there is one slice: its devices know none."""
    return int(getattr(device, "slice_index", 0))


def main() -> None:
    """Compiles for the batch sizes that stand on stdin, one a line, until it ends."""
    os.environ.update(TOPOLOGY_VARIABLES)
    from jobs.programs import sharding_flags, shardings
    from jobs.programs.process import Place, fail, leave, say

    parser = argparse.ArgumentParser(prog="preflight", description=__doc__.partition("\n")[0])
    parser.add_argument("--topology", required=True, help="e.g. v5e:4x4")
    parser.add_argument("--slices", type=int, default=1)
    sharding_flags.add_arguments(parser)
    arguments = parser.parse_args()
    try:
        say({"versions": versions()})
        import jax

        say({"progress": f"asking libtpu for {arguments.slices} x {arguments.topology}"})
        devices = topology_devices(jax, arguments.topology, arguments.slices)
        mesh = sharding_flags.mesh_of(arguments)
        shardings.check(
            arguments, Place("", 0, arguments.slices, 0, arguments.slices, len(devices) // arguments.slices)
        )
        array = shardings.arrange(jax, devices, mesh, {device: slice_index(device) for device in devices})
        for line in sys.stdin:
            arguments.batch_size = int(line)
            say({"progress": f"compiling for {arguments.batch_size} rows a device"})
            say({"compiled": _compile(jax, shardings, arguments, array)})
        leave(0)
    except KeyboardInterrupt:
        leave(130)
    except Exception as error:
        fail(error)


def _compile(jax: Any, shardings: Any, arguments: argparse.Namespace, mesh: Any) -> dict[str, Any]:
    benchmark = shardings.Benchmark(jax, arguments, mesh)
    weights, rows = benchmark.shapes()
    started = time.perf_counter()
    told: dict[str, Any] = {"batch_size": arguments.batch_size, "fits": True}
    try:
        compiled = jax.jit(benchmark.step).lower(weights, rows).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {**told, "fits": False, "why": str(error)[:4000], "compile_s": time.perf_counter() - started}
    told["compile_s"] = time.perf_counter() - started
    memory = compiled.memory_analysis()
    for name in ("argument", "output", "temp", "alias", "generated_code"):
        told[f"{name}_bytes"] = int(getattr(memory, f"{name}_size_in_bytes", 0))
    analysis = compiled.cost_analysis()
    if isinstance(analysis, (list, tuple)):
        analysis = analysis[0]
    told["compiler_flops"] = float(analysis.get("flops", 0.0))
    told["bytes_accessed"] = float(analysis.get("bytes accessed", 0.0))
    traffic = traffic_of(compiled.as_text(), [slice_index(device) for device in mesh.devices.flat])
    told["sent"] = [dataclasses.asdict(each) for each in traffic.sent]
    told["unread"] = list(traffic.unread)
    return told


if __name__ == "__main__":
    main()
