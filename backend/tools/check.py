"""`check`: every worker looked at in one exec, without jax, and judged together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backend.bench.plan import accelerator_of
from backend.model import Fleet, QueuedResource
from backend.outcomes import Outcome
from backend.ssh.hostkeys import node_of
from backend.targets import WorkerRef
from backend.tools.judge import Expected, Looked, judge
from backend.tools.model import CheckReport
from backend.tools.ship import PROGRAM_TIMEOUT_S, Answer, Told, run_everywhere
from jobs import accelerators

if TYPE_CHECKING:
    from backend.journal import Journal
    from backend.tower import Tower

COORDINATOR_PORT = 8476
"""JAX's before 0.8.1, and the one that Google's own firewall rule opens (field notes, section 1d, number 66)."""

NETWORK = ("https://pypi.org/simple/", "https://storage.googleapis.com/")
"""What an installation and most jobs need."""

_STEPS = (
    """
    CREATE TABLE boots (
        node TEXT NOT NULL,
        worker INTEGER NOT NULL,
        boot TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (node, worker)
    ) WITHOUT ROWID;
    """,
)


class Boots:
    """The boot of each worker at its last look, in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.migrate("boots", _STEPS)

    def last(self, worker: WorkerRef) -> str:
        """Empty when it was never looked at."""
        row = self._journal.row(
            "SELECT boot FROM boots WHERE node = ? AND worker = ?", (node_of(worker), worker.worker_index)
        )
        return str(row[0]) if row else ""

    def keep(self, seen: Sequence[tuple[WorkerRef, str]]) -> None:
        at = datetime.now(UTC).timestamp()
        with self._journal.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO boots VALUES (?, ?, ?, ?)",
                [(node_of(worker), worker.worker_index, boot, at) for worker, boot in seen],
            )


@dataclass(frozen=True, slots=True)
class Outside:
    """What is looked at only when it is asked for: it takes the way to the outside, or reads whole folders."""

    ways: tuple[str, ...] = ()
    """URLs that a server must answer at."""
    buckets: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    """Whose docker login each worker must have."""
    folders: tuple[str, ...] = ()
    """Whose contents must be equal everywhere."""

    @property
    def arguments(self) -> list[str]:
        """For the program on the worker."""
        pairs = (
            ("--reach", self.ways),
            ("--bucket", self.buckets),
            ("--docker", self.registries),
            ("--code", self.folders),
        )
        return [word for name, values in pairs for value in values for word in (name, value)]


def _resource_of(fleet: Fleet, worker: WorkerRef) -> QueuedResource | None:
    key = (worker.project, worker.zone, worker.queued_resource)
    return next((item for item in fleet.queued_resources if item.key == key), None)


def expected(fleet: Fleet, workers: Sequence[WorkerRef]) -> dict[str, Expected]:
    """What the fleet says that each worker must have."""
    found: dict[str, Expected] = {}
    for worker in workers:
        resource = _resource_of(fleet, worker)
        if resource is not None:
            accelerator = accelerator_of(resource)
            slices = resource.slice_count
        else:
            alone = next((item for item in fleet.standalone if item.node_id == worker.node_id), None)
            accelerator = accelerators.find(alone.accelerator_type) if alone is not None else None
            slices = 1
        chips = accelerator.chips_per_worker if accelerator is not None else None
        found[worker.address] = Expected(chips, slices, worker.slice_index, trouble=_trouble(fleet, worker))
    return found


def _trouble(fleet: Fleet, worker: WorkerRef) -> str:
    """What the cloud says against a worker's node; empty while it is READY and healthy, or not known."""
    slices = [item for resource in fleet.queued_resources for item in resource.slices]
    place = (worker.project, worker.zone, worker.node_id)
    node = next(
        (each for each in (*slices, *fleet.standalone) if (each.project, each.zone, each.node_id) == place), None
    )
    if node is None or node.ready:
        return ""
    return f"its node is {node.state} {node.health} {node.health_description}".strip()


async def check(
    tower: Tower,
    workers: Sequence[WorkerRef],
    *,
    port: int = COORDINATOR_PORT,
    root: str = "/",
    python: str = "",
    outside: Outside | None = None,
    timeout_s: float = PROGRAM_TIMEOUT_S,
    told: Told | None = None,
) -> CheckReport:
    """Looks at all workers at once and judges what they say.

    Args:
        tower: With a fleet that was refreshed.
        workers: Whom to look at; the first is the coordinator.
        port: Of the coordinator: seen from every other worker.
        root: Where /dev, /tmp and /var are looked for on the workers.
        python: Whose packages are looked at; empty for that of `setup`, else python3.
        outside: What each is to reach beyond itself, and whose code is compared.
        timeout_s: For each worker's answer.
        told: Hears what is waited for while connecting.

    Raises:
        OperatorError: No key can be loaded, or too few open files.
    """
    ordered = sorted(workers, key=lambda each: each.order)
    arguments = ["--root", root]
    if len(ordered) > 1 and ordered[0].internal_ip:
        arguments += ["--coordinator", f"{ordered[0].internal_ip}:{port}"]
    if outside is not None:
        arguments += outside.arguments
    answers = await run_everywhere(
        tower.pool, ordered, ("outside", "check"), arguments, python=python, timeout_s=timeout_s, told=told
    )
    return report(answers, expected(tower.watch.fleet, ordered), Boots(tower.journal))


def report(answers: Sequence[Answer], wanted: Mapping[str, Expected], boots: Boots) -> CheckReport:
    """Judges answers, and keeps the boots that were seen."""
    told = [answer for answer in answers if answer.facts is not None]
    facts = {answer.worker.address: answer.facts for answer in told if answer.facts is not None}
    errors = {answer.worker.address: answer.error for answer in answers if answer.outcome is not Outcome.OK}
    known = {
        answer.worker.address: replace(
            wanted.get(answer.worker.address, Expected()), boot_id=boots.last(answer.worker)
        )
        for answer in answers
    }
    looked = Looked(
        facts,
        known,
        {answer.worker.address: answer.sent_at for answer in told},
        {answer.worker.address: answer.received_at for answer in told},
    )
    boots.keep(
        [
            (answer.worker, str(section["id"]))
            for answer in told
            if answer.facts is not None and (section := answer.facts.get("boot")) is not None
        ]
    )
    return CheckReport(judge(looked, errors), facts, errors)
