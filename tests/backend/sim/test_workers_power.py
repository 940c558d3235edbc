"""Simulated workers lose power, boot, are cut, frozen and refused; and nothing outlives them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest
import pytest_asyncio

from tests.backend.sim.worker_world import BOUND_S, World, alive, until, world

A, B = "127.77.0.0", "127.77.0.1"
ROOT = Path(__file__).parents[3]

DAEMONS = """
import os, sys, time
for number, clean in enumerate((False, True)):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            held = open(os.path.expanduser("~/held%d" % number), "w")
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
            for fd in (1, 2):
                os.dup2(0, fd)
            held.write(str(os.getpid())); held.flush()
            os.set_inheritable(held.fileno(), True)
            os.execve("/bin/sleep", ["sleep", "600"], {} if clean else dict(os.environ))
        os._exit(0)
    os.wait()
"""
"""Starts two daemons: own session, orphaned, no terminal; one with an empty environment."""


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def start_daemons(fleet: World, address: str = A) -> list[int]:
    async with fleet.connect(address) as connection:
        result = await connection.run("python3 -", input=DAEMONS.encode())
    assert result.exit_status == 0, result.stderr
    pids = [fleet.host.home(address) / f"held{number}" for number in range(2)]
    await until(lambda: all(path.exists() and path.read_text() for path in pids), "two daemons")
    return [int(path.read_text()) for path in pids]


async def test_power_off_kills_daemons_groups_and_stubborn_programs_but_no_neighbour(fleet: World) -> None:
    daemons = await start_daemons(fleet)
    async with fleet.connect() as connection, fleet.connect(B) as neighbour:
        await connection.create_process("trap '' TERM HUP INT; setsid sleep 600 & exec env -i sleep 600")
        other = await neighbour.create_process("exec sleep 600")
        await until(lambda: len(fleet.host.processes(A)) == 4, "four processes")
        (next_door,) = await until(lambda: fleet.host.processes(B), "the neighbour's sleep")
        running = fleet.host.processes(A)
        assert set(daemons) < set(running)
        await fleet.host.power_off(A, wipe=False)
        assert not [pid for pid in running if alive(pid)]
        assert fleet.host.processes(A) == []
        assert alive(next_door)
        other.kill()
        await asyncio.wait_for(connection.wait_closed(), BOUND_S)


async def test_worker_without_power_is_not_reachable_and_its_running_command_is_unknown(fleet: World) -> None:
    async with fleet.connect() as connection:
        waiting = asyncio.create_task(connection.run("sleep 600"))
        await until(lambda: fleet.host.processes(A), "the sleep")
        await fleet.host.power_off(A, wipe=False)
        result = await asyncio.wait_for(waiting, BOUND_S)
    assert (result.exit_status, result.exit_signal) == (None, None)
    with pytest.raises((OSError, asyncssh.Error)):
        await fleet.run("true")


async def test_disk_survives_a_reboot_and_not_a_wipe_and_the_boot_id_changes(fleet: World) -> None:
    seen = set()
    read = "cat $SLICETOWER_BOOT_ID_FILE; cat kept 2>/dev/null || echo new; touch kept; echo kept > kept"
    contents = []
    for wipe in (False, True, False):
        result = await fleet.run(read)
        assert isinstance(result.stdout, bytes)
        boot_id, content = result.stdout.decode().split()
        seen.add(boot_id)
        contents.append(content)
        assert (await fleet.run("cat $SLICETOWER_BOOT_ID_FILE")).stdout == f"{boot_id}\n".encode()
        await fleet.host.power_off(A, wipe=wipe)
        await fleet.host.boot(A)
    assert contents == ["new", "kept", "new"]
    assert len(seen) == 3


async def test_startup_script_runs_on_each_boot_with_its_output_in_the_serial_log(fleet: World) -> None:
    script = "echo booted on $HOSTNAME; echo oops >&2; sleep 600 & exit 3"
    for boots in (1, 2):
        await fleet.host.boot(A, script)
        await until(lambda: fleet.host.startup_status(A) is not None, "the end of the script")
        assert fleet.host.startup_status(A) == 3
        assert fleet.host.serial_log(A).read_text() == "booted on t1v-n-7001-w-0\noops\n" * boots
        assert len(fleet.host.processes(A)) == 1


async def test_startup_script_with_an_interpreter_line(fleet: World) -> None:
    await fleet.host.boot(A, "#!/usr/bin/env python3\nprint(6 * 7)\n")
    await until(lambda: fleet.host.startup_status(A) == 0, "the end of the script")
    assert fleet.host.serial_log(A).read_text() == "42\n"


async def test_cut_in_the_middle_of_output_keeps_the_program(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process("trap '' PIPE; while :; do echo line; done", encoding=None)
        await process.stdout.read(1000)
        (pid,) = fleet.host.processes(A)
        await fleet.host.cut(A)
        result = await asyncio.wait_for(process.wait(), BOUND_S)
        assert result.exit_status is None
    assert alive(pid)
    assert (await fleet.run("echo again")).stdout == b"again\n"


async def test_frozen_worker_answers_nothing_and_then_goes_on(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process("while read x; do echo $x; done", encoding=None)
        process.stdin.write(b"before\n")
        assert await asyncio.wait_for(process.stdout.readline(), BOUND_S) == b"before\n"
        fleet.host.freeze(A, 600)
        process.stdin.write(b"during\n")
        reading = asyncio.create_task(process.stdout.readline())
        joining = asyncio.create_task(fleet.run("echo joined"))
        assert (await fleet.run("echo other", B)).stdout == b"other\n"
        assert not reading.done()
        assert not joining.done()
        fleet.host.thaw(A)
        assert await asyncio.wait_for(reading, BOUND_S) == b"during\n"
        assert (await asyncio.wait_for(joining, BOUND_S)).stdout == b"joined\n"


async def test_freeze_ends_by_itself(fleet: World) -> None:
    fleet.host.freeze(A, 0.01)
    assert (await asyncio.wait_for(fleet.run("echo back"), BOUND_S)).stdout == b"back\n"


async def test_frozen_worker_is_found_dead_by_keepalive(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process("cat", encoding=None)
        fleet.host.freeze(A, 600)
        connection.set_keepalive(0.05, 2)
        with pytest.raises(asyncssh.ConnectionLost):
            await asyncio.wait_for(process.stdout.read(), BOUND_S)


async def test_refused_worker_keeps_its_connections_and_takes_no_new_ones(fleet: World) -> None:
    async with fleet.connect() as connection:
        fleet.host.refuse(A, True)
        assert (await connection.run("echo old")).stdout == b"old\n"
        with pytest.raises((OSError, asyncssh.Error)):
            await fleet.run("true")
        fleet.host.refuse(A, False)
        assert (await fleet.run("echo new")).stdout == b"new\n"


async def test_removed_worker_leaves_its_address_free(fleet: World) -> None:
    await fleet.run("touch file")
    home = fleet.host.home(A)
    await fleet.host.remove(A)
    assert not home.exists()
    with pytest.raises(KeyError):
        fleet.host.host_key(A)


async def test_close_leaves_nothing_running(tmp_path: Path) -> None:
    async with world(tmp_path) as fleet:
        pids = [*await start_daemons(fleet, A), *await start_daemons(fleet, B), fleet.host.hypervisor.pid]
        assert all(alive(pid) for pid in pids)
    assert not [pid for pid in pids if alive(pid)]


async def test_power_off_in_the_middle_of_starting_leaves_no_process(fleet: World) -> None:
    mark = f"SLICETOWER_BOOT_ID_FILE={fleet.host.home(A).parent}/boot_id".encode()

    def marked() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and alive(int(entry.name)):
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    async with fleet.connect() as connection:
        await connection.create_process("exec sleep 600")
        await until(marked, "a process that is found by the mark")
    for pause in range(12):
        await fleet.host.boot(A)
        async with fleet.connect() as connection:
            commands = [asyncio.create_task(connection.run("exec sleep 600")) for _ in range(8)]
            for _ in range(pause * 3):
                await asyncio.sleep(0)
            await fleet.host.power_off(A, wipe=False)
            await asyncio.wait(commands, timeout=BOUND_S)
        assert marked() == []


async def test_frozen_worker_can_lose_its_power(fleet: World) -> None:
    async with fleet.connect() as connection:
        waiting = asyncio.create_task(connection.run("sleep 600"))
        await until(lambda: fleet.host.processes(A), "the sleep")
        fleet.host.freeze(A, 600)
        late = asyncio.create_task(fleet.run("true"))
        await fleet.host.power_off(A, wipe=False)
        assert (await asyncio.wait_for(waiting, BOUND_S)).exit_status is None
        with pytest.raises((OSError, asyncssh.Error)):
            await asyncio.wait_for(late, BOUND_S)
    await fleet.host.boot(A)
    assert (await fleet.run("echo up")).stdout == b"up\n"


SIMULATOR = """
import asyncio, sys
from pathlib import Path
from tests.backend.sim.worker_world import world, A_SCRIPT
async def main():
    async with world(Path(sys.argv[1])) as fleet:
        await fleet.host.boot("127.77.0.0", A_SCRIPT)
        print(fleet.host.hypervisor.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_kill_9_of_the_simulator_leaves_nothing_running(tmp_path: Path) -> None:
    simulator = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SIMULATOR, str(tmp_path), cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert simulator.stdout is not None
        hypervisor = int(await simulator.stdout.readline())
        note = tmp_path / "sim" / "workers" / "7001" / "0" / "home" / "pids"
        await until(lambda: note.exists() and len(note.read_text().split()) == 2, "two programs")
        pids = [hypervisor, *map(int, note.read_text().split())]
        assert all(alive(pid) for pid in pids)
    finally:
        simulator.send_signal(signal.SIGKILL)
        await simulator.wait()
    await until(lambda: not [pid for pid in pids if alive(pid)], "the end of all")
