"""Keeping a request alive: made again when it is preempted or fails, within budgets, and its job started again.

Nothing here destroys on a guess: only a state that was seen (SUSPENDED, FAILED, a slice PREEMPTED) counts, a poll that
failed changes nothing, and a request that somebody has deleted ends the policy instead of racing them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from backend.cloud.intents import IntentKind, IntentOutcome
from backend.cloud.policies import Keep, PolicyStore
from backend.cloud.recover import Recovery
from backend.model import Fleet, NodeState, QueuedResource, QueuedResourceState, SshWord, Standing, Tier
from backend.outcomes import ExitCode, OperatorError

BEAT_S = 10.0
"""Between signs of life, and the longest wait for a snapshot."""
PREEMPTION_PAUSE_S = (5.0, 300.0)
"""Before a request is made again after a preemption: at first, at most; doubled by each in a row."""
FAILURE_PAUSE_S = (30.0, 900.0)
RECREATE_TIMEOUT_S = 3600.0
END_JOB_S = 20.0
"""For the on-ready command to end after TERM, before KILL."""

GONE_NODE_STATES = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED})
"""Final for a spot slice; a slice of another tier is repaired by the service, and left to it."""
UNSEEN_POLLS = 5
"""Good polls after a recreate that may still lack the new request before it is taken for gone."""


class Watch(Protocol):
    """What is needed of `backend.cloud.watch.FleetWatch`."""

    @property
    def fleet(self) -> Fleet: ...
    async def next_snapshot(self) -> Fleet: ...
    def poke(self) -> None: ...


class Step(StrEnum):
    WAIT = "wait"
    READY = "ready"
    """Became ready in an incarnation for which the command was not run yet."""
    PREEMPTED = "preempted"
    FAILED = "failed"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    text: str = ""


def decide(keep: Keep, item: QueuedResource | None) -> Decision:
    """What to do about the request as it was just seen; None: it is gone."""
    if item is None:
        return Decision(Step.STOP, f"{keep.name} is gone: somebody deleted it. Nothing is made again.")
    spot = item.tier is Tier.SPOT
    lost = [each for each in item.slices if spot and each.state in GONE_NODE_STATES]
    if item.state == QueuedResourceState.SUSPENDED or (item.state == QueuedResourceState.ACTIVE and lost):
        if keep.preemptions >= keep.preemption_budget:
            return Decision(
                Step.STOP, f"{keep.name} was preempted once more than the budget of {keep.preemption_budget} allows."
            )
        what = f"slice {lost[0].index} is {lost[0].state}" if lost else "it is SUSPENDED"
        return Decision(Step.PREEMPTED, f"{keep.name} was preempted ({what}).")
    if item.state == QueuedResourceState.FAILED:
        cause = f": {item.error.message}" if item.error is not None else ""
        if keep.failures >= keep.failure_budget:
            return Decision(
                Step.STOP, f"{keep.name} failed once more than the budget of {keep.failure_budget} allows{cause}."
            )
        return Decision(Step.FAILED, f"{keep.name} failed{cause}.")
    if item.ready and _incarnation(item) != keep.ready_for:
        return Decision(Step.READY, f"{keep.name} is ready.")
    return Decision(Step.WAIT)


def _incarnation(item: QueuedResource) -> float | None:
    return item.created_at.timestamp() if item.created_at is not None else None


def pause_s(bounds: tuple[float, float], spent: int) -> float:
    """Seconds before the next attempt, after `spent` ones before it."""
    first, most = bounds
    return float(min(first * 2 ** min(spent, 30), most))


class Keeper:
    """Runs one policy in the foreground. `say` gets a sentence at each turn.

    Args:
        ssh: Whether ssh answers on a request that the cloud calls ready; without it, the cloud's word is taken.
    """

    def __init__(
        self,
        recovery: Recovery,
        policies: PolicyStore,
        watch: Watch,
        *,
        say: Callable[[str], None] = lambda text: None,
        ssh: Callable[[QueuedResource], SshWord | None] = lambda _item: None,
        preemption_pause_s: tuple[float, float] = PREEMPTION_PAUSE_S,
        failure_pause_s: tuple[float, float] = FAILURE_PAUSE_S,
    ) -> None:
        self._recovery = recovery
        self._policies = policies
        self._watch = watch
        self._say = say
        self._ssh = ssh
        self._lacking = ""
        """What was last said that a request lacks."""
        self._pauses = {Step.PREEMPTED: preemption_pause_s, Step.FAILED: failure_pause_s}
        self._job: asyncio.subprocess.Process | None = None

    async def run(self, wanted: Keep) -> str:
        """Keeps it until its budget is spent or it is gone; returns why it ended.

        Raises:
            OperatorError: another process keeps it already (exit code USAGE).
        """
        keep = self._policies.start_keep(wanted)
        if keep is None:
            raise OperatorError(
                f"{wanted.name} is kept already by another process.",
                "Two would delete each other's work: end that one.",
            )
        ended = False
        text = "its process ended; it is not kept now"
        try:
            await self._finish_what_was_begun(keep)
            text = await self._loop(keep.key)
            ended = True
            return text
        except OperatorError as error:
            text = error.what
            raise
        finally:
            self._policies.release_keep(keep.key, end=ended, text=text)
            await self._end_job()

    async def _finish_what_was_begun(self, keep: Keep) -> None:
        """A recreate that a former process left half done."""
        for intent in self._recovery.store.open_intents():
            if intent.key == keep.key and intent.kind is IntentKind.RECREATE:
                self._say(f"{keep.name}: going on with a recreate that was begun before.")
                await self._recovery.pursue(intent)
                self._watch.poke()

    async def _loop(self, key: tuple[str, str, str]) -> str:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._watch.next_snapshot()
            if not self._policies.update_keep(key):
                return f"{key[2]} is kept by another process now."
            fleet = self._watch.fleet
            poll = next((each for each in fleet.polls if (each.project, each.zone) == key[:2]), None)
            if poll is None or poll.last_good_at is None or poll.error:
                continue
            keep = self._policies.keep(key)
            if keep is None:
                return f"{key[2]} is not kept any more."
            item = next((each for each in fleet.queued_resources if each.key == key), None)
            if item is None and not await self._is_gone(key):
                continue
            decision = decide(keep, item)
            if decision.step is Step.STOP:
                self._say(decision.text)
                return decision.text
            if decision.step is Step.READY and item is not None:
                if self._ssh_answers(item):
                    await self._ready(keep, item, decision.text)
            elif decision.step in self._pauses:
                await self._make_again(keep, decision, None if item is None else _incarnation(item))

    def _ssh_answers(self, item: QueuedResource) -> bool:
        """False while it is not known yet, or known that some worker lacks it, which is said."""
        word = self._ssh(item)
        if word is None or word.standing in (Standing.ANSWERS, Standing.NOT_ASKED):
            self._lacking = ""
            return True
        if word.standing is Standing.LACKS and word.text != self._lacking:
            self._lacking = word.text
            self._say(f"{item.name} is ACTIVE, not ready: {word.text}")
        return False

    async def _is_gone(self, key: tuple[str, str, str]) -> bool:
        """GET's own word: a list may be older than the request."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S):
                return await self._recovery.look(key) is None
        return False

    async def _ready(self, keep: Keep, item: QueuedResource, text: str) -> None:
        self._say(text)
        self._policies.update_keep(keep.key, ready_for=_incarnation(item), text=text)
        if not keep.on_ready:
            return
        await self._end_job()
        self._say(f"running: {' '.join(keep.on_ready)}")
        environment = {**os.environ, "SLICETOWER_QUEUED_RESOURCE": keep.name}
        try:
            self._job = await asyncio.create_subprocess_exec(
                *keep.on_ready, env=environment, stdin=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            raise OperatorError(
                f"The on-ready command {keep.on_ready[0]} cannot be started: {error.strerror}.",
                "Correct it and start keep again.",
                exit_code=ExitCode.USAGE,
            ) from error

    async def _make_again(self, keep: Keep, decision: Decision, old: float | None) -> None:
        preempted = decision.step is Step.PREEMPTED
        spent = keep.preemptions if preempted else keep.failures
        wait_s = pause_s(self._pauses[decision.step], spent)
        self._say(f"{decision.text} Made again in {wait_s:.0f} s.")
        self._policies.update_keep(keep.key, preempted=preempted, failed=not preempted, text=decision.text)
        await self._alive_for(keep.key, wait_s)
        task = asyncio.create_task(self._recovery.recreate(keep.key, timeout_s=RECREATE_TIMEOUT_S))
        try:
            while not task.done():
                self._policies.update_keep(keep.key)
                await asyncio.wait({task}, timeout=BEAT_S)
        finally:
            if not task.done():
                task.cancel()
        intent, plan = await task
        for note in plan.notes:
            self._say(note)
        if intent.outcome != IntentOutcome.DONE:
            raise OperatorError(intent.last_text or f"{keep.name} was not made again.", exit_code=ExitCode.CLOUD)
        self._watch.poke()
        await self._fresh(keep.key, old)

    async def _fresh(self, key: tuple[str, str, str], old: float | None) -> None:
        """Waits until the new incarnation is seen: an older snapshot still shows the dead one, or none at all."""
        polls: set[object] = set()
        while len(polls) <= UNSEEN_POLLS:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._watch.next_snapshot()
            self._policies.update_keep(key)
            fleet = self._watch.fleet
            item = next((each for each in fleet.queued_resources if each.key == key), None)
            if item is not None and _incarnation(item) != old:
                return
            polls |= {
                each.last_good_at for each in fleet.polls if (each.project, each.zone) == key[:2] and not each.error
            }

    async def _alive_for(self, key: tuple[str, str, str], seconds: float) -> None:
        remaining = seconds
        while remaining > 0:
            self._policies.update_keep(key)
            await asyncio.sleep(min(remaining, BEAT_S))
            remaining -= BEAT_S

    async def _end_job(self) -> None:
        job = self._job
        if job is None or job.returncode is not None:
            return
        self._say("The former on-ready command is ended.")
        with suppress(ProcessLookupError):
            job.terminate()
        try:
            async with asyncio.timeout(END_JOB_S):
                await job.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                job.kill()
            await job.wait()
