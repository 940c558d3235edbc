"""Shipped programs over a real sshd: one answer a worker, whatever else is printed, and the truth where there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.outcomes import OperatorError, Outcome
from backend.tools.forward import Ports, forward
from backend.tools.ship import read_answer, run_everywhere
from tests.backend.openssh import sshd, worker
from tests.backend.tools.world import HOLD

pytestmark = pytest.mark.sshd
BOUND_S = 90.0


async def test_a_probe_answers_through_a_noisy_login_shell(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        (server.home / ".bashrc").write_text('echo "{\\"free\\": 1}"; echo noise >&2\n')
        pool = server.pool()
        try:
            answers = await run_everywhere(
                pool, [worker(0), worker(1)], ("outside", "check"), ["--root", str(tmp_path / "none")]
            )
        finally:
            await pool.close()
    assert [answer.outcome for answer in answers] == [Outcome.OK, Outcome.OK]
    for answer in answers:
        assert answer.facts is not None
        assert answer.facts["devices"]["count"] == 0
        assert answer.sent_at <= answer.facts["clock"]["time"] <= answer.received_at
    assert list((server.home / ".slicetower").rglob("*")) == []


async def test_what_holds_a_chip_is_ended_over_ssh_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "dev").mkdir(parents=True)
    (root / "tmp").mkdir()
    node = root / "dev" / "accel0"
    node.write_bytes(bytes(4096))
    other = root / "other"
    other.write_bytes(b"")
    children = []
    for path in (node, other):
        child = await asyncio.create_subprocess_exec(
            "python3", "-S", "-c", HOLD, str(path), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        assert await child.stdout.readline() == b"held\n"
        children.append(child)
    holder, bystander = children
    try:
        async with sshd(tmp_path) as server:
            pool = server.pool()
            try:
                (answer,) = await run_everywhere(
                    pool, [worker(0)], ("outside", "check", "free"), ["--root", str(root)]
                )
            finally:
                await pool.close()
        assert answer.facts is not None
        assert (answer.facts["free"], answer.facts["terminated"]) == (True, [holder.pid])
        await asyncio.wait_for(holder.wait(), BOUND_S)
        assert bystander.returncode is None
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
            await child.wait()


async def test_no_answer_is_told_with_its_reason(tmp_path: Path) -> None:
    async with sshd(tmp_path) as server:
        hangs = tmp_path / "hangs"
        hangs.write_text("#!/bin/sh\nwhile kill -0 $PPID 2>/dev/null; do sleep 0.1; done\n")
        hangs.chmod(0o755)
        pool = server.pool()
        try:
            (missing,) = await run_everywhere(pool, [worker(0)], ("check",), [], python="/no/such/python")
            (silent,) = await run_everywhere(pool, [worker(0)], ("check",), [], python=str(hangs), timeout_s=1.0)
        finally:
            await pool.close()
    assert (missing.outcome, missing.facts) == (Outcome.FAILED, None)
    assert "/no/such/python" in missing.error
    assert silent.outcome in (Outcome.UNKNOWN, Outcome.UNREACHABLE)
    assert "no answer within 1 s" in silent.error


async def test_a_forward_reaches_the_workers_own_port_and_frees_ours(tmp_path: Path) -> None:
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()
        served.set()

    server_there = await asyncio.start_server(serve, "127.0.0.1", 0)
    remote = server_there.sockets[0].getsockname()[1]
    async with server_there, sshd(tmp_path) as server:
        pool = server.pool()
        try:
            async with forward(pool, worker(0), Ports(remote, 0)) as opened:
                reader, writer = await asyncio.open_connection("127.0.0.1", opened.local_port)
                writer.write(b"hello\n")
                assert await asyncio.wait_for(reader.readline(), BOUND_S) == b"HELLO\n"
                writer.close()
                await asyncio.wait_for(served.wait(), BOUND_S)
                port = opened.local_port
                with pytest.raises(OperatorError, match=f"Port {port}"):
                    async with forward(pool, worker(0), Ports(remote, port)):
                        pass
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        finally:
            await pool.close()


def test_only_what_stands_behind_the_nonce_is_an_answer() -> None:
    assert read_answer(b'{"a": 1}\nnonce{"b": 2}\nlast words', "nonce") == {"b": 2}
    assert read_answer(b'{"a": 1}\n', "nonce") is None
    assert read_answer(b"nonce{broken\n", "nonce") is None
    assert read_answer(b"nonce[1]\n", "nonce") is None
