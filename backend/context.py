"""Which fleet, and how it is reached: the operator's configuration, or gcloud's own.

Nothing secret is kept here: credentials stay where google-auth finds them, keys where the operator put them.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backend.outcomes import OperatorError
from backend.paths import paths
from backend.settings import Table, read_toml

if TYPE_CHECKING:
    from backend.inventory import Inventory

DEFAULT_ENDPOINT = "tpu.googleapis.com"
DEFAULT_REST_ENDPOINT = "https://tpu.googleapis.com"
GOOGLE_COMPUTE = "https://compute.googleapis.com"
GOOGLE_OSLOGIN = "https://oslogin.googleapis.com"
CONNECT_LIMIT = 256
"""SSH handshakes in flight (design: two limits, not one)."""

ROUTES = ("external", "internal", "iap", "jump", "config")
LIMIT_KINDS = ("spot", "on-demand", "reserved")
"""The three quotas of a generation; flex-start and best-effort count as spot."""
_CONTEXT_KEYS = (
    "name",
    "label",
    "project",
    "zones",
    "also",
    "endpoint",
    "rest_endpoint",
    "compute_endpoint",
    "oslogin_endpoint",
    "transport",
    "credentials",
    "read_only",
    "ssh",
    "limits",
    "prices",
    "inventory",
)
_SSH_KEYS = ("port", "user", "key", "route", "jump", "connect_limit", "roll_call")


@dataclass(frozen=True, slots=True)
class SSHSettings:
    """How workers are reached."""

    port: int = 22
    user: str = ""
    """Empty: the operator's own name, as gcloud does."""
    key: Path | None = None
    """Private key file; None: `~/.ssh/google_compute_engine`, then the agent."""
    route: str = "external"
    """external, internal, iap, jump, or config (the operator's OpenSSH configuration)."""
    jump: str = ""
    """user@host:port of the jump host."""
    connect_limit: int = CONNECT_LIMIT
    roll_call: bool = True
    """The console asks by itself whether ssh answers on what the cloud calls ready."""


