"""What a worker reaches beyond itself and its peers, and which code it has: only what was asked for is looked at.

HTTPS to the package index and to storage, buckets with the worker's own account, a registry's docker login, the digest of a
folder of code. Part of `check`; shipped with it: one file, the standard library alone, Python 3.8 and newer.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import http.client
import json
import os
import shutil
import stat
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict  # noqa: UP035 (Python 3.8 evaluates the alias below)

Facts = Dict[str, Any]  # noqa: UP006
URL_LIMIT_S = 8.0
DOCKER_LIMIT_S = 8.0
METADATA_LIMIT_S = 2.0
STORAGE = "https://storage.googleapis.com"
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
FILES_MOST = 50_000
BYTES_MOST = 2 * 1024**3
"""Of a folder whose digest is asked for."""
PASSED_OVER = frozenset(
    {".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)


def get(url: str, headers: dict[str, str], limit_s: float = URL_LIMIT_S) -> tuple[int, bytes]:
    """Status and the beginning of the body, whatever the status; goes through a proxy as pip would."""
    request = urllib.request.Request(url, headers=dict(headers, **{"User-Agent": "slicetower-check"}))
    try:
        with urllib.request.urlopen(request, timeout=limit_s) as answer:
            return answer.status, answer.read(4096)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(4096)


def reach(url: str) -> Facts:
    """Whether a server answers there: any answer to a request shows that the way is open."""
    try:
        status, _ = get(url, {})
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"url": url, "reachable": False, "status": None, "error": str(getattr(error, "reason", error))}
    return {"url": url, "reachable": True, "status": status, "error": ""}


def token(metadata_host: str) -> str:
    """The worker's own account, as its metadata server lends it; empty without one."""
    if not metadata_host:
        return ""
    connection = http.client.HTTPConnection(metadata_host, timeout=METADATA_LIMIT_S)
    try:
        with contextlib.closing(connection):
            connection.request("GET", TOKEN, headers={"Metadata-Flavor": "Google"})
            answer = connection.getresponse()
            return str(json.loads(answer.read())["access_token"]) if answer.status == 200 else ""
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return ""


def bucket(name: str, metadata_host: str) -> Facts:
    """Whether the objects of a bucket can be listed with the worker's own account; without one, as anybody could.

    STORAGE_EMULATOR_HOST takes the place of Google's storage, as for its client libraries.
    """
    plain = name[5:] if name.startswith("gs://") else name
    plain = plain.split("/", 1)[0]
    facts: Facts = {"bucket": plain, "readable": False, "status": None, "account": False, "error": ""}
    lent = token(metadata_host)
    facts["account"] = bool(lent)
    base = os.environ.get("STORAGE_EMULATOR_HOST", STORAGE).rstrip("/")
    url = base + "/storage/v1/b/" + urllib.parse.quote(plain, safe="") + "/o?maxResults=1"
    try:
        status, body = get(url, {"Authorization": "Bearer " + lent} if lent else {})
    except (OSError, ValueError, http.client.HTTPException) as error:
        facts["error"] = str(getattr(error, "reason", error))
        return facts
    facts["status"], facts["readable"] = status, status == 200
    if status != 200:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            facts["error"] = str(json.loads(body)["error"]["message"])
    return facts


def docker(registry: str, home: str) -> Facts:
    """Whether docker answers here, and whether it has a login for the registry (never what it is)."""
    facts: Facts = {"registry": registry, "installed": bool(shutil.which("docker")), "answers": None, "login": False}
    facts["error"] = ""
    try:
        with open(os.path.join(home, ".docker", "config.json"), encoding="utf-8") as file:
            settings = json.load(file)
        known = set(settings.get("credHelpers") or {}) | set(settings.get("auths") or {})
        hosts = {name.split("://", 1)[-1].split("/", 1)[0] for name in known}
        facts["login"] = registry in hosts or bool(settings.get("credsStore"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, AttributeError) as error:
        facts["error"] = f"its settings can't be read: {error}"
    if facts["installed"]:
        try:
            command = ["docker", "version", "--format", "{{.Server.Version}}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DOCKER_LIMIT_S, check=False)
            facts["answers"] = done.returncode == 0
            if done.returncode:
                facts["error"] = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:300]
        except (OSError, subprocess.SubprocessError) as error:
            facts["answers"], facts["error"] = False, str(error)
    return facts


def code(folder: str) -> Facts:
    """One digest over names, x bits and contents of a folder; version control and caches are passed over."""
    facts: Facts = {"path": folder, "digest": "", "files": 0, "bytes": 0, "error": ""}
    if not os.path.isdir(folder):
        facts["error"] = "there is no such folder"
        return facts
    whole = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)
        for name in sorted(names):
            path = os.path.join(place, name)
            if name.endswith(".pyc"):
                continue
            try:
                facts["files"] += 1
                facts["bytes"] += add(whole, path, os.path.relpath(path, folder))
            except OSError as error:
                facts["error"] = f"{path} can't be read: {error.strerror}"
                return facts
            if facts["files"] > FILES_MOST or facts["bytes"] > BYTES_MOST:
                facts["error"] = f"it holds more than {FILES_MOST} files or {BYTES_MOST} bytes"
                return facts
    facts["digest"] = whole.hexdigest()
    return facts


def add(whole: Any, path: str, name: str) -> int:
    """Adds one file to the digest and returns its size; of a link, where it leads."""
    status = os.lstat(path)
    whole.update(b"%s\0" % os.fsencode(name))
    if stat.S_ISLNK(status.st_mode):
        whole.update(b"link %s\0" % os.fsencode(os.readlink(path)))
        return 0
    if not stat.S_ISREG(status.st_mode):
        return 0
    own = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            own.update(block)
    whole.update(b"%d %s\0" % (bool(status.st_mode & stat.S_IXUSR), own.digest()))
    return status.st_size


def bundles(home: str) -> Facts:
    """The code that `--sync` brought last, by its digest; empty when none was."""
    found = glob.glob(os.path.join(home, ".slicetower", "bundles", "*.ok"))
    newest = max(found, key=lambda path: (os.stat(path).st_mtime, path), default="")
    return {"newest": os.path.basename(newest)[: -len(".ok")] if newest else "", "count": len(found)}
