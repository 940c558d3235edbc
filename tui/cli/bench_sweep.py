"""`slicetower bench sweep`: one benchmark after another on a queued resource, the most promising first, resumable."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import fields

from backend.bench.model import BenchRequest
from backend.bench.sweep import (
    PointState,
    Sweep,
    SweepPoint,
    SweepStore,
    join_sweeps,
    parse_mesh,
    plan_sweep,
    run_sweep,
)
from backend.model import QueuedResource
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.targets import expand
from backend.tower import Tower
from jobs.programs.sharding_flags import DTYPES
from jobs.statistics import rate_words
from jobs.sweep import StopRule
from tui.cli.output import add_format, print_json, print_table
from tui.cli.places import add_place, context_of, find, refuse_read_only

FOLLOW_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs the sharding benchmark over meshes and sizes; what can't be run is listed with its reason."
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="QR",
        help="a queued resource, or several of other slice counts, one after another",
    )
    parser.add_argument("--resume", metavar="ID", help="take up a sweep that was stopped or lost its console")
    parser.add_argument(
        "--mesh", action="append", default=[], metavar="ICI[/DCN]", help="data x fsdp x tensor: 1x16x1/2x1x1"
    )
    parser.add_argument("-d", "--embedding_dimension", type=_numbers, default=(), metavar="D[,D]")
    parser.add_argument("-b", "--batch_size", type=_numbers, default=(), metavar="B[,B]", help="rows per device")
    parser.add_argument("-n", "--num_layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--python", default="python3", metavar="PROGRAM", help="the interpreter on the workers")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="run at most N")
    parser.add_argument(
        "--patience", type=int, default=0, metavar="N", help="stop after N in a row that were not faster"
    )
    parser.add_argument(
        "--no-bound", action="store_true", help="go on although nothing left can beat the best by the roofline"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be run, in order")
    add_format(parser)
    add_place(parser)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers such as 64,128") from None


def main(arguments: argparse.Namespace) -> int:
    return asyncio.run(_main(arguments))


async def _main(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "run benchmarks")
    if bool(arguments.targets) == bool(arguments.resume):
        raise OperatorError("bench sweep takes queued resources, or --resume ID.", "Give one of them.")
    async with Tower.open(context, watch=False) as tower:
        store = SweepStore(tower.journal)
        loaded = store.load(arguments.resume, tower.benches) if arguments.resume else None
        fleet = await tower.refresh()
        names = list(dict.fromkeys(loaded.targets if loaded else expand(arguments.targets, tower.groups)))
        resources = [find(fleet, name) for name in names]
        if loaded is None:
            parts = [await _plan(arguments, tower, resource, context.name) for resource in resources]
            sweep = join_sweeps(parts)
        else:
            sweep = loaded
        if arguments.dry_run:
            _show(sweep, arguments.format)
            return ExitCode.OK
        _take_up(sweep, tower)
        print(f"slicetower: {sweep.id}: {len(sweep.left)} benchmarks on {', '.join(names)}", file=sys.stderr)
        store.save(sweep)
        interrupted = await _run(sweep, tower, store, names=names, arguments=arguments)
        _show(sweep, arguments.format, ended=True)
        if interrupted:
            print(f"slicetower: `slicetower bench sweep --resume {sweep.id}` goes on with it", file=sys.stderr)
            return ExitCode.INTERRUPTED
        failed = any(point.state == PointState.FAILED for point in sweep.points)
        return ExitCode.COMMAND_FAILED if failed else ExitCode.OK


def _take_up(sweep: Sweep, tower: Tower) -> None:
    """What a console that died left at work is followed again: two benchmarks at once would measure each other."""
    for point in sweep.left:
        record = tower.benches.store.find(point.bench) if point.bench else None
        if record is not None and not record.state.is_over:
            tower.benches.reattach([tower.runs.attach(point.bench)])


async def _plan(arguments: argparse.Namespace, tower: Tower, resource: QueuedResource, context: str) -> Sweep:
    survey, suggested = await tower.benches.platform_of(resource)
    return plan_sweep(
        resource,
        _base(arguments),
        target=resource.name,
        context=context,
        meshes=[parse_mesh(text) for text in arguments.mesh] or None,
        batch_sizes=arguments.batch_size,
        embedding_dimensions=arguments.embedding_dimension,
        platform="cpu" if suggested else "tpu" if survey else "",
        limit=arguments.limit,
        rule=StopRule(use_bound=not arguments.no_bound, patience=arguments.patience),
    )


def _base(arguments: argparse.Namespace) -> BenchRequest:
    plain_fields = {"num_layers", "steps", "warmup", "dtype", "python"}
    told = {item.name: getattr(arguments, item.name) for item in fields(BenchRequest) if item.name in plain_fields}
    return BenchRequest(**told)


async def _run(
    sweep: Sweep, tower: Tower, store: SweepStore, *, names: list[str], arguments: argparse.Namespace
) -> bool:
    """Until it has ended; Ctrl-C stops the benchmark at work and keeps the rest. Returns whether that happened."""
    interrupts = asyncio.Queue[None]()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupts.put_nowait, None)
    resources = [find(tower.watch.fleet, name) for name in names]
    running = asyncio.create_task(run_sweep(sweep, resources, tower.benches, store))
    shown: set[int] = set()
    interrupted = False
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=FOLLOW_S)
            _show_ended(sweep, shown, arguments.format)
            if not interrupts.empty():
                interrupts.get_nowait()
                if interrupted:
                    raise KeyboardInterrupt
                interrupted = True
                print("slicetower: stopping the benchmark at work; the rest is kept", file=sys.stderr)
                for bench in tower.benches.active.values():
                    if not bench.state.is_over:
                        await tower.benches.stop(bench)
        await running
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        running.cancel()
    _show_ended(sweep, shown, arguments.format)
    return interrupted


def _show_ended(sweep: Sweep, shown: set[int], form: str) -> None:
    for point in sweep.points:
        if point.position in shown or point.state not in (PointState.DONE, PointState.FAILED):
            continue
        shown.add(point.position)
        if form == "json":
            print_json({"point": _point(point)})
        else:
            figure = (
                f"{rate_words(point.tflops_per_device)} a device"
                if point.tflops_per_device is not None
                else point.note
            )
            print(f"slicetower: {_words(point)}: {point.state.value}, {plain(figure)}", file=sys.stderr, flush=True)


def _words(point: SweepPoint) -> str:
    request = point.request
    return f"{point.target}: {request.mesh.words()}, D {request.embedding_dimension}, B {request.batch_size}"


def _point(point: SweepPoint) -> dict[str, object]:
    return {
        "position": point.position,
        "target": point.target,
        "state": point.state.value,
        "mesh": point.request.mesh.code(),
        "embedding_dimension": point.request.embedding_dimension,
        "batch_size": point.request.batch_size,
        "step_time_s": point.step_time_s,
        "tflops_per_device": point.tflops_per_device,
        "at_most_tflops": point.at_most_tflops or None,
        "bench": point.bench or None,
        "note": point.note,
    }


def _show(sweep: Sweep, form: str, *, ended: bool = False) -> None:
    best = sweep.best
    if form == "json":
        if not ended:
            for point in sweep.points:
                print_json({"point": _point(point)})
        print_json({"sweep": {"id": sweep.id, "stopped": sweep.stopped, "best": _point(best) if best else None}})
        return
    rows = []
    for point in sweep.points:
        figure = f"{point.tflops_per_device:.4g}" if point.tflops_per_device is not None else ""
        share = (
            point.tflops_per_device / best.tflops_per_device
            if best and best.tflops_per_device and point.tflops_per_device
            else None
        )
        rows.append(
            [
                "best" if point is best else "",
                point.target,
                point.request.mesh.words(),
                point.request.embedding_dimension,
                point.request.batch_size,
                point.state.value,
                f"{point.step_time_s:.4g}" if point.step_time_s is not None else "",
                figure,
                f"{share:.0%}" if share is not None else "",
                f"{point.at_most_tflops:.4g}" if point.at_most_tflops else "",
                point.note,
            ]
        )
    print_table(
        ["", "TARGET", "MESH", "D", "B", "STATE", "SECONDS", "TFLOP/S/DEVICE", "OF BEST", "AT MOST", "NOTE"], rows
    )
    if sweep.stopped:
        print(f"slicetower: ended early: {sweep.stopped}", file=sys.stderr)