@dataclass(frozen=True, slots=True)
class Context:
    """One fleet: a project, its zones, the service that holds them."""

    name: str
    project: str
    zones: tuple[str, ...]
    label: str = ""
    """Shown in the header and on figures; it changes nothing else."""
    also: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """More projects with their zones, watched beside the first."""
    endpoint: str = DEFAULT_ENDPOINT
    """gRPC host[:port]."""
    rest_endpoint: str = DEFAULT_REST_ENDPOINT
    transport: str = "tls"
    """tls, or insecure (to loopback alone)."""
    credentials: str = "adc"
    """adc (application-default credentials), or none."""
    read_only: bool = False
    ssh: SSHSettings = field(default_factory=SSHSettings)
    prices: tuple[tuple[str, float], ...] = ()
    """USD per chip-hour by generation ("v5e"), as the operator gave them."""
    limits: tuple[tuple[str, str, float], ...] = ()
    """(generation, spot | reserved | on-demand, chips a zone), as the operator knows the project's quotas."""
    listed: Inventory | None = None
    """What is in the inventory, if there is one."""
    source: str = ""
    """Where it was read: a file, or gcloud's configuration."""
    compute_endpoint: str = ""
    """Compute Engine's, for a project's metadata; empty: Google's where Cloud TPU's is Google's, else none."""
    oslogin_endpoint: str = ""
    """OS Login's, the same way."""

    @property
    def inventory(self) -> Inventory:
        """Machines that the service does not serve; with them a context may have no project and no zones."""
        from backend.inventory import Inventory

        return self.listed if self.listed is not None else Inventory()

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Every (project, zone) to watch, without duplicates, in order."""
        pairs = [(self.project, zone) for zone in self.zones]
        pairs += [(project, zone) for project, zones in self.also for zone in zones]
        return tuple(dict.fromkeys(pairs))

    @property
    def compute_url(self) -> str:
        """Empty: nobody serves it."""
        return self.compute_endpoint or (GOOGLE_COMPUTE if self.rest_endpoint == DEFAULT_REST_ENDPOINT else "")

    @property
    def oslogin_url(self) -> str:
        """Empty: nobody serves it."""
        return self.oslogin_endpoint or (GOOGLE_OSLOGIN if self.rest_endpoint == DEFAULT_REST_ENDPOINT else "")

    def price(self, generation: str) -> float | None:
        """USD per chip-hour, or None where the operator gave no price."""
        return dict(self.prices).get(generation)


def config_names(config: Path | None = None) -> tuple[str, ...]:
    """The names of the contexts in the configuration, in its order."""
    config = config or paths(create=False).config
    return tuple(read_toml(config).table("contexts").data) if config.exists() else ()


def load_context(name: str | None = None, file: Path | None = None, *, read_only: bool = False) -> Context:
    """The context of a file, or of the configuration by name, or its default, or gcloud's active configuration.

    Args:
        name: A table `[contexts.NAME]` of the configuration.
        file: A context file, such as a private endpoint (or the simulator) provides; excludes `name`.
        read_only: True makes it read-only whatever the file says.

    Raises:
        OperatorError: nothing is configured, or a mistake in a file (with file, line, key, reason and cure).
    """
    if name is not None and file is not None:
        raise OperatorError("A context name and a context file were both given.", "Give one of them.")
    context = _load(name, file)
    return replace(context, read_only=True) if read_only else context


def _load(name: str | None, file: Path | None) -> Context:
    if file is not None:
        if not file.exists():
            raise OperatorError(f"There is no context file {file}.", "Check the path given with --context-file.")
        return _context(read_toml(file), "", file.parent)
    config = paths(create=False).config
    if not config.exists():
        if name is not None:
            raise OperatorError(
                f"There is no context '{name}': {config} does not exist.",
                f'Write it with a table [contexts.{name}] holding project = "..." and zones = ["..."].',
            )
        return gcloud_context()
    document = read_toml(config)
    contexts = document.table("contexts")
    wanted = name or document.get_str("default_context") or (next(iter(contexts.data)) if contexts.data else "")
    if not wanted:
        return _with_common(gcloud_context(), document)
    if wanted not in contexts.data:
        near = difflib.get_close_matches(wanted, contexts.data, n=3)
        known = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(contexts.data) or 'none'}."
        if name is None:
            raise document.problem("default_context", f"there is no context '{wanted}'.", known)
        raise OperatorError(f"{config}: there is no context '{wanted}'.", known)
    context = _context(contexts.table(wanted), wanted, config.parent)
    return _with_common(context, document)


def _with_common(context: Context, document: Table) -> Context:
    """With [prices] and [limits] of the whole configuration, where the context has none of its own."""
    return replace(
        context,
        prices=context.prices or _prices(document.table("prices")),
        limits=context.limits or _limits(document.table("limits")),
    )


def _context(table: Table, name: str, folder: Path) -> Context:
    table.only(_CONTEXT_KEYS)
    inventory = _inventory(table, folder)
    project = table.get_str("project")
    cloudless = inventory is not None and "project" not in table.data and "zones" not in table.data
    if not project and not cloudless:
        raise table.problem(
            "project" if "project" in table.data else None, "project is missing.", 'Write project = "...".'
        )
    also = []
    for extra in table.tables("also"):
        extra.only(("project", "zones"))
        also.append((extra.get_str("project"), _zones(extra)))
    context = Context(
        name=name or table.get_str("name") or table.file.stem,
        label=table.get_str("label"),
        project=project,
        zones=() if cloudless else _zones(table),
        also=tuple(also),
        endpoint=table.get_str("endpoint", DEFAULT_ENDPOINT),
        rest_endpoint=table.get_str("rest_endpoint", DEFAULT_REST_ENDPOINT).rstrip("/"),
        transport=table.get_choice("transport", "tls", ("tls", "insecure")),
        credentials=table.get_choice("credentials", "adc", ("adc", "none")),
        read_only=table.get_bool("read_only", False),
        ssh=_ssh(table.table("ssh"), folder, inventory.key if inventory is not None and cloudless else None),
        prices=_prices(table.table("prices")),
        limits=_limits(table.table("limits")),
        listed=inventory,
        source=str(table.file),
        compute_endpoint=table.get_str("compute_endpoint").rstrip("/"),
        oslogin_endpoint=table.get_str("oslogin_endpoint").rstrip("/"),
    )
    _check_transport(table, context)
    return context


def _inventory(table: Table, folder: Path) -> Inventory | None:
    """The inventory; None where none is written."""
    if "inventory" not in table.data:
        return None
    from backend.inventory import load_inventory

    return load_inventory(table, folder) or None


def _zones(table: Table) -> tuple[str, ...]:
    zones = table.get_texts("zones")
    if not zones:
        key = "zones" if "zones" in table.data else None
        raise table.problem(key, "no zone is named in zones.", 'Write zones = ["us-west4-a"].')
    for zone in zones:
        if not zone or "/" in zone or zone != zone.strip():
            raise table.problem("zones", f"'{zone}' is not a zone.", 'Zones look like "us-west4-a".')
    return tuple(dict.fromkeys(zones))


def _ssh(table: Table, folder: Path, default_key: Path | None) -> SSHSettings:
    table.only(_SSH_KEYS)
    key = table.get_str("key")
    settings = SSHSettings(
        port=table.get_int("port", 22, least=1, most=65535),
        user=table.get_str("user"),
        key=folder / Path(key).expanduser() if key else default_key,
        route=table.get_choice("route", "external", ROUTES),
        jump=table.get_str("jump"),
        connect_limit=table.get_int("connect_limit", CONNECT_LIMIT, least=1, most=4096),
        roll_call=table.get_bool("roll_call", True),
    )
    if settings.route == "jump" and not settings.jump:
        raise table.problem("route", "the route is jump, but no jump host is given.", 'Write jump = "user@host".')
    return settings


def _prices(table: Table) -> tuple[tuple[str, float], ...]:
    return tuple((generation, table.get_number(generation)) for generation in table.data)


def _limits(table: Table) -> tuple[tuple[str, str, float], ...]:
    found = []
    for generation in table.data:
        kinds = table.table(generation)
        kinds.only(LIMIT_KINDS)
        found += [(generation, kind, kinds.get_number(kind)) for kind in kinds.data]
    return tuple(found)


def is_loopback(endpoint: str) -> bool:
    """Whether host[:port] or a URL points to this machine; names other than localhost are never trusted to."""
    host = endpoint.split("://", 1)[-1].split("/", 1)[0]
    host = host[1:].split("]", 1)[0] if host.startswith("[") else host.rsplit(":", 1)[0] if ":" in host else host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_transport(table: Table, context: Context) -> None:
    more = [(key, table.get_str(key)) for key in ("compute_endpoint", "oslogin_endpoint") if key in table.data]
    endpoints = [("rest_endpoint", context.rest_endpoint), *more]
    if context.transport == "insecure":
        for key, endpoint in (("endpoint", context.endpoint), *endpoints):
            if not is_loopback(endpoint):
                raise table.problem(
                    key,
                    f"transport is insecure, but '{endpoint}' is not on this machine.",
                    'Write transport = "tls", or give a loopback address such as "127.0.0.1:41001".',
                )
        if context.credentials != "none":
            raise table.problem(
                "credentials",
                "credentials are never sent over an insecure transport.",
                'Write credentials = "none", or transport = "tls".',
            )
        return
    for key, endpoint in endpoints:
        if not endpoint.startswith("https://"):
            raise table.problem(
                key,
                f"'{endpoint}' is not https.",
                'Write an https:// address, or transport = "insecure" for a loopback one.',
            )


def gcloud_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where gcloud keeps its configuration (CLOUDSDK_CONFIG wins)."""
    environment = os.environ if environment is None else environment
    given = environment.get("CLOUDSDK_CONFIG")
    return Path(given).expanduser() if given else Path("~/.config/gcloud").expanduser()


