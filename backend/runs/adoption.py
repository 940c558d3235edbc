"""Jobs that others began: those that a request carries from another operator, and those of other processes of this one."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from backend.cloud.encoding import METADATA_FILE_LIMIT, from_json, parse_timestamp
from backend.cloud.requests import RUN_KEY, CreateRequest
from backend.model import Fleet
from backend.outcomes import OperatorError
from backend.runs.fanout import WorkerResult
from backend.runs.manager import Run, RunManager
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.runs.plan import make_plan
from backend.runs.production import SCRIPT_KEY, expected_workers
from backend.runs.store import is_run_id
from backend.sanitize import plain

_BEGIN, _END = "JOB: Job = {\n", "\n}\n"


def adopted(body: Mapping[str, Any], key: tuple[str, str, str], context: str) -> RunRecord:
    """The run of the job that a request carries, as its maker's journal has it, from what everybody can read.

    Args:
        body: The request as the API describes it.
        key: (project, zone, name) of the request.
        context: Whose connections will follow it.

    Raises:
        OperatorError: it carries no job of ours, or one that can't be read.
    """
    project, zone, name = key
    create = from_json(body, name=name, project=project, zone=zone)
    metadata = dict(create.metadata)
    run_id, script = metadata.get(RUN_KEY, ""), metadata.get(SCRIPT_KEY, "")
    if not run_id:
        raise OperatorError(
            f"{name} carries no job of slicetower.",
            f"Only what `slicetower qr create ... --job` made has one; a command of your own goes by `slicetower run {name}`.",
        )
    job = _job(script)
    if job is None or job.get("run") != run_id or not is_run_id(run_id):
        raise OperatorError(
            f"The startup script of {name} can't be read as a job of slicetower.", "Was its metadata changed by hand?"
        )
    request = _request(job)
    workers = expected_workers(create)
    bundle = job.get("bundle")
    return RunRecord(
        id=run_id,
        request=request,
        workers=workers,
        results=tuple(WorkerResult(worker) for worker in workers),
        state=RunState.DETACHED,
        context=context,
        remote_text=make_plan(request, workers).remote_text,
        started_at=parse_timestamp(str(body["createTime"])) if body.get("createTime") else datetime.now(UTC),
        bundle_digest=str(bundle.get("digest", "")) if isinstance(bundle, dict) else "",
    )


def user_of(body: Mapping[str, Any], key: tuple[str, str, str]) -> str:
    """Who the job runs as on its workers; whoever logs in as somebody else may not be able to read its output."""
    project, zone, name = key
    metadata = dict(from_json(body, name=name, project=project, zone=zone).metadata)
    job = _job(metadata.get(SCRIPT_KEY, "")) or {}
    return plain(str(job.get("user", "")), limit=64)


def carried(create: CreateRequest) -> tuple[RunRequest, str, bool] | None:
    """(the job of a request, the id of its run, whether it ships code); None where it carries none of ours."""
    metadata = dict(create.metadata)
    run_id, job = metadata.get(RUN_KEY, ""), _job(metadata.get(SCRIPT_KEY, ""))
    if job is None or job.get("run") != run_id or not is_run_id(run_id):
        return None
    return _request(job), run_id, isinstance(job.get("bundle"), dict)


def _request(job: Mapping[str, Any]) -> RunRequest:
    return RunRequest(
        argv=tuple(str(word) for word in job["argv"]),
        shell=bool(job.get("shell")),
        timeout_s=job.get("timeout_s"),
        environment=tuple((str(key), str(value)) for key, value in dict(job.get("environment") or {}).items()),
        setup=str(job.get("setup") or ""),
        kind="job",
        at_boot=True,
        gang=True,
    )


def _job(script: str) -> dict[str, Any] | None:
    """The job's table in a startup script. It is data from elsewhere: literals alone are read, nothing is run."""
    begin = script.find(_BEGIN)
    end = script.find(_END, begin)
    if begin < 0 or end < 0 or len(script) > METADATA_FILE_LIMIT:
        return None
    try:
        found = ast.literal_eval(script[begin + len(_BEGIN) - 2 : end + 2])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    well = isinstance(found, dict) and isinstance(found.get("argv"), list) and found["argv"]
    limit = found.get("timeout_s") if isinstance(found, dict) else None
    return found if well and (limit is None or isinstance(limit, (int, float))) else None


def newcomers(manager: RunManager, context: str, fleet: Fleet) -> list[Run]:
    """Takes up runs that another process of this operator began since this one looked.

    A job whose request is not listed yet is left for later: who asked for it may still be told that it is refused.
    """
    found = []
    listed = {item.key for item in fleet.queued_resources}
    for run_id, _ in manager.store.open_ids(context):
        if run_id in manager.active:
            continue
        record = manager.store.get(run_id)
        if record.request.at_boot and not any(
            (each.project, each.zone, each.queued_resource) in listed for each in record.workers
        ):
            continue
        found.append(manager.attach(record.id))
    return [run for run in found if run.state is not RunState.ENDED]
