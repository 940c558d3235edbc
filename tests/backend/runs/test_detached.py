"""Supervised runs: they outlive connections and consoles, and not a byte of their output is lost or seen twice."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backend.logs.worker_log import WorkerLog
from backend.model import Fleet, QueuedResource, Slice, Worker, ZonePoll
from backend.outcomes import OperatorError, Outcome
from backend.runs import detached
from backend.runs.fanout import Phase
from backend.runs.follow import Base, read_base, write_base
from backend.runs.live import Run
from backend.runs.manager import RunManager
from backend.runs.model import RunState
from backend.ssh import connections
from backend.ssh.remote import Lost, ask
from tests.backend.runs import follower
from tests.backend.runs.run_world import Desk, output, world_desk
from tests.backend.sim.worker_world import World, until, world


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow each other quickly: what is tested is that they are made."""
    monkeypatch.setattr(connections, "RETRY_CAP_S", 0.05)
    monkeypatch.setattr(detached, "BACKOFF_BASE_S", 0.02)
    monkeypatch.setattr(detached, "BACKOFF_CAP_S", 0.2)


WRITER = """
import os, random, time
random.seed(os.environ["SLICETOWER_RUN"])
out = os.fdopen(1, "wb", 0)
number = 0
while number % 50 or not os.path.exists(os.path.expanduser("~/enough")):
    line = b"%d \\xc3\\xa9 %s\\n" % (number, b"x" * random.randrange(120))
    cut = random.randrange(len(line))
    out.write(line[:cut])
    out.write(line[cut:])
    number += 1
    if number % 50 == 0:
        time.sleep(0.01)
"""
"""Torn writes of lines with two-byte characters, until the test has had enough."""


def enough(sim: World) -> None:
    for address in sim.addresses:
        (sim.host.home(address) / "enough").touch()


def remote_output(sim: World, run: Run, index: int) -> bytes:
    """What the worker's own file holds, through its rotations."""
    folder = sim.host.home(sim.addresses[index]) / ".slicetower" / "runs" / run.mark(index)
    rotated = sorted(folder.glob("output.*"), key=lambda path: -int(path.suffix[1:]))
    return b"".join(path.read_bytes() for path in [*rotated, folder / "output"])


def assert_equal_bytes(sim: World, run: Run) -> None:
    for index in range(len(run.results)):
        here, there = output(run, index), remote_output(sim, run, index)
        assert len(here) == len(there)
        assert hashlib.sha256(here).digest() == hashlib.sha256(there).digest()


