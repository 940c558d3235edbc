"""`slicetower bench compare | scale | baseline`: benchmarks beside each other, and the gate that a regression shuts."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from backend.bench.compare import Comparison, compare, regressions, weak_scaling
from backend.bench.model import BenchRecord
from backend.bench.store import BenchStore
from backend.outcomes import ExitCode, OperatorError
from tui.cli.output import add_format, print_json, print_table, timestamp

ACTIONS = frozenset({"compare", "scale", "baseline"})


def add_arguments(actions: Any) -> None:
    """Adds the three verbs.

    Args:
        actions: What `ArgumentParser.add_subparsers` gave.
    """
    side = actions.add_parser("compare", help="benchmarks against the first of them, or against a saved baseline")
    side.add_argument("ids", nargs="+", metavar="ID")
    side.add_argument(
        "--baseline", metavar="NAME", help="compare with it; exit code 1 when one is slower beyond the noise"
    )
    add_format(side)
    scale = actions.add_parser("scale", help="weak scaling: throughput over slices against linear")
    scale.add_argument("ids", nargs="*", metavar="ID", help="those that are measured against each other")
    scale.add_argument("--queued-resource", action="append", default=[], metavar="QR", help="all that were run on it")
    add_format(scale)
    saved = actions.add_parser(
        "baseline", help="give a benchmark a name to compare later ones with; alone: list them"
    )
    saved.add_argument("name", nargs="?", metavar="NAME")
    saved.add_argument("id", nargs="?", metavar="ID")
    add_format(saved)


def main(arguments: argparse.Namespace, store: BenchStore) -> int:
    if arguments.action == "baseline":
        return _baseline(arguments, store)
    if arguments.action == "scale":
        return _scale(arguments, store)
    records = [store.get(each) for each in arguments.ids]
    if arguments.baseline is None:
        return _compare(compare(records), arguments.format)
    told = compare([store.baseline(arguments.baseline), *records])
    _compare(told, arguments.format)
    worse = regressions(told)
    for text in worse:
        print(f"slicetower: {text}", file=sys.stderr)
    return ExitCode.COMMAND_FAILED if worse else ExitCode.OK


def _figure(value: float | None, form: str = ".4g") -> str:
    return "" if value is None else format(value, form)


def _compare(told: list[Comparison], form: str) -> int:
    if form == "json":
        for number, each in enumerate(told):
            print_json(
                {
                    "bench": each.record.id,
                    "tflops_per_device": each.record.summary.tflops_per_device,
                    "step_time_s": each.record.summary.step_time_s,
                    "ratio": each.ratio,
                    "noise": each.noise,
                    "verdict": "baseline" if number == 0 else each.verdict,
                    "differences": list(each.differences),
                }
            )
        return ExitCode.OK
    print_table(
        ["ID", "MESH", "SECONDS", "TFLOP/S/DEVICE", "RATIO", "NOISE", "VERDICT", "DIFFERS IN"],
        [
            [
                each.record.id,
                each.record.request.mesh.words(),
                _figure(each.record.summary.step_time_s),
                _figure(each.record.summary.tflops_per_device),
                _figure(each.ratio, ".3f"),
                _figure(each.noise, ".3f"),
                "baseline" if number == 0 else each.verdict,
                ", ".join(each.differences),
            ]
            for number, each in enumerate(told)
        ],
    )
    return ExitCode.OK


def _scale(arguments: argparse.Namespace, store: BenchStore) -> int:
    records: list[BenchRecord] = [store.get(each) for each in arguments.ids]
    for name in arguments.queued_resource:
        records += store.records(queued_resource=name)
    if not records:
        raise OperatorError(
            "bench scale needs benchmarks of several slice counts.", "Name their ids, or --queued-resource QR."
        )
    points = weak_scaling(records)
    left_out = len({each.id for each in records}) - sum(
        each.request.model == records[0].request.model for each in {each.id: each for each in records}.values()
    )
    if arguments.format == "json":
        for each in points:
            print_json(
                {
                    "slices": each.slices,
                    "bench": each.record.id,
                    "tflops_per_device": each.record.summary.tflops_per_device,
                    "tflops_total": each.tflops_total,
                    "of_linear": each.efficiency,
                }
            )
    else:
        print_table(
            ["SLICES", "DEVICES", "TFLOP/S", "TFLOP/S LINEAR", "OF LINEAR", "MESH", "ID"],
            [
                [
                    each.slices,
                    each.record.devices,
                    _figure(each.tflops_total),
                    _figure(each.tflops_total / each.efficiency),
                    f"{each.efficiency:.1%}",
                    each.record.request.mesh.words(),
                    each.record.id,
                ]
                for each in points
            ],
        )
    if left_out:
        print(f"slicetower: {left_out} left out, whose sizes are not those of {records[0].id}", file=sys.stderr)
    if len(points) < 2:
        print("slicetower: one slice count alone says nothing of scaling", file=sys.stderr)
    return ExitCode.OK


def _baseline(arguments: argparse.Namespace, store: BenchStore) -> int:
    if arguments.name is not None:
        if arguments.id is None:
            raise OperatorError("A baseline is a name and a benchmark.", "Write `slicetower bench baseline NAME ID`.")
        record = store.get(arguments.id)
        store.save_baseline(arguments.name, record)
        print(f"slicetower: {arguments.name} is {record.id} now", file=sys.stderr)
        return ExitCode.OK
    known = store.baselines()
    if arguments.format == "json":
        for name, each in known.items():
            print_json({"name": name, "bench": each.id, "tflops_per_device": each.summary.tflops_per_device})
        return ExitCode.OK
    print_table(
        ["NAME", "ID", "STARTED", "SLICES", "TYPE", "MESH", "TFLOP/S/DEVICE"],
        [
            [
                name,
                each.id,
                timestamp(each.started_at),
                each.slices,
                each.accelerator_type,
                each.request.mesh.words(),
                _figure(each.summary.tflops_per_device),
            ]
            for name, each in known.items()
        ],
    )
    return ExitCode.OK
