"""How a worker is reached: directly, through a jump host, through IAP, or as the operator's OpenSSH configuration says."""

from __future__ import annotations

import asyncio
import getpass
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from backend import inventory
from backend.context import Context
from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.ssh.proxies import expanded
from backend.targets import WorkerRef

SHARED_DOOR_LIMIT = 64
"""Handshakes in flight through one jump host, IAP or a proxy command (design: two limits, not one)."""
SHARED_SSHD_LIMIT = 8
"""Handshakes in flight to one sshd: by default it drops at random from the tenth on (MaxStartups 10:30:100)."""

OPENSSH_CONFIG_TIMEOUT_S = 10.0


def login_name(user: str) -> str:
    """The user on the workers: the context's, else the operator's own name, as gcloud does."""
    return user or getpass.getuser()


@dataclass(frozen=True, slots=True)
class Hop:
    """A jump host."""

    host: str
    port: int = 22
    user: str = ""
    key: Path | None = None
    """A key file that the operator's OpenSSH configuration names for it."""
    via: Hop | None = None
    """The one before it."""

    @property
    def text(self) -> str:
        return f"{self.user + '@' if self.user else ''}{self.host}:{self.port}"

    @property
    def chain(self) -> str:
        """As `ssh -J` takes it, with those before it."""
        return f"{self.via.chain},{self.text}" if self.via is not None else self.text


@dataclass(frozen=True, slots=True)
class Route:
    """Where to connect for one worker."""

    host: str
    port: int
    user: str
    hop: Hop | None = None
    proxy_command: tuple[str, ...] = ()
    key: Path | None = None
    """A key file that the operator's OpenSSH configuration names for this host."""


def parse_hop(text: str) -> Hop:
    """`[user@]host[:port]`, IPv6 in brackets.

    Raises:
        OperatorError: Not of that form.
    """
    user, _, rest = text.rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if not host or (port and not port.isdigit()) or not 0 < int(port or 22) < 65536:
        raise OperatorError(
            f"'{plain(text)}' is no jump host.", 'Write jump = "user@host:port" in the [ssh] of the context.'
        )
    return Hop(host, int(port or 22), user)


class Turns:
    """Who may shake hands now: so many at once, fewer where they pass one door, fewest at one sshd."""

    def __init__(self, limit: int, *, sshd_limit: int = SHARED_SSHD_LIMIT) -> None:
        self._all = asyncio.Semaphore(limit)
        self._sshd_limit = sshd_limit
        self._shared: dict[tuple[str, ...], tuple[asyncio.Semaphore, int]] = {}
        """Of doors that somebody stands at, with how many do."""

    @asynccontextmanager
    async def turn(self, route: Route) -> AsyncIterator[None]:
        """Waits for its turn; the narrowest comes first, so that who waits there keeps nobody else waiting."""
        async with self._at(self._sshd_limit, route.host, str(route.port)), self._through(route), self._all:
            yield

    def _through(self, route: Route) -> AbstractAsyncContextManager[None]:
        if route.hop is not None:
            return self._at(SHARED_DOOR_LIMIT, "hop", route.hop.chain, "")
        return self._at(SHARED_DOOR_LIMIT, "proxy") if route.proxy_command else nullcontext()

    @asynccontextmanager
    async def _at(self, limit: int, *door: str) -> AsyncIterator[None]:
        semaphore, present = self._shared.get(door, (asyncio.Semaphore(limit), 0))
        self._shared[door] = semaphore, present + 1
        try:
            async with semaphore:
                yield
        finally:
            semaphore, present = self._shared.pop(door)
            if present > 1:
                self._shared[door] = semaphore, present - 1


async def route_to(
    worker: WorkerRef, context: Context, instance_name: Callable[[WorkerRef], Awaitable[str]] | None = None
) -> Route:
    """The route of one worker.

    Args:
        worker: Whom to reach.
        context: Its `ssh.route` decides.
        instance_name: The Compute Engine name of a worker, asked for a tunnel through IAP alone.

    Raises:
        OperatorError: The worker has no address of that kind, or its instance name is not known.
    """
    settings = context.ssh
    user = login_name(settings.user)
    if worker.zone == inventory.ZONE:
        return await _to_listed(worker, context)
    if settings.route == "iap":
        name = await instance_name(worker) if instance_name is not None else ""
        if not name:
            raise OperatorError(
                f"{worker.address} has no instance name in its guest attributes, which a tunnel through IAP needs.",
                "Check that guest attributes are allowed (compute.disableGuestAttributesAccess), or use another route.",
            )
        if shutil.which("gcloud") is None:
            raise OperatorError(
                "The route is iap, and there is no gcloud program here, which makes its tunnels.",
                "Install the Google Cloud CLI, or set route in the [ssh] of the context to jump, internal or external.",
            )
        command = ("gcloud", "compute", "start-iap-tunnel", name, str(settings.port), "--listen-on-stdin")
        place = (f"--project={worker.project}", f"--zone={worker.zone}", "--verbosity=warning")
        return Route(name, settings.port, user, proxy_command=command + place)
    if settings.route == "external":
        address = _required(worker, worker.external_ip, "external", "internal, jump or iap")
        return Route(address, settings.port, user)
    if settings.route == "config":
        return await _from_openssh(worker, context)
    address = _required(worker, worker.internal_ip, "internal", "external or iap")
    hop = parse_hop(settings.jump) if settings.route == "jump" else None
    return Route(address, settings.port, user, hop)


