"""How workers are reached: jump hosts, the operator's OpenSSH configuration, tunnels of gcloud; behind each a real sshd."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from backend.context import Context, SSHSettings
from backend.outcomes import OperatorError
from backend.ssh import connections
from backend.ssh.connections import ConnectionPool, Unreachable
from backend.ssh.proxies import expanded
from backend.ssh.routes import Hop, parse_hop
from backend.targets import WorkerRef
from tests.backend.openssh import FixedKeys, Sshd, make_key, sshd, worker
from tests.backend.test_connections import journal, run_true

pytestmark = pytest.mark.sshd


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RETRY_CAP_S", 0.05)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator whose known_hosts is empty."""
    folder = tmp_path / "operator"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def program(tmp_path: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program on the PATH, before all others."""
    path = tmp_path / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


def openssh_with(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ssh, which finds this for the operator's configuration: it asks the password file for the home, not HOME."""
    (tmp_path / "ssh_config").write_text(config)
    program(tmp_path, "ssh", f'#!/bin/sh\nexec /usr/bin/ssh -F "{tmp_path}/ssh_config" "$@"\n', monkeypatch)


def by_configuration(server: Sshd, *, key: bool = True) -> ConnectionPool:
    settings = SSHSettings(key=server.key if key else None, route="config")
    return ConnectionPool(Context("t", "p", ("z",), ssh=settings), FixedKeys([server.host_key]), journal(server))


PIPE = """#!{python}
import os, select, socket, sys
far = socket.create_connection((sys.argv[-2], int(sys.argv[-1])))
while True:
    for ready in select.select([0, far], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else far.recv(65536)
        if not data:
            sys.exit(0)
        far.sendall(data) if ready == 0 else os.write(1, data)
"""


async def test_all_workers_are_reached_over_one_connection_to_a_jump_host(tmp_path: Path, home: Path) -> None:
    async with sshd(tmp_path) as server:
        hop = f"root@127.0.0.1:{server.port}"
        context = server.context(route="jump", jump=hop)
        pool = ConnectionPool(context, FixedKeys([server.host_key]), journal(server))
        with pytest.raises(Unreachable, match="known_hosts"):
            await pool.connection(worker(0))
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.host_key}\n")
        await asyncio.gather(*(pool.connection(worker(index)) for index in range(10)))
        assert pool.connected == 10
        log = (tmp_path / "sshd.log").read_text()
        assert log.count("Accepted publickey") == 11 or "Accepted" not in log
        await pool.close()


