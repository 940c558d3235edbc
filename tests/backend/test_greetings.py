"""What is heard of ssh servers, and of what are none: directly, through a jump host and programs, behind each a real socket."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from backend.context import Context, SSHSettings
from backend.inventory import Inventory, ListedSlice, ListedWorker
from backend.ssh import greetings
from backend.ssh.connections import ConnectionPool
from backend.ssh.greetings import Closed
from backend.ssh.listener import Listener
from backend.targets import WorkerRef, workers_of_slice
from tests.backend.openssh import FixedKeys, Sshd, sshd, worker
from tests.backend.test_connections import journal
from tests.backend.test_routes import PIPE, home, openssh_with, program
from tests.sshd import command

__all__ = ["home"]


async def no_pool() -> ConnectionPool:
    raise AssertionError("this route needs no pool")


def pool_of(pool: ConnectionPool) -> Callable[[], Awaitable[ConnectionPool]]:
    async def made() -> ConnectionPool:
        return pool

    return made


def direct(port: int) -> Context:
    return Context("t", "p", ("z",), ssh=SSHSettings(port=port))


@asynccontextmanager
async def server(*says: bytes, then: str = "stay") -> AsyncIterator[int]:
    """A server that says this, and then stays silent (`stay`) or closes (`close`); yields its port."""
    stop = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in says:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if then == "stay":
            await asyncio.wait({asyncio.ensure_future(stop.wait()), asyncio.ensure_future(reader.read())})
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        stop.set()
        listening.close()
        await listening.wait_closed()


@pytest.mark.parametrize(
    ("says", "then", "lacks"),
    [
        ((b"SSH-2.0-OpenSSH_9.2p1\r\n",), "stay", ""),
        ((b"SS", b"H-2.0-x\r\n"), "stay", ""),
        ((b"Authorized use only.\r\n", b"SSH-2.0-x\r\n"), "stay", ""),
        ((), "close", "connection closed"),
        ((), "stay", "no answer"),
        ((b"220 mail.example ESMTP\r\n",), "stay", "no ssh server"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "close", "no ssh server"),
        ((b"x" * 10_000,), "stay", "no ssh server"),
        ((b"Exceeded MaxStartups\r\n",), "close", "its sshd takes no more connections now"),
        ((b"Not allowed at this time\r\n",), "close", "its sshd takes no more connections now"),
    ],
)
async def test_a_server_is_told_from_silence_and_from_what_is_no_ssh_server(
    monkeypatch: pytest.MonkeyPatch, says: tuple[bytes, ...], then: str, lacks: str
) -> None:
    monkeypatch.setattr(greetings, "DIRECT_S", 0.5)
    async with server(*says, then=then) as port:
        assert await Listener(direct(port), no_pool).listen(at_loopback()) == lacks


def at_loopback(index: int = 0) -> WorkerRef:
    return WorkerRef("p", "z", "train-a", 0, index, "train-a-0", "7", "127.0.0.1", "127.0.0.1")


async def test_a_port_that_refuses_and_an_address_that_is_missing_are_told() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    assert await Listener(direct(port), no_pool).listen(at_loopback()) == "connection refused"
    bare = WorkerRef("p", "z", "train-a", 0, 0, "train-a-0", "7", internal_ip="127.0.0.1")
    assert await Listener(direct(port), no_pool).listen(bare) == "no external address"


async def test_a_greeting_leaves_no_connection_open() -> None:
    left: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        try:
            left.append(await reader.read())
        except ConnectionResetError:
            left.append(b"")
        ended.set()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        assert await Listener(direct(port), no_pool).listen(at_loopback()) == ""
        async with asyncio.timeout(20):
            await ended.wait()
    assert left == [b""], "nothing is sent, and the connection is given up"


async def test_a_machine_without_open_files_is_not_called_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_left(*_given: object, **_more: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", none_left)
    with pytest.raises(Closed, match="open files"):
        await Listener(direct(22), no_pool).listen(at_loopback())


async def test_a_listed_machine_is_asked_at_its_own_port() -> None:
    async with server(b"SSH-2.0-x\r\n") as port:
        listed = ListedSlice("lab", 0, "lab", (ListedWorker("127.0.0.1", port),))
        context = Context("t", "", (), ssh=SSHSettings(port=1), listed=Inventory((listed,)))
        (one,) = workers_of_slice(listed.facts(""))
        assert await Listener(context, no_pool).listen(one) == ""


# -- jump host -----------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def through_a_jump_host(server: Sshd, home: Path, *, known: bool = True) -> AsyncIterator[ConnectionPool]:
    if known:
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.host_key}\n")
    context = server.context(route="jump", jump=f"127.0.0.1:{server.port}")
    pool = ConnectionPool(context, FixedKeys([server.host_key]), journal(server))
    try:
        yield pool
    finally:
        await pool.close()


@pytest.mark.sshd
async def test_workers_behind_a_jump_host_are_heard_through_one_connection_to_it(tmp_path: Path, home: Path) -> None:
    async with sshd(tmp_path, "LogLevel VERBOSE") as jump, through_a_jump_host(jump, home) as pool:
        listener = Listener(jump.context(route="jump", jump=f"127.0.0.1:{jump.port}"), pool_of(pool))
        assert await asyncio.gather(*(listener.listen(worker(index)) for index in range(6))) == [""] * 6
        log = (tmp_path / "sshd.log").read_text()
        assert log.count("Accepted publickey") == 1, "one login, at the jump host alone"
        assert pool.connected == 0


@pytest.mark.sshd
async def test_what_is_no_ssh_server_behind_a_jump_host_is_told(tmp_path: Path, home: Path) -> None:
    async with (
        server(b"hello\r\n", then="close") as port,
        sshd(tmp_path) as jump,
        through_a_jump_host(jump, home) as pool,
    ):
        settings = SSHSettings(port=port, route="jump", jump=f"127.0.0.1:{jump.port}")
        listener = Listener(Context("t", "p", ("z",), ssh=settings), pool_of(pool))
        assert await listener.listen(at_loopback()) == "no ssh server"


@pytest.mark.sshd
async def test_a_worker_that_refuses_behind_a_jump_host_is_told_from_a_jump_host_that_fails(
    tmp_path: Path, home: Path
) -> None:
    async with sshd(tmp_path) as jump, through_a_jump_host(jump, home) as pool:
        context = Context(
            "t", "p", ("z",), ssh=SSHSettings(port=1, route="jump", jump=f"127.0.0.1:{jump.port}", key=jump.key)
        )
        assert "refused" in await Listener(context, pool_of(pool)).listen(at_loopback())
    async with sshd(tmp_path / "unknown") as jump, through_a_jump_host(jump, home, known=False) as pool:
        context = jump.context(route="jump", jump=f"127.0.0.1:{jump.port}")
        with pytest.raises(Closed, match="known_hosts does not have"):
            await Listener(context, pool_of(pool)).listen(at_loopback())
    async with sshd(tmp_path / "strict", "AllowTcpForwarding no") as jump, through_a_jump_host(jump, home) as pool:
        context = jump.context(route="jump", jump=f"127.0.0.1:{jump.port}")
        assert "allows no forwarding there" in await Listener(context, pool_of(pool)).listen(at_loopback())


@pytest.mark.sshd
async def test_a_key_with_a_passphrase_is_not_asked_for_in_the_background(tmp_path: Path, home: Path) -> None:
    async def ask(_path: Path) -> str | None:
        raise AssertionError("nobody asked for this")

    async with sshd(tmp_path) as jump:
        locked = asyncssh.read_private_key(jump.key).export_private_key("openssh", passphrase="secret")
        jump.key.write_bytes(locked)
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{jump.port} {jump.host_key}\n")
        context = jump.context(route="jump", jump=f"127.0.0.1:{jump.port}")
        pool = ConnectionPool(context, FixedKeys([jump.host_key]), journal(jump), ask_passphrase=ask)
        with pytest.raises(Closed, match="passphrase"):
            await Listener(context, pool_of(pool)).listen(at_loopback())
        await pool.close()


# -- programs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.sshd
async def test_a_proxy_command_of_the_configuration_brings_the_greeting_and_is_ended(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sshd(tmp_path) as far:
        pipe = tmp_path / "pipe"
        keep = f"import os\nopen('{tmp_path}/pid', 'w').write(str(os.getpid()))\nimport os"
        pipe.write_text(PIPE.format(python=sys.executable).replace("import os", keep, 1))
        pipe.chmod(0o755)
        openssh_with(tmp_path, f"Host *\n  ProxyCommand {pipe} %h %p\n", monkeypatch)
        context = Context("t", "p", ("z",), ssh=SSHSettings(port=far.port, route="config"))
        assert await Listener(context, no_pool).listen(at_loopback()) == ""
        assert not command(int((tmp_path / "pid").read_text())), "the program is gone"


@pytest.mark.sshd
async def test_a_tunnel_through_iap_is_asked_once_and_what_it_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def instance_name(_where: WorkerRef) -> str:
        return "t1v-n-77-w-0"

    async with sshd(tmp_path) as far:
        context = far.context(route="iap")
        pool = ConnectionPool(context, FixedKeys([far.host_key]), journal(far), instance_name=instance_name)
        pipe = tmp_path / "pipe"
        pipe.write_text(PIPE.format(python=sys.executable))
        pipe.chmod(0o755)
        program(tmp_path, "gcloud", f"#!/bin/sh\nexec {pipe} 127.0.0.1 {far.port}\n", monkeypatch)
        assert await Listener(context, pool_of(pool)).listen(at_loopback()) == ""
        program(
            tmp_path,
            "gcloud",
            "#!/bin/sh\necho 'ERROR: 4003 failed to connect to backend' >&2\nexit 1\n",
            monkeypatch,
        )
        told = await Listener(context, pool_of(pool)).listen(at_loopback())
        assert told == "connection closed: ERROR: 4003 failed to connect to backend"
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        with pytest.raises(Closed, match="no gcloud program here"):
            await Listener(context, pool_of(pool)).listen(at_loopback())
        await pool.close()
