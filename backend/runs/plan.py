"""What a run will do, said before anything is sent: batches, exact text, refusals with their numbers, warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from backend.runs.fanout import BatchPlan, FailurePolicy
from backend.runs.model import RunPlan, RunRequest
from backend.sanitize import plain
from backend.ssh import scripts
from backend.targets import WorkerRef, fold

_OPERATOR = re.compile(r"\d?(?:[|&;<>]+|>&?\d)|[^\s'\"]*;|\d?>>?\S+")
_EXPANDED = re.compile(r"^\S*\$[A-Za-z_({]\S*$|^[^\s=-][^\s=]*\*\S*$")
_BUILT_IN = frozenset(
    ("for", "while", "until", "if", "case", "cd", "export", "source", ".", "ulimit", "umask", "{", "(")
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ARGUMENT_LIMIT_BYTES = 120 * 1024
"""Linux takes 128 KiB for one argument."""


def bundle_folder(request: RunRequest) -> str:
    """Shell text of the folder in which the command runs; empty for the home directory."""
    return f"{scripts.BUNDLES}/{request.bundle.digest}" if request.bundle is not None else ""


def make_plan(request: RunRequest, workers: Sequence[WorkerRef]) -> RunPlan:
    """Plans a run.

    Raises:
        OperatorError: A batch size, a failure limit or a policy that can't be read.
    """
    batches = BatchPlan.parse(request.batch).split(len(workers))
    FailurePolicy.parse(request.on_failure, request.max_failures)
    return RunPlan(
        request=request,
        workers=tuple(workers),
        batches=batches,
        remote_text=scripts.shown(
            request.argv,
            shell=request.shell,
            environment=dict(request.environment),
            secrets=request.secret_environment,
            folder=bundle_folder(request),
        ),
        refusals=tuple(_refusals(request, workers, batches)),
        warnings=tuple(_warnings(request, workers, batches)),
    )


def _refusals(request: RunRequest, workers: Sequence[WorkerRef], batches: Sequence[Sequence[int]]) -> Iterator[str]:
    if not workers:
        yield "No workers are selected."
        return
    if not request.argv or not request.argv[0].strip():
        yield "The command is empty. Write it after `--`."
        return
    if any("\0" in word for word in request.argv):
        yield "The command holds a NUL character, which no argument can carry."
    if any(len(word.encode("utf-8", "surrogateescape")) > ARGUMENT_LIMIT_BYTES for word in request.argv):
        yield f"One argument is longer than {ARGUMENT_LIMIT_BYTES // 1024} KiB. Ship it as a file with --sync."
    if request.argv[0].startswith("-") and not request.shell:
        yield f"The command begins with a dash: '{plain(request.argv[0])}'. Options of slicetower stand before `--`."
    names = [name for name, _ in request.environment] + list(request.secret_environment)
    names += [name for each in request.worker_environment.values() for name in each]
    for name in dict.fromkeys(names):
        if not _NAME.fullmatch(name):
            yield f"'{plain(name)}' is no name of an environment variable: write --env NAME=VALUE, with letters, digits and _."
    if request.timeout_s is not None and not 0 < request.timeout_s < 10**9:
        yield f"A timeout of {request.timeout_s:g} s can't be kept. Write --timeout with seconds above 0."
    strangers = set(request.worker_environment) - {worker.address for worker in workers}
    if strangers:
        yield f"There are variables for {fold(sorted(strangers))}, which the run does not have."
    if request.is_gang and len(batches) > 1 and not request.force:
        yield (
            f"This command is a gang: its {len(workers)} workers wait for each other, so the first batch of "
            f"{len(batches[0])} would wait for the other {len(workers) - len(batches[0])} for ever. "
            "Leave out --batch-size, or say --force."
        )


def _warnings(request: RunRequest, workers: Sequence[WorkerRef], batches: Sequence[Sequence[int]]) -> Iterator[str]:
    if not workers or not request.argv:
        return
    if len(batches) > 1 and not request.is_gang:
        yield (
            f"{len(batches)} batches, the first of {len(batches[0])} of {len(workers)} workers: a program whose "
            "workers wait for each other, as multi-host JAX does, would hang in the first."
        )
    if len(request.argv) == 1 and not request.shell and re.search(r"[\s;|&<>$*]", request.argv[0]):
        yield (
            f"The command is one word, '{plain(request.argv[0])}', and goes over literally. "
            "If a shell should read it, say --shell."
        )
    elif not request.shell:
        yield from _words_for_a_shell(request.argv)
    if request.is_gang:
        yield from _missing_members(workers)


def _words_for_a_shell(argv: Sequence[str]) -> Iterator[str]:
    """Words that only a shell understands: alone, or as the command itself. Quoted text with spaces is an argument."""
    found = [word for word in argv if _OPERATOR.fullmatch(word) or _EXPANDED.search(word)]
    if argv[0] in _BUILT_IN:
        found.insert(0, argv[0])
    if found:
        listed = " and ".join(f"'{plain(word)}'" for word in dict.fromkeys(found[:3]))
        yield (
            f"No shell reads this command, and {listed} would mean something to a shell only: here each goes over "
            "literally, as a word. If a shell should read it, say --shell (in the form: through a shell)."
        )


def _missing_members(workers: Sequence[WorkerRef]) -> Iterator[str]:
    """Gaps that the selection itself shows: a gang with holes waits for ever."""
    seen: Mapping[tuple[str, int], set[int]]
    collected: dict[tuple[str, int], set[int]] = {}
    for worker in workers:
        collected.setdefault((worker.queued_resource, worker.slice_index), set()).add(worker.worker_index)
    seen = collected
    sizes = {max(indices) + 1 for indices in seen.values()}
    for (name, index), indices in sorted(seen.items()):
        missing = sorted(set(range(max(sizes))) - indices)
        if missing:
            listed = fold(f"{name}/{index}/{number}" for number in missing)
            yield f"A gang needs all its workers, and {listed} is not selected."
