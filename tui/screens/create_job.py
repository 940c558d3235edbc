"""The production job of the create form, without a screen: its fields, what they ask for, and what a request carries.

The fields are those of `qr create --job`; they are read by the same reader as the run form's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.cloud.requests import RUN_KEY, CreateRequest, Problem
from backend.cloud.validation import METADATA_TOTAL_LIMIT
from backend.outcomes import OperatorError
from backend.runs.bundles import Bundle, readable
from backend.runs.model import RunRequest
from tui.run_words import ON
from tui.screens.create_form import Field, Kind, write
from tui.screens.run_form import read_form

if TYPE_CHECKING:
    from backend.runs.production import ProductionJob

COMMAND, SYNC, BUNDLE, ENVIRONMENT = "job_command", "job_sync", "job_bundle", "job_environment"
JOB_FIELDS: tuple[Field, ...] = (
    Field(COMMAND, "job", hint="python3 train.py: its workers start it at every boot"),
    Field("job_shell", "through a shell", kind=Kind.FLAG, more=True),
    Field(SYNC, "ship folder", hint="none; such as ~/code: the job runs in its copy", more=True),
    Field(BUNDLE, "code goes to", hint="gs://BUCKET/FOLDER; empty: within the script", more=True),
    Field("job_setup", "setup first", hint="at each boot: pip install -r requirements.txt", more=True),
    Field(ENVIRONMENT, "environment", hint="KEY=VALUE: readable in the metadata", more=True),
    Field("job_timeout", "time-out", hint="none; of each worker and boot, such as 45m", more=True),
    Field("job_title", "title", hint="a name for the run", more=True),
)
_RUN_FIELDS = {
    "command": COMMAND,
    "shell": "job_shell",
    "environment": ENVIRONMENT,
    "timeout": "job_timeout",
    "setup": "job_setup",
}
"""The run form's fields, by name."""
IN_A_BUCKET = "Write gs://BUCKET/FOLDER here: the code goes there by your gcloud, and each worker fetches it."
SCRIPT_LINES = 60
"""Of the startup script that are shown; `qr create --dry-run` prints all."""


def read_job(texts: Mapping[str, str]) -> tuple[RunRequest | None, list[Problem]]:
    """What the form asks for as its job, without the code; None where it has none."""
    if not texts.get(COMMAND, "").strip():
        filled = [field for field in JOB_FIELDS[1:] if texts.get(field.name, "").strip()]
        if not filled:
            return None, []
        return None, [Problem(COMMAND, f"{filled[0].label} is about a job, and there is none.", "Write its command.")]
    request, wrong = read_form({mine: texts.get(name, "") for mine, name in _RUN_FIELDS.items()})
    found = [Problem(_RUN_FIELDS[name], error.what, error.cure) for name, error in wrong.items()]
    if request.secret_environment:
        name = request.secret_environment[0]
        found.append(
            Problem(
                ENVIRONMENT,
                f"{name} alone would be your own value, and metadata is no place for a secret.",
                f"Write {name}=VALUE for what everybody may read; else keep it in Secret Manager, and read it on the worker:"
                f" {name}=$(gcloud secrets versions access latest --secret={name})",
            )
        )
    bucket = texts.get(BUNDLE, "").strip()
    if bucket and (not bucket.startswith("gs://") or not bucket[5:].strip("/")):
        found.append(Problem(BUNDLE, f"'{bucket}' is no bucket.", "Write gs://BUCKET/FOLDER."))
    elif bucket and not texts.get(SYNC, "").strip():
        found.append(Problem(BUNDLE, "It says where code goes, and no folder is shipped.", "Name the folder."))
    return replace(request, title=texts.get("job_title", "").strip()), found


