"""`slicetower bench`: run a sharding benchmark; list, show and export those that were run; plan the next."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backend.bench.compare import describe, to_csv, to_json_lines
from backend.bench.model import BenchRecord
from backend.bench.store import BenchStore
from backend.journal import Journal
from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from jobs.accelerators import Accelerator, UnknownAccelerator, parse
from jobs.meshes import advice, legal_meshes, size_problems
from jobs.programs.sharding_flags import DTYPES
from jobs.roofline import ASSUMPTIONS, Model, predict
from tui.cli import bench_compare, bench_read, bench_shardings, bench_sweep
from tui.cli.output import add_format, count_argument, print_json, print_table, timestamp

ROWS = ("ROWS/CHIP ICI", "ROWS/CHIP DCN", "ROWS/SLICE DCN")
"""From so many rows on, that network no longer binds; 0: it never does, `never`: more rows don't help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Sharding benchmarks."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    bench_shardings.add_arguments(
        actions.add_parser("shardings", help="run the sharding benchmark on a queued resource")
    )
    bench_sweep.add_arguments(actions.add_parser("sweep", help="many of them, the most promising mesh first"))
    listing = actions.add_parser("list", help="benchmarks that were run, newest first")
    listing.add_argument("queued_resource", nargs="?", metavar="QR")
    listing.add_argument("--limit", type=count_argument, default=50, metavar="N", help="so many (default: 50)")
    add_format(listing)
    show = actions.add_parser("show", help="one benchmark: figures, steps, the command that repeats it")
    show.add_argument("id", metavar="ID", help="its id, a beginning of it, or `last`")
    add_format(show)
    bench_compare.add_arguments(actions)
    export = actions.add_parser("export", help="steps as CSV or JSON lines, with the command that repeats each")
    export.add_argument("ids", nargs="+", metavar="ID")
    export.add_argument("--format", choices=("csv", "jsonl"), default="csv")
    export.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    bench_read.add_arguments(actions.add_parser("read", help="step times and throughput out of any training log"))
    plan = actions.add_parser("plan", help="all legal meshes of a type, by predicted throughput; asks nobody")
    plan.add_argument("accelerator_type", metavar="TYPE")
    plan.add_argument("--slices", type=int, default=1)
    plan.add_argument("-d", "--embedding_dimension", type=int, default=2048)
    plan.add_argument("-b", "--batch_size", type=int, default=131072, help="rows per device")
    plan.add_argument("-n", "--num_layers", type=int, default=4)
    plan.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    plan.add_argument("--limit", type=int, default=20, help="rows shown (0: all)")
    add_format(plan)


def main(arguments: argparse.Namespace) -> int:
    if arguments.action == "shardings":
        return bench_shardings.main(arguments)
    if arguments.action == "sweep":
        return bench_sweep.main(arguments)
    if arguments.action == "read":
        return bench_read.main(arguments)
    if arguments.action == "plan":
        return _plan(arguments)
    journal = Journal.open(paths().journal)
    try:
        store = BenchStore(journal)
        if ids := _ids_of(arguments):
            from tui.cli.bench_catch_up import catch_up

            catch_up(arguments, store, ids)
        if arguments.action == "list":
            return _list(
                store.records(limit=arguments.limit, queued_resource=arguments.queued_resource), arguments.format
            )
        if arguments.action == "show":
            return _show(store.get(arguments.id), arguments.format)
        if arguments.action in bench_compare.ACTIONS:
            return bench_compare.main(arguments, store)
        records = [store.get(each) for each in arguments.ids]
    finally:
        journal.close()
    return _export(records, arguments)


def _ids_of(arguments: argparse.Namespace) -> list[str]:
    """The benchmarks that are named, whatever the action calls them."""
    named = getattr(arguments, "id", None)
    return [*getattr(arguments, "ids", ()), *([named] if named else ())]


def _figure(value: float | None, form: str = ".4g") -> str:
    return "" if value is None else format(value, form)


def _utilisation(record: BenchRecord) -> str:
    return "no MFU for a CPU" if record.platform == "cpu" else _figure(record.summary.mfu, ".1%")


def _list(records: list[BenchRecord], form: str) -> int:
    if form == "json":
        for each in records:
            print_json(describe(each))
        return ExitCode.OK
    print_table(
        ["ID", "STARTED", "TARGET", "SLICES", "TYPE", "MESH", "STATE", "STEPS", "SECONDS", "TFLOP/S/DEVICE", "MFU"],
        [
            [
                each.id,
                timestamp(each.started_at),
                each.target,
                each.slices,
                each.accelerator_type,
                each.request.mesh.words(),
                each.state.value,
                each.summary.steps,
                _figure(each.summary.step_time_s),
                _figure(each.summary.tflops_per_device),
                _utilisation(each),
            ]
            for each in records
        ],
    )
    for each in records:
        if not each.state.is_over:
            shown = f"`slicetower bench show {each.id}` asks its workers"
            print(f"slicetower: {each.id} was {each.state.value} when it was last seen: {shown}", file=sys.stderr)
    return ExitCode.OK


