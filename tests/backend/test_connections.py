"""Connections against a real sshd: host keys, limits, retries, refusals."""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from backend.context import Context, SSHSettings
from backend.journal import Journal
from backend.outcomes import ExitCode, OperatorError
from backend.ssh import scripts
from backend.ssh.connections import ConnectionPool, Reason, Unreachable, require_files
from backend.ssh.remote import Remote, new_nonce
from backend.ssh.routes import Hop, Route, Turns
from backend.targets import WorkerRef
from tests.backend.openssh import FixedKeys, Sshd, free_port, make_key, sshd, worker

pytestmark = pytest.mark.sshd


def journal(server: Sshd, name: str = "journal.db") -> Journal:
    return Journal.open(server.directory / name)


def alarms(book: Journal) -> list[str]:
    return [event.text for event in book.events() if event.kind == "alarm"]


async def run_true(pool: ConnectionPool, where: WorkerRef) -> int | None:
    nonce = new_nonce()
    remote = Remote(where, scripts.run(["true"], shell=False, environment={}, nonce=nonce), nonce)
    await remote.start(pool)
    return (await remote.ended).code


# -- host keys -----------------------------------------------------------------------------------------------------------


async def test_the_key_that_the_api_serves_is_pinned_and_not_asked_for_again(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        book, keys = journal(server), FixedKeys([server.host_key])
        for _ in range(2):
            pool = ConnectionPool(server.context(), keys, book)
            await pool.connection(worker(0))
            await pool.close()
        assert keys.asked == 1
        assert not alarms(book)


async def test_a_key_that_the_api_does_not_serve_is_refused_after_asking_again(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        book, keys = journal(server), FixedKeys([make_key(tmp_path / "other")])
        pool = ConnectionPool(server.context(), keys, book)
        with pytest.raises(Unreachable) as caught:
            await pool.connection(worker(0))
        assert caught.value.reason is Reason.HOST_KEY
        assert caught.value.exit_code is ExitCode.UNREACHABLE
        assert keys.asked_fresh == 1
        assert not book.connection.execute("SELECT * FROM hostkeys").fetchall()
        await pool.close()


async def test_a_reimaged_worker_is_accepted_once_the_api_serves_its_new_key_and_journalled(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        book, keys = journal(server), FixedKeys([make_key(tmp_path / "old")])
        pool = ConnectionPool(server.context(), keys, book)
        with pytest.raises(Unreachable):
            await pool.connection(worker(0))
        pool.host_keys.accept(
            worker(0), await pool.host_keys.trust(worker(0)), asyncssh.read_public_key(tmp_path / "old")
        )
        keys.keys = [server.host_key]
        await pool.connection(worker(0))
        assert len(alarms(book)) == 1
        assert "changed" in alarms(book)[0]
        await pool.close()


async def test_trust_on_first_use_only_without_a_key_from_the_api_and_it_is_said(tmp_path: Path) -> None:
    async with sshd(tmp_path / "a") as server:
        book, keys = journal(server), FixedKeys([])
        pool = ConnectionPool(server.context(), keys, book)
        await pool.connection(worker(0))
        assert "first use" in alarms(book)[0]
        await pool.close()
        async with sshd(tmp_path / "b") as impostor:
            context = Context("t", "p", ("z",), ssh=SSHSettings(port=impostor.port, user="root", key=impostor.key))
            pool = ConnectionPool(context, keys, book)
            with pytest.raises(Unreachable) as caught:
                await pool.connection(worker(0))
            assert caught.value.reason is Reason.HOST_KEY
            await pool.close()


async def test_a_node_of_the_same_name_with_another_uid_has_no_pin(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        keys = FixedKeys([server.host_key])
        pool = ConnectionPool(server.context(), keys, journal(server))
        await pool.connection(worker(0, uid="1"))
        await pool.connection(worker(0, uid="2"))
        assert keys.asked == 2
        await pool.close()


async def test_an_api_that_fails_is_not_an_api_without_keys(tmp_path: Path) -> None:
    class Failing:
        async def host_keys(self, worker: WorkerRef, *, fresh: bool = False) -> Sequence[str]:
            raise OperatorError("The API does not answer.", exit_code=ExitCode.CLOUD)

    async with sshd(tmp_path) as server:
        pool = ConnectionPool(server.context(), Failing(), journal(server))
        with pytest.raises(Unreachable, match="does not answer"):
            await pool.connection(worker(0))
        await pool.close()


async def test_the_worker_is_asked_for_a_key_of_a_kind_that_is_known(tmp_path: Path) -> None:
    rsa = asyncssh.generate_private_key("ssh-rsa")
    (tmp_path / "rsa").write_bytes(rsa.export_private_key("openssh"))
    (tmp_path / "rsa").chmod(0o600)
    async with sshd(tmp_path, f"HostKey {tmp_path / 'rsa'}") as server:
        keys = FixedKeys([rsa.export_public_key("openssh").decode()])
        pool = ConnectionPool(server.context(), keys, journal(server))
        connection = await pool.connection(worker(0))
        key = connection.get_server_host_key()
        assert key is not None
        assert key.algorithm == b"ssh-rsa"
        await pool.close()


# -- limits ----------------------------------------------------------------------------------------------------------------


async def test_a_server_that_drops_most_of_a_crowd_is_got_through_by_retries(tmp_path: Path) -> None:
    async with sshd(tmp_path, "MaxStartups 10:30:100") as server:
        pool = server.pool()
        codes = await asyncio.gather(*(run_true(pool, worker(index)) for index in range(60)))
        assert codes == [0] * 60
        await pool.close()


async def test_more_sessions_than_the_server_allows_on_a_connection_go_over_others(tmp_path: Path) -> None:
    async with sshd(tmp_path, "MaxSessions 2") as server:
        pool = server.pool()
        assert await asyncio.gather(*(run_true(pool, worker(0)) for _ in range(12))) == [0] * 12
        assert pool.connected == 1
        await pool.close()


async def test_connections_are_kept_and_shared(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        pool = server.pool()
        first, second = await asyncio.gather(pool.connection(worker(0)), pool.connection(worker(0)))
        assert first is second
        assert await pool.connection(worker(0)) is first
        first.abort()
        await first.wait_closed()
        assert await pool.connection(worker(0)) is not first
        await pool.close()


@pytest.fixture
def in_flight(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many handshakes were in flight at the beginning of each."""
    real = asyncssh.connect
    now, seen = 0, list[int]()

    async def counted(*arguments: Any, **options: Any) -> asyncssh.SSHClientConnection:
        nonlocal now
        now += 1
        seen.append(now)
        try:
            return await real(*arguments, **options)
        finally:
            now -= 1

    monkeypatch.setattr(asyncssh, "connect", counted)
    return seen


async def test_no_more_handshakes_are_in_flight_than_the_limit(tmp_path: Path, in_flight: list[int]) -> None:
    async with sshd(tmp_path) as server:
        context = server.context(connect_limit=3)
        pool = ConnectionPool(context, FixedKeys([server.host_key]), journal(server))
        await asyncio.gather(*(pool.connection(worker(index)) for index in range(20)))
        assert max(in_flight) == 3
        assert pool.connected == 20
        await pool.close()


async def test_a_default_sshd_that_workers_share_is_asked_by_eight_at_a_time(
    tmp_path: Path, in_flight: list[int]
) -> None:
    async with sshd(tmp_path, "MaxStartups 10:30:100") as server:
        pool = server.pool()
        shared = [replace(worker(index), external_ip="127.0.1.1") for index in range(30)]
        await asyncio.gather(*(pool.connection(each) for each in shared))
        assert max(in_flight) == 8
        assert pool.connected == 30
        await pool.close()


@pytest.mark.parametrize(
    ("routes", "most"),
    [
        ([Route(f"10.0.{index // 200}.{index % 200}", 22, "u") for index in range(400)], 256),
        ([Route(f"10.0.0.{index}", 22, "u", Hop("bastion")) for index in range(200)], 64),
        ([Route(f"w{index}", 22, "u", proxy_command=("gcloud", "compute")) for index in range(200)], 64),
        ([Route("10.0.0.1", 22, "u") for _ in range(40)], 8),
        ([Route("10.0.0.1", 22 + index % 2, "u") for index in range(40)], 16),
        ([Route(f"10.0.0.{index}", 22, "u", Hop(f"bastion-{index % 2}")) for index in range(200)], 128),
    ],
    ids=["workers", "one bastion", "tunnels", "one sshd", "two ports", "two bastions"],
)
async def test_turns_are_as_many_as_the_door_lets_through(routes: list[Route], most: int) -> None:
    turns = Turns(SSHSettings().connect_limit)
    inside, seen = 0, list[int]()

    async def pass_through(route: Route) -> None:
        nonlocal inside
        async with turns.turn(route):
            inside += 1
            seen.append(inside)
            for _ in range(20):
                await asyncio.sleep(0)
            inside -= 1

    waiting = [asyncio.create_task(pass_through(route)) for route in routes]
    await asyncio.sleep(0)
    waiting[-1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert max(seen) == most
    assert len(seen) >= len(routes) - 1
    assert not turns._shared, "nobody stands at a door any more"


async def test_the_time_out_of_a_handshake_begins_with_its_turn(tmp_path: Path) -> None:
    """The first worker holds the only turn until its own time-out; those behind it must not time out with it."""
    async with sshd(tmp_path) as server, _SilentServer() as silent:
        context = Context(
            "t", "p", ("z",), ssh=SSHSettings(port=server.port, user="root", key=server.key, connect_limit=1)
        )
        pool = ConnectionPool(context, FixedKeys([server.host_key]), journal(server), handshake_timeout_s=1.0)
        other = ConnectionPool(
            Context("t", "p", ("z",), ssh=SSHSettings(port=silent, user="root", key=server.key)),
            FixedKeys([server.host_key]),
            journal(server, "other.db"),
            handshake_timeout_s=1.0,
        )
        pool._turns = other._turns = Turns(1)
        dead = asyncio.create_task(other.connection(worker(9)))
        await asyncio.sleep(0)
        await asyncio.gather(*(pool.connection(worker(index)) for index in range(5)))
        with pytest.raises(Unreachable) as caught:
            await dead
        assert caught.value.reason is Reason.TIMEOUT
        await pool.close()
        await other.close()


class _SilentServer:
    """Accepts connections and never says a word."""

    async def __aenter__(self) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        self.server = await asyncio.start_server(serve, "0.0.0.0", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


def test_too_few_open_files_are_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"soft": 256, "hard": 1024}
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limits["soft"], limits["hard"]))

    def raised(_kind: int, pair: tuple[int, int]) -> None:
        limits["soft"] = pair[0]

    monkeypatch.setattr(resource, "setrlimit", raised)
    require_files(100)
    assert limits["soft"] >= 428, "raised as far as it was needed"
    with pytest.raises(OperatorError) as caught:
        require_files(10_000)
    for number in ("10000", "30128", "1024"):
        assert number in str(caught.value)


# -- refusals ----------------------------------------------------------------------------------------------------------------


async def test_a_refused_port_is_unreachable_with_the_reason(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        context = Context("t", "p", ("z",), ssh=SSHSettings(port=free_port(), user="root", key=server.key))
        pool = ConnectionPool(context, FixedKeys([server.host_key]), journal(server))
        with pytest.raises(Unreachable) as caught:
            await pool.connection(worker(0))
        assert caught.value.reason is Reason.NETWORK
        assert "refused" in caught.value.what
        await pool.close()


async def test_a_refused_key_is_not_tried_again(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        (tmp_path / "authorized_keys").write_text("")
        pool = server.pool()
        with pytest.raises(Unreachable) as caught:
            await pool.connection(worker(0))
        assert caught.value.reason is Reason.PERMISSION
        log = (tmp_path / "sshd.log").read_text()
        assert log.count("Connection closed by authenticating user") + log.count("Connection reset by auth") <= 1
        await pool.close()


async def test_a_refused_key_soon_after_ready_is_waited_for_and_shown(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        authorized = (tmp_path / "authorized_keys").read_text()
        (tmp_path / "authorized_keys").write_text("")
        pool = server.pool(ready_since=lambda _worker: time.time() - 20, boot_retry_s=0.05)
        notes: list[str] = []

        def note(text: str) -> None:
            notes.append(text)
            if "publickey refused" in text:
                (tmp_path / "authorized_keys").write_text(authorized)

        await pool.connection(worker(0), note)
        told = next(text for text in notes if "after READY" in text)
        assert re.fullmatch(r"booting: publickey refused \d+ s after READY, asking again for 1\d\d s", told), told
        await pool.close()


async def test_a_refused_key_three_minutes_after_ready_is_a_failure(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        (tmp_path / "authorized_keys").write_text("")
        pool = server.pool(ready_since=lambda _worker: time.time() - 181, boot_retry_s=0.05)
        notes: list[str] = []
        with pytest.raises(Unreachable):
            await asyncio.wait_for(pool.connection(worker(0), notes.append), 30)
        assert not any("after READY" in text for text in notes)
        await pool.close()


async def test_a_passphrase_is_asked_for_once(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        key = asyncssh.read_private_key(server.key)
        server.key.write_bytes(key.export_private_key("openssh", "open sesame", rounds=4))
        asked: list[Path] = []

        async def ask(path: Path) -> str:
            asked.append(path)
            return "open sesame"

        pool = server.pool(ask_passphrase=ask)
        await asyncio.gather(*(pool.connection(worker(index)) for index in range(5)))
        assert asked == [server.key]
        await pool.close()


async def test_a_locked_key_with_nobody_to_ask_names_the_cure(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        key = asyncssh.read_private_key(server.key)
        server.key.write_bytes(key.export_private_key("openssh", "open sesame", rounds=4))
        pool = server.pool()
        with pytest.raises(OperatorError, match="ssh-add"):
            await pool.connection(worker(0))
        await pool.close()


async def test_no_key_at_all_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    context = Context("t", "p", ("z",), ssh=SSHSettings(port=22, user="root"))
    pool = ConnectionPool(context, FixedKeys([]), Journal.open(tmp_path / "j.db"))
    with pytest.raises(OperatorError, match="ssh-keygen"):
        await pool.connection(worker(0))
    await pool.close()
