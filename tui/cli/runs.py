"""`slicetower runs list|show|stop|retry|note|tag|export|prune`: what ran, where, and what became of it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from backend.context import Context
from backend.model import Fleet
from backend.outcomes import ExitCode, OperatorError, Outcome
from backend.runs import bundles
from backend.runs.attribution import of_record
from backend.runs.audit import RunAudit
from backend.runs.fanout import RETRIED, first_failure
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.sanitize import plain
from backend.targets import WorkerRef, fold, select
from backend.tower import Tower
from tui.cli import runs_kept
from tui.cli.output import add_format, count_argument, duration, print_json, print_table, timestamp
from tui.cli.run import follow
from tui.cli.run_report import counts, failure_json, how, last_words, print_stop, verdict_json, verdict_lines
from tui.cli.session import context_of, open_tower, say
from tui.cli.symptoms import symptom_lines, symptoms_json

SHOWN_COMMAND = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "The runs of this machine's journal."
    verbs = parser.add_subparsers(dest="runs_verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="the newest runs first")
    listing.add_argument("--limit", type=count_argument, default=50, metavar="N", help="so many (default: 50)")
    listing.add_argument("--tag", default="", metavar="TAG", help="only runs with this tag")
    add_format(listing)
    show = verbs.add_parser("show", help="one run, worker by worker")
    show.add_argument("run", metavar="ID", help="an id, its beginning or end, or `last`")
    add_format(show)
    stop = verbs.add_parser("stop", help="end a run on its workers, and confirm that it is gone")
    stop.add_argument("run", metavar="ID")
    stop.add_argument("--grace", type=float, default=3.0, metavar="S", help="seconds between TERM and KILL")
    stop.add_argument("--dry-run", action="store_true", help="say whom it would stop")
    add_format(stop)
    retry = verbs.add_parser("retry", help="run it again where it did not end well")
    retry.add_argument("run", metavar="ID")
    retry.add_argument("--unknown", action="store_true", help="also where the outcome is unknown")
    retry.add_argument("--dry-run", action="store_true", help="say where it would run")
    add_format(retry)
    runs_kept.add_verbs(verbs)


def main(arguments: argparse.Namespace) -> int:
    changes = arguments.runs_verb in ("stop", "retry", "prune") and not arguments.dry_run
    context = context_of(arguments, changes=f"runs {arguments.runs_verb}" if changes else "")
    kept = {"note": runs_kept.note, "tag": runs_kept.tag, "export": runs_kept.export, "prune": runs_kept.remove_old}
    verb = {"list": _list, "show": _show, "stop": _stop, "retry": _retry, **kept}[arguments.runs_verb]
    return asyncio.run(verb(arguments, context))


async def _list(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        records = runs_kept.chosen(tower, limit=arguments.limit, tag=arguments.tag)
        if arguments.format == "json":
            for record in records:
                print_json(_record_json(record, tower.runs.audit))
            return ExitCode.OK
    rows = [
        [
            record.id,
            record.state,
            timestamp(record.started_at),
            _lasted(record),
            len(record.workers),
            counts(record.summary),
            plain(record.request.title or record.remote_text, limit=SHOWN_COMMAND),
        ]
        for record in records
    ]
    print_table(["RUN", "STATE", "STARTED", "TOOK", "WORKERS", "OUTCOMES", "COMMAND"], rows)
    return ExitCode.OK


def _lasted(record: RunRecord) -> str:
    until = record.ended_at or datetime.now(UTC)
    bound = ">= " if record.ended_at is None and record.state is not RunState.RUNNING else ""
    return bound + duration((until - record.started_at).total_seconds())


def _record_json(record: RunRecord, audit: RunAudit) -> dict[str, object]:
    first = first_failure(record.results)
    origin = audit.origin(record.id)
    return {
        "run": record.id,
        "state": record.state,
        "kind": record.request.kind,
        "title": record.request.title,
        "context": record.context,
        "started_at": timestamp(record.started_at),
        "ended_at": timestamp(record.ended_at),
        "targets": fold(worker.address for worker in record.workers),
        "workers": len(record.workers),
        "command": list(record.request.argv),
        "shell": record.request.shell,
        "batch": record.request.batch,
        "remote_text": record.remote_text,
        "bundle": record.bundle_digest,
        "summary": {str(outcome): count for outcome, count in sorted(record.summary.items())},
        "first_failure": None if first is None else failure_json(first),
        "note": record.note,
        "tags": list(audit.tags(record.id)),
        "user": origin.user,
        "host": origin.host,
    }


async def _show(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        record, logs = await _current(tower, arguments.run), tower.runs.logs
        verdict = await asyncio.to_thread(of_record, record, logs)
        described = _record_json(record, tower.runs.audit)
        symptoms = tower.runs.store.symptoms(record.id, record.workers)
    if arguments.format == "json":
        for result in record.results:
            print_json({**failure_json(result), "started_at": timestamp(result.started_at), "phase": result.phase})
        print_json({**described, "verdict": verdict_json(verdict), "symptoms": symptoms_json(symptoms)})
        return ExitCode.OK
    print(f"run       {record.id}  {record.state}  {counts(record.summary)}")
    print(f"started   {timestamp(record.started_at)}  took {_lasted(record)}")
    print(f"executes  {plain(record.remote_text)}")
    for name in ("note", "tags", "user"):
        value = described[name]
        if value:
            print(f"{name:<8}  {plain(' '.join(value) if isinstance(value, list) else str(value))}")
    if record.bundle_digest:
        print(f"code      {plain(record.bundle_source)}  {record.bundle_digest[:12]}")
    first = first_failure(record.results)
    if first is not None:
        print(f"first     {first.worker.address} {how(first)}  {plain(first.error)}".rstrip())
        if verdict is None or verdict.culprit != first.worker.address:
            for line in last_words(first, logs.path(record.id, first.worker.file_stem)):
                print(f"          | {line}")
    for line in (*symptom_lines(symptoms), *(verdict_lines(verdict) if verdict is not None else ())):
        print(line)
    rows = [
        [
            item.worker.address,
            how(item) if item.ended else item.phase,
            timestamp(item.started_at),
            _worker_took(item.started_at, item.ended_at),
            item.output_bytes,
            item.error,
        ]
        for item in record.results
    ]
    print_table(["WORKER", "OUTCOME", "STARTED", "TOOK", "BYTES", "ERROR"], rows)
    return ExitCode.OK


def _worker_took(started: datetime | None, ended: datetime | None) -> str:
    return duration((ended - started).total_seconds()) if started and ended else ""


async def _current(tower: Tower, run_id: str) -> RunRecord:
    """The record; one that lives on its workers is asked there first."""
    record = tower.runs.store.get(run_id)
    if record.state is RunState.ENDED:
        return record
    await tower.refresh()
    run = tower.runs.attach(record.id)
    if not await tower.runs.catch_up(run):
        missing = [item for place, item in enumerate(run.results) if not item.ended and place not in run.caught_up]
        say(f"not asked in time: {fold(item.worker.address for item in missing)}")
    if run.request.supervised and not run.observed:
        run.detach()
    if not run.observed:
        await run.wait()
    return tower.runs.store.get(record.id)


async def _stop(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        record = tower.runs.store.get(arguments.run)
        living = [item.worker.address for item in record.results if not item.ended]
        if arguments.dry_run:
            print(f"would stop {record.id} on {fold(living) if living else 'no worker: it has ended'}")
            return ExitCode.OK
        if record.state is RunState.ENDED and all(item.outcome is not Outcome.UNKNOWN for item in record.results):
            say(f"run {record.id} has ended already: {counts(record.summary)}")
            return ExitCode.OK
        await tower.refresh()
        run = tower.runs.attach(record.id)
        report = await tower.runs.stop(run.id, grace_s=arguments.grace)
    if arguments.format == "json":
        for address in report.stopped:
            print_json({"target": address, "stopped": True, "survivors": []})
        for address, pids in report.survivors:
            print_json({"target": address, "stopped": False, "survivors": list(pids)})
        for address, why in report.unverified:
            print_json({"target": address, "stopped": None, "survivors": None, "error": plain(why)})
        print_json({"run": record.id, "clean": report.clean})
    else:
        print_stop(report)
    return ExitCode.OK if report.clean else ExitCode.UNREACHABLE


async def _retry(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        record = await _current(tower, arguments.run)
        if record.state is not RunState.ENDED:
            raise OperatorError(f"Run {record.id} has not ended.", f"`slicetower runs stop {record.id}` ends it.")
        wanted = RETRIED | {Outcome.UNKNOWN} if arguments.unknown else RETRIED
        again = [item.worker for item in record.results if item.outcome in wanted]
        unknown = [item.worker.address for item in record.results if item.outcome is Outcome.UNKNOWN]
        if unknown and not arguments.unknown:
            say(f"left out, their outcome is unknown (--unknown includes them): {fold(unknown)}")
        if not again:
            say(f"nothing to retry: {counts(record.summary)}")
            return ExitCode.OK
        workers = _same_workers(await tower.refresh(), again)
        request = await asyncio.to_thread(_request_again, record)
        plan = tower.runs.plan(request, workers)
        if arguments.dry_run:
            print(f"would run on {fold(worker.address for worker in workers)}: {plain(plan.remote_text)}")
            return ExitCode.OK
        run = await tower.runs.launch(plan)
        say(f"run {run.id} retries {record.id} on {fold(worker.address for worker in workers)}")
        arguments.stream, arguments.raw, arguments.detach = False, False, request.detach
        return await follow(tower, run, arguments)


def _same_workers(fleet: Fleet, workers: list[WorkerRef]) -> tuple[WorkerRef, ...]:
    """The workers of those addresses today; a node that was replaced in the meantime is said."""
    found = select(fleet, [worker.address for worker in workers])
    before = {worker.address: worker.uid for worker in workers}
    replaced = [worker.address for worker in found if before.get(worker.address) != worker.uid]
    if replaced:
        say(f"these are other machines by now: {fold(replaced)}")
    return found


def _request_again(record: RunRecord) -> RunRequest:
    """The request, with the code packed anew from where it came."""
    if not record.bundle_digest:
        return record.request
    bundle = bundles.from_directory(Path(record.bundle_source))
    if bundle.digest != record.bundle_digest:
        print("slicetower: the code has changed since that run", file=sys.stderr)
    return replace(record.request, bundle=bundle)
