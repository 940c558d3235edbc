"""The gcloud command and the REST call of whatever is selected or about to happen, correct to the quoting.

Pure functions. GA gcloud talks to API version v2, `gcloud alpha` to v2alpha1; where one of them cannot do it, that
side is None and a note says why.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

from backend.cloud.encoding import to_json
from backend.cloud.gcloud_writer import alpha_flags, create_flags
from backend.cloud.requests import ApiVersion, CreateRequest, alpha_only
from backend.model import QueuedResource, Slice
from backend.targets import WorkerRef

REST_ENDPOINT = "https://tpu.googleapis.com"
SSH_BATCH_LIMIT = 64
"""Workers that `queued-resources ssh` runs at once at most, whatever --batch-size says (gcloud 528 to 578)."""

Track = Literal["ga", "alpha"]
_GROUP = ("compute", "tpus", "queued-resources")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The same action in other tools."""

    gcloud_ga: str | None
    gcloud_alpha: str | None
    curl: str | None
    """In the version that `json` is of: v2alpha1, unless the action is the same in both."""
    json: dict[str, Any] | None = None
    """The body of the call, if it has one."""
    curl_v2: str | None = None
    json_v2: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Everything, as text to show or to paste: comments begin with `#`."""
        out: list[str] = []
        for title, text in (("gcloud", self.gcloud_ga), ("gcloud alpha", self.gcloud_alpha)):
            if text:
                out += [f"# {title}", *text.splitlines()]
        for title, text in (("REST v2alpha1", self.curl), ("REST v2", self.curl_v2)):
            if text:
                out += [f"# {title}", *text.splitlines()]
        return [*out, *(f"# {note}" for note in self.notes)]


@dataclass(frozen=True, slots=True)
class Rest:
    """How the REST endpoint is reached: a context's `rest_endpoint`, and whether it wants a token."""

    endpoint: str = REST_ENDPOINT
    authorised: bool = True


GOOGLE = Rest()


def command(track: Track, words: Iterable[str]) -> str:
    """A gcloud command line, quoted for a POSIX shell."""
    return shlex.join(["gcloud", *(["alpha"] if track == "alpha" else []), *words])


def wrap(text: str) -> str:
    """The same gcloud command with one flag a line."""
    words = shlex.split(text)
    first = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    return " \\\n    ".join([shlex.join(words[:first]), *(shlex.quote(word) for word in words[first:])])