def gcloud_context(environment: Mapping[str, str] | None = None) -> Context:
    """The project and zone of gcloud's active configuration; its CLOUDSDK_* variables win, as for gcloud.

    Raises:
        OperatorError: gcloud has no configuration here, or it names no project or no zone.
    """
    environment = os.environ if environment is None else environment
    folder = gcloud_folder(environment)
    name = environment.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _first_line(folder / "active_config") or "default"
    file = folder / "configurations" / f"config_{name}"
    # Not at the top: a context of a file needs neither, and the console reads one before its first frame.
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise OperatorError(
            f"{file}: gcloud's configuration can't be read.", "Run `gcloud config list` to see why.", raw=str(error)
        ) from error
    own = paths(create=False).config
    project = environment.get("CLOUDSDK_CORE_PROJECT") or parser.get("core", "project", fallback="")
    project = project or environment.get("GOOGLE_CLOUD_PROJECT", "")
    zone = environment.get("CLOUDSDK_COMPUTE_ZONE") or parser.get("compute", "zone", fallback="")
    where = f"gcloud's configuration '{name}' ({file})"
    if not project:
        state = where if file.exists() else f"{where}, which does not exist,"
        raise OperatorError(
            f"No context: there is no {own}, and {state} names no project.",
            "Run `gcloud config set project PROJECT`, write a context into that file, or try `slicetower demo`.",
        )
    if not zone:
        raise OperatorError(
            f"No zone: there is no {own}, and {where} names none.",
            "Run `gcloud config set compute/zone us-west4-a`, or list zones in that file.",
        )
    return Context(name=f"gcloud-{name}", project=project, zones=(zone,), source=str(file))


def _first_line(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
