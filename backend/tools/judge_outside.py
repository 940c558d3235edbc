"""Rules about what workers reach beyond themselves, and whether they have the same code. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from backend.sanitize import plain
from backend.tools.looked import Looked, grouped
from backend.tools.model import Finding, Severity


def _each(looked: Looked, section: str) -> Iterator[tuple[str, Any]]:
    for address, found in looked.section(section):
        for each in found:
            yield address, each


def ways(looked: Looked) -> Iterator[Finding]:
    """HTTPS to the outside: without it nothing can be installed or pulled."""
    said: dict[Severity, list[tuple[str, str]]] = {Severity.OK: [], Severity.FAIL: []}
    for address, each in _each(looked, "ways"):
        if each["reachable"]:
            said[Severity.OK].append((address, f"{each['url']} answers"))
        else:
            said[Severity.FAIL].append((address, f"{each['url']} can't be reached: {each['error']}"))
    cure = "Workers without external addresses need Cloud NAT, or Private Google Access for Google's own services."
    yield from grouped("reach out", Severity.FAIL, said[Severity.FAIL], cure)
    yield from grouped("reach out", Severity.OK, said[Severity.OK])


def buckets(looked: Looked) -> Iterator[Finding]:
    """With the workers' own account."""
    good: list[tuple[str, str]] = []
    bad: dict[str, list[tuple[str, str]]] = {}
    for address, each in _each(looked, "buckets"):
        if each["readable"]:
            good.append((address, f"gs://{each['bucket']} can be read"))
        else:
            bad.setdefault(_bucket_cure(each), []).append((address, _refused(each)))
    for cure, said in bad.items():
        yield from grouped("bucket", Severity.FAIL, said, cure)
    yield from grouped("bucket", Severity.OK, good)


def _refused(each: dict[str, Any]) -> str:
    who = "the worker's account" if each["account"] else "a worker without an account"
    status = f" ({each['status']})" if each["status"] else ""
    return f"gs://{each['bucket']} can't be read by {who}{status}: {each['error'] or 'no reason was given'}"


def _bucket_cure(each: dict[str, Any]) -> str:
    if each["status"] is None:
        return "The way to storage.googleapis.com is closed: see --network."
    if each["status"] == 404:
        return "Look at its name: `gcloud storage ls`."
    if not each["account"]:
        return "Create the request with --service-account and the scope cloud-platform."
    return "Grant roles/storage.objectViewer on the bucket to the workers' service account, and the scope cloud-platform."


def docker(looked: Looked) -> Iterator[Finding]:
    said: dict[str, list[tuple[str, str]]] = {"absent": [], "silent": [], "login": []}
    good = []
    for address, each in _each(looked, "docker"):
        if not each["installed"]:
            said["absent"].append((address, "docker is not installed"))
            continue
        if not each["answers"]:
            said["silent"].append((address, f"docker does not answer: {each['error']}"))
        if not each["login"]:
            said["login"].append((address, f"docker has no login for {each['registry']}"))
        if each["answers"] and each["login"]:
            good.append((address, f"docker answers and has a login for {each['registry']}"))
    yield from grouped("docker", Severity.FAIL, said["absent"], "`sudo apt-get install docker.io`, or another image.")
    cure = "`sudo usermod -aG docker $USER` and a new login; `systemctl status docker` where it is not running."
    yield from grouped("docker", Severity.FAIL, said["silent"], cure)
    cure = "`slicetower run TARGET -- gcloud auth configure-docker REGISTRY --quiet`."
    yield from grouped("docker", Severity.FAIL, said["login"], cure)
    yield from grouped("docker", Severity.OK, good)


def folders(looked: Looked) -> Iterator[Finding]:
    """The digest of a folder, equal everywhere."""
    told: dict[str, dict[str, str]] = {}
    bad = []
    for address, each in _each(looked, "folders"):
        if each["error"]:
            bad.append((address, f"the code in {each['path']} has no digest: {each['error']}"))
        else:
            told.setdefault(each["path"], {})[address] = each["digest"]
    yield from grouped("code", Severity.FAIL, bad, "`slicetower run TARGET --sync DIR` ships one copy everywhere.")
    for path, digests in told.items():
        yield from _unequal(f"the code in {plain(path)}", digests, Severity.FAIL, equal=True)


def bundles(looked: Looked) -> Iterator[Finding]:
    """What --sync brought last; a worker that was replaced since has an older one, or none."""
    digests = {address: section["newest"] for address, section in looked.section("bundles")}
    if any(digests.values()):
        yield from _unequal("the code that was shipped last", digests, Severity.WARN, equal=False)


def _unequal(what: str, digests: dict[str, str], severity: Severity, *, equal: bool) -> Iterator[Finding]:
    """Who differs from the most, and how."""
    if not digests:
        return
    ((most, count), *others) = Counter(digests.values()).most_common()
    if not others:
        if equal:
            yield Finding("code", Severity.OK, tuple(digests), f"{what} is {most[:12]} everywhere")
        return
    odd = [
        (address, f"{what} is {digest[:12] or 'none'} here, and {most[:12] or 'none'} on the other {count}")
        for address, digest in digests.items()
        if digest != most
    ]
    yield from grouped("code", severity, odd, "`slicetower run TARGET --sync DIR` ships one copy everywhere.")


RULES: Sequence[Callable[[Looked], Iterator[Finding]]] = (ways, buckets, docker, folders, bundles)
