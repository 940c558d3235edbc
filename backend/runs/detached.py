"""Runs that outlive their connection: a supervisor on each worker keeps the program, we follow its output by byte offset.

The local log's size says how far we are: beside it lies where its first followed byte came from. A console that is killed
at any moment therefore neither loses nor repeats a byte. A start whose outcome is unknown is asked again, and the run's
folder on the worker is the lock that makes asking safe.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import Phase
from backend.runs.follow import Base, Follower, last_object, moment, read_base, text_of, whole, write_base
from backend.runs.live import Run, now
from backend.runs.plan import bundle_folder
from backend.sanitize import plain
from backend.ssh import scripts
from backend.ssh.budget import ReadBudget, window_for
from backend.ssh.connections import ConnectionPool
from backend.ssh.remote import Lost, Remote, ask, new_nonce
from backend.targets import WorkerRef

START_TIMEOUT_S = 60.0
"""For one start to answer; asked again afterwards."""
START_ATTEMPTS = 5
"""For a worker that could not even run a shell or an interpreter, as one that is short of processes for a moment."""
NO_PYTHON = 127
STATUS_TIMEOUT_S = 30.0

STOP_GRACE_S = 3.0
BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
STOP_ANSWER_S = 30.0
"""For the supervisor's answer to a stop, beyond its grace; it may wait 10 s for KILL to take."""


@dataclass(frozen=True, slots=True)
class Program:
    """The supervisor as it is shipped."""

    digest: str
    packed: bytes

    @classmethod
    def load(cls) -> Program:
        text = resources.files("jobs.programs").joinpath("supervisor.py").read_bytes()
        return cls(hashlib.sha256(text).hexdigest(), zlib.compress(text, 9))


