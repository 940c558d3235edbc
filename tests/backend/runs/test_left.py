"""Supervised runs that are left as soon as they are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.outcomes import Outcome
from backend.runs.model import RunRequest, RunState
from tests.backend.runs.run_world import output, world_desk
from tests.backend.runs.test_detached import assert_equal_bytes
from tests.backend.sim.worker_world import world

pytestmark = pytest.mark.sshd


async def test_a_run_that_is_left_at_once_is_started_everywhere_and_followed_nowhere(tmp_path: Path) -> None:
    async with world(tmp_path) as sim:
        async with world_desk(sim) as desk:
            request = RunRequest(argv=("sh", "-c", "echo here; sleep 600"), detach=True)
            run = await desk.manager.launch(desk.manager.plan(request, desk.workers), follow=False)
            await run.until_started()
            follows = [
                pid for each in sim.addresses for pid in sim.host.processes(each) if b"follow" in words_of(pid)
            ]
            assert follows == []
            assert not any(run.log_path(index).exists() and output(run, index) for index in range(4))
            run.detach()
            await run.wait()
            assert run.state is RunState.DETACHED
        async with world_desk(sim) as desk:
            (again,) = await desk.manager.reattach()
            await again.until(lambda each: all(item.output_bytes for item in each.results))
            assert (await again.stop(grace_s=0.3)).clean
            assert_equal_bytes(sim, again)


async def test_a_run_that_is_left_at_once_can_be_stopped_before_it_is_left(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        request = RunRequest(argv=("sleep", "600"), detach=True)
        run = await desk.manager.launch(desk.manager.plan(request, desk.workers), follow=False)
        await run.until_started()
        assert (await run.stop(grace_s=0.3)).clean
        assert run.state is RunState.ENDED
        assert run.summary == {Outcome.SIGNALLED: 4}


async def test_batches_that_are_left_are_followed_as_each_waits_for_the_one_before(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        request = RunRequest(argv=("true",), detach=True, batch="1,3")
        run = await desk.manager.launch(desk.manager.plan(request, desk.workers), follow=False)
        await run.wait()
        assert run.summary == {Outcome.OK: 4}


def words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