async def test_a_worker_without_an_address_of_that_kind_says_which_routes_are_left(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        pool = server.pool()
        bare = WorkerRef("p", "z", "train-a", 0, 0, "train-a-0", "7", internal_ip="127.0.0.1")
        with pytest.raises(Unreachable, match="internal, jump or iap"):
            await pool.connection(bare)
        await pool.close()


# -- OpenSSH's configuration ---------------------------------------------------------------------------------------------------


async def test_host_port_user_and_key_are_those_of_the_operators_configuration(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's address leads to another one there, and only the key that is named there is let in."""
    async with sshd(tmp_path) as server:
        config = (
            f"Host 127.0.1.1\n  HostName 127.0.9.9\n  User root\n  Port {server.port}\n  IdentityFile {server.key}\n"
        )
        openssh_with(tmp_path, config, monkeypatch)
        make_key(home / ".ssh" / "google_compute_engine")
        pool = by_configuration(server, key=False)
        route = await pool.route(worker(0))
        assert (route.host, route.port, route.user, route.key) == ("127.0.9.9", server.port, "root", server.key)
        assert await run_true(pool, worker(0)) == 0
        await pool.close()


async def test_a_jump_host_is_looked_up_in_the_configuration_too(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bastion` is a name that only the configuration knows, and the last of two hops."""
    async with sshd(tmp_path) as server:
        config = (
            f"Host 127.0.1.*\n  ProxyJump root@127.0.7.1:{server.port},bastion\n"
            f"Host bastion\n  HostName 127.0.7.2\nHost *\n  User root\n  Port {server.port}\n  IdentityFile {server.key}\n"
        )
        openssh_with(tmp_path, config, monkeypatch)
        pool = by_configuration(server)
        hop = (await pool.route(worker(0))).hop
        assert hop is not None
        assert hop.via is not None
        assert (hop.host, hop.port, hop.user) == ("127.0.7.2", server.port, "root")
        assert (hop.via.host, hop.via.port) == ("127.0.7.1", server.port)
        assert hop.chain == f"root@127.0.7.1:{server.port},root@127.0.7.2:{server.port}"
        with pytest.raises(Unreachable, match=r"127\.0\.7\.1"):
            await pool.connection(worker(0))
        known = "".join(f"[127.0.7.{each}]:{server.port} {server.host_key}\n" for each in (1, 2))
        (home / ".ssh" / "known_hosts").write_text(known)
        assert await run_true(pool, worker(0)) == 0
        assert await run_true(pool, worker(1)) == 0
        assert pool.connected == 2
        await pool.close()


async def test_a_proxy_command_is_run_with_its_tokens_filled_in_and_may_talk_on_stderr(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sshd(tmp_path) as server:
        program(tmp_path, "pipe", PIPE.format(python=sys.executable), monkeypatch)
        talk = f"echo via %r@%n >&2; echo %r@%n %%p >>{tmp_path}/told;"
        config = f"Host 127.0.1.*\n  User root\n  Port {server.port}\n  ProxyCommand sh -c '{talk} exec pipe %h %p'\n"
        openssh_with(tmp_path, config, monkeypatch)
        pool = by_configuration(server)
        assert await run_true(pool, worker(3)) == 0
        assert (tmp_path / "told").read_text() == "root@127.0.1.4 %p\n"
        await pool.close()


async def test_what_a_proxy_command_says_when_it_fails_is_told(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sshd(tmp_path) as server:
        config = "Host 127.0.1.*\n  User root\n  ProxyCommand sh -c 'echo no way to %h >&2; exit 1'\n"
        openssh_with(tmp_path, config, monkeypatch)
        pool = by_configuration(server)
        with pytest.raises(Unreachable, match=r"ProxyCommand said: no way to 127\.0\.1\.1"):
            await pool.connection(worker(0))
        await pool.close()


async def test_a_damaged_configuration_is_told_with_openssh_s_own_words(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sshd(tmp_path) as server:
        openssh_with(tmp_path, "Host *\n  Nonsense yes\n", monkeypatch)
        pool = by_configuration(server)
        with pytest.raises(Unreachable, match="OpenSSH refuses its configuration") as caught:
            await pool.connection(worker(0))
        assert "nonsense" in caught.value.raw.lower()
        await pool.close()


def test_tokens_of_a_proxy_command() -> None:
    text = expanded("nc %h %p %r@%n 100%% %x %", host="h", name="n", port=22, user="u")
    assert text == "nc h 22 u@n 100% %x %"


@pytest.mark.parametrize(
    ("text", "hop"),
    [
        ("bastion", Hop("bastion")),
        ("ann@bastion:2222", Hop("bastion", 2222, "ann")),
        ("[::1]:2222", Hop("::1", 2222)),
        ("::1", Hop("::1")),
    ],
)
def test_the_forms_of_a_jump_host(text: str, hop: Hop) -> None:
    assert parse_hop(text) == hop


@pytest.mark.parametrize("text", ["", "ann@", "b:port", "b:0", "b:70000"])
def test_what_is_no_jump_host_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="no jump host"):
        parse_hop(text)


# -- IAP -----------------------------------------------------------------------------------------------------------------------


GCLOUD = """#!{python}
import os, select, socket, sys
assert sys.argv[1:4] == ["compute", "start-iap-tunnel", "t1v-n-77-w-0"], sys.argv
print("WARNING: to increase the performance of the tunnel, consider installing NumPy.", file=sys.stderr, flush=True)
assert sys.argv[4:] == ["{port}", "--listen-on-stdin", "--project=p", "--zone=z", "--verbosity=warning"], sys.argv
far = socket.create_connection(("127.0.0.1", {port}))
while True:
    for ready in select.select([0, far], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else far.recv(65536)
        if not data:
            sys.exit(0)
        far.sendall(data) if ready == 0 else os.write(1, data)
"""


async def test_a_tunnel_through_iap_is_asked_for_by_the_instance_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program on the PATH stands for gcloud at the edge of this machine; behind it is a real sshd."""

    async def instance_name(where: WorkerRef) -> str:
        return f"t1v-n-{where.uid}-w-{where.worker_index}" if where.worker_index == 0 else ""

    async with sshd(tmp_path) as server:
        program = tmp_path / "bin" / "gcloud"
        program.parent.mkdir()
        program.write_text(GCLOUD.format(python=sys.executable, port=server.port))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        context = server.context(route="iap")
        pool = ConnectionPool(context, FixedKeys([server.host_key]), journal(server), instance_name=instance_name)
        assert await run_true(pool, worker(0)) == 0
        with pytest.raises(Unreachable, match="instance name"):
            await pool.connection(worker(1))
        await pool.close()


@pytest.mark.parametrize(
    ("says", "cure"),
    [
        ("ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4033: 'not authorized'].", "iap.tunnel"),
        (
            "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4003: 'failed to connect to backend'].",
            "35.235",
        ),
        ("ERROR: (gcloud.compute.start-iap-tunnel) Please run: $ gcloud auth login", "gcloud auth login"),
    ],
)
async def test_what_gcloud_says_against_a_tunnel_is_told_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, cure: str
) -> None:
    async def instance_name(where: WorkerRef) -> str:
        return "t1v-n-77-w-0"

    async with sshd(tmp_path) as server:
        program(
            tmp_path,
            "gcloud",
            f"#!/bin/sh\necho run >>\"{tmp_path}/runs\"\ncat >&2 <<'E'\n{says}\nE\nexit 1\n",
            monkeypatch,
        )
        keys = FixedKeys([server.host_key])
        pool = ConnectionPool(server.context(route="iap"), keys, journal(server), instance_name=instance_name)
        with pytest.raises(Unreachable, match="gcloud said: ERROR") as caught:
            await pool.connection(worker(0))
        assert cure in caught.value.cure
        tries = len((tmp_path / "runs").read_text().splitlines())
        assert tries == (6 if "4003" in says else 1), "what another try would not change is not tried again"
        await pool.close()


async def test_a_route_through_iap_without_gcloud_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def instance_name(where: WorkerRef) -> str:
        return "t1v-n-77-w-0"

    async with sshd(tmp_path) as server:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        keys = FixedKeys([server.host_key])
        pool = ConnectionPool(server.context(route="iap"), keys, journal(server), instance_name=instance_name)
        with pytest.raises(Unreachable, match="no gcloud program"):
            await pool.connection(worker(0))
        await pool.close()
