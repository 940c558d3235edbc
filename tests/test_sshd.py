"""The sshd of the tests is real, alone, and gone afterwards; what we ship works on it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncssh
import pytest

from tests.sshd import Sshd, StartSshd, launch, sshd, start_sshd, state

__all__ = ["sshd", "start_sshd"]
pytestmark = pytest.mark.sshd
SUPERVISOR = Path(__file__).parents[1] / "jobs" / "programs" / "supervisor.py"
BOUND_S = 90.0


def connect(server: Sshd) -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    return asyncssh.connect(
        server.address,
        server.port,
        username=server.user,
        client_keys=[str(server.key)],
        known_hosts=asyncssh.import_known_hosts(server.known_hosts),
        config=None,
        agent_path=None,
        encoding=None,
    )


async def test_login_runs_in_its_own_home_with_this_interpreter(sshd: Sshd) -> None:
    async with connect(sshd) as connection:
        result = await connection.run("echo $HOME; command -v python3; exit 3")
    assert result.exit_status == 3
    assert isinstance(result.stdout, bytes)
    home, python = result.stdout.decode().split()
    assert home == str(sshd.home)
    assert Path(python).parent == Path(sys.executable).parent


async def test_limits_can_be_set(start_sshd: StartSshd) -> None:
    async with connect(start_sshd(MaxSessions=1)) as connection:
        await connection.create_process("cat")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process("cat")


async def test_several_stand_beside_each_other(start_sshd: StartSshd) -> None:
    first, second = start_sshd(), start_sshd("127.0.0.2")
    assert (first.address, second.address) == ("127.0.0.1", "127.0.0.2")
    assert first.host_key != second.host_key
    for server in (first, second):
        async with connect(server) as connection:
            assert (await connection.run("true")).exit_status == 0


async def test_nothing_is_left_when_it_stops(tmp_path: Path) -> None:
    server = await asyncio.to_thread(launch, tmp_path / "s")
    async with connect(server) as connection:
        await connection.run("setsid sleep 600 > /dev/null 2>&1 < /dev/null & sleep 0")
        await connection.create_process("sleep 600")
        pids = [server.process.pid, *server.connections(), *server.programs()]
        assert len(pids) >= 4
        await asyncio.to_thread(server.stop)
    assert [pid for pid in pids if state(pid) not in ("", "Z")] == []


def test_missing_sshd_fails_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(pytest.fail.Exception, match="openssh-server"):
        launch(tmp_path / "s")


def test_bad_option_fails_with_the_words_of_sshd(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="MaxSessions"):
        launch(tmp_path / "s", MaxSessions="many")


COUNTER = "for i in $(seq 1 20000); do echo line $i; done; until [ -e ~/gate ]; do sleep 0.01; done; exit 9"


async def test_supervised_run_outlives_killed_connections_and_loses_no_byte(sshd: Sshd) -> None:
    """Followed over ssh, the connection killed in the middle again and again, resumed by (inode, offset)."""
    expected = b"".join(b"line %d\n" % number for number in range(1, 20_001))
    async with connect(sshd) as connection:
        await connection.run("cat > ~/supervisor.py", input=SUPERVISOR.read_bytes())
        request = json.dumps({"run": "r1", "shell": COUNTER}).encode()
        started = json.loads((await connection.run("python3 ~/supervisor.py start", input=request)).stdout or b"")
    assert started["started"] is True
    received = b""
    for cut in (*range(1000, len(expected), len(expected) // 8), None):
        async with connect(sshd) as connection:
            follow = f"python3 ~/supervisor.py follow r1 --inode {started['inode']} --offset {len(received)}"
            process = await connection.create_process(follow, encoding=None)
            header = json.loads(await asyncio.wait_for(process.stdout.readline(), BOUND_S))
            assert (header["lost"], header["offset"]) == (False, len(received))
            if cut is None:
                await connection.run("touch ~/gate")
                received += await asyncio.wait_for(process.stdout.read(), BOUND_S)
                assert (await process.wait()).exit_status == 0
            else:
                received += await asyncio.wait_for(process.stdout.readexactly(cut - len(received)), BOUND_S)
                await asyncio.to_thread(sshd.kill_connections)
    assert received == expected
    async with connect(sshd) as connection:
        status = json.loads((await connection.run("python3 ~/supervisor.py status r1")).stdout or b"")
    assert (status["state"], status["exit_code"]) == ("exited", 9)