def _show(record: BenchRecord, form: str) -> int:
    if form == "json":
        for line in to_json_lines([record]):
            print(line)
        return ExitCode.OK
    figures = record.summary
    facts = [
        ("benchmark", record.id),
        ("state", record.state.value),
        ("target", f"{record.target}, {record.slices} x {record.accelerator_type}, {record.devices} devices"),
        ("mesh", record.request.mesh.words()),
        ("command", record.command),
        ("started", timestamp(record.started_at)),
        ("ended", timestamp(record.ended_at)),
        ("versions", ", ".join(f"{name} {value}" for name, value in record.versions.items())),
        (
            "step",
            f"{_figure(figures.step_time_s)} s median, {_figure(figures.step_time_p10_s)} to "
            f"{_figure(figures.step_time_p90_s)} (10 to 90 %) over {figures.steps} steps",
        ),
        (
            "TFLOP/s/device",
            f"{_figure(figures.tflops_per_device)} (by upstream's count {_figure(figures.claimed_tflops_per_device)})",
        ),
        ("MFU", _utilisation(record)),
        ("exposed comm.", _figure(figures.exposed_communication, ".0%")),
        ("compile", f"{_figure(figures.compile_s)} s"),
        ("set aside", ", ".join(f"{count} {reason}" for reason, count in figures.set_aside.items())),
        (
            "slowest worker",
            f"{figures.slowest_worker} {_figure(figures.slowest_ratio, '.3f')} x the median"
            if figures.slowest_worker
            else "",
        ),
    ]
    for name, value in facts:
        print(f"{name:<16}{value or '-'}")
    for error in record.errors:
        print(f"{'error':<16}{error.address}: {error.what} {error.cure}".rstrip())
    if figures.error:
        print(f"{'error':<16}{figures.error}")
    print()
    print_table(
        ["STEP", "WORKERS", "SECONDS", "LOW", "HIGH", "TFLOP/S/DEVICE", "NOTE"],
        [
            [
                point.step,
                point.workers,
                _figure(point.step_time_s),
                _figure(point.step_time_low_s),
                _figure(point.step_time_high_s),
                _figure(point.tflops_per_device),
                point.set_aside,
            ]
            for point in record.points
        ],
    )
    return ExitCode.OK


def _export(records: list[BenchRecord], arguments: argparse.Namespace) -> int:
    text = to_csv(records) if arguments.format == "csv" else "".join(f"{line}\n" for line in to_json_lines(records))
    if arguments.output is None:
        sys.stdout.write(text)
        return ExitCode.OK
    try:
        arguments.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OperatorError(
            f"{arguments.output} can't be written: {error.strerror}.", "Give another --output."
        ) from error
    return ExitCode.OK


def accelerator_of(name: str) -> Accelerator:
    """The accelerator of a type string.

    Raises:
        OperatorError: Unknown, with near names.
    """
    try:
        return parse(name)
    except UnknownAccelerator as error:
        raise OperatorError(str(error)) from error


def _plan(arguments: argparse.Namespace) -> int:
    accelerator = accelerator_of(arguments.accelerator_type)
    if not 1 <= arguments.slices <= 256 or (arguments.slices > 1 and not accelerator.generation.multislice):
        raise OperatorError(
            f"{arguments.slices} slices of {accelerator.name} can't be one queued resource.",
            "Multislice takes 2 to 256 slices of v4 or later.",
        )
    model = Model(arguments.embedding_dimension, arguments.num_layers, arguments.batch_size, arguments.dtype)
    rows = []
    passed_over = 0
    for mesh in legal_meshes(accelerator.devices, arguments.slices):
        if size_problems(mesh, arguments.embedding_dimension, arguments.batch_size, arguments.num_layers):
            passed_over += 1
        else:
            rows.append(predict(accelerator, mesh, model))
    rows.sort(key=lambda each: (not each.fits, -round(each.tflops_per_device, 6), each.serial_step_time_s))
    shown = rows[: arguments.limit] if arguments.limit > 0 else rows
    if arguments.format == "json":
        for each in shown:
            print_json(
                {
                    "mesh": each.mesh.code(),
                    "flags": list(each.mesh.flags()),
                    "fits": each.fits,
                    "memory_bytes": each.memory.total,
                    "bound": each.bound,
                    "step_time_s": each.step_time_s,
                    "tflops_per_device": each.tflops_per_device,
                    "ici_bytes": each.ici_bytes,
                    "dcn_bytes": each.dcn_bytes,
                    "rows_per_chip_ici": _finite(each.rows_per_chip_ici),
                    "rows_per_chip_dcn": _finite(each.rows_per_chip_dcn),
                    "rows_per_slice_dcn": _finite(each.rows_per_slice_dcn(accelerator.chips)),
                    "advice": advice(each.mesh),
                }
            )
        return ExitCode.OK
    print_table(
        ["MESH", "FITS", "GB/DEVICE", "BOUND", "SECONDS", "TFLOP/S/DEVICE", "ICI GB", "DCN GB", *ROWS],
        [
            [
                each.mesh.words(),
                "yes" if each.fits else "no",
                f"{each.memory.total / 1e9:.1f}",
                each.bound,
                _figure(each.step_time_s),
                _figure(each.tflops_per_device),
                f"{each.ici_bytes / 1e9:.2f}",
                f"{each.dcn_bytes / 1e9:.2f}",
                _rows(each.rows_per_chip_ici),
                _rows(each.rows_per_chip_dcn),
                _rows(each.rows_per_slice_dcn(accelerator.chips)),
            ]
            for each in shown
        ],
    )
    print(f"slicetower: predicted, never measured, assuming {'; '.join(ASSUMPTIONS)}", file=sys.stderr)
    print("slicetower: ROWS: from so many rows on, that network no longer binds", file=sys.stderr)
    if passed_over:
        print(f"slicetower: {passed_over} meshes left out, which don't divide these sizes", file=sys.stderr)
    return ExitCode.OK


def _rows(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.0f}"


def _finite(value: float) -> float | None:
    return value if value != float("inf") else None
