"""The service over REST/JSON at the real paths of both versions, and what an ssh to workers asks of Compute and OS Login."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from backend.sim import logins, wire
from backend.sim.api import ALPHA_ONLY, Api
from backend.sim.refusals import Code, Json, Refusal

LARGEST_BODY = 16 * 2**20
"""Bytes; startup scripts are at most 256 KiB a metadata value, and there is one template."""
SYSTEM_PARAMETERS = frozenset(
    [
        "alt",
        "key",
        "fields",
        "prettyPrint",
        "access_token",
        "oauth_token",
        "quotaUser",
        "callback",
        "uploadType",
        "upload_protocol",
        "$.xgafv",
        "$alt",
    ]
)
"""Of every Google API; they change nothing here."""

IN_V1 = ("ListLocations", "GetLocation", "ListAcceleratorTypes", "GetAcceleratorType", "GetOperation")


@dataclass(frozen=True, slots=True)
class Route:
    """One method of the REST interface. `target`: the request field that the path fills."""

    verb: str
    path: re.Pattern[str]
    rpc: str
    target: str = "name"
    body: str = ""
    """A field of the request, `*` for the request itself, or empty: no body."""


def _routes() -> tuple[Route, ...]:
    place = r"(projects/[^/:]+/locations/[^/:]+)"

    def route(verb: str, tail: str, rpc: str, target: str = "name", body: str = "") -> Route:
        return Route(verb, re.compile(tail.replace("@", place[1:-1])), rpc, target, body)

    node, request = r"(@/nodes/[^/:]+)", r"(@/queuedResources/[^/:]+)"
    return (
        route("GET", "(@)/queuedResources", "ListQueuedResources", "parent"),
        route("POST", "(@)/queuedResources", "CreateQueuedResource", "parent", "queuedResource"),
        route("GET", request, "GetQueuedResource"),
        route("DELETE", request, "DeleteQueuedResource"),
        route("POST", f"{request}:reset", "ResetQueuedResource", body="*"),
        route("GET", f"{request}:getMaintenanceInfo", "GetMaintenanceInfo"),
        route("POST", f"{request}:performMaintenanceQueuedResource", "PerformMaintenanceQueuedResource", body="*"),
        route("GET", "(@)/nodes", "ListNodes", "parent"),
        route("POST", "(@)/nodes", "CreateNode", "parent", "node"),
        route("GET", node, "GetNode"),
        route("DELETE", node, "DeleteNode"),
        route("PATCH", node, "UpdateNode", "node.name", "node"),
        route("POST", f"{node}:stop", "StopNode", body="*"),
        route("POST", f"{node}:start", "StartNode", body="*"),
        route("POST", f"{node}:getGuestAttributes", "GetGuestAttributes", body="*"),
        route("POST", f"{node}:simulateMaintenanceEvent", "SimulateMaintenanceEvent", body="*"),
        route("POST", f"{node}:performMaintenance", "PerformMaintenance", body="*"),
        route("GET", "(@)/acceleratorTypes", "ListAcceleratorTypes", "parent"),
        route("GET", "(@/acceleratorTypes/[^/:]+)", "GetAcceleratorType"),
        route("GET", "(@)/runtimeVersions", "ListRuntimeVersions", "parent"),
        route("GET", "(@/runtimeVersions/[^/:]+)", "GetRuntimeVersion"),
        route("GET", "(@)/reservations", "ListReservations", "parent"),
        route("POST", "(@):generateServiceIdentity", "GenerateServiceIdentity", "parent", "*"),
        route("GET", "(@)/operations", "ListOperations"),
        route("GET", "(@/operations/[^/:]+)", "GetOperation"),
        route("DELETE", "(@/operations/[^/:]+)", "DeleteOperation"),
        route("POST", "(@/operations/[^/:]+):cancel", "CancelOperation", body="*"),
        route("GET", r"(projects/[^/:]+)/locations", "ListLocations"),
        route("GET", "(@)", "GetLocation"),
    )


ROUTES = _routes()
TENSORFLOW = re.compile(r"(projects/[^/:]+/locations/[^/:]+)/tensorflowVersions(?:/([^/:]+))?")
"""`gcloud compute tpus versions` asks v1 for them; no other version has them."""


class RestService:
    """The HTTP application."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def application(self, add_more: Callable[[web.Application], None] = lambda app: None) -> web.Application:
        """`add_more` may add routes; everything that no route has is answered with 404."""
        application = web.Application(client_max_size=LARGEST_BODY)
        add_more(application)
        application.router.add_get("/compute/v1/projects/{project}", self._compute_project)
        application.router.add_post(
            "/compute/v1/projects/{project}/setCommonInstanceMetadata", self._set_project_metadata
        )
        application.router.add_post("/v1/users/{account:[^/:]+}:importSshPublicKey", self._import_key)
        application.router.add_get("/v1/users/{account:[^/:]+}/loginProfile", self._login_profile)
        application.router.add_route("*", "/{version:v1|v2|v2alpha1}/{path:.+}", self._handle)
        application.router.add_route("*", "/{path:.*}", self._nowhere)
        return application

    async def _nowhere(self, request: web.Request) -> web.Response:
        return _answer(Refusal(Code.NOT_FOUND, f"The requested URL {request.path} was not found on this server."))

    async def _compute_project(self, request: web.Request) -> web.Response:
        """projects.get of Compute Engine, as far as gcloud's ssh looks at it."""
        scenario = self._api.world.scenario
        if request.match_info["project"] not in (scenario.project, scenario.project_number):
            return _answer(
                Refusal(Code.NOT_FOUND, f"The resource 'projects/{request.match_info['project']}' was not found")
            )
        return web.json_response(
            {
                "kind": "compute#project",
                "id": scenario.project_number,
                "name": scenario.project,
                "commonInstanceMetadata": {
                    "kind": "compute#metadata",
                    "fingerprint": "AAAA",
                    "items": [
                        {"key": key, "value": value} for key, value in self._api.world.project_metadata.items()
                    ],
                },
            }
        )

    async def _set_project_metadata(self, request: web.Request) -> web.Response:
        """All of it at once, as the real call does; done when it answers."""
        try:
            items = (await _body(request)).get("items") or []
            self._api.world.project_metadata = {str(each["key"]): str(each.get("value", "")) for each in items}
        except (KeyError, TypeError, AttributeError):
            return _answer(Refusal(Code.INVALID_ARGUMENT, "items must be a list of key and value."))
        except Refusal as refusal:
            return _answer(refusal)
        self._api.world.authorize_all()
        return web.json_response({"kind": "compute#operation", "name": "operation-metadata", "status": "DONE"})

    async def _import_key(self, request: web.Request) -> web.Response:
        """OS Login's importSshPublicKey: a key that the profile has already stays as it is."""
        account = request.match_info["account"]
        try:
            key = str((await _body(request)).get("key", "")).strip()
        except Refusal as refusal:
            return _answer(refusal)
        if len(key.split()) < 2:
            return _answer(Refusal(Code.INVALID_ARGUMENT, "The SSH public key is not valid."))
        keys = self._api.world.profiles.setdefault(account, [])
        if key not in keys:
            keys.append(key)
            self._api.world.authorize_all()
        return web.json_response({"loginProfile": logins.profile(account, keys)})

    async def _login_profile(self, request: web.Request) -> web.Response:
        account = request.match_info["account"]
        return web.json_response(logins.profile(account, self._api.world.profiles.get(account, ())))

    async def _handle(self, request: web.Request) -> web.Response:
        try:
            return web.json_response(await self._call(request), dumps=_dumps)
        except Refusal as refusal:
            return _answer(refusal)

    async def _call(self, request: web.Request) -> Json:
        version, path = request.match_info["version"], request.match_info["path"]
        if version == "v1" and (old := TENSORFLOW.fullmatch(path)) and request.method == "GET":
            return self._api.tensorflow_versions(old[1], old[2] or "", dict(request.query))
        method, match = _match(request.method, path)
        if version == "v1":
            # Locations and types are the same in every version, and gcloud asks for them in v1.
            if method.rpc not in IN_V1:
                raise Refusal(Code.NOT_FOUND, f"The requested URL {request.path} was not found on this server.")
            version = "v2"
        if version == "v2" and method.rpc in (*ALPHA_ONLY, "GetMaintenanceInfo"):
            raise Refusal(Code.NOT_FOUND, f"Method not found: {request.method} {request.path}")
        message: Json = {}
        if method.body:
            body = await _body(request)
            if method.body == "*":
                message |= body
            else:
                message[method.body] = body
        for key, value in request.query.items():
            if key not in SYSTEM_PARAMETERS:
                message[wire.camel(key)] = _query_value(wire.camel(key), value)
        if method.target == "node.name":
            message["node"]["name"] = match[1]
        else:
            message[method.target] = match[1]
        if method.rpc != "GetMaintenanceInfo":
            message = wire.strict(version, f"{method.rpc}Request", message)
        return await self._api.call(method.rpc, version, message, rest=True)


