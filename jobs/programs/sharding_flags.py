"""The sharding benchmark's flags, and what they mean: its mesh and its FLOPs. Read by the program and by its launchers.

Shipped to workers beside the program: standard library alone, Python 3.10 and later.
"""

from __future__ import annotations

import argparse

from jobs.meshes import Axes, Mesh
from jobs.programs.process import Limits

FEED_FORWARD = 4
DTYPES = ("bfloat16", "float32")
AXES = ("data", "fsdp", "tensor")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Upstream's flags with upstream's defaults, then ours. Also read by the launcher, so that both know the same."""
    parser.add_argument("-p", "--profiler_path", default="", metavar="DIR", help="write a profile of the timed steps")
    parser.add_argument("-d", "--embedding_dimension", type=int, default=2048, metavar="D")
    parser.add_argument("-b", "--batch_size", type=int, default=131072, metavar="B", help="rows per device")
    parser.add_argument("-n", "--num_layers", type=int, default=4, metavar="N")
    for network, defaults in (("dcn", (1, 1, 1)), ("ici", (1, 4, 1))):
        for axis, default in zip(AXES, defaults):  # noqa: B905 - both have three
            parser.add_argument(
                f"-{network[0]}{axis[0]}",
                f"--{network}_{axis}_parallelism",
                type=int,
                default=default,
                metavar="WAYS",
            )
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--warmup", type=int, default=1, help="steps before, not counted (the first compiles)")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument(
        "--no_communication_steps",
        type=int,
        default=5,
        metavar="N",
        help="steps of the same matmuls without communication, between the timed ones (0: none)",
    )
    parser.add_argument("--stuck_after", type=float, default=300.0, metavar="S", help="end when a step takes longer")
    parser.add_argument("--compile_limit", type=float, default=1800.0, metavar="S")
    parser.add_argument("--initialization_timeout", type=float, default=Limits.initialize_s, metavar="S")
    parser.add_argument("--heartbeat_timeout", type=float, default=Limits.heartbeat_s, metavar="S")


def mesh_of(arguments: argparse.Namespace) -> Mesh:
    """The mesh of the six axis flags."""

    def axes(network: str) -> Axes:
        return Axes(*(getattr(arguments, f"{network}_{axis}_parallelism") for axis in AXES))

    return Mesh(axes("ici"), axes("dcn"))


def claimed_flops(arguments: argparse.Namespace) -> float:
    """Upstream's count per device and step: 6 x parameters x rows."""
    dimension: int = arguments.embedding_dimension
    rows: int = arguments.batch_size
    layers: int = arguments.num_layers
    return 6.0 * (2 * FEED_FORWARD * dimension * dimension * layers) * rows


def corrected_flops(arguments: argparse.Namespace) -> float:
    """Without the gradient towards the first matmul's input, which nobody computes: 1 matmul of 6 N less."""
    dimension: int = arguments.embedding_dimension
    rows: int = arguments.batch_size
    return claimed_flops(arguments) - 2.0 * FEED_FORWARD * dimension * dimension * rows
