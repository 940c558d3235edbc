"""The startup script that makes a queued resource a production job: one text, exactly what its workers execute at every boot."""

from __future__ import annotations

import base64
from importlib import resources

from backend.cloud.encoding import METADATA_FILE_LIMIT
from backend.outcomes import OperatorError
from backend.runs.bundles import Bundle, readable
from backend.runs.detached import Program
from backend.runs.model import RunRequest

SCRIPT_LIMIT_BYTES = METADATA_FILE_LIMIT
"""One metadata value: 262,144 bytes, all together under 512 KB (Compute Engine API reference, `Metadata.items[]`)."""


class ScriptTooLarge(OperatorError):
    """The startup script does not fit into a metadata value.

    Attributes:
        carries_code: The code is within it, and could go to a bucket instead.
    """

    def __init__(self, what: str, cure: str, *, carries_code: bool) -> None:
        super().__init__(what, cure)
        self.carries_code = carries_code


_PLACE = "JOB: Job = {}\n"
_HEAD = """\
#!/usr/bin/env python3
# Made by slicetower: the production job {run}. It runs at every boot of every worker, as {user}:
#   {command}
"""


def startup_script(
    run_id: str, request: RunRequest, *, user: str, shown: str, bundle: Bundle | None = None, bundle_url: str = ""
) -> str:
    """The text of the script.

    Args:
        run_id: The run that it starts.
        request: Command, environment, setup and time-out.
        user: Who the job runs as on the workers: whoever logs in there must be able to read its output.
        shown: The command for people, in the head of the script.
        bundle: Code that is put in place first; within the script unless `bundle_url` says where it lies.
        bundle_url: gs://... of the packed bundle.

    Raises:
        OperatorError: the script does not fit into a metadata value (with the sizes).
    """
    program = resources.files("jobs.programs").joinpath("boot.py").read_text("utf-8")
    supervisor = Program.load()
    inside = base64.b64encode(bundle.archive).decode("ascii") if bundle is not None and not bundle_url else ""
    job: dict[str, object] = {
        "run": run_id,
        "user": user,
        "argv": list(request.argv),
        "shell": request.shell,
        "environment": dict(request.environment),
        "setup": request.setup,
        "timeout_s": request.timeout_s,
        "bundle": None if bundle is None else {"digest": bundle.digest, "url": bundle_url, "data": inside},
        "supervisor_digest": supervisor.digest,
        "supervisor": base64.b64encode(supervisor.packed).decode("ascii"),
    }
    filled = "".join(f"    {name!r}: {value!a},\n" for name, value in job.items())
    if program.count(_PLACE) != 1:
        raise AssertionError("boot.py has no single place for its job")
    head = _HEAD.format(run=run_id, user=user, command=ascii(shown)[1:-1])
    text = head + program.replace(_PLACE, f"JOB: Job = {{\n{filled}}}\n")
    size = len(text.encode())
    if size > SCRIPT_LIMIT_BYTES:
        code = f", {readable(len(inside))} of it code (compressed, base64)" if inside else ""
        raise ScriptTooLarge(
            f"The startup script has {readable(size)}{code}; a metadata value may have {readable(SCRIPT_LIMIT_BYTES)}.",
            "Give --bundle gs://BUCKET/FOLDER: the code goes there, and each worker fetches it."
            if inside
            else "Ship the long parts of the command as files, with --sync.",
            carries_code=bool(inside),
        )
    return text
