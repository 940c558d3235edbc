"""Who brings a worker's greeting: a connection of its own, the jump host, or a program, as the context's route says."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from backend.context import Context
from backend.outcomes import OperatorError
from backend.ssh.greetings import Closed, Greeting, by_program, directly
from backend.ssh.routes import Route, Turns, route_to
from backend.targets import WorkerRef

if TYPE_CHECKING:
    from backend.ssh.connections import ConnectionPool

ONE_SSHD = 2
"""At once to one sshd that workers share: connections that are wanted come before ours (MaxStartups)."""


class Listener:
    """Hears the greeting of one worker at a time, over the context's route.

    Args:
        context: Its `ssh.route` decides.
        pool: Brings the connections to jump hosts and the names of instances; asked for only where a route needs them.
        at_once: Servers that are listened to at the same time.
    """

    def __init__(self, context: Context, pool: Callable[[], Awaitable[ConnectionPool]], *, at_once: int = 32) -> None:
        self._context = context
        self._pool = pool
        self._turns = Turns(at_once, sshd_limit=ONE_SSHD)
        self._routes: dict[tuple[str, str, int, str, str], Route] = {}
        """Those that a program had to be asked for."""

    async def listen(self, worker: WorkerRef) -> str:
        """Why a worker does not greet, in a few words; empty when it does.

        Raises:
            Closed: Nobody can be asked now.
        """
        missing = self._missing_address(worker)
        if missing:
            return missing
        try:
            route = await self._route(worker)
        except OperatorError as error:
            return error.what.rstrip(".")
        async with self._turns.turn(route):
            greeting = Greeting()
            if route.hop is not None:
                # Not at the top: direct routes need no ssh library.
                from backend.ssh.tunnels import through_hop

                return await through_hop((await self._pool()).dialler, worker, route, greeting)
            if route.proxy_command:
                return await by_program(route.proxy_command, greeting)
            return await directly(route.host, route.port, greeting)

    def _missing_address(self, worker: WorkerRef) -> str:
        kind = {"external": "external", "internal": "internal", "jump": "internal"}.get(self._context.ssh.route, "")
        address = worker.external_ip if kind == "external" else worker.internal_ip
        return f"no {kind} address" if kind and not address else ""

    async def _route(self, worker: WorkerRef) -> Route:
        kind = self._context.ssh.route
        place = (worker.node_id, worker.uid, worker.worker_index, worker.internal_ip, worker.external_ip)
        found = self._routes.get(place)
        if found is not None:
            return found
        instance_name = None
        if kind == "iap":
            if shutil.which("gcloud") is None:
                raise Closed("no gcloud program here, which makes tunnels through IAP")
            instance_name = (await self._pool()).instance_name
        route = await route_to(worker, self._context, instance_name)
        if kind in ("config", "iap"):
            self._routes[place] = route
        return route
