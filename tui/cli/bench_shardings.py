"""`slicetower bench shardings`: plans, launches and follows the sharding benchmark on a queued resource."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import fields
from typing import Any

from backend.bench.live import Bench
from backend.bench.model import COORDINATOR_PORT, BenchPlan, BenchRequest, BenchState
from backend.outcomes import ExitCode, OperatorError
from backend.runs.fanout import exit_code
from backend.sanitize import plain
from backend.targets import expand, select
from backend.tower import Tower
from jobs.programs.sharding_flags import add_arguments as add_program_arguments
from tui.cli.output import add_format, print_json
from tui.cli.places import add_place, context_of, find, refuse_read_only
from tui.wording import count

FOLLOW_S = 0.2
LAST_LINES = 5
"""Of the log of the worker that failed first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs the sharding benchmark on every worker of a queued resource, and shows each step."
    parser.add_argument("target", metavar="TARGET", help="a queued resource, whole slices of it, or @group")
    add_program_arguments(parser)
    parser.add_argument("--python", default="python3", metavar="PROGRAM", help="the interpreter on the workers")
    parser.add_argument(
        "--port", type=int, default=COORDINATOR_PORT, help="of the coordinator, on worker 0 of slice 0"
    )
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="a variable for the program")
    parser.add_argument("--peak_tflops", type=float, metavar="T", help="per device, instead of the catalogue's")
    parser.add_argument("--title", default="", help="a name for the record")
    parser.add_argument("--force", action="store_true", help="launch although an estimate says that it won't fit")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done, and ask the workers; launch nothing"
    )
    parser.add_argument(
        "--detach", action="store_true", help="return when it has started; `bench show ID` reads it later"
    )
    add_format(parser)
    add_place(parser)


def request_of(arguments: argparse.Namespace) -> BenchRequest:
    """The request of parsed flags.

    Raises:
        OperatorError: --env without a name.
    """
    environment = []
    for text in arguments.env:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OperatorError(f"--env {plain(text)} is not K=V.", "Write --env NAME=VALUE.")
        environment.append((name, value))
    told = {
        item.name: getattr(arguments, item.name) for item in fields(BenchRequest) if hasattr(arguments, item.name)
    }
    return BenchRequest(**{**told, "environment": tuple(environment)})


def main(arguments: argparse.Namespace) -> int:
    return asyncio.run(_main(arguments))


async def _main(arguments: argparse.Namespace) -> int:
    request = request_of(arguments)
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "run a benchmark")
    async with Tower.open(context, watch=False) as tower:
        fleet = await tower.refresh()
        targets = expand([arguments.target], tower.groups)
        workers = select(fleet, targets)
        names = {worker.queued_resource for worker in workers}
        if len(names) > 1:
            raise OperatorError(
                f"'{plain(arguments.target)}' names workers of {len(names)} queued resources.",
                "A benchmark runs on one; `slicetower bench sweep` takes several.",
            )
        resource = find(fleet, workers[0].queued_resource)
        plan = await tower.benches.plan(resource, request, workers, target=" ".join(targets))
        for text in (*plan.warnings, *plan.advice):
            print(f"slicetower: {text}", file=sys.stderr)
        if arguments.dry_run:
            _show_plan(plan, arguments.format)
            for text in plan.refusals:
                print(f"slicetower: {text}", file=sys.stderr)
            return ExitCode.USAGE if plan.refusals else ExitCode.OK
        bench = await tower.benches.launch(plan)
        print(
            f"slicetower: benchmark {bench.id} on {count(len(plan.workers), 'worker')}, {count(plan.devices, 'device')},"
            f" {plan.mesh.words()}",
            file=sys.stderr,
        )
        if arguments.detach:
            return await _until_started(bench)
        return await _follow(tower, bench, arguments.format)


def plan_facts(plan: BenchPlan) -> dict[str, Any]:
    """A plan as JSON."""
    facts: dict[str, Any] = {
        "target": plan.target,
        "accelerator_type": plan.accelerator.name if plan.accelerator else None,
        "slices": plan.slices,
        "workers": len(plan.workers),
        "devices": plan.devices,
        "platform": plan.platform or None,
        "mesh": plan.mesh.code(),
        "coordinator": plan.coordinator,
        "remote_command": plan.run_plan.remote_text if plan.run_plan else None,
        "command": plan.command,
        "refusals": list(plan.refusals),
        "warnings": list(plan.warnings),
        "advice": list(plan.advice),
    }
    if plan.prediction is not None:
        facts["prediction"] = {
            "bound": plan.prediction.bound,
            "step_time_s": plan.prediction.step_time_s,
            "tflops_per_device": plan.prediction.tflops_per_device,
            "memory_bytes": plan.prediction.memory.total,
            "assumptions": list(plan.prediction.assumptions),
        }
    return facts