async def _to_listed(worker: WorkerRef, context: Context) -> Route:
    """A machine of the inventory: user, port and key of its entry, else of the context."""
    settings = context.ssh
    listed = context.inventory.find(worker)
    if listed is None:
        raise OperatorError(f"{worker.address} is not in the inventory any more.", "Look at the context's inventory.")
    if settings.route == "iap":
        raise OperatorError(
            f"{worker.address} is listed by address, and IAP wants the name of a VM.",
            "Keep the inventory in a context with the route external, jump or config.",
        )
    if settings.route == "config":
        found = await _from_openssh(worker, context)
        return replace(found, key=listed.key or found.key)
    hop = parse_hop(settings.jump) if settings.route == "jump" else None
    user = login_name(listed.user or settings.user)
    return Route(listed.host, listed.port or settings.port, user, hop, key=listed.key)


def _required(worker: WorkerRef, address: str, kind: str, others: str) -> str:
    if not address:
        raise OperatorError(
            f"{worker.address} has no {kind} IP address (yet).", f"Set route in the [ssh] of the context to {others}."
        )
    return address


async def _from_openssh(worker: WorkerRef, context: Context) -> Route:
    """Asks OpenSSH itself (`ssh -G`) what its configuration says about this address: no second parser that differs."""
    address = worker.external_ip or _required(worker, worker.internal_ip, "external or internal", "iap")
    port = context.ssh.port if context.ssh.port != 22 else 0
    values = await _openssh_says(address, context.ssh.user, port)
    host, user = values.get("hostname", [address])[0], values.get("user", [login_name(context.ssh.user)])[0]
    port = int(values.get("port", ["22"])[0])
    jump, proxy = (values.get(name, ["none"])[0] for name in ("proxyjump", "proxycommand"))
    command: tuple[str, ...] = ()
    if proxy not in ("", "none"):
        command = ("/bin/sh", "-c", f"exec {expanded(proxy, host=host, name=address, port=port, user=user)}")
    return Route(
        host=host,
        port=port,
        user=user,
        hop=await _openssh_hops(jump) if jump not in ("", "none") else None,
        proxy_command=command,
        key=_first_existing(values.get("identityfile", [])),
    )


async def _openssh_hops(text: str) -> Hop | None:
    """`[user@]name[:port],...`, each a name that the configuration may know; each is reached through the one before it."""
    hop: Hop | None = None
    for piece in text.split(","):
        written = parse_hop(piece)
        values = await _openssh_says(written.host, written.user, written.port if _has_port(piece) else 0)
        hop = Hop(
            host=values.get("hostname", [written.host])[0],
            port=int(values.get("port", ["22"])[0]),
            user=values.get("user", [written.user])[0],
            key=_first_existing(values.get("identityfile", [])),
            via=hop,
        )
    return hop


def _has_port(hop: str) -> bool:
    return hop.rpartition("]")[2].rpartition("@")[2].count(":") == 1


async def _openssh_says(name: str, user: str, port: int) -> dict[str, list[str]]:
    """The configuration for one host; an empty user and port 0 leave both to it.

    Raises:
        OperatorError: There is no ssh program, or its configuration is wrong.
    """
    command = ["ssh", "-G", *(["-p", str(port)] if port else []), *(["-l", user] if user else [])]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--", name, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise OperatorError("The route is config, but there is no ssh program here.", "Use another route.") from error
    try:
        async with asyncio.timeout(OPENSSH_CONFIG_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise OperatorError(f"`ssh -G {plain(name)}` did not answer.", "Look at ~/.ssh/config.") from error
    if process.returncode != 0:
        said = " ".join(err.decode("utf-8", "replace").split())
        raise OperatorError(f"OpenSSH refuses its configuration for {plain(name)}.", "Mend it.", raw=plain(said))
    values: dict[str, list[str]] = {}
    for line in out.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)
    return values


def _first_existing(names: list[str]) -> Path | None:
    paths = (Path(name).expanduser() for name in names)
    return next((path for path in paths if path.exists()), None)
