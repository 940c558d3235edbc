"""The operator's keys against a real sshd: gcloud's file, a real agent; and the address that the route says."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from backend.context import Context, SSHSettings
from backend.ssh.connections import ConnectionPool
from backend.ssh.routes import route_to
from tests.backend.openssh import FixedKeys, Sshd, sshd, worker
from tests.backend.sim.worker_world import until
from tests.backend.test_connections import journal, run_true

pytestmark = pytest.mark.sshd


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "operator"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@asynccontextmanager
async def agent_with(key: Path, folder: Path) -> AsyncIterator[str]:
    """A real ssh-agent that holds one key; its socket."""
    address = folder / "agent"
    process = await asyncio.create_subprocess_exec("ssh-agent", "-D", "-a", str(address), stdout=subprocess.DEVNULL)
    try:
        await until(address.exists, "the agent")
        with closing(await asyncssh.connect_agent(str(address))) as agent:
            await agent.add_keys([asyncssh.read_private_key(key)])
        yield str(address)
    finally:
        process.terminate()
        await process.wait()


def without_key(server: Sshd) -> ConnectionPool:
    """Of a context that names no key."""
    context = server.context()
    context = replace(context, ssh=replace(context.ssh, key=None))
    return ConnectionPool(context, FixedKeys([server.host_key]), journal(server))


async def test_gclouds_key_is_taken_where_the_context_names_none(tmp_path: Path, home: Path) -> None:
    async with sshd(tmp_path) as server:
        shutil.copy(server.key, home / ".ssh" / "google_compute_engine")
        pool = without_key(server)
        assert await run_true(pool, worker(0)) == 0
        assert (await pool.identity()).origin == str(home / ".ssh" / "google_compute_engine")
        await pool.close()


async def test_an_agents_key_logs_in_on_many_workers_at_once(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sshd(tmp_path) as server, agent_with(server.key, tmp_path) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        pool = without_key(server)
        assert await asyncio.gather(*(run_true(pool, worker(index)) for index in range(40))) == [0] * 40
        assert not (home / ".ssh" / "google_compute_engine").exists()
        await pool.close()


@pytest.mark.parametrize(("route", "host"), [("external", "127.0.3.1"), ("internal", "127.0.2.1")])
async def test_a_worker_is_reached_at_the_address_that_the_route_says(route: str, host: str) -> None:
    context = Context("t", "p", ("z",), ssh=SSHSettings(route=route))
    both = replace(worker(0), internal_ip="127.0.2.1", external_ip="127.0.3.1")
    assert (await route_to(both, context)).host == host
