"""The way faults come in: an HTTP call to loopback with a token that only the simulator's folder has."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from backend.outcomes import ExitCode, OperatorError
from backend.sim import faults
from backend.sim.world import World

CONTROL_FILE = "control.json"
"""In the simulator's folder, readable by its owner alone. (A socket's path would have to fit 107 bytes.)"""
TOKEN_HEADER = "X-Simulator-Token"
PATH = "/simulator/faults"
CALL_LIMIT_S = 10.0


def add_routes(application: web.Application, world: World, token: str) -> None:
    """Lets faults be injected into `world` by whoever has the token."""

    async def inject(request: web.Request) -> web.Response:
        if not secrets.compare_digest(request.headers.get(TOKEN_HEADER, ""), token):
            return web.json_response({"what": "The token is wrong."}, status=403)
        body = await request.json()
        try:
            sentence = faults.apply(world, str(body.get("fault", "")), body.get("values", {}))
        except OperatorError as error:
            return web.json_response({"what": error.what, "cure": error.cure}, status=400)
        return web.json_response({"done": sentence})

    application.router.add_post(PATH, inject)


def is_served(directory: Path) -> bool:
    """Whether a simulator answers for this folder."""
    try:
        control = json.loads((directory / CONTROL_FILE).read_text("utf-8"))
        with socket.create_connection(("127.0.0.1", int(control["port"])), CALL_LIMIT_S):
            return True
    except (OSError, ValueError, KeyError):
        return False


def inject(directory: Path, fault: str, values: Mapping[str, Any]) -> str:
    """Asks the simulator of a folder for a fault and returns its sentence.

    Raises:
        OperatorError: No simulator serves there (exit code 3), or it refused (exit code 2).
    """
    file = directory / CONTROL_FILE
    try:
        control = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise OperatorError(
            f"No simulator serves in {directory}.",
            "Give the folder that `slicetower sim serve --dir` was started with.",
            exit_code=ExitCode.UNREACHABLE,
        ) from None
    connection = http.client.HTTPConnection("127.0.0.1", int(control["port"]), timeout=CALL_LIMIT_S)
    try:
        headers = {TOKEN_HEADER: str(control["token"]), "Content-Type": "application/json"}
        connection.request("POST", PATH, json.dumps({"fault": fault, "values": dict(values)}), headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise OperatorError(
            f"The simulator of {directory} does not answer: {error}.",
            "It may have ended; start it again.",
            exit_code=ExitCode.UNREACHABLE,
        ) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise OperatorError(str(body.get("what", "The simulator refused.")), str(body.get("cure", "")))
    return str(body["done"])