class DetachedDriver:
    """Starts, follows and ends the workers of a supervised run.

    Args:
        run: The run.
        pool: Connections.
        secrets: Values of its secret variables; None when they are gone with the console that started it.
        budget: The shared read budget.
        exists: Whether a worker is still part of the fleet, as far as is known.
        program: The supervisor.
    """

    def __init__(
        self,
        run: Run,
        pool: ConnectionPool,
        secrets: dict[str, str] | None,
        budget: ReadBudget,
        exists: Callable[[WorkerRef], bool],
        program: Program,
    ) -> None:
        self._run = run
        self._pool = pool
        self._secrets = secrets
        self._budget = budget
        self._exists = exists
        self._program = program
        self._following: dict[int, Remote] = {}

    # -- one worker, from start to end -------------------------------------------------------------------------------

    async def execute(self, index: int) -> None:
        """Starts one worker, follows it to its end, and says what became of it."""
        run = self._run
        try:
            status = await self._start(index)
            if status is not None:
                if run.interrupted:
                    # The start crossed the stop, which found nothing to end.
                    await self.stop(index, STOP_GRACE_S)
                if not run.followed and status.get("state") != "exited":
                    await run.stop_asked.wait()
                await self._follow_to_end(index)
        except _Gone as gone:
            run.finish(index, Outcome.UNKNOWN, gone.why)
        except asyncio.CancelledError:
            if not run.detaching and not run.results[index].ended:
                run.phase(index, Phase.RECONNECTING, "not followed")
            raise

    async def resume(self, index: int) -> None:
        """Goes on with a worker after a restart: one that was being started is started if it was not."""
        result = self._run.results[index]
        if result.ended:
            return
        if result.started_at is None:
            await self.execute(index)
            return
        try:
            await self._follow_to_end(index)
        except _Gone as gone:
            self._run.finish(index, Outcome.UNKNOWN, gone.why)

    async def _start(self, index: int) -> dict[str, Any] | None:
        """Returns the status once the program runs; None when it certainly does not, with the outcome set.

        Raises:
            _Gone: The worker is gone while the outcome of a start was unknown.
        """
        run = self._run
        run.phase(index, Phase.STARTING)
        started_before = False
        attempt = 0
        while True:
            attempt += 1
            verb, request = ["start"], self._request(index)
            if run.interrupted and not started_before:
                run.finish(index, Outcome.NOT_STARTED, "Not started: the run was stopped.")
                return None
            if request is None or run.interrupted:
                verb, request = ["status", self._name(index)], ""
            try:
                status = await self._ask(index, verb, request, START_TIMEOUT_S)
            except Lost as error:
                started_before = True
                await self._pause(index, attempt, f"whether it started is not known yet: {error.what}")
                continue
            except OperatorError as error:
                if not started_before:
                    run.finish(index, Outcome.UNREACHABLE, error.what)
                    return None
                await self._pause(index, attempt, f"whether it started is not known yet: {error.what}")
                continue
            if status.get("reached") is False and status.get("code") != NO_PYTHON and attempt < START_ATTEMPTS:
                await self._pause(index, attempt, f"starting again: {text_of(status.get('error'))}")
                continue
            return status if self._begun(index, status) else None

    def _begun(self, index: int, status: dict[str, Any]) -> bool:
        run = self._run
        result = run.results[index]
        if status.get("state") == "absent":
            reason = "Not started: the run was stopped."
            if not run.interrupted:
                reason = "Not started: the console that began this run ended, and its secret variables are gone."
            run.finish(index, Outcome.NOT_STARTED, reason)
            return False
        if "state" not in status:
            result.exit_code = whole(status.get("code"))
            run.finish(index, Outcome.FAILED, f"It could not be started: {text_of(status.get('error'))}")
            return False
        result.started_at = moment(status.get("started_at")) or now()
        result.process_group = whole(status.get("pgid")) or 0
        inode = whole(status.get("inode"))
        if inode is not None and read_base(self._base_path(index)) is None:
            write_base(self._base_path(index), Base(inode, 0, run.log(index).size))
        run.phase(index, Phase.RUNNING)
        return True

    async def _follow_to_end(self, index: int) -> None:
        """Follows the output, through any number of losses, until all of it is here and the end is known.

        Raises:
            _Gone: The worker left the fleet.
        """
        run = self._run
        attempt = 0
        while True:
            size = run.log(index).size
            try:
                status = await self._follow(index)
                if status is None:
                    status = await self._ask(index, ["status", self._name(index)], "", STATUS_TIMEOUT_S)
                    over = status.get("state") in ("lost", "absent")
                else:
                    over = True
                if over and self._ended(index, status):
                    return
                why = "the output is read again"
            except OperatorError as error:
                why = error.what
            attempt = 1 if run.log(index).size > size else attempt + 1
            await self._pause(index, attempt, why)

    async def _pause(self, index: int, attempt: int, why: str) -> None:
        """Backs off with full jitter, for as long as the worker exists."""
        if not self._exists(self._run.workers[index]):
            raise _Gone(f"{self._run.workers[index].address} is no longer part of the fleet.")
        self._run.phase(index, Phase.RECONNECTING, plain(why))
        await asyncio.sleep(random.uniform(0, min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2 ** min(attempt, 10))))

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _request(self, index: int) -> str | None:
        """What the supervisor's start reads; None when it can't be made any more."""
        run = self._run
        if self._secrets is None and run.request.secret_environment:
            return None
        folder = bundle_folder(run.request)
        request: dict[str, Any] = {
            "run": self._name(index),
            "environment": run.environment(index, self._secrets or {}),
            "cwd": folder.removeprefix("$HOME/") or None,
            "timeout_s": run.request.timeout_s,
            "wait_for": None,
        }
        if run.request.shell:
            request["shell"] = " ".join(run.request.argv)
        else:
            request["argv"] = list(run.request.argv)
        return json.dumps(request)

    async def _ask(self, index: int, verb: list[str], request: str, timeout_s: float) -> dict[str, Any]:
        """One verb of the supervisor; its last JSON object, or `error` and `code` when it told none.

        Raises:
            Unreachable: It was not asked.
            Lost: It was asked, and its answer did not come.
        """
        nonce = new_nonce()
        script = scripts.supervise(self._program.packed, self._program.digest, verb, nonce, request)
        ended, control, output = await ask(self._pool, self._run.workers[index], script, nonce, timeout_s=timeout_s)
        found = last_object(output)
        if found is not None:
            return found
        tail = output[-400:].decode("utf-8", "replace").strip().replace("\n", " ")
        error = tail or f"it ended with code {ended.code} and said nothing"
        return {"error": error, "code": ended.code, "reached": bool(control)}

    async def _follow(self, index: int) -> dict[str, Any] | None:
        """Takes output until the connection or the run ends. The last status when all output was sent, else None.

        Raises:
            OperatorError: The worker can't be reached, or its connection was lost.
        """
        run = self._run
        worker = run.workers[index]
        base = read_base(self._base_path(index))
        verb = ["follow", self._name(index), "--tell"]
        if base is not None:
            verb += ["--inode", str(base.inode), "--offset", str(base.offset(run.log(index).size))]
        nonce = new_nonce()
        follower = self._follower(index, base)
        script = scripts.supervise(self._program.packed, self._program.digest, verb, nonce)
        remote = Remote(worker, script, nonce, budget=self._budget, window=window_for(len(run.workers)))
        follower.remote = remote
        remote.on_output = follower.take
        self._following[index] = remote
        try:
            await remote.start(self._pool, lambda text: run.phase(index, Phase.RECONNECTING, text))
            ended = await asyncio.shield(remote.ended)
        finally:
            self._following.pop(index, None)
            if not remote.ended.done():
                remote.abandon()
        if ended.lost:
            raise Lost(worker, "the connection was lost; the run goes on there.", raw=ended.raw)
        return follower.status() if ended.code == 0 and follower.whole else None

    def _ended(self, index: int, status: dict[str, Any]) -> bool:
        """Takes the end from a status; False when it is not the end."""
        run = self._run
        result = run.results[index]
        state, at = status.get("state"), moment(status.get("ended_at"))
        result.exit_code, result.signal = whole(status.get("exit_code")), text_of(status.get("signal")) or None
        survivors = status.get("survivors") or ()
        error = text_of(status.get("error"))
        if survivors:
            error += f" These processes survive: {', '.join(str(whole(pid)) for pid in survivors)}."
        if state == "lost":
            run.finish(index, Outcome.UNKNOWN, f"The run was lost: {text_of(status.get('reason'))}.", at=at)
        elif state == "absent":
            run.finish(index, Outcome.UNKNOWN, "The run's folder is gone from the worker.", at=at)
        elif state != "exited":
            return False
        elif status.get("timed_out"):
            run.finish(index, Outcome.TIMED_OUT, error or "Timed out.", at=at)
        elif status.get("stopped") and status.get("started_at") is None:
            run.finish(index, Outcome.NOT_STARTED, "Not started: the run was stopped.", at=at)
        elif result.signal:
            run.finish(index, Outcome.SIGNALLED, error, at=at)
        elif result.exit_code == 0:
            run.finish(index, Outcome.OK, error, at=at)
        else:
            run.finish(index, Outcome.FAILED, error, at=at)
        return True

    async def stop(self, index: int, grace_s: float) -> tuple[int, ...]:
        """Ends the run on one worker through its supervisor, which looks for everything that it started."""
        verb = ["stop", self._name(index), "--grace", f"{grace_s:g}"]
        status = await self._ask(index, verb, "", grace_s + STOP_ANSWER_S)
        if "survivors" in status:
            return tuple(pid for pid in map(whole, status["survivors"]) if pid is not None)
        if status.get("error") == "no such run":
            return ()
        raise Lost(
            self._run.workers[index], f"the supervisor does not tell what is left: {text_of(status.get('error'))}."
        )

    def _name(self, index: int) -> str:
        """Of the run's folder on the worker."""
        return self._run.mark(index)

    def _base_path(self, index: int) -> Path:
        return self._run.log_path(index).with_suffix(".follow")

    def _follower(self, index: int, base: Base | None) -> Follower:
        return Follower(self._run, index, base, self._base_path(index))


class _Gone(Exception):
    """The worker is no longer part of the fleet."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
