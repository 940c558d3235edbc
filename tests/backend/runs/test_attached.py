"""Attached runs: words arrive literally, outcomes are the truth, a stop leaves nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from pathlib import Path

import pytest

from backend.outcomes import OperatorError, Outcome
from backend.runs import attached, bundles
from backend.runs.fanout import Phase
from backend.runs.manager import RunManager
from backend.runs.model import RunState
from backend.ssh import connections, handshake
from backend.ssh.budget import ReadBudget
from tests.backend.openssh import sshd, worker
from tests.backend.runs.run_world import output, sshd_desk, world_desk
from tests.backend.sim.worker_world import alive, until, world

pytestmark = pytest.mark.sshd


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow each other quickly: what is tested is that they are made."""
    monkeypatch.setattr(connections, "RETRY_CAP_S", 0.05)
    monkeypatch.setattr(attached, "TIMEOUT_GRACE_S", 0.3)


def files_holding(folder: Path, data: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and data in path.read_bytes()]


ARGUMENTS = [
    "$HOME",
    "`id`",
    "$(id)",
    "a b  c",
    " leading and trailing ",
    "semi;colon & pipe | <in >out",
    "*",
    "~",
    "single ' quote",
    'double " quote',
    "back\\slash \\n \\",
    "",
    "new\nline",
    "\n",
    "\n\n two\n",
    "tab\tand\rreturn",
    "\u00e9\u4e2d\u202e\U0001f600",
    "!history",
    "-n",
    "--",
    "A=B",
    "".join(map(chr, range(1, 127))),
    os.fsdecode(bytes(range(128, 256))),
]


