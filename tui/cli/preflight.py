"""`slicetower preflight`: compiles the benchmark for a real topology, without a TPU: does it fit, and what will bind it?"""

from __future__ import annotations

import argparse
import asyncio
import sys

from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from jobs.accelerators import Accelerator
from jobs.compiler import PreflightError
from jobs.meshes import advice
from jobs.preflight import PreflightReport, PreflightRequest, preflight
from jobs.programs.sharding_flags import add_arguments as add_program_arguments
from jobs.programs.sharding_flags import mesh_of
from jobs.roofline import Model, problems
from tui.cli.bench import accelerator_of
from tui.cli.output import add_format, print_json, print_table
from tui.preflight_words import facts, refusal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compiles the sharding benchmark for a real topology on this machine (libtpu needs no TPU for that)."
    )
    parser.add_argument("--accelerator-type", required=True, metavar="TYPE")
    parser.add_argument("--slices", type=int, default=1)
    add_program_arguments(parser)
    parser.add_argument("--largest-batch", action="store_true", help="also find the largest batch that fits")
    parser.add_argument(
        "--python", default=sys.executable, metavar="PROGRAM", help="an interpreter with jax and libtpu"
    )
    parser.add_argument("--no-cache", action="store_true", help="compile again")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    request = _request(arguments)
    for text in advice(request.mesh):
        print(f"slicetower: {text}", file=sys.stderr)
    try:
        report = asyncio.run(
            preflight(
                request,
                search=arguments.largest_batch,
                python=arguments.python,
                cache=None if arguments.no_cache else paths().state_dir / "preflight",
                progress=lambda text: print(f"slicetower: {text}", file=sys.stderr, flush=True),
            )
        )
    except PreflightError as error:
        raise OperatorError(error.what, error.cure) from error
    if arguments.format == "json":
        print_json({"preflight": report.to_json()})
    else:
        _show(request, report)
    if report.fits:
        return ExitCode.OK
    print(f"slicetower: {refusal(report)}", file=sys.stderr)
    return ExitCode.USAGE


def _request(arguments: argparse.Namespace) -> PreflightRequest:
    accelerator: Accelerator = accelerator_of(arguments.accelerator_type)
    mesh = mesh_of(arguments)
    model = Model(arguments.embedding_dimension, arguments.num_layers, arguments.batch_size, arguments.dtype)
    said = problems(accelerator, arguments.slices, mesh, model)
    if arguments.slices > 1 and not accelerator.generation.multislice:
        said.append(f"{accelerator.name} has no Multislice: it needs v4 or later.")
    if said:
        raise OperatorError(" ".join(said))
    return PreflightRequest(accelerator, arguments.slices, mesh, model)


def _show(request: PreflightRequest, report: PreflightReport) -> None:
    compiled = report.compilation
    for name, value in facts(request, report):
        print(f"{name:<15}{value}")
    if compiled.sent:
        print()
        print_table(
            ["NETWORK", "OPERATION", "WAYS", "TIMES A STEP", "MB A DEVICE"],
            [[each.network, each.kind, each.ways, each.count, f"{each.bytes / 1e6:.3f}"] for each in compiled.sent],
        )
    for text in compiled.unread:
        print(f"slicetower: not counted, its groups could not be read: {text}", file=sys.stderr)