async def test_a_supervised_run_is_followed_to_its_end(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.run("sh", "-c", "echo out; echo err >&2; exit 5", detach=True)
        assert run.summary == {Outcome.FAILED: 4}
        assert {item.exit_code for item in run.results} == {5}
        assert_equal_bytes(sim, run)
        killed = await desk.run("sh", "-c", "kill -9 $$", kind="job")
        assert {item.signal for item in killed.results} == {"KILL"}
        slow = await desk.run("sleep", "600", detach=True, timeout_s=0.3)
        assert slow.summary == {Outcome.TIMED_OUT: 4}
        missing = await desk.run("no-such-program", detach=True)
        assert missing.summary == {Outcome.FAILED: 4}
        assert {item.exit_code for item in missing.results} == {127}


async def test_words_and_variables_reach_a_supervised_command_literally(tmp_path: Path) -> None:
    words = ["$HOME", "a b", "'\"", "new\nline", "\u00e9", ";", ""]
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        addresses = [worker.address for worker in desk.workers]
        run = await desk.run(
            "sh",
            "-c",
            'printf "%s\\0" "$@" "$OWN" "$SHARED"',
            "sh",
            *words,
            detach=True,
            environment=(("SHARED", "b'c"),),
            worker_environment={address: {"OWN": f"{number} d"} for number, address in enumerate(addresses)},
        )
        for number in range(4):
            expected = [*words, f"{number} d", "b'c"]
            assert output(run, number).split(b"\0")[:-1] == [word.encode() for word in expected]


@pytest.mark.parametrize("cuts", [20, pytest.param(300, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
async def test_no_byte_is_lost_or_repeated_when_connections_are_cut_again_and_again(
    tmp_path: Path, cuts: int
) -> None:
    chance = random.Random(7)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("python3", "-c", WRITER, detach=True)
        await run.until_started()
        for _ in range(cuts):
            place = chance.randrange(4)
            before = run.results[place].output_bytes
            await until(lambda place=place, before=before: run.results[place].output_bytes > before, "new output")  # type: ignore[misc]
            await sim.host.cut(sim.addresses[place])
        enough(sim)
        await asyncio.wait_for(run.wait(), 300)
        assert run.summary == {Outcome.OK: 4}, [item.error for item in run.results]
        assert_equal_bytes(sim, run)


async def test_a_rotated_output_is_followed_through(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        text = (
            "cd ~/.slicetower/runs/$SLICETOWER_RUN; echo one; mv output output.1; sleep 0.2; "
            "sh -c 'echo two' >> output; sleep 0.3; sh -c 'echo three' >> output"
        )
        run = await desk.launch(text, shell=True, detach=True)
        await run.until(lambda each: all(item.output_bytes >= 4 for item in each.results))
        for address in sim.addresses:
            await sim.host.cut(address)
        await asyncio.wait_for(run.wait(), 120)
        assert run.summary == {Outcome.OK: 4}
        assert output(run) == b"one\ntwo\nthree\n"


async def test_a_start_whose_answer_was_lost_is_asked_again_and_never_launched_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ask
    lost: set[str] = set()

    async def forgetful(*arguments: object, **options: object) -> object:
        answer = await real(*arguments, **options)  # type: ignore[arg-type]
        address = arguments[1].address  # type: ignore[attr-defined]
        if b'"started": true' in answer[2] and address not in lost:
            lost.add(address)
            raise Lost(arguments[1], "the connection was lost.")  # type: ignore[arg-type]
        return answer

    monkeypatch.setattr(detached, "ask", forgetful)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.run("sh", "-c", "echo ran >> ~/count", detach=True)
        assert len(lost) == 4
        assert run.summary == {Outcome.OK: 4}
        for address in sim.addresses:
            assert (sim.host.home(address) / "count").read_text() == "ran\n"


async def test_an_unreachable_worker_was_certainly_not_started(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        await sim.host.power_off("127.77.0.3", wipe=False)
        run = await desk.launch("true", detach=True)
        await asyncio.wait_for(run.wait(), 120)
        assert run.results[3].outcome is Outcome.UNREACHABLE
        assert run.summary == {Outcome.OK: 3, Outcome.UNREACHABLE: 1}


async def test_a_stop_ends_what_the_supervisor_keeps_and_confirms_it(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("sleep 600 & setsid sleep 600 & echo up; wait", shell=True, detach=True)
        await run.until(lambda each: all(item.output_bytes for item in each.results))
        report = await run.stop(grace_s=0.5)
        assert report.clean
        assert len(report.stopped) == 4
        assert run.summary == {Outcome.SIGNALLED: 4}
        for address in sim.addresses:
            await until(lambda address=address: not sim.host.processes(address), "the end of every process")  # type: ignore[misc]


async def test_a_worker_that_rebooted_ends_as_unknown_with_the_reason(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("sh", "-c", "echo up; sleep 600", detach=True)
        await run.until(lambda each: all(item.output_bytes for item in each.results))
        await sim.host.power_off("127.77.0.2", wipe=False)
        await sim.host.boot("127.77.0.2")
        await run.until(lambda each: each.results[2].ended)
        assert run.results[2].outcome is Outcome.UNKNOWN
        assert "rebooted" in run.results[2].error
        assert not run.results[0].ended
        assert (await run.stop(grace_s=0.5)).clean


async def test_a_worker_that_left_the_fleet_is_not_called_for_ever(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        polls = (ZonePoll("p", "z"),)
        workers = tuple(Worker(index, address, address) for index, address in enumerate(sim.addresses))
        whole = Slice("p", "z", "train-a-0", 0, "READY", uid="7001", workers=workers)
        there = (QueuedResource("p", "z", "train-a", "ACTIVE", slices=(whole,)),)
        fleets = [Fleet(1, there, polls=polls, loaded=True)]
        desk.manager._fleet = lambda: fleets[-1]
        run = await desk.launch("sleep", "600", detach=True)
        await run.until_started()
        for address in sim.addresses:
            await sim.host.power_off(address, wipe=True)
        await run.until(lambda each: all(item.phase is Phase.RECONNECTING for item in each.results))
        fleets.append(Fleet(2, (), polls=polls, loaded=True))
        await asyncio.wait_for(run.wait(), 120)
        assert run.summary == {Outcome.UNKNOWN: 4}
        assert "no longer part of the fleet" in run.results[0].error


async def test_a_detached_run_is_found_again_and_ends_with_its_bytes(tmp_path: Path) -> None:
    async with world(tmp_path) as sim:
        async with world_desk(sim) as desk:
            run = await desk.launch(
                "sh", "-c", "echo one; while [ ! -e ~/go ]; do sleep 0.02; done; echo two; exit 3", detach=True
            )
            await run.until_started()
            run.detach()
            await run.wait()
            assert run.state is RunState.DETACHED
        for address in sim.addresses:
            (sim.host.home(address) / "go").touch()
        async with world_desk(sim) as desk:
            (again,) = await desk.manager.reattach()
            assert again.id == run.id
            await asyncio.wait_for(again.wait(), 120)
            assert again.summary == {Outcome.FAILED: 4}
            assert {item.exit_code for item in again.results} == {3}
            assert output(again) == b"one\ntwo\n"
            assert_equal_bytes(sim, again)
            assert await desk.manager.reattach() == []


async def test_an_attached_run_cannot_be_detached(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("true")
        with pytest.raises(OperatorError, match="--detach"):
            run.detach()
        await run.wait()


async def test_secret_variables_are_gone_with_their_console_and_nothing_is_started_without_them(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        environment = {"TOKEN": "hunter2"}
        run = await desk.run(
            "sh", "-c", "echo $TOKEN", detach=True, secret_environment=("TOKEN",), operator_environment=environment
        )
        assert output(run) == b"hunter2\n"
        stored = b"".join(path.read_bytes() for path in desk.journal.path.parent.glob("journal.db*"))
        assert b"hunter2" not in stored
        for address in sim.addresses:
            folder = sim.host.home(address) / ".slicetower" / "runs"
            assert not [path for path in folder.rglob("*.json") if b"hunter2" in path.read_bytes()]


# -- consoles that die -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def following(sim: World, desk_name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another console's process on the same state."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(follower.__file__)),
        str(sim.directory / desk_name),
        str(sim.port),
        "operator",
        str(sim.key_file),
        "sim",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await asyncio.wait_for(process.stdout.readline(), 120)


async def launch_detached(sim: World, *argv: str) -> Run:
    """Starts a run and leaves it, as a console that was closed."""
    async with world_desk(sim) as desk:
        run = await desk.launch(*argv, detach=True)
        await run.until_started()
        run.detach()
        await run.wait()
    return run


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
async def test_a_console_killed_at_any_moment_neither_loses_nor_repeats_a_byte(tmp_path: Path, kills: int) -> None:
    chance = random.Random(11)
    async with world(tmp_path) as sim:
        run = await launch_detached(sim, "python3", "-c", WRITER)
        for _ in range(kills):
            async with following(sim, "desk") as process:
                assert await line_of(process) == b"following 1\n"
                before = output(run)
                await until(lambda before=before: output(run) != before, "new output")  # type: ignore[misc]
                await asyncio.sleep(chance.uniform(0, 0.2))
                process.send_signal(signal.SIGKILL)
                assert await process.wait() == -signal.SIGKILL
        enough(sim)
        async with following(sim, "desk") as process:
            assert await line_of(process) == b"following 1\n"
            assert await line_of(process) == b"ended\n"
        async with world_desk(sim) as desk:
            record = desk.manager.store.get(run.id)
            assert record.summary == {Outcome.OK: 4}
            assert_equal_bytes(sim, run)
            assert record.results[0].output_bytes == len(output(run))


async def test_two_consoles_follow_one_run_and_the_second_takes_over(tmp_path: Path) -> None:
    async with world(tmp_path) as sim:
        text = "echo one; while [ ! -e ~/go ]; do sleep 0.02; done; echo two"
        run = await launch_detached(sim, "sh", "-c", text)
        async with following(sim, "desk") as first:
            assert await line_of(first) == b"following 1\n"
            async with world_desk(sim) as desk:
                (watched,) = await desk.manager.reattach()
                assert watched.observed, "the first holds the lock and writes the logs"
                await watched.until(lambda each: all(item.output_bytes for item in each.results))
                assert watched.log(0).line(0).text == "one"
                first.send_signal(signal.SIGKILL)
                await first.wait()
                await until(lambda: not desk.manager.active[run.id].observed, "the second console to take over")
                for address in sim.addresses:
                    (sim.host.home(address) / "go").touch()
                taken = desk.manager.active[run.id]
                await asyncio.wait_for(taken.wait(), 120)
                assert taken.summary == {Outcome.OK: 4}
                assert output(taken) == b"one\ntwo\n"
                assert_equal_bytes(sim, taken)


async def test_a_half_started_gang_is_completed_and_later_batches_are_not_begun(tmp_path: Path) -> None:
    async with world(tmp_path) as sim:
        async with world_desk(sim) as desk:
            run = await desk.launch("sh", "-c", "echo up; sleep 600", detach=True, batch="2")
            await run.until(lambda each: all(item.output_bytes for item in each.results[:2]))
            # As a console would leave it that died between the two starts of its first batch.
            forget(desk, run, 1)
            run.detach()
            await run.wait()
            desk.manager.store.update(run.id, [(1, run.results[1])])
        async with world_desk(sim) as desk:
            (again,) = await desk.manager.reattach()
            await again.until(lambda each: each.results[1].phase is Phase.RUNNING)
            assert [item.outcome for item in again.results[2:]] == [Outcome.NOT_STARTED] * 2
            assert (await again.stop(grace_s=0.5)).clean
            folder = sim.host.home(sim.addresses[1]) / ".slicetower" / "runs"
            assert len(list(folder.iterdir())) == 1


def forget(desk: Desk, run: Run, index: int) -> None:
    run.results[index].started_at = None
    run.results[index].phase = Phase.STARTING


# -- the base of an offset ---------------------------------------------------------------------------------------------------


def test_the_offset_follows_from_the_size_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "x.follow"
    assert read_base(path) is None
    write_base(path, Base(77, 1000, 40))
    base = read_base(path)
    assert base is not None
    assert base.offset(40) == 1000
    assert base.offset(140) == 1100
    path.write_text("{torn")
    assert read_base(path) is None


def test_a_log_that_lies_on_disk_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.log")
    log.append(b"one\ntw")
    log.close()
    again = WorkerLog(tmp_path / "a.log")
    assert again.size == 6
    again.append(b"o\n")
    assert [again.line(number).text for number in range(again.total)] == ["one", "two"]
    again.close()


async def test_the_manager_of_another_context_leaves_a_run_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as sim:
        await launch_detached(sim, "true")
        async with world_desk(sim) as desk:
            other = RunManager(desk.pool, desk.journal, desk.manager._paths, context="another")
            assert await other.reattach() == []
            (run,) = await desk.manager.reattach()
            await asyncio.wait_for(run.wait(), 120)


async def test_a_worker_that_was_stopped_before_its_program_began_is_not_started_rather_than_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor finds the wish to stop where a loaded worker has held it back."""
    text = zlib.decompress(detached.Program.load().packed)
    place = b"    if supervisor.stop_asked() is not None or supervisor.signalled:\n"
    assert text.count(place) == 1
    early = b"    open(supervisor.stop_path, 'w').close()\n" + place
    text = text.replace(place, early)
    slow = detached.Program(hashlib.sha256(text).hexdigest(), zlib.compress(text))
    monkeypatch.setattr(detached.Program, "load", lambda: slow)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.run("sh", "-c", "echo never", detach=True)
        assert run.summary == {Outcome.NOT_STARTED: 4}
        assert {(item.exit_code, item.signal) for item in run.results} == {(None, None)}
        assert not output(run)