def _curl(
    rest: Rest,
    method: str,
    version: ApiVersion,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> str:
    url = f"{rest.endpoint}/{version}/{quote(path, safe='/:~-_.')}"
    if query:
        url += f"?{urlencode(query)}"
    words = ["curl", "-X", method]
    text = shlex.join(words)
    if rest.authorised:
        text += ' -H "Authorization: Bearer $(gcloud auth print-access-token)"'
    if body is not None:
        text += f" -H {shlex.quote('Content-Type: application/json')} -d {shlex.quote(json.dumps(body))}"
    return f"{text} {shlex.quote(url)}"


def _place(project: str, zone: str) -> list[str]:
    return [f"--zone={zone}", f"--project={project}"]


def _name(qr: QueuedResource) -> str:
    return f"projects/{qr.project}/locations/{qr.zone}/queuedResources/{qr.name}"


def create(
    request: CreateRequest, rest: Rest = GOOGLE, *, request_id: str = "", run_async: bool = False
) -> Equivalent:
    """The create call.

    Args:
        request: What is asked for.
        rest: The endpoint.
        request_id: Makes a repeated call harmless; gcloud has no flag for it and sends none.
        run_async: With gcloud's --async.

    Raises:
        OperatorError: a metadata file cannot be read.
    """
    words = [*_GROUP, "create", request.name]
    tail = ["--async"] if run_async else []
    lacking = alpha_flags(request)
    notes: list[str] = []
    ga = None if lacking else command("ga", [*words, *create_flags(request, alpha=False), *tail])
    if lacking:
        notes.append(f"gcloud has {', '.join(lacking)} in alpha alone.")
    if request.boot_disk_kms_key and ga is not None:
        notes.append("GA gcloud has --boot-disk since 539.")
    if request.network_configs:
        notes.append(
            "gcloud alpha also sends a single networkConfig beside --network-config, which the API may refuse."
        )
    alpha = command("alpha", [*words, *create_flags(request, alpha=True), *tail])
    query = {"queuedResourceId": request.name, **({"requestId": request_id} if request_id else {})}
    path = f"{request.parent}/queuedResources"
    body = to_json(request, "v2alpha1")
    body_v2 = None if alpha_only(request) else to_json(request, "v2")
    if body_v2 is None:
        notes.append(f"API version v2 has no {', '.join(alpha_only(request))}.")
    return Equivalent(
        gcloud_ga=ga,
        gcloud_alpha=alpha,
        curl=_curl(rest, "POST", "v2alpha1", path, query=query, body=body),
        json=body,
        curl_v2=_curl(rest, "POST", "v2", path, query=query, body=body_v2) if body_v2 is not None else None,
        json_v2=body_v2,
        notes=tuple(notes),
    )


def _both(
    words: Sequence[str], rest: Rest, method: str, path: str, *, query: Mapping[str, str] | None = None
) -> Equivalent:
    """An action that is the same in both tracks and versions."""
    body: dict[str, Any] | None = {} if method == "POST" else None
    return Equivalent(
        gcloud_ga=command("ga", words),
        gcloud_alpha=command("alpha", words),
        curl=_curl(rest, method, "v2alpha1", path, query=query, body=body),
        json=body,
        curl_v2=_curl(rest, method, "v2", path, query=query, body=body),
        json_v2=body,
    )


def describe(qr: QueuedResource, rest: Rest = GOOGLE) -> Equivalent:
    """Everything that the API knows of one request."""
    return _both([*_GROUP, "describe", qr.name, *_place(qr.project, qr.zone)], rest, "GET", _name(qr))


def list_(project: str, zone: str, rest: Rest = GOOGLE) -> Equivalent:
    """All requests of one zone."""
    path = f"projects/{project}/locations/{zone}/queuedResources"
    return _both([*_GROUP, "list", *_place(project, zone)], rest, "GET", path)


def delete(
    qr: QueuedResource, rest: Rest = GOOGLE, *, force: bool = False, run_async: bool = False, request_id: str = ""
) -> Equivalent:
    """Deletes one request; with `force` its slices too."""
    flags = [*(["--force"] if force else []), *(["--async"] if run_async else []), "--quiet"]
    query = {**({"force": "true"} if force else {}), **({"requestId": request_id} if request_id else {})}
    words = [*_GROUP, "delete", qr.name, *_place(qr.project, qr.zone), *flags]
    return _both(words, rest, "DELETE", _name(qr), query=query)


def reset(qr: QueuedResource, rest: Rest = GOOGLE, *, run_async: bool = False) -> Equivalent:
    """Restarts all workers of an ACTIVE request."""
    flags = [*(["--async"] if run_async else []), "--quiet"]
    words = [*_GROUP, "reset", qr.name, *_place(qr.project, qr.zone), *flags]
    return _both(words, rest, "POST", f"{_name(qr)}:reset")


def perform_maintenance(qr: QueuedResource, node_ids: Sequence[str], rest: Rest = GOOGLE) -> Equivalent:
    """Starts the upcoming maintenance of some slices now; v2alpha1 alone."""
    words = [*_GROUP, "perform-maintenance", qr.name, f"--node-names={','.join(node_ids)}"]
    body = {"nodeNames": list(node_ids)}
    return Equivalent(
        gcloud_ga=None,
        gcloud_alpha=command("alpha", [*words, *_place(qr.project, qr.zone)]),
        curl=_curl(rest, "POST", "v2alpha1", f"{_name(qr)}:performMaintenanceQueuedResource", body=body),
        json=body,
        notes=("gcloud and the API have it in alpha alone.",),
    )


def describe_node(item: Slice, rest: Rest = GOOGLE) -> Equivalent:
    """Everything that the API knows of one slice."""
    path = f"projects/{item.project}/locations/{item.zone}/nodes/{item.node_id}"
    words = ["compute", "tpus", "tpu-vm", "describe", item.node_id, *_place(item.project, item.zone)]
    return _both(words, rest, "GET", path)


def list_nodes(project: str, zone: str, rest: Rest = GOOGLE) -> Equivalent:
    """All nodes of one zone."""
    words = ["compute", "tpus", "tpu-vm", "list", *_place(project, zone)]
    return _both(words, rest, "GET", f"projects/{project}/locations/{zone}/nodes")


def delete_node(item: Slice, rest: Rest = GOOGLE) -> Equivalent:
    """Deletes a TPU VM that no queued resource owns."""
    path = f"projects/{item.project}/locations/{item.zone}/nodes/{item.node_id}"
    words = ["compute", "tpus", "tpu-vm", "delete", item.node_id, *_place(item.project, item.zone), "--quiet"]
    return _both(words, rest, "DELETE", path)


_NO_OPERATIONS = ("gcloud has no command for operations of Cloud TPU.",)


def list_operations(project: str, zone: str, rest: Rest = GOOGLE) -> Equivalent:
    """All long-running operations of one zone."""
    path = f"projects/{project}/locations/{zone}/operations"
    return Equivalent(
        None,
        None,
        _curl(rest, "GET", "v2alpha1", path),
        curl_v2=_curl(rest, "GET", "v2", path),
        notes=_NO_OPERATIONS,
    )


def operation(name: str, rest: Rest = GOOGLE, *, cancel: bool = False) -> Equivalent:
    """One operation by its full name, described or cancelled."""
    method, path = ("POST", f"{name}:cancel") if cancel else ("GET", name)
    body: dict[str, Any] | None = {} if cancel else None
    return Equivalent(
        None,
        None,
        _curl(rest, method, "v2alpha1", path, body=body),
        json=body,
        curl_v2=_curl(rest, method, "v2", path, body=body),
        json_v2=body,
        notes=_NO_OPERATIONS,
    )


def _ranges(numbers: Iterable[int]) -> str:
    """gcloud's selector: `0-3,7`; it refuses a range of one (`3-3`)."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def ssh(
    workers: Sequence[WorkerRef], remote: str = "", *, batch_size: int | None = None, route: str = "external"
) -> Equivalent:
    """The same command on the same workers by gcloud.

    Args:
        workers: Whom it is for; one gcloud command per set of slices with the same workers.
        remote: The command; empty: a shell, which gcloud gives on one worker alone.
        batch_size: Workers at a time.
        route: external, internal or iap.
    """
    via = {"internal": ["--internal-ip"], "iap": ["--tunnel-through-iap"]}.get(route, [])
    run = [f"--command={remote}"] if remote else []
    notes: list[str] = []
    if not remote:
        if len(workers) != 1:
            return Equivalent(None, None, None, notes=("gcloud opens a shell on one worker alone.",))
        only = workers[0]
        words = ["compute", "tpus", "tpu-vm", "ssh", only.node_id, f"--worker={only.worker_index}"]
        words += _place(only.project, only.zone)
        ga = None if route == "iap" else command("ga", [*words, *via])
        if route == "iap":
            notes.append("GA tpu-vm ssh has no --tunnel-through-iap.")
        return Equivalent(ga, command("alpha", [*words, *via]), None, notes=tuple(notes))
    batch = [f"--batch-size={batch_size}"] if batch_size is not None else []
    by_request: dict[tuple[str, str, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for item in workers:
        by_request[item.project, item.zone, item.queued_resource][item.slice_index].add(item.worker_index)
    lines: dict[Track, list[str]] = {"ga": [], "alpha": []}
    for (project, zone, name), slices in by_request.items():
        same: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, chosen in sorted(slices.items()):
            same[tuple(sorted(chosen))].append(index)
        for chosen_workers, nodes in same.items():
            words = [*_GROUP, "ssh", name, f"--node={_ranges(nodes)}", f"--worker={_ranges(chosen_workers)}"]
            words += [*run, *batch, *_place(project, zone), *via]
            for track in lines:
                lines[track].append(command(track, words))
    if len(workers) > SSH_BATCH_LIMIT:
        notes.append(
            f"gcloud runs at most {SSH_BATCH_LIMIT} workers at once: a gang of {len(workers)} would wait forever."
        )
    return Equivalent("\n".join(lines["ga"]), "\n".join(lines["alpha"]), None, notes=tuple(notes))