def _match(verb: str, path: str) -> tuple[Route, re.Match[str]]:
    for route in ROUTES:
        match = route.path.fullmatch(path)
        if match is not None and route.verb == verb:
            return route, match
    raise Refusal(Code.NOT_FOUND, f"Method not found: {verb} {path}")


async def _body(request: web.Request) -> Json:
    text = await request.text()
    if not text.strip():
        return {}
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"Invalid JSON payload received. {error}") from None
    if not isinstance(body, dict):
        raise Refusal(Code.INVALID_ARGUMENT, "Invalid JSON payload received. Root element must be a message.")
    return body


def _query_value(name: str, value: str) -> object:
    if name == "force":
        return value.lower() in ("true", "1", "")
    if name == "updateMask":
        return ",".join(".".join(wire.camel(part) for part in path.split(".")) for path in value.split(","))
    return value


def _dumps(body: Json) -> str:
    return json.dumps(body, indent=2) + "\n"


def _answer(refusal: Refusal) -> web.Response:
    body = refusal.to_rest()
    return web.json_response(body, status=body["error"]["code"], dumps=_dumps)


async def serve(application: web.Application, port: int = 0) -> tuple[web.AppRunner, int]:
    """Starts on a loopback port (0: any) and returns the runner and its port."""
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    return runner, int(runner.addresses[0][1])
