"""A roll call of the fleet's ssh servers, in the background: the piece of readiness that the cloud can't tell.

Every worker that the cloud calls ready is asked for its greeting: at once the first time, again with back-off while it is
silent, again seldom when it has answered, so that a server that dies later is noticed. Everything has a bound: so many are
asked at a time, so many a second, and over routes that cost a process each only small requests are asked at all.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from time import monotonic

from backend.context import Context
from backend.model import Fleet, QueuedResource, Slice, SshWord, Standing
from backend.ssh.greetings import Closed
from backend.ssh.paces import DIRECT, PACES, Rate
from backend.ssh.roll import (
    Called,
    Key,
    Place,
    SliceRoll,
    Voice,
    covers,
    key_of,
    number_to_call,
    same_slice,
    short,
    slices_to_call,
    word_of,
)
from backend.targets import WorkerRef, workers_of_slice

LOOK_S = 1.0
"""Between looks at the fleet; nothing is done where it is the same."""
GATHER_S = 0.05
"""Those whose turn comes within so long begin together; those who have answered, at a look at the fleet."""
AGAIN_S = 5.0
"""Before a silent worker is asked again; doubled each time, up to `AGAIN_MOST_S`: servers that are asked too often refuse."""
AGAIN_MOST_S = 120.0
KNOWN_AGAIN_S = 300.0
"""Before a worker that answered is asked again."""
JITTER = 0.2


class RollCall:
    """Who answers. Run `run` as a task; words are asked for by whoever draws.

    Args:
        context: Its `ssh` says over which route, and whether at all.
        listen: Why a worker does not greet; empty when it does. May raise `Closed`.
        connected: Whether a connection to a worker is open: it needs no other proof.
    """

    def __init__(
        self,
        context: Context,
        listen: Callable[[WorkerRef], Awaitable[str]],
        connected: Callable[[WorkerRef], bool] = lambda _worker: False,
    ) -> None:
        self.pace = PACES.get(context.ssh.route, DIRECT)
        self.version = 0
        """Another one whenever something is to be said otherwise."""
        self.unanswered: dict[Place, str] = {}
        """What to say of a worker that does not answer (yet): `no ssh (refused)`, `asking ssh`."""
        self._context = context
        self._listen = listen
        self._connected = connected
        self._called: dict[Key, Called] = {}
        self._waiting: dict[Key, Called] = {}
        """Those with somebody to ask now."""
        self._first: Key | None = None
        self._silent: list[tuple[float, int, Voice]] = []
        self._known: list[tuple[float, int, Voice]] = []
        self._numbers = count()
        self._fresh_rate = Rate(self.pace.fresh_per_s, GATHER_S)
        self._silent_rate = Rate(self.pace.silent_per_s, GATHER_S)
        self._known_rate = Rate(self.pace.known_per_s, LOOK_S)
        self._closed = ""
        self._closed_tries = 0
        self._opens_at = float("-inf")
        self._seen: tuple[object, object] = (None, None)
        self._counted = (-1, 0, 0)
        """The version that was counted, and `counts` of it."""
        self._stirred = asyncio.Event()

    # What is known

    def word(self, item: QueuedResource | Slice) -> SshWord:
        """What to say of a request that the cloud calls ready, or of a TPU VM."""
        called = self._called.get(key_of(item))
        if called is None or not called.slices or not covers(called, item):
            number = number_to_call(item)
            why = self._not_asked(number)
            if why:
                return SshWord(Standing.NOT_ASKED, f"ssh not asked ({why})", 0, number)
            return SshWord(Standing.ASKING, f"asking ssh 0/{number}", 0, number)
        if called.word is None:
            called.word = word_of(called, self._not_asked(called.workers), self._closed)
        return called.word

    def counts(self) -> tuple[int, int]:
        """Workers that answer, of those that are asked."""
        if self._counted[0] != self.version:
            words = [self.word(each.item) for each in self._called.values() if each.slices]
            asked = [word for word in words if word.standing is not Standing.NOT_ASKED]
            answered, number = sum(word.answered for word in asked), sum(word.of for word in asked)
            self._counted = (self.version, answered, number)
        return self._counted[1:]

    def _not_asked(self, workers: int) -> str:
        """Why a request of so many workers is not asked by itself; empty where it is."""
        if not self._context.ssh.roll_call:
            return "off"
        if self.pace.most and workers > self.pace.most:
            return f"{self._context.ssh.route}, {workers:,} workers"
        return ""

    # What is told

    def look_first(self, key: Key | None) -> None:
        """Somebody looks at this one: it is asked before the others."""
        self._first = key

    def again(self) -> None:
        """Asks everybody at once, whatever is known."""
        self._opens_at = float("-inf")
        for called in self._called.values():
            if not self._not_asked(called.workers):
                for each in called.slices.values():
                    for voice in each.voices.values():
                        self._queue(voice)
        self._stirred.set()

    def ask(self, worker: WorkerRef) -> None:
        """Asks one at once: a connection to it broke. What is known stays until it is heard."""
        found = self._find(worker)
        if found is not None and not self._not_asked(found[1].called.workers):
            self._queue(found[1])

    def hear(self, worker: WorkerRef, why: str, *, login: bool = False) -> None:
        """News from elsewhere: a connection that was opened (no reason), or could not be.

        Args:
            worker: Of which worker.
            why: In a few words; empty: it let the operator in.
            login: It was reached, but let nobody in.
        """
        found = self._find(worker)
        if found is None:
            return
        self._note(*found, "" if login else why, login=why if login or not why else None)

    def _find(self, worker: WorkerRef) -> tuple[SliceRoll, Voice] | None:
        for name in (worker.queued_resource, f"/{worker.node_id}"):
            called = self._called.get((worker.project, worker.zone, name))
            each = called.slices.get(worker.node_id) if called is not None else None
            if each is not None and each.item.uid == worker.uid:
                voice = each.voices.get(worker.worker_index)
                return (each, voice) if voice is not None else None
        return None

    # The call

    async def run(self, fleet: Callable[[], Fleet]) -> None:
        """Goes on until it is cancelled."""
        turns = asyncio.Semaphore(self.pace.at_once)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._look(fleet())
                # The fleet is looked at also while nobody more can be asked.
                voice, wait_s = (None, LOOK_S) if turns.locked() else self._next(monotonic())
                if voice is not None:
                    voice.asking = True
                    await turns.acquire()
                    group.create_task(self._ask(voice, turns))
                    continue
                self._stirred.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(max(wait_s, GATHER_S), LOOK_S)):
                        await self._stirred.wait()

    def _next(self, now: float) -> tuple[Voice | None, float]:
        """Whose turn it is, or how long nobody's."""
        if now < self._opens_at:
            return None, self._opens_at - now
        wait_s = LOOK_S
        if self._waiting:
            if now >= self._fresh_rate.free_at:
                self._fresh_rate.take(now)
                return self._fresh(), 0.0
            wait_s = self._fresh_rate.free_at - now
        for heap, rate in ((self._silent, self._silent_rate), (self._known, self._known_rate)):
            while heap and (heap[0][2].gone or heap[0][2].asking or heap[0][2].due != heap[0][0]):
                heapq.heappop(heap)
            if not heap:
                continue
            ready_at = max(heap[0][0], rate.free_at)
            if now < ready_at:
                wait_s = min(wait_s, max(ready_at - now, rate.gather_s))
                continue
            voice = heapq.heappop(heap)[2]
            if self._not_asked(voice.called.workers):
                self._forget(voice)
            elif voice.answers and self._connected(voice.worker):
                self._later(voice)
            else:
                rate.take(now)
                return voice, 0.0
            wait_s = 0.0
        return None, wait_s

    def _fresh(self) -> Voice:
        key = self._first if self._first in self._waiting else next(iter(self._waiting))
        assert key is not None
        called = self._waiting[key]
        voice = called.fresh.popleft()
        voice.queued = False
        if not called.fresh:
            del self._waiting[key]
        return voice

    async def _ask(self, voice: Voice, turns: asyncio.Semaphore) -> None:
        try:
            why = await self._listen(voice.worker)
        except Closed as closed:
            voice.asking = False
            self._close(str(closed), voice)
        else:
            voice.asking = False
            self._open()
            found = self._find(voice.worker)
            if found is not None and found[1] is voice:
                self._note(found[0], voice, why)
        finally:
            if turns.locked():
                self._stirred.set()
            turns.release()

    def _close(self, why: str, voice: Voice) -> None:
        """Nobody can be asked: one is, after a while."""
        if why != self._closed:
            self._closed = why
            self._say_all()
        if monotonic() >= self._opens_at:
            self._opens_at = monotonic() + min(AGAIN_S * 2**self._closed_tries, AGAIN_MOST_S)
            self._closed_tries += 1
        self._queue(voice)

    def _open(self) -> None:
        if self._closed:
            self._closed, self._closed_tries, self._opens_at = "", 0, float("-inf")
            self._say_all()

    def _say_all(self) -> None:
        for called in self._called.values():
            called.word = None
        self.version += 1

    # The roll

    async def _look(self, fleet: Fleet) -> None:
        """Takes up what the fleet is now; thousands of workers are taken up a slice at a time."""
        seen = (fleet.queued_resources, fleet.standalone)
        if seen[0] is self._seen[0] and seen[1] is self._seen[1]:
            return
        self._seen = seen
        present: dict[Key, Called] = {}
        everything: list[QueuedResource | Slice] = [*fleet.queued_resources, *fleet.standalone]
        for item in everything:
            key = key_of(item)
            called = self._called.get(key)
            if called is None or called.item is not item:
                called = await self._take_up(called or Called(key, item), item)
            present[key] = called
        for key, called in list(self._called.items()):
            if key not in present:
                for each in called.slices.values():
                    self._drop(each, {})
                del self._called[key]
                self._waiting.pop(key, None)

    async def _take_up(self, called: Called, item: QueuedResource | Slice) -> Called:
        """All at once in the end: half of a request is never taken for the whole of it."""
        self._called[called.key] = called
        before, slices = dict(called.slices), dict[str, SliceRoll]()
        asks = not self._not_asked(number_to_call(item))
        for one in slices_to_call(item):
            old = before.pop(one.node_id, None)
            each = same_slice(old, one)
            if old is not None and old is not each:
                self._drop(old, each.voices)
            slices[one.node_id] = each
            for worker in workers_of_slice(one) if old is not each else ():
                if worker.worker_index not in each.voices:
                    each.voices[worker.worker_index] = Voice(worker, called)
            for voice in each.voices.values() if asks else ():
                if not voice.known:
                    self._queue(voice)
            await asyncio.sleep(0)
        for each in before.values():
            self._drop(each, {})
        called.item, called.slices, called.word = item, slices, None
        self.version += 1
        return called

    def _drop(self, each: SliceRoll, kept: dict[int, Voice]) -> None:
        """Its slice is gone, was replaced, or is not ready any more: what was known of it was of another boot."""
        for index, voice in each.voices.items():
            if kept.get(index) is not voice:
                voice.gone = True
                self.unanswered.pop(voice.place, None)
                if voice.queued:
                    voice.queued = False
                    voice.called.fresh.remove(voice)
        self.version += 1

    def _queue(self, voice: Voice) -> None:
        """To be asked as soon as there is room."""
        if voice.queued or voice.asking or voice.gone:
            return
        voice.queued, voice.due = True, float("inf")
        voice.called.fresh.append(voice)
        self._waiting[voice.called.key] = voice.called
        if not voice.known:
            self.unanswered[voice.place] = "asking ssh"
        self._stirred.set()

    def _note(self, each: SliceRoll, voice: Voice, why: str, login: str | None = None) -> None:
        """What one worker said, or did not say.

        Args:
            login: Why it let nobody in, empty: somebody got in, None: nobody tried.
        """
        if voice.gone:
            return
        before = (voice.known, voice.lacks)
        voice.login = voice.login if login is None else login
        voice.known, voice.why = True, why
        voice.tries = voice.tries + 1 if why else 0
        if before != (True, voice.lacks):
            index = voice.worker.worker_index
            each.answered += (not voice.lacks) - (before == (True, ""))
            if voice.lacks:
                each.silent[index] = voice.lacks
                self.unanswered[voice.place] = f"no ssh ({short(voice.lacks)})"
            else:
                each.silent.pop(index, None)
                self.unanswered.pop(voice.place, None)
            voice.called.word = None
            self.version += 1
        self._later(voice)

    def _later(self, voice: Voice) -> None:
        if voice.queued:
            return
        pause_s = min(AGAIN_S * 2 ** min(voice.tries - 1, 16), AGAIN_MOST_S) if voice.why else KNOWN_AGAIN_S
        voice.due = monotonic() + pause_s * random.uniform(1 - JITTER, 1 + JITTER)
        heapq.heappush(self._silent if voice.why else self._known, (voice.due, next(self._numbers), voice))

    def _forget(self, voice: Voice) -> None:
        """What was heard long ago of a worker that is not asked by itself is not known any more."""
        found = self._find(voice.worker)
        if found is None or found[1] is not voice or not voice.known:
            return
        each = found[0]
        each.answered -= voice.answers
        each.silent.pop(voice.worker.worker_index, None)
        self.unanswered.pop(voice.place, None)
        voice.known, voice.why, voice.login, voice.tries = False, "", "", 0
        voice.called.word = None
        self.version += 1
