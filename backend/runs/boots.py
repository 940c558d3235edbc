"""Follows a production job: a run that the workers start themselves at every boot (see jobs/programs/boot.py).

Each boot of a worker has a run folder of its own there, with its own output. One local log a worker takes them one after
the other: within a boot by (inode, offset) as any supervised run, so a disk that stays costs no byte and repeats none. What a
power cut took from the end of an earlier boot's file is here already and is not read again. A worker whose node was replaced
(another uid: an empty disk, boots counted from 1) is marked with a line of ours in the log, and what its old disk held and
nobody had read yet is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from backend.model import Fleet, NodeState, QueuedResource, QueuedResourceState, Slice
from backend.outcomes import OperatorError, Outcome
from backend.runs.detached import DetachedDriver, Program
from backend.runs.fanout import Phase
from backend.runs.follow import Base, Follower, moment, whole
from backend.runs.live import Run
from backend.sanitize import plain
from backend.ssh import scripts
from backend.ssh.budget import ReadBudget
from backend.ssh.connections import ConnectionPool
from backend.ssh.hostkeys import node_of
from backend.ssh.remote import Lost, ask, new_nonce
from backend.targets import WorkerRef

Key = tuple[str, str, str]

LIST_TIMEOUT_S = 30.0
REPLACED = "[slicetower] {address} was replaced: what its old disk held and was not read yet is gone\n"
GONE = "Its queued resource is gone."
NOT_YET = "It has not started there yet, and will at the next boot."


@dataclass(frozen=True, slots=True)
class BootPace:
    """Seconds; a compressed world shortens them."""

    first_s: float = 1.0
    most_s: float = 15.0
    """Between looks at a worker on which nothing runs; it grows while nothing changes."""
    settle_s: float = 120.0
    """A job that failed everywhere has ended when its request stayed whole for so long: no repair will start it again."""
    gone_s: float = 60.0
    """A request that is not listed for so long is gone; one that is being recreated is waited for."""


class View:
    """What a driver needs to know of the cloud.

    Args:
        look: The fleet as it is now, polled if nobody else polls it.
        returns: Whether a request that is gone is wished to be made again.
    """

    def __init__(self, look: Callable[[], Awaitable[Fleet]], returns: Callable[[Key], bool]) -> None:
        self._look = look
        self.returns = returns
        self._fleet: Fleet | None = None
        self._requests: dict[Key, QueuedResource] = {}

    async def request(self, key: Key) -> tuple[QueuedResource | None, bool]:
        """(the request, whether its absence is certain: its zone was polled, and well)."""
        try:
            fleet = await self._look()
        except OperatorError:
            return None, False
        if fleet is not self._fleet:
            self._fleet = fleet
            self._requests = {item.key: item for item in fleet.queued_resources}
        good = any((poll.project, poll.zone) == key[:2] and not poll.failures for poll in fleet.polls)
        return self._requests.get(key), fleet.loaded and good


@dataclass(frozen=True, slots=True)
class Place:
    """How far a worker's log is: which disk, which of its boots."""

    node: str
    boot: int = 0
    """0: none was found yet."""


