"""Simulated workers seen through asyncssh and through OpenSSH's client: sessions, identity, forwarding, files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import asyncssh
import pytest
import pytest_asyncio

from backend.sim.sessions import Descriptor, WorkerSession
from backend.sim.workers import WorkerHost
from tests.backend.sim.worker_world import BOUND_S, World, alive, spec, until, world

A, B = "127.77.0.0", "127.77.0.1"


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def openssh(command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return await asyncio.to_thread(subprocess.run, command, input=stdin, capture_output=True, timeout=BOUND_S)


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
async def test_exit_code_arrives(fleet: World, code: int) -> None:
    assert (await fleet.run(f"exit {code}")).exit_status == code


async def test_exit_signal_arrives_with_its_name(fleet: World) -> None:
    result = await fleet.run("kill -SEGV $$")
    assert result.exit_status == -1
    assert result.exit_signal is not None
    assert result.exit_signal[0] == "SEGV"


async def test_stdout_and_stderr_and_stdin_are_separate_byte_streams(fleet: World) -> None:
    async with fleet.connect() as connection:
        result = await connection.run("cat; printf '\\377err' >&2", input=b"\x00\xfe\n" * 40_000)
    assert result.stdout == b"\x00\xfe\n" * 40_000
    assert result.stderr == b"\xfferr"


async def test_long_output_keeps_its_tail(fleet: World) -> None:
    result = await fleet.run("seq 200000")
    assert isinstance(result.stdout, bytes)
    assert result.stdout == b"".join(b"%d\n" % number for number in range(1, 200_001))


async def test_each_worker_has_own_host_key_home_and_name(fleet: World) -> None:
    assert fleet.host.host_key(A) != fleet.host.host_key(B)
    show = "hostname; cd; pwd; echo $JAX_PLATFORMS $JAX_NUM_CPU_DEVICES"
    first, second = await fleet.run(show, A), await fleet.run(show, B)
    assert first.stdout == f"t1v-n-7001-w-0\n{fleet.host.home(A)}\ncpu 4\n".encode()
    assert second.stdout == f"t1v-n-7001-w-1\n{fleet.host.home(B)}\ncpu 4\n".encode()


async def test_host_keys_outlive_the_simulator_and_differ_between_simulators(tmp_path: Path, fleet: World) -> None:
    key = fleet.key.export_public_key().decode()
    keys = []
    for directory in (fleet.directory / "sim", tmp_path / "other"):
        host = WorkerHost(directory, operator_public_key=key)
        await host.start()
        host.add(spec(0))
        keys.append(host.host_key(A))
        await host.close()
    assert keys[0] == fleet.host.host_key(A) != keys[1]


async def test_wrong_host_key_is_noticed_by_the_client(fleet: World) -> None:
    wrong = asyncssh.import_known_hosts(f"[{A}]:{fleet.port} {fleet.host.host_key(B)}\n")
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await asyncssh.connect(A, fleet.port, username="x", client_keys=[fleet.key], known_hosts=wrong, config=None)


async def test_unknown_key_is_refused_until_it_is_authorised(fleet: World) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    public = other.export_public_key().decode().strip()

    def log_in(user: str) -> contextlib.AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
        hosts = fleet.known_hosts
        return asyncssh.connect(
            A, fleet.port, username=user, client_keys=[other], known_hosts=hosts, config=None, agent_path=None
        )

    with pytest.raises(asyncssh.PermissionDenied):
        await log_in("ann").__aenter__()
    fleet.host.add(dataclasses.replace(spec(0), authorized_keys=(f"ann:{public}",)))
    async with log_in("ann") as connection:
        assert (await connection.run("echo $USER")).stdout == "ann\n"
    with pytest.raises(asyncssh.PermissionDenied):
        await log_in("bob").__aenter__()


async def test_signal_reaches_the_whole_group_although_stdin_is_full(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process("sleep 600 & sleep 600; :", encoding=None)
        process.stdin.write(b"x" * 1_000_000)
        await until(lambda: len(fleet.host.processes(A)) == 3, "two sleeps below a shell")
        process.terminate()
        result = await asyncio.wait_for(process.wait(), BOUND_S)
        assert result.exit_signal is not None
        assert result.exit_signal[0] == "TERM"
        await until(lambda: not fleet.host.processes(A), "an empty worker")


async def test_signal_sent_at_once_is_not_lost(fleet: World) -> None:
    """It arrives while the program is being started."""
    async with fleet.connect() as connection:
        for _ in range(10):
            process = await connection.create_process("exec sleep 600")
            process.kill()
            result = await asyncio.wait_for(process.wait(), BOUND_S)
            assert result.exit_signal is not None
            assert result.exit_signal[0] == "KILL"


async def test_command_outlives_its_connection_as_under_sshd(fleet: World) -> None:
    async with fleet.connect() as connection:
        await connection.create_process("exec sleep 600")
        (pid,) = await until(lambda: fleet.host.processes(A), "the sleep")
    async with fleet.connect() as connection:
        await connection.run("true")
        assert alive(pid)


async def test_program_that_writes_after_its_channel_closed_gets_a_broken_pipe(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process("exec yes", encoding=None)
        await process.stdout.read(1)
        process.close()
        await until(lambda: not fleet.host.processes(A), "the end of yes")
        assert (await connection.run("echo still here")).stdout == b"still here\n"


async def test_cutting_connections_while_output_floods_leaves_no_failure_behind(
    fleet: World, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        async with fleet.connect() as connection:
            await connection.create_process("yes; true", encoding=None, stdout=asyncssh.DEVNULL)
            await until(lambda: fleet.host.processes(A), "the flood to begin")
            connection.abort()
        gc.collect()
        assert (await fleet.run("echo well")).stdout == b"well\n"
    await until(lambda: not fleet.host.processes(A), "the floods to end")
    gc.collect()
    assert not [record.message for record in caplog.records if "never retrieved" in record.message]


async def test_a_pump_ends_quietly_when_the_connection_is_cut_while_it_waits_for_room() -> None:
    class Cut:
        def write(self, data: bytes) -> None: ...

        async def drain(self) -> None:
            raise asyncssh.ConnectionLost("Connection lost")

    session = object.__new__(WorkerSession)
    answering = asyncio.Event()
    answering.set()
    session._machine = SimpleNamespace(answering=answering)  # type: ignore[assignment]
    reading, writing = os.pipe()
    os.write(writing, b"output")
    source = Descriptor(reading)
    try:
        await session._pump(source, Cut())  # type: ignore[arg-type]
    finally:
        source.close()
        os.close(writing)


async def test_background_job_that_holds_the_output_holds_the_channel(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process("sleep 600 & echo $!", encoding=None)
        pid = int(await process.stdout.readline())
        waiting = asyncio.create_task(process.wait())
        await connection.run("true")
        assert not waiting.done()
        await connection.run(f"kill {pid}")
        assert (await asyncio.wait_for(waiting, BOUND_S)).exit_status == 0


async def test_eleventh_session_of_a_connection_is_refused(fleet: World) -> None:
    async with fleet.connect() as connection:
        running = [await connection.create_process("cat", encoding=None) for _ in range(10)]
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process("cat")
        running[0].stdin.write_eof()
        await running[0].wait()
        assert (await connection.run("true")).exit_status == 0


async def test_terminal_has_its_size_follows_changes_and_takes_an_interrupt(fleet: World) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process(term_type="xterm", term_size=(91, 33), encoding=None)
        process.stdin.write(b"stty -echo; PS1=; stty size\n")
        await asyncio.wait_for(process.stdout.readuntil(b"33 91"), BOUND_S)
        process.change_terminal_size(120, 40)
        process.stdin.write(b"stty size; tty; echo $TERM\n")
        seen = await asyncio.wait_for(process.stdout.readuntil(b"xterm\r\n"), BOUND_S)
        assert b"40 120" in seen
        assert b"/dev/pts/" in seen
        process.stdin.write(b"sleep 600; echo status=$?\n")
        await until(lambda: len(fleet.host.processes(A)) == 2, "the sleep")
        process.stdin.write(b"\x03")
        await until(lambda: len(fleet.host.processes(A)) == 1, "the end of the sleep")
        process.stdin.write(b"exit 5\n")
        assert (await asyncio.wait_for(process.wait(), BOUND_S)).exit_status == 5


async def test_terminal_is_hung_up_when_its_connection_goes(fleet: World) -> None:
    async with fleet.connect() as connection:
        await connection.create_process("sleep 600", term_type="xterm")
        await until(lambda: fleet.host.processes(A), "the sleep")
    await until(lambda: not fleet.host.processes(A), "an empty worker")


async def test_files_go_both_ways_and_stay_in_the_home(fleet: World) -> None:
    content = bytes(range(256)) * 4096
    local = fleet.directory / "payload"
    local.write_bytes(content)
    async with fleet.connect() as connection, connection.start_sftp_client() as files:
        await files.put(str(local), "copy")
        await files.get("copy", str(fleet.directory / "back"))
        await files.put(str(local), "/../../../escape")
        home = fleet.host.home(A)
        assert await files.getsize(f"{home}/copy") == len(content)
        with pytest.raises(asyncssh.SFTPNoSuchFile):
            await files.stat("/etc/passwd")
        with pytest.raises(asyncssh.SFTPNoSuchFile):
            await files.stat("/tmp/../etc/passwd")
    assert (fleet.directory / "back").read_bytes() == content
    assert (home / "escape").read_bytes() == content
    assert not (fleet.host.home(B) / "copy").exists()


@pytest.mark.parametrize("legacy", [[], ["-O"]])
async def test_openssh_scp_both_ways_exits_with_0(fleet: World, legacy: list[str]) -> None:
    local = fleet.directory / "payload"
    local.write_bytes(b"abc" * 100_000)
    back = fleet.directory / "back"
    to = await openssh(fleet.ssh_command(*legacy, str(local), f"operator@{A}:copy", program="scp"))
    fro = await openssh(fleet.ssh_command(*legacy, f"operator@{A}:copy", str(back), program="scp"))
    assert (to.returncode, to.stderr, fro.returncode, fro.stderr) == (0, b"", 0, b"")
    assert back.read_bytes() == local.read_bytes()


async def test_scp_as_a_program_of_the_worker_is_run_there(fleet: World) -> None:
    result = await fleet.run("echo text > one; scp one two && cat two")
    again = await fleet.run("scp one three; cat three")
    assert (result.stdout, again.stdout) == (b"text\n", b"text\n")


async def test_openssh_client_gets_codes_bytes_and_signals(fleet: World) -> None:
    piped = await openssh(fleet.ssh_command("cat; exit 7"), b"x" * 300_000)
    assert (piped.returncode, piped.stdout) == (7, b"x" * 300_000)
    assert (await openssh(fleet.ssh_command("kill -9 $$"))).returncode == 255
    typed = await openssh(fleet.ssh_command("-tt", "test -t 0 && tty"))
    assert typed.stdout.startswith(b"/dev/pts/")


async def test_arguments_arrive_literally(fleet: World) -> None:
    text = "a b;$HOME 'q' \"dq\" \\ * ~ `id` $(id)\u00e9"
    quoted = "'" + text.replace("'", "'\\''") + "'"
    assert (await fleet.run(f"printf %s {quoted}")).stdout == text.encode()


async def test_only_locale_variables_are_taken_from_the_client(fleet: World) -> None:
    async with fleet.connect() as connection:
        environment = {"LC_X": "one", "PATH": "/nowhere", "SLICETOWER_SIM_WORKER": "other/0"}
        result = await connection.run("echo $LC_X $SLICETOWER_SIM_WORKER", env=environment)
    assert result.stdout == b"one 7001/0\n"


LISTEN = """
import socket, sys
s = socket.create_server((sys.argv[1], 0)); print(s.getsockname()[1], flush=True)
c, _ = s.accept(); c.sendall(b"from " + sys.argv[1].encode() + b" " + c.recv(99)); c.close()
"""


@pytest.mark.parametrize("name", [A, "localhost"])
async def test_port_is_forwarded_to_the_worker_itself(fleet: World, name: str) -> None:
    async with fleet.connect() as connection:
        process = await connection.create_process(f"python3 -c '{LISTEN}' {A}", encoding=None)
        port = int(await asyncio.wait_for(process.stdout.readline(), BOUND_S))
        reader, writer = await connection.open_connection(name, port)
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.read(), BOUND_S) == b"from 127.77.0.0 hello"


async def test_port_is_not_forwarded_elsewhere(fleet: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with fleet.connect() as connection:
            for host in (B, "10.0.0.1"):
                with pytest.raises(asyncssh.ChannelOpenError):
                    await connection.open_connection(host, other.getsockname()[1])


async def test_agent_is_not_forwarded(fleet: World) -> None:
    result = await openssh(fleet.ssh_command("-A", "echo agent=$SSH_AUTH_SOCK"))
    assert result.stdout == b"agent=\n"


@pytest.mark.parametrize("address", ["127.77.9.9", "127.0.0.1"])
async def test_address_without_a_worker_answers_nothing(fleet: World, address: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 (a reset may be seen at any step)
        await asyncssh.connect(address, fleet.port, known_hosts=None, config=None)


def test_only_loopback_addresses_and_one_worker_each(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    host = WorkerHost(tmp_path, operator_public_key=key)
    host.add(spec(0))
    with pytest.raises(ValueError, match=r"127\.0\.0\.0/8"):
        host.add(dataclasses.replace(spec(1), address="10.0.0.1"))
    with pytest.raises(ValueError, match="7001/0"):
        host.add(dataclasses.replace(spec(1), address=A))
    with pytest.raises(KeyError, match=re.escape(B)):
        host.host_key(B)


async def test_taken_port_is_told(fleet: World) -> None:
    host = WorkerHost(fleet.directory / "second", operator_public_key=fleet.key.export_public_key().decode())
    with pytest.raises(Exception, match=str(fleet.port)):
        await host.start(fleet.port)


async def test_programs_find_the_interpreter_of_the_simulator(fleet: World) -> None:
    result = await fleet.run("python3 -c 'import sys; print(sys.prefix)'")
    assert result.stdout == f"{sys.prefix}\n".encode()


async def test_own_name_is_told_even_if_the_interpreter_lies_beside_the_machines_hostname(fleet: World) -> None:
    places = fleet.host.premises.search_path.split(":")
    assert places.index(str(fleet.host.directory / "bin")) < places.index(str(Path(sys.executable).parent))
    assert (await fleet.run("command -v hostname")).stdout == f"{fleet.host.directory}/bin/hostname\n".encode()