def _show_plan(plan: BenchPlan, form: str) -> None:
    facts = plan_facts(plan)
    if form == "json":
        print_json({"plan": facts})
        return
    prediction = facts.pop("prediction", None)
    for name in ("refusals", "warnings", "advice"):
        facts.pop(name)
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<18}{plain(str(value)) if value is not None else '-'}")
    if prediction:
        told = f"{prediction['tflops_per_device']:.4g} TFLOP/s a device, {prediction['step_time_s']:.4g} s a step"
        print(f"{'predicted':<18}{told}, bound by {prediction['bound']}")
        print(f"{'memory':<18}{prediction['memory_bytes'] / 1e9:.1f} GB a device (estimated)")
        print(f"{'assuming':<18}{'; '.join(prediction['assumptions'])}")


async def _until_started(bench: Bench) -> int:
    for _ in range(int(600 / FOLLOW_S)):
        if all(result.ended or result.started_at is not None for result in bench.run.results):
            break
        await asyncio.sleep(FOLLOW_S)
    bad = [result for result in bench.run.results if result.ended and result.error]
    if bad:
        raise OperatorError(f"{bad[0].worker.address}: {bad[0].error}", exit_code=ExitCode.UNREACHABLE)
    print(bench.id)
    return ExitCode.OK


async def _follow(tower: Tower, bench: Bench, form: str) -> int:
    """Until it has ended; the first Ctrl-C stops it on its workers, the second leaves at once."""
    interrupts = asyncio.Queue[None]()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupts.put_nowait, None)
    ended = asyncio.ensure_future(tower.benches.wait(bench))
    printer = StepPrinter(bench, form)
    try:
        stopping: asyncio.Task[None] | None = None
        while not ended.done():
            await asyncio.wait({ended}, timeout=FOLLOW_S)
            printer.show(whole=False)
            if not interrupts.empty():
                interrupts.get_nowait()
                if stopping is not None:
                    raise KeyboardInterrupt
                print("slicetower: stopping it on every worker; Ctrl-C again leaves it alone", file=sys.stderr)
                stopping = asyncio.ensure_future(tower.benches.stop(bench))
        await ended
        if stopping is not None:
            await stopping
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    bench = tower.benches.active[bench.id]
    printer.show(whole=True)
    _show_summary(bench, form)
    if bench.state == BenchState.STOPPED:
        return ExitCode.INTERRUPTED
    return exit_code(bench.run.results)


class StepPrinter:
    """Prints each step once, when every worker has told it (or nothing more will come)."""

    def __init__(self, bench: Bench, form: str) -> None:
        self._bench = bench
        self._form = form
        self._printed: set[int] = set()
        self._headed = False

    def show(self, *, whole: bool) -> None:
        everybody = len(self._bench.run.workers)
        for point in self._bench.points:
            if point.step in self._printed or (point.workers < everybody and not whole):
                continue
            self._printed.add(point.step)
            if self._form == "json":
                print_json(
                    {
                        "step": point.step,
                        "step_time_s": point.step_time_s,
                        "tflops_per_device": point.tflops_per_device,
                        "step_time_low_s": point.step_time_low_s,
                        "step_time_high_s": point.step_time_high_s,
                        "workers": point.workers,
                        "set_aside": point.set_aside,
                    }
                )
                continue
            if not self._headed:
                self._headed = True
                print(
                    f"{'STEP':>6}  {'SECONDS':>10}  {'LOW':>10}  {'HIGH':>10}  {'TFLOP/S/DEVICE':>14}  NOTE",
                    flush=True,
                )
            rate = f"{point.tflops_per_device:.4g}" if point.tflops_per_device is not None else "-"
            times = f"{point.step_time_s:>10.4g}  {point.step_time_low_s:>10.4g}  {point.step_time_high_s:>10.4g}"
            print(f"{point.step:>6}  {times}  {rate:>14}  {point.set_aside}".rstrip(), flush=True)


def _show_summary(bench: Bench, form: str) -> None:
    record = bench.record
    first = bench.run.first_failure
    if form == "json":
        print_json(
            {
                "summary": {
                    **record.summary.to_json(),
                    "bench": record.id,
                    "state": record.state.value,
                    "devices": record.devices,
                    "mesh": record.request.mesh.code(),
                    "versions": dict(record.versions),
                    "first_failure": first.worker.address if first is not None else None,
                    "command": record.command,
                }
            }
        )
    else:
        print(bench.words())
    if first is None or bench.state == BenchState.STOPPED:
        return
    told = {error.address: error for error in bench.errors}
    address = first.worker.address
    how = f"exit code {first.exit_code}" if first.exit_code is not None else first.outcome.value
    how = f"signal {first.signal}" if first.signal else how
    print(f"slicetower: {address} failed first ({how}). {first.error}".rstrip(), file=sys.stderr)
    error = told.get(address) or next(iter(told.values()), None)
    if error is not None:
        print(f"slicetower: {error.address}: {error.what} {error.cure}".rstrip(), file=sys.stderr)
    elif address in bench.run.logs:
        log = bench.run.logs[address]
        for line in log.lines(max(0, log.total - LAST_LINES), log.total):
            print(f"  {plain(line.text)}", file=sys.stderr)