async def test_every_word_arrives_as_it_was_written(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        run = await desk.run("printf", "%s\\0", *ARGUMENTS)
        assert run.results[0].outcome is Outcome.OK
        assert [os.fsdecode(word) for word in output(run).split(b"\0")[:-1]] == ARGUMENTS


async def test_values_of_variables_arrive_as_they_were_written(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        values = {f"V{number}": value for number, value in enumerate(ARGUMENTS)}
        run = await desk.run("sh", "-c", "env -0", environment=tuple(values.items()))
        seen = dict(os.fsdecode(entry).split("=", 1) for entry in output(run).split(b"\0")[:-1])
        assert {name: seen[name] for name in values} == values


async def test_shell_text_is_read_by_the_workers_shell_only_on_request(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        run = await desk.run('x="a b"; for y in 1 2; do echo "$x $y"; done; echo ${BASH_VERSION:+bash}', shell=True)
        assert output(run).startswith(b"a b 1\na b 2\n")
        literal = await desk.run("echo hello; echo there")
        assert literal.results[0].exit_code == 127


async def test_each_outcome_is_told_apart(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        good = await desk.run("true")
        assert good.results[0].outcome is Outcome.OK
        assert good.state is RunState.ENDED
        failed = await desk.run("sh", "-c", "exit 37")
        assert (failed.results[0].outcome, failed.results[0].exit_code) == (Outcome.FAILED, 37)
        signalled = await desk.run("sh", "-c", "kill -SEGV $$")
        assert (signalled.results[0].outcome, signalled.results[0].signal) == (Outcome.SIGNALLED, "SEGV")
        missing = await desk.run("no-such-program")
        assert (missing.results[0].outcome, missing.results[0].exit_code) == (Outcome.FAILED, 127)
        slow = await desk.run("sleep", "600", timeout_s=0.3)
        assert slow.results[0].outcome is Outcome.TIMED_OUT
        assert "0.3 s" in slow.results[0].error


async def test_a_time_out_ends_the_processes_even_those_that_ignore_term_or_left_the_session(tmp_path: Path) -> None:
    text = "trap '' TERM; echo $$; setsid sleep 600 & echo $!; sleep 600 & echo $!; while :; do wait; done"
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        run = await desk.run(text, shell=True, timeout_s=0.5)
        assert run.results[0].outcome is Outcome.TIMED_OUT
        pids = [int(line) for line in output(run).split()]
        assert len(pids) == 3
        assert not [pid for pid in pids if alive(pid)]


async def test_a_lost_connection_is_unknown_and_never_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("sh", "-c", "echo ran >> ~/count; echo here; sleep 600")
        await run.until(lambda each: all(item.output_bytes for item in each.results))
        await sim.host.cut("127.77.0.1")
        await run.until(lambda each: each.results[1].ended)
        assert run.results[1].outcome is Outcome.UNKNOWN
        assert "may have run" in run.results[1].error
        assert run.results[1].exit_code is None
        report = await run.stop()
        assert report.clean, report
        assert "train-a/0/1" in report.stopped, "the one whose connection was lost is looked for by its mark"
        assert not any(sim.host.processes(address) for address in sim.addresses)
        assert (sim.host.home("127.77.0.1") / "count").read_text() == "ran\n"


async def test_a_command_ends_with_its_connection_and_what_an_ended_one_left_behind_stays(tmp_path: Path) -> None:
    """On a real sshd. What ignores TERM, or left the session, ends as well."""
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        left = await desk.run("setsid sleep 621 >/dev/null 2>&1 & echo $!", shell=True)
        (daemon,) = (int(line) for line in output(left).split())
        text = "setsid sleep 622 & echo $!; (trap '' TERM; exec sleep 623) & echo $!; echo $$; wait"
        run = await desk.launch(text, shell=True)
        await run.until(lambda each: len(output(each).split()) >= 3)
        pids = [int(line) for line in output(run).split()]
        assert alive(daemon)
        (await desk.pool.connection(desk.workers[0])).abort()
        await run.wait()
        assert run.summary == {Outcome.UNKNOWN: 1}
        await until(lambda: not any(alive(pid) for pid in pids))
        assert alive(daemon), "its own command had ended long before"
        assert (await desk.manager.stop(left.id)).clean
        os.kill(daemon, signal.SIGKILL)


async def test_a_command_that_waits_for_all_its_children_ends(tmp_path: Path) -> None:
    """Nothing of ours is among them."""
    code = "import os\ntry: os.wait()\nexcept ChildProcessError: print('none')"
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.run("python3", "-c", code)
        assert {output(run, index) for index in range(4)} == {b"none\n"}


async def test_a_peer_that_fell_silent_is_found_and_its_outcome_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "BUSY_KEEPALIVE_S", 0.1)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("sh", "-c", "echo up; sleep 600")
        await run.until(lambda each: all(item.output_bytes for item in each.results))
        sim.host.freeze("127.77.0.3", 600)
        await run.until(lambda each: each.results[3].ended)
        assert run.results[3].outcome is Outcome.UNKNOWN
        assert not run.results[0].ended
        sim.host.thaw("127.77.0.3")
        assert (await run.stop(grace_s=0.3)).clean


async def test_an_unreachable_worker_fails_alone_and_certainly_did_not_start(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        sim.host.refuse("127.77.0.2", True)
        run = await desk.run("sh", "-c", "echo ran > ~/ran")
        assert [item.outcome for item in run.results] == [
            Outcome.OK,
            Outcome.OK,
            Outcome.UNREACHABLE,
            Outcome.OK,
        ]
        assert run.results[2].started_at is None
        assert run.first_failure is run.results[2]
        assert not (sim.host.home("127.77.0.2") / "ran").exists()


async def test_a_failed_batch_leaves_the_rest_unstarted(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.run("sh", "-c", "touch ~/ran; exit 3", batch="1,2")
        outcomes = [item.outcome for item in run.results]
        assert outcomes == [Outcome.FAILED, *[Outcome.NOT_STARTED] * 3]
        assert not (sim.host.home("127.77.0.3") / "ran").exists()
        allowed = await desk.run("sh", "-c", "exit 3", batch="1", max_failures="2")
        assert allowed.summary == {Outcome.FAILED: 3, Outcome.NOT_STARTED: 1}


async def test_a_stop_ends_every_remote_process_and_confirms_it(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        text = "sleep 600 & setsid sleep 600 & (trap '' TERM; sleep 600) & echo up; wait"
        run = await desk.launch(text, shell=True, batch="2")
        await run.until(lambda each: sum(item.output_bytes > 0 for item in each.results) == 2)
        report = await run.stop(grace_s=0.3)
        assert report.stopped == ("train-a/0/0", "train-a/0/1")
        assert report.clean
        assert not any(sim.host.processes(address) for address in sim.addresses)
        assert [item.outcome for item in run.results[2:]] == [Outcome.NOT_STARTED] * 2
        assert run.state is RunState.ENDED


async def test_a_stop_while_connecting_starts_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        for address in sim.addresses:
            sim.host.freeze(address, 600)
        run = await desk.launch("sh", "-c", "touch ~/ran")
        await run.until(lambda each: all(item.phase is Phase.CONNECTING for item in each.results))
        report = await run.stop()
        assert report.clean
        assert run.summary == {Outcome.NOT_STARTED: 4}
        for address in sim.addresses:
            sim.host.thaw(address)
        again = await desk.run("sh", "-c", "test ! -e ~/ran")
        assert again.summary == {Outcome.OK: 4}


async def test_bytes_that_are_no_text_are_kept_as_they_are(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        data = bytes(range(256)) * 50 + b"\xff\xfe no newline at the end"
        (server.home / "data").write_bytes(data)
        run = await desk.run("sh", "-c", "cat ~/data; cat ~/data >&2")
        assert sorted(output(run)) == sorted(data * 2)
        assert run.results[0].outcome is Outcome.OK


@pytest.mark.parametrize("bytes_per_tick", [None, 64 * 1024])
async def test_a_flood_arrives_whole_with_and_without_a_read_budget(
    tmp_path: Path, bytes_per_tick: int | None
) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(index) for index in range(4)]) as desk:
        desk.manager.budget.bytes_per_tick = bytes_per_tick
        desk.manager.budget.tick_s = 0.001
        run = await desk.run("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; seq 1 200000")
        expected = hashlib.sha256(b"x" * 3_000_000 + b"".join(b"%d\n" % number for number in range(1, 200_001)))
        for index in range(4):
            assert hashlib.sha256(output(run, index)).digest() == expected.digest()
            assert run.results[index].output_bytes == len(output(run, index))


async def test_a_spent_budget_pauses_channels_and_resumes_them_in_turn() -> None:
    class Channel:
        def __init__(self) -> None:
            self.paused = 0
            self.resumed = 0

        def pause_reading(self) -> None:
            self.paused += 1

        def resume_reading(self) -> None:
            self.resumed += 1

    budget = ReadBudget(100, 0.001)
    channels = [Channel() for _ in range(3)]
    for channel in channels:
        budget.spend(channel, 60)  # type: ignore[arg-type]
    assert [channel.paused for channel in channels] == [0, 1, 1]
    await until(lambda: channels[2].resumed, "the last channel's turn")
    assert [channel.resumed for channel in channels] == [0, 1, 1]


async def test_a_key_comes_before_what_workers_send_and_never_stops_them_for_good() -> None:
    class Channel:
        def __init__(self) -> None:
            self.paused = 0
            self.resumed = asyncio.Event()

        def pause_reading(self) -> None:
            self.paused += 1

        def resume_reading(self) -> None:
            self.resumed.set()

    budget = ReadBudget(1_000, 0.001)
    channel = Channel()
    budget.spend(channel, 1)  # type: ignore[arg-type]
    assert channel.paused == 0
    budget.hold(0.05)
    began = budget._held_from
    budget.spend(channel, 1)  # type: ignore[arg-type]
    assert channel.paused == 1
    budget.hold(0.05)
    assert budget._held_from == began
    await asyncio.wait_for(channel.resumed.wait(), 30)
    assert asyncio.get_running_loop().time() >= began + 0.05
    budget._free_until = asyncio.get_running_loop().time() + 3600
    budget.hold(0.05)
    assert not budget._held


async def test_headless_verbs_hold_nothing() -> None:
    budget = ReadBudget()
    budget.hold(60.0)
    budget.spend(None, 1 << 30)  # type: ignore[arg-type]
    assert not budget._held


async def test_a_login_shell_that_talks_does_not_hide_the_process_group(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        (server.home / ".bashrc").write_text("echo welcome; printf '\\036slicetower deadbeef go 1 1 1\\n'\n")
        run = await desk.run("echo", "hello")
        assert output(run).endswith(b"hello\n")
        assert run.results[0].process_group > 1


async def test_output_cannot_pass_for_a_control_line(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        run = await desk.run("printf", "\\036slicetower 0123456789abcdef go 1 1 1\\nrest")
        assert output(run) == b"\x1eslicetower 0123456789abcdef go 1 1 1\nrest"


async def test_secrets_reach_the_command_and_no_file_or_process_list(tmp_path: Path) -> None:
    secret = "hunter2-do-not-store"
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        plan_text = "printf %s \"$TOKEN\" | sha256sum | cut -c1-64; tr '\\0' ' ' < /proc/$PPID/cmdline; ps -eo args"
        run = await desk.run(
            plan_text, shell=True, secret_environment=("TOKEN",), operator_environment={"TOKEN": secret}
        )
        text = output(run)
        assert text.startswith(hashlib.sha256(secret.encode()).hexdigest().encode())
        assert secret.encode() not in text
        assert "***" in run.remote_text
        assert not files_holding(tmp_path, secret.encode())


async def test_a_secret_that_is_not_set_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        with pytest.raises(OperatorError, match="TOKEN"):
            await desk.launch("true", secret_environment=("TOKEN",), operator_environment={})
        assert not desk.manager.history()


async def test_code_is_shipped_once_and_setup_runs_once_before_the_command_anywhere(tmp_path: Path) -> None:
    bundle = bundles.from_files({"deep/say.py": b"print('hello')\n"}, source="test")
    setup = "date +%s%N >> ~/setups; test $HOSTNAME != t1v-n-7001-w-3 || sleep 0.5; date +%s%N > ~/ready"
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        for _ in range(2):
            command = ("sh", "-c", "date +%s%N > ~/began; python3 deep/say.py")
            run = await desk.run(*command, bundle=bundle, setup=setup)
            assert run.summary == {Outcome.OK: 4}, [item.error for item in run.results]
            assert output(run, 2).endswith(b"hello\n")
            homes = [sim.host.home(address) for address in sim.addresses]
            began = min(int((home / "began").read_text()) for home in homes)
            ready = max(int((home / "ready").read_text()) for home in homes)
            assert ready < began, "the command waits for setup on every worker"
        assert [len((home / "setups").read_text().splitlines()) for home in homes] == [1] * 4


async def test_a_failed_setup_starts_the_command_nowhere(tmp_path: Path) -> None:
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        setup = "test $HOSTNAME != t1v-n-7001-w-1 || { echo broken; exit 9; }"
        run = await desk.run("sh", "-c", "touch ~/ran", setup=setup)
        assert run.summary == {Outcome.FAILED: 1, Outcome.NOT_STARTED: 3}
        assert run.results[1].exit_code == 9
        assert b"broken" in output(run, 1)
        assert "train-a/0/1" in run.results[0].error
        assert not any((sim.host.home(address) / "ran").exists() for address in sim.addresses)


async def test_setup_ends_with_its_connection_and_is_not_taken_for_done(tmp_path: Path) -> None:
    """On a real sshd. What a setup that succeeded left behind stays."""
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        left = await desk.run("true", setup="setsid sleep 631 >/dev/null 2>&1 & echo $!")
        daemon = int(output(left))
        setup = (
            "test ! -e ~/second || { echo again; exit 0; }; touch ~/second; setsid sleep 632 & echo $!; echo $$; wait"
        )
        run = await desk.launch("sh", "-c", "touch ~/ran", setup=setup)
        await run.until(lambda each: len(output(each).split()) >= 2)
        pids = [int(line) for line in output(run).split()]
        (await desk.pool.connection(desk.workers[0])).abort()
        await run.wait()
        assert run.summary == {Outcome.UNKNOWN: 1}
        await until(lambda: not any(alive(pid) for pid in pids))
        assert not (server.home / "ran").exists()
        again = await desk.run("sh", "-c", "touch ~/ran", setup=setup)
        assert again.summary == {Outcome.OK: 1}
        assert b"again" in output(again), "what was cut off is not taken for done"
        assert (server.home / "ran").exists()
        assert alive(daemon)
        os.kill(daemon, signal.SIGKILL)


async def test_a_damaged_bundle_is_never_unpacked(tmp_path: Path) -> None:
    good = bundles.from_files({"a.py": b"1\n"}, source="test")
    other = bundles.from_files({"a.py": b"2\n"}, source="test")
    bad = bundles.Bundle(good.digest, "test", good.files, other.archive)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.run("true", bundle=bad)
        assert run.summary == {Outcome.FAILED: 4}
        assert "damaged" in run.results[0].error
        place = sim.host.home("127.77.0.0") / ".slicetower" / "bundles"
        assert not list(place.glob("[!.]*"))
        assert (await desk.run("true", bundle=good)).summary == {Outcome.OK: 4}


async def test_a_log_that_cannot_be_written_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sshd(tmp_path) as server, sshd_desk(tmp_path, server, [worker(0)]) as desk:
        real = os.write

        def full(descriptor: int, data: bytes) -> int:
            if bytes(data).startswith(b"big"):
                raise OSError(28, "No space left on device")
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", full)
        run = await desk.run("echo", "big")
        assert run.results[0].outcome is Outcome.OK
        assert "No space left" in run.results[0].error


async def test_history_holds_everything_and_an_orphan_is_closed_as_unknown(tmp_path: Path) -> None:
    async with world(tmp_path) as sim:
        async with world_desk(sim) as desk:
            run = await desk.run("sh", "-c", "exit 2", environment=(("A", "b"),), title="a try", batch="2")
            record = desk.manager.store.get(run.id)
            assert (record.request.argv, record.request.environment) == (("sh", "-c", "exit 2"), (("A", "b"),))
            assert [item.outcome for item in record.results] == [item.outcome for item in run.results]
            assert [item.exit_code for item in record.results] == [2, 2, None, None]
            assert record.workers == run.workers
            assert record.ended_at is not None
            going = await desk.launch("sleep", "600")
            await going.until_started()
            desk.manager._save(going)
            # As kill -9 would leave it: the record says running, nobody holds the lock.
            desk.manager._lock(going.id).release()
            copy = RunManager(desk.pool, desk.journal, desk.manager._paths, context="sim")
            assert await copy.reattach() == []
            closed = copy.store.get(going.id)
            assert closed.state is RunState.ENDED
            assert {item.outcome for item in closed.results} == {Outcome.UNKNOWN}
            assert (await copy.stop(going.id)).clean
            await copy.close()
            await asyncio.wait_for(going.wait(), 120)
        assert not any(sim.host.processes(address) for address in sim.addresses)
