"""Production jobs: a queued resource whose workers start the job themselves, at every boot.

The job is in the request's metadata, so it comes back after a reset, a repair and a recreate, with no console anywhere. What is
in the metadata can be read by everybody who may describe the request: values of secrets are refused.
"""

from __future__ import annotations

import asyncio
import secrets as random_source
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backend.cloud.encoding import load_files
from backend.cloud.requests import RUN_KEY, CreateRequest, accelerator_of
from backend.outcomes import OperatorError, Outcome
from backend.runs.bundles import Bundle, readable
from backend.runs.fanout import WorkerResult
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.runs.plan import make_plan
from backend.runs.startup_script import startup_script
from backend.runs.store import new_run_id
from backend.sanitize import plain
from backend.targets import WorkerRef

if TYPE_CHECKING:
    from backend.cloud.errors import CloudError
    from backend.runs.manager import RunManager

SCRIPT_KEY = "startup-script"
TAKEN_KEYS = (SCRIPT_KEY, "startup-script-url", RUN_KEY)
UPLOAD_TIMEOUT_S = 1800.0
ARGUMENT_LIMIT_BYTES = 128 * 1024
"""Linux takes no longer argument: a gcloud command with more must read it from a file."""


@dataclass(frozen=True, slots=True)
class ProductionJob:
    """A job, ready to be asked for with its queued resource."""

    run_id: str
    run: RunRequest
    create: CreateRequest
    """With the startup script in its metadata."""
    script: str
    shown: str
    """The command, for people."""
    bundle: Bundle | None = None
    bundle_url: str = ""
    """Where the code must lie before a worker boots; empty: in the script."""
    warnings: tuple[str, ...] = ()

    def record(self, context: str, now: datetime) -> RunRecord:
        """The run as the journal keeps it: its workers are named, and have no addresses yet."""
        return RunRecord(
            id=self.run_id,
            request=replace(self.run, bundle=None),
            workers=(workers := expected_workers(self.create)),
            results=tuple(WorkerResult(worker) for worker in workers),
            state=RunState.DETACHED,
            context=context,
            remote_text=self.shown,
            started_at=now,
            bundle_digest=self.bundle.digest if self.bundle is not None else "",
            bundle_source=self.bundle.source if self.bundle is not None else "",
        )


def expected_workers(create: CreateRequest) -> tuple[WorkerRef, ...]:
    """The workers that a request will have, by the catalogue.

    Raises:
        OperatorError: the catalogue does not know how many.
    """
    accelerator = accelerator_of(create)
    if accelerator is None:
        raise OperatorError(
            f"How many workers a slice of '{plain(create.shape)}' has is not known, so its job can't be followed.",
            "Give an accelerator type of the catalogue.",
        )
    return tuple(
        WorkerRef(create.project, create.zone, create.name, place, index, node_id, "")
        for place, node_id in enumerate(create.node_ids)
        for index in range(accelerator.workers)
    )


def plan_job(
    create: CreateRequest,
    run: RunRequest,
    *,
    user: str,
    bundle_folder: str = "",
    run_id: str = "",
) -> ProductionJob:
    """Puts a job into a request.

    Args:
        create: The request, valid by itself.
        run: Command, environment, setup, time-out and code; made a job that starts at boot.
        user: Who it runs as on the workers.
        bundle_folder: gs://BUCKET/FOLDER for code that does not fit into the metadata; empty: it must fit.
        run_id: For a repeatable result; empty: a new one.

    Raises:
        OperatorError: nothing to run, a secret, a startup script beside the job, a script over the metadata's limit.
    """
    run = replace(run, kind="job", at_boot=True, gang=True, batch="all")
    if run.secret_environment:
        why = "a job that starts at boot has no operator's environment, and its metadata is no place for a secret"
        raise secret_refused(run.secret_environment[0], why)
    taken = [key for key, _ in (*create.metadata, *create.metadata_files) if key in TAKEN_KEYS]
    if taken:
        raise OperatorError(
            f"The request has the metadata {taken[0]}, and --job needs that key for itself.",
            "Move what that script does into --setup, or leave --job out.",
        )
    if bundle_folder and (not bundle_folder.startswith("gs://") or not bundle_folder[5:].strip("/")):
        raise OperatorError(f"'{plain(bundle_folder)}' is no bucket.", "Write --bundle gs://BUCKET/FOLDER.")
    if bundle_folder and run.bundle is None:
        raise OperatorError("--bundle says where code goes, and there is none.", "Add --sync DIR.")
    plan = make_plan(run, expected_workers(create))
    if plan.refusals:
        raise OperatorError(plan.refusals[0], " ".join(plan.refusals[1:]))
    identity = run_id or new_run_id(random_source.randbelow(1 << 20), now=datetime.now(UTC).timestamp())
    url = f"{bundle_folder.rstrip('/')}/{run.bundle.digest}.tar.gz" if bundle_folder and run.bundle else ""
    script = startup_script(identity, run, user=user, shown=plan.remote_text, bundle=run.bundle, bundle_url=url)
    metadata = (*load_files(create).metadata, (SCRIPT_KEY, script), (RUN_KEY, identity))
    made = replace(create, metadata=metadata, metadata_files=())
    return ProductionJob(
        identity, run, made, script, plan.remote_text, run.bundle, url, (*plan.warnings, *_warnings(run, script))
    )


