"""Code on workers: shipped once by its content, old copies gone, and started with one exec a worker."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from backend.outcomes import Outcome
from backend.runs import bundles
from backend.runs.model import RunRequest
from backend.ssh import remote
from backend.ssh.connections import ConnectionPool
from backend.ssh.scripts import BUNDLES_KEPT, BUNDLES_KEPT_DAYS
from tests.backend.runs.run_world import output, world_desk
from tests.backend.sim.worker_world import world

pytestmark = pytest.mark.sshd


def shipped(home: Path) -> Path:
    return home / ".slicetower" / "bundles"


async def test_content_that_is_there_is_not_sent_again_and_other_content_is(tmp_path: Path) -> None:
    files = {"say.py": b"print('one')\n"}
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        first = bundles.from_files(files, source="here")
        assert first.archive[:2] == b"\x1f\x8b", "compressed"
        assert (await desk.run("python3", "say.py", bundle=first)).summary == {Outcome.OK: 4}
        place = shipped(sim.host.home(sim.addresses[0])) / first.digest
        inode = (place / "say.py").stat().st_ino
        same = bundles.Bundle(first.digest, "elsewhere", first.files, b"never sent")
        assert (await desk.run("python3", "say.py", bundle=same)).summary == {Outcome.OK: 4}
        assert (place / "say.py").stat().st_ino == inode
        other = bundles.from_files({"say.py": b"print('two')\n"}, source="here")
        run = await desk.run("python3", "say.py", bundle=other)
        assert {output(run, index) for index in range(4)} == {b"two\n"}


async def test_old_copies_go_and_those_of_late_stay(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        place = shipped(sim.host.home(sim.addresses[0]))
        place.mkdir(parents=True)
        now = time.time()
        late, old = [f"late-{n}" for n in range(2)], [f"old-{n}" for n in range(BUNDLES_KEPT + 1)]
        for age, name in enumerate([*late, *old]):
            (place / name).mkdir()
            for mark in (f"{name}.ok", f"{name}.setup-abc-boot"):
                (place / mark).touch()
                days = (BUNDLES_KEPT_DAYS + 2 if name in old else 0) * 86_400
                os.utime(place / mark, (now - days - age, now - days - age))
        bundle = bundles.from_files({"a.py": b"1\n"}, source="here")
        assert (await desk.run("true", bundle=bundle)).summary == {Outcome.OK: 4}
        kept = {bundle.digest, *late, *old[: BUNDLES_KEPT - 3]}
        assert {each.name for each in place.iterdir() if each.is_dir()} == kept
        marks = {each.name.partition(".")[0] for each in place.iterdir() if not each.is_dir()}
        assert marks == kept, "nothing of the others is left"


async def test_a_detached_start_is_one_exec_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, execs = remote.Remote.start, list[str]()

    async def counted(self: remote.Remote, pool: ConnectionPool, note: object = None) -> None:
        execs.append(self.worker.address)
        await real(self, pool, note)  # type: ignore[arg-type]

    monkeypatch.setattr(remote.Remote, "start", counted)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        plan = desk.manager.plan(RunRequest(argv=("sleep", "600"), detach=True), desk.workers)
        run = await desk.manager.launch(plan, follow=False)
        await run.until_started()
        assert sorted(execs) == sorted(each.address for each in desk.workers)
        assert (await run.stop(grace_s=0.3)).clean
