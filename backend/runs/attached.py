"""Runs that live on their connection: each worker's command is a session, its end is what the session tells.

A lost connection leaves the outcome unknown. It is never retried: the command may have run. Its worker ends it when the
connection is gone there too, so that nothing holds a TPU for nobody; what is to outlive its connection is started detached.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import Phase
from backend.runs.live import Run, now
from backend.runs.plan import bundle_folder
from backend.ssh import scripts
from backend.ssh.budget import ReadBudget, window_for
from backend.ssh.connections import ConnectionPool
from backend.ssh.remote import Exit, Lost, Remote, ask, new_nonce

STOP_ANSWER_S = 15.0
"""For the answer of a stop script, beyond its own grace periods."""

TIMEOUT_GRACE_S = 3.0
"""Between TERM and KILL of a command that ran out of time."""

END_WAIT_S = 5.0
"""For a session to tell its end after its processes were killed."""

LOST_TEXT = "The connection was lost: the command may have run, until its worker noticed the loss and ended it."


async def kill_marked(pool: ConnectionPool, run: Run, index: int, session: int, grace_s: float) -> tuple[int, ...]:
    """Ends the processes of one worker's command and returns the pids that survive.

    Raises:
        OperatorError: The worker can't be asked.
    """
    nonce = new_nonce()
    script = scripts.stop(run.mark(index), session, grace_s=grace_s, nonce=nonce)
    bound = grace_s + scripts.KILL_WAIT_S + STOP_ANSWER_S
    ended, control, output = await ask(pool, run.workers[index], script, nonce, timeout_s=bound)
    for words in control:
        if words and words[0] == "left":
            return tuple(int(word) for word in words[1:] if word.isdigit())
        if words == ["blind"]:
            raise Lost(run.workers[index], "it has no /proc, so nobody can look for its processes.")
    raise Lost(run.workers[index], f"it does not tell what is left (exit {ended.code}).", raw=repr(output[-200:]))


class AttachedDriver:
    """Brings each worker of a run to its end."""

    def __init__(self, run: Run, pool: ConnectionPool, secrets: dict[str, str], budget: ReadBudget) -> None:
        self._run = run
        self._pool = pool
        self._secrets = secrets
        self._budget = budget
        self._remotes: dict[int, Remote] = {}
        self._sessions: dict[int, int] = {}
        self._starting: dict[int, asyncio.Task[object] | None] = {}
        """Workers whose session is being opened, by the task that does it."""
        self._called_off: set[int] = set()

    async def execute(self, index: int) -> None:
        """Runs the command on one worker and says what became of it."""
        run = self._run
        result = run.results[index]
        run.phase(index, Phase.CONNECTING)
        starting: asyncio.Task[object] | None = None
        nonce = new_nonce()
        script = scripts.run(
            run.request.argv,
            shell=run.request.shell,
            environment=run.environment(index, self._secrets),
            nonce=nonce,
            folder=bundle_folder(run.request),
        )

        def heard(words: list[str]) -> None:
            if words[:1] == ["go"]:
                pid, group, session = (int(word) for word in words[1:4])
                # Only a session of its own may be signalled as a whole.
                self._sessions[index] = session if session == pid else 0
                result.process_group = group
                result.started_at = now()
                run.phase(index, Phase.RUNNING)

        remote = Remote(
            result.worker,
            script,
            nonce,
            output=lambda data, stream: run.output(index, data, stream),
            on_control=heard,
            budget=self._budget,
            window=window_for(len(run.workers)),
            keep_stdin=True,
        )
        self._remotes[index] = remote
        try:
            self._starting[index] = asyncio.current_task()
            try:
                await remote.start(self._pool, lambda text: run.phase(index, Phase.CONNECTING, text))
            finally:
                starting = self._starting.pop(index)
            try:
                async with asyncio.timeout(run.request.timeout_s):
                    ended = await asyncio.shield(remote.ended)
            except TimeoutError:
                await self._time_out(index, remote)
                return
        except Lost as error:
            run.finish(index, Outcome.UNKNOWN, error.what)
            return
        except OperatorError as error:
            run.finish(index, Outcome.UNREACHABLE, error.what)
            return
        except asyncio.CancelledError:
            remote.abandon()
            if index not in self._called_off or starting is None:
                run.finish(
                    index,
                    Outcome.UNKNOWN,
                    "This console left it: the command may have run, and is ended by its worker.",
                )
                raise
            starting.uncancel()
            if remote.opened:
                run.finish(index, Outcome.UNKNOWN, "The run was stopped while the command was started.")
            else:
                run.finish(index, Outcome.NOT_STARTED, "Not started: the run was stopped.")
            return
        finally:
            del self._remotes[index]
        self._tell(index, ended)

    def _tell(self, index: int, ended: Exit) -> None:
        result = self._run.results[index]
        result.exit_code, result.signal = ended.code, ended.signal
        if ended.lost:
            self._run.finish(index, Outcome.UNKNOWN, LOST_TEXT)
        elif ended.signal is not None:
            self._run.finish(index, Outcome.SIGNALLED)
        elif ended.code == 0:
            self._run.finish(index, Outcome.OK)
        else:
            self._run.finish(index, Outcome.FAILED)

    async def _time_out(self, index: int, remote: Remote) -> None:
        run = self._run
        text = f"Timed out after {run.request.timeout_s:g} s."
        run.phase(index, Phase.STOPPING, "timed out")
        try:
            survivors = await self.stop(index, TIMEOUT_GRACE_S)
            if survivors:
                text += f" These processes survive: {', '.join(map(str, survivors))}."
        except OperatorError as error:
            text += f" Whether its processes are gone is not known: {error.what}"
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WAIT_S):
                await asyncio.shield(remote.ended)
        if not remote.ended.done():
            remote.abandon()
        run.finish(index, Outcome.TIMED_OUT, text)

    async def stop(self, index: int, grace_s: float) -> tuple[int, ...]:
        """Ends one worker's processes, verified; one whose connection was lost is asked again by its mark."""
        run = self._run
        starting = self._starting.get(index)
        if starting is not None:
            self._called_off.add(index)
            starting.cancel()
            await run.until(lambda each: each.results[index].ended)
        remote = self._remotes.get(index)
        if remote is not None and index not in self._sessions:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_WAIT_S):
                    await remote.heard("go")
        if run.results[index].outcome is Outcome.NOT_STARTED:
            return ()
        session = self._sessions.get(index, 0) if remote is not None and not remote.ended.done() else 0
        return await kill_marked(self._pool, run, index, session, grace_s)