def secret_refused(name: str, why: str) -> OperatorError:
    """What is said where no value can be taken from the operator's environment."""
    return OperatorError(
        f"--env {plain(name)}: {why}.",
        f"Keep it in Secret Manager, and read it on the worker: {plain(name)}=$(gcloud secrets versions access latest "
        f"--secret={plain(name)}), with the VM's service account allowed to.",
    )


def _warnings(run: RunRequest, script: str) -> Iterator[str]:
    if run.environment:
        names = ", ".join(name for name, _ in run.environment)
        yield f"Everybody who may describe the request can read the values of {names}."
    if len(script.encode()) > ARGUMENT_LIMIT_BYTES:
        yield (
            f"The startup script has {readable(len(script.encode()))}: for the gcloud command save it, and write "
            f"--metadata-from-file={SCRIPT_KEY}=FILE."
        )


def begin(job: ProductionJob, manager: RunManager, context: str) -> None:
    """Keeps the run before its request is sent: its workers start it, with nobody there."""
    manager.register(job.record(context, datetime.now(UTC)))


def refused(job: ProductionJob, manager: RunManager, error: CloudError) -> None:
    """The request was not made, so its run is over; where that is not certain, it stays open."""
    if error.transient:
        return
    results = list(manager.store.get(job.run_id).results)
    for result in results:
        result.outcome, result.error = Outcome.NOT_STARTED, "Its queued resource was refused."
    manager.store.update(job.run_id, enumerate(results))
    manager.store.set_state(job.run_id, RunState.ENDED, datetime.now(UTC))


def given_up(request: CreateRequest, manager: RunManager) -> None:
    """A request that had no worker yet is not wanted any more: the run that it carries, if any, is over."""
    run_id = dict(request.metadata).get(RUN_KEY, "")
    with suppress(OperatorError):  # Of the journal: whoever follows it ends it when the request is gone.
        if run_id and manager.knows(run_id):
            manager.give_up(run_id, "Its queued resource was given up.")


async def upload(bundle: Bundle, url: str) -> None:
    """Puts packed code into a bucket with the operator's own gcloud.

    Raises:
        OperatorError: there is no gcloud, it refuses, or it does not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="slicetower-") as folder:
        packed = Path(folder) / "bundle.tar.gz"
        await asyncio.to_thread(packed.write_bytes, bundle.archive)
        command = ["gcloud", "storage", "cp", str(packed), url]
        cure = f"Try it by hand: {shlex.join([*command[:3], 'FILE', url])}"
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise OperatorError("--bundle needs gcloud, which is not here.", cure, raw=str(error)) from error
        try:
            async with asyncio.timeout(UPLOAD_TIMEOUT_S):
                _, errors = await process.communicate()
        except TimeoutError as error:
            raise OperatorError(f"{url} was not written within {UPLOAD_TIMEOUT_S:.0f} s.", cure) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise OperatorError(f"The code could not be put to {url}.", cure, raw=plain(errors[-2000:]))