def read_place(path: Path) -> Place | None:
    try:
        values = json.loads(path.read_bytes())
        return Place(str(values["node"]), int(values["boot"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_place(path: Path, place: Place) -> None:
    """Atomic: a reader sees the old or the new."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(json.dumps(asdict(place)).encode())
    os.replace(fresh, path)


class BootDriver(DetachedDriver):
    """Finds a production job's workers when their nodes appear, and follows it from boot to boot."""

    def __init__(
        self,
        run: Run,
        pool: ConnectionPool,
        budget: ReadBudget,
        program: Program,
        view: View,
        pace: BootPace | None = None,
    ) -> None:
        super().__init__(run, pool, None, budget, lambda _worker: True, program)
        self._view = view
        self._pace = pace or BootPace()
        self._boot: dict[int, int] = {}
        """Which boot of each worker is followed now."""
        self._newest: dict[int, int] = {}
        """The newest boot of each worker that is known: only its end is the end of the log."""
        self._exits: dict[int, dict[str, Any]] = {}
        """Status of each worker whose newest boot's program has ended."""
        self._whole_since: float | None = None
        """Since when all have ended and the request is ready."""
        self._gone_since: float | None = None

    # -- one worker, through all its boots ---------------------------------------------------------------------------

    async def execute(self, index: int) -> None:
        """Until the job has ended for good, or the worker's request is gone."""
        run = self._run
        pause_s = self._pace.first_s
        while not run.results[index].ended:
            size = run.log(index).size
            if await self._present(index):
                try:
                    await self._advance(index)
                except OperatorError as error:
                    run.phase(index, Phase.RECONNECTING, plain(error.what))
            if run.interrupted and not run.results[index].ended and index not in self._boot:
                run.finish(index, Outcome.NOT_STARTED, "Not started yet when the run was stopped.")
            if run.results[index].ended:
                return
            pause_s = self._pace.first_s if run.log(index).size > size else min(pause_s * 1.5, self._pace.most_s)
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))

    async def resume(self, index: int) -> None:
        if not self._run.results[index].ended:
            await self.execute(index)

    async def _present(self, index: int) -> bool:
        """Whether the worker's node is READY; its addresses and its identity are then up to date."""
        run = self._run
        worker = run.workers[index]
        request, certain = await self._view.request((worker.project, worker.zone, worker.queued_resource))
        if request is None:
            if certain:
                self._absent(index)
            return False
        self._gone_since = None
        item = next((each for each in request.slices if each.index == worker.slice_index), None)
        fresh = _endpoint(item, worker)
        if item is None or item.state != NodeState.READY or fresh is None:
            state = f"slice {worker.slice_index} is {item.state}" if item is not None else f"it is {request.state}"
            run.phase(index, Phase.CONNECTING, plain(f"waits for its node: {state}"))
            self._exits.pop(index, None)
            return False
        if fresh != worker:
            run.relocate(index, fresh)
        return True

    def _absent(self, index: int) -> None:
        """Ends a worker whose request was not listed for long enough and is not wished for again."""
        run = self._run
        worker = run.workers[index]
        run.phase(index, Phase.CONNECTING, "its queued resource is not there")
        if self._view.returns((worker.project, worker.zone, worker.queued_resource)) and not run.interrupted:
            self._gone_since = None
            return
        self._gone_since = self._gone_since if self._gone_since is not None else monotonic()
        if not run.interrupted and monotonic() - self._gone_since < self._pace.gone_s:
            return
        if index not in self._exits or not self._ended(index, self._exits[index]):
            begun = run.results[index].started_at is not None
            run.finish(index, Outcome.UNKNOWN if begun else Outcome.NOT_STARTED, GONE)

    async def _advance(self, index: int) -> None:
        """One step: follows the boot that is due to its end, then looks for the next one.

        Raises:
            OperatorError: the worker can't be reached, or was lost.
        """
        run = self._run
        boots = await self._boots(index)
        place = self._placed(index, boots)
        if place.boot == 0:
            run.phase(index, Phase.STARTING, "waits for its startup script")
            return
        status = boots.get(place.boot, {"state": "absent"})
        self._boot[index] = place.boot
        if index not in self._exits:
            self._begin(index, status)
            if status["state"] != "absent" and not await self._follow(index):
                return
            boots = await self._boots(index)
            status = boots.get(place.boot, {"state": "absent"})
        if status["state"] in ("starting", "running"):
            return
        later = [number for number in boots if number > place.boot]
        if later:
            self._exits.pop(index, None)
            old = self._base_path(index)
            write_place(self._place_path(index), Place(place.node, min(later)))
            old.unlink(missing_ok=True)
            return
        await self._over(index, status)

    def _placed(self, index: int, boots: dict[int, dict[str, Any]]) -> Place:
        """Where this log goes on; on another disk than before after a line that says so."""
        run = self._run
        path, node = self._place_path(index), node_of(run.workers[index])
        known = read_place(path)
        place = known if known is not None and known.node == node else Place(node)
        if known is not None and known.node != node:
            self._exits.pop(index, None)
            log = run.log(index)
            start = "" if not log.size or _ends_line(log.path) else "\n"
            text = start + REPLACED.format(address=run.workers[index].address)
            if not run.output(index, text.encode(), 1):
                raise OperatorError(run.results[index].error)
        if place.boot == 0 and boots:
            place = replace(place, boot=min(boots))
        if place != known:
            write_place(path, place)
        return place

    def _begin(self, index: int, status: dict[str, Any]) -> None:
        result = self._run.results[index]
        result.started_at = result.started_at or moment(status.get("started_at"))
        result.process_group = whole(status.get("pgid")) or 0
        result.exit_code = result.signal = None
        number = self._boot[index]
        self._run.phase(index, Phase.RUNNING, f"boot {number}" if number > 1 else "")

    async def _over(self, index: int, status: dict[str, Any]) -> None:
        """The newest boot's program is not running: is that the end?"""
        run = self._run
        run.caught_up.add(index)
        if status["state"] != "exited":
            run.phase(index, Phase.CONNECTING, "rebooted: waits for its startup script")
            if run.interrupted:
                self._ended(index, status)
            return
        self._exits[index] = status
        if run.interrupted or await self._final(index):
            self._ended(index, status)
            return
        code, name = whole(status.get("exit_code")), status.get("signal")
        how = f"signal {plain(str(name))}" if name else f"code {code}"
        run.phase(index, Phase.CONNECTING, f"ended with {how}: waits for the others, or for the next boot")

    async def _final(self, index: int) -> bool:
        """All have ended well; or all have ended, and the request stays as it is."""
        open_places = [place for place, result in enumerate(self._run.results) if not result.ended]
        if not all(place in self._exits for place in open_places):
            self._whole_since = None
            return False
        if all(self._exits[place].get("exit_code") == 0 for place in open_places):
            return True
        worker = self._run.workers[index]
        request, _ = await self._view.request((worker.project, worker.zone, worker.queued_resource))
        if request is None or not request.ready or request.state != QueuedResourceState.ACTIVE:
            self._whole_since = None
            return False
        self._whole_since = self._whole_since if self._whole_since is not None else monotonic()
        return monotonic() - self._whole_since >= self._pace.settle_s

    # -- the parts ---------------------------------------------------------------------------------------------------

    async def _boots(self, index: int) -> dict[int, dict[str, Any]]:
        """Status of each boot's run on the worker, by number.

        Raises:
            OperatorError: it can't be asked.
        """
        pattern = re.compile(re.escape(self._run.id) + r"-b(\d{5,})$")
        nonce = new_nonce()
        worker = self._run.workers[index]
        script = scripts.supervise(self._program.packed, self._program.digest, ["list"], nonce)
        ended, _, output = await ask(self._pool, worker, script, nonce, timeout_s=LIST_TIMEOUT_S)
        found: dict[int, dict[str, Any]] = {}
        for line in output.splitlines():
            with suppress(ValueError):
                status = json.loads(line)
                match = pattern.match(str(status.get("run", ""))) if isinstance(status, dict) else None
                if match is not None:
                    found[int(match.group(1))] = status
        if ended.code != 0:
            raise Lost(worker, "its supervisor does not tell what runs there.", raw=plain(output[-400:]))
        self._newest[index] = max(found, default=0)
        return found

    def _name(self, index: int) -> str:
        return f"{self._run.id}-b{self._boot[index]:05d}"

    def _place_path(self, index: int) -> Path:
        return self._run.log_path(index).with_suffix(".boots")

    def _base_path(self, index: int) -> Path:
        """A base for each boot of each disk, so that no moment exists in which one is taken for another's."""
        node = re.sub(r"[^A-Za-z0-9._-]", "_", node_of(self._run.workers[index]))
        return self._run.log_path(index).with_suffix(f".{node}.{self._boot[index]}.follow")

    def _follower(self, index: int, base: Base | None) -> Follower:
        last = self._boot[index] == self._newest.get(index)
        return _BootFollower(self._run, index, base, self._base_path(index), last=last)

    async def stop(self, index: int, grace_s: float) -> tuple[int, ...]:
        """Ends the newest boot's run; the worker's next boots will not start it again, those of a new disk will.

        Raises:
            OperatorError: nobody could look, or it has not started there yet.
        """
        worker = self._run.workers[index]
        if not await self._present(index):
            if self._run.results[index].ended:
                return ()
            raise Lost(worker, f"its node is not there. {NOT_YET}")
        boots = await self._boots(index)
        if not boots:
            raise Lost(worker, NOT_YET)
        followed = self._boot.get(index)
        self._boot[index] = max(boots)
        try:
            return await super().stop(index, grace_s)
        finally:
            if followed is not None:
                self._boot[index] = followed


class _BootFollower(Follower):
    """Does not read again what a dead boot's file has lost at its end."""

    def __init__(self, run: Run, index: int, base: Base | None, path: Path, *, last: bool) -> None:
        super().__init__(run, index, base, path)
        self._last = last
        self._done = False

    def _look_whether_caught_up(self) -> None:
        if self._last:
            super()._look_whether_caught_up()

    def take(self, data: bytes, stream: int) -> None:
        if not self._done or stream != 1:
            super().take(data, stream)

    def _shorter(self, header: dict[str, Any]) -> bool:
        ended = header.get("state") not in ("starting", "running")
        self._done = ended and self._base is not None and header.get("inode") == self._base.inode
        return self._done


def _endpoint(item: Slice | None, worker: WorkerRef) -> WorkerRef | None:
    """The worker as the slice has it now."""
    if item is None:
        return None
    found = next((each for each in item.workers if each.index == worker.worker_index), None)
    if found is None or not (found.internal_ip or found.external_ip):
        return None
    return replace(
        worker,
        node_id=item.node_id,
        uid=item.uid,
        internal_ip=found.internal_ip,
        external_ip=found.external_ip,
    )


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