def planned(
    create: CreateRequest, run: RunRequest, *, user: str, folder: str, run_id: str
) -> tuple[ProductionJob | None, Problem | None]:
    """The job as it would be sent, or why it can't be."""
    from backend.runs.production import TAKEN_KEYS, plan_job
    from backend.runs.startup_script import SCRIPT_LIMIT_BYTES, ScriptTooLarge

    taken = [key for key, _ in (*create.metadata, *create.metadata_files) if key in TAKEN_KEYS]
    if taken:
        what = f"The request has the metadata {taken[0]}, which its job needs for itself."
        return None, Problem(
            COMMAND, what, "Move what that script does into 'setup first', or leave one of them out."
        )
    code = run.bundle
    if code is not None and not folder and len(code.archive) * 4 // 3 > SCRIPT_LIMIT_BYTES:
        return None, _too_large(readable(len(code.archive) * 4 // 3), readable(SCRIPT_LIMIT_BYTES))
    try:
        return plan_job(create, run, user=user, bundle_folder=folder, run_id=run_id), None
    except ScriptTooLarge as error:
        if error.carries_code:
            return None, Problem(BUNDLE, error.what, IN_A_BUCKET)
        return None, Problem(COMMAND, error.what, error.cure)
    except OperatorError as error:
        return None, Problem(COMMAND, error.what, error.cure)


def _too_large(size: str, limit: str) -> Problem:
    what = f"The code alone takes {size} of the startup script (compressed, base64), which may have {limit}."
    return Problem(BUNDLE, what, IN_A_BUCKET)


def shipped_words(job: ProductionJob) -> list[str]:
    """What goes with the request, in a sentence each: said before it is sent."""
    lines = []
    if job.bundle is not None:
        way = f"by {job.bundle_url}, uploaded first" if job.bundle_url else "within the startup script"
        lines.append(f"ships {job.bundle.report} of {job.bundle.source}, {way}")
    if job.run.setup:
        lines.append(f"setup at each boot, before the job: {job.run.setup}")
    lines.append(f"each worker runs at every boot: {job.shown}")
    lines.append(f"in its metadata: {_sizes(job)}")
    return [*lines, *(f"! {text}" for text in job.warnings)]


def _sizes(job: ProductionJob) -> str:
    from backend.runs.startup_script import SCRIPT_LIMIT_BYTES

    script = len(job.script.encode())
    every = sum(len(key.encode()) + len(value.encode()) for key, value in job.create.metadata)
    return (
        f"startup script {readable(script)} of {readable(SCRIPT_LIMIT_BYTES)} ({script / SCRIPT_LIMIT_BYTES:.0%}),"
        f" all {readable(every)} of {readable(METADATA_TOTAL_LIMIT)} ({every / METADATA_TOTAL_LIMIT:.0%})"
    )


def job_preview(job: ProductionJob, user: str) -> str:
    """What the metadata carries, and how much room is left; then the script itself."""
    script = job.script.splitlines()
    shown = script[:SCRIPT_LINES]
    rest = len(script) - len(shown)
    more = [f"… {rest} more lines: `slicetower qr create ... --dry-run` prints all"] if rest > 0 else []
    timeout = [f"ended after {job.run.timeout_s:g} s on each worker and boot"] if job.run.timeout_s else []
    return "\n".join([f"as {user}", *shipped_words(job), *timeout, "", f"run {job.run_id}", "", *shown, *more])


def without_script(job: ProductionJob) -> CreateRequest:
    """The request for a preview: the script stands in it by its size."""
    from backend.runs.production import SCRIPT_KEY

    short = f"<{readable(len(job.script.encode()))}: see the job's own page>"
    metadata = tuple((key, short if key == SCRIPT_KEY else value) for key, value in job.create.metadata)
    return replace(job.create, metadata=metadata)


def write_job(request: CreateRequest, source: str = "") -> tuple[dict[str, str], str]:
    """The texts of a form that asks for the same request with its job under a run of its own.

    Args:
        request: As it was asked for.
        source: The folder that its code came from, where that is known.

    Returns:
        (the texts, a note on what they cannot repeat).
    """
    from backend.runs.adoption import carried
    from backend.runs.production import SCRIPT_KEY

    found = carried(request)
    if found is None:
        return write(request), ""
    run, _, ships = found
    bare = tuple((key, value) for key, value in request.metadata if key not in (SCRIPT_KEY, RUN_KEY))
    texts = {
        **write(replace(request, metadata=bare)),
        COMMAND: run.argv[0] if run.shell else shlex.join(run.argv),
        "job_shell": ON if run.shell else "",
        SYNC: source if ships else "",
        "job_setup": run.setup,
        ENVIRONMENT: shlex.join(f"{name}={value}" for name, value in run.environment),
        "job_timeout": f"{run.timeout_s:g}s" if run.timeout_s is not None else "",
    }
    note = (
        ""
        if source or not ships
        else "Its job ships code from a folder that is not known here: name it in 'ship folder'."
    )
    return texts, note


def with_code(run: RunRequest, bundle: Bundle | None) -> RunRequest:
    """The job with the code that was packed."""
    return replace(run, bundle=bundle)
