"""Every RPC that the library can call is answered by the simulator, in both versions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from backend.sim import grpc_server, wire
from backend.sim.scenario import load
from backend.sim.served import Simulator, running
from backend.sim.trouble import METHODS
from tests.backend.sim.sim_world import LIMIT_S, SPEED


@pytest.fixture
async def simulator(tmp_path: Path) -> AsyncIterator[Simulator]:
    async with running(tmp_path / "sim", load("empty"), speed=SPEED) as started:
        yield started


def rpcs_of_library(version: str) -> list[str]:
    text = (resources.files(f"google.cloud.tpu_{version}") / "gapic_metadata.json").read_text("utf-8")
    return sorted(json.loads(text)["services"]["Tpu"]["clients"]["grpc"]["rpcs"])


@pytest.mark.parametrize(("version", "count"), [("v2alpha1", 22), ("v2", 18)])
async def test_no_rpc_of_the_library_is_unimplemented(simulator: Simulator, version: str, count: int) -> None:
    names = rpcs_of_library(version)
    assert len(names) == count
    services = {f"google.cloud.tpu.{version}.Tpu": names}
    services |= {service: sorted(methods) for service, methods in grpc_server.MIXINS.items()}
    async with grpc.aio.insecure_channel(simulator.grpc) as channel:
        for service, methods in services.items():
            for method in methods:
                request = wire.message_class(version, f"{method}Request")()
                call: Any = channel.unary_unary(f"/{service}/{method}", request.__class__.SerializeToString, bytes)
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call(request, timeout=LIMIT_S)
                assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT, (method, raised.value.details())


def test_faults_know_every_rpc() -> None:
    mixed = [method for methods in grpc_server.MIXINS.values() for method in methods]
    assert set(METHODS) == {*rpcs_of_library("v2alpha1"), *mixed, "GetMaintenanceInfo"}
