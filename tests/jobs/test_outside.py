"""What `check` sees of the outside on request: real local servers, a real folder, a docker program that is a script."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.jobs.supervised import BOUND_S, PROGRAM

PROGRAMS = PROGRAM.parent


def look(root: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "check.py"), "--root", str(root), *arguments],
        capture_output=True,
        timeout=BOUND_S,
        env={**kept, **environment},
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


class Service(BaseHTTPRequestHandler):
    """A metadata server that lends a token, and a storage that lists `open` for everybody and `mine` for that token."""

    def do_GET(self) -> None:
        if self.path.startswith("/computeMetadata/v1/instance/service-accounts/default/token"):
            assert self.headers["Metadata-Flavor"] == "Google"
            self.tell(200, {"access_token": "lent", "expires_in": 3599})
        elif self.path == "/storage/v1/b/open/o?maxResults=1":
            self.tell(200, {"kind": "storage#objects"})
        elif self.path == "/storage/v1/b/mine/o?maxResults=1":
            known = self.headers["Authorization"] == "Bearer lent"
            self.tell(200 if known else 401, {} if known else {"error": {"message": "Anonymous caller"}})
        elif self.path.startswith("/storage/v1/b/theirs/"):
            self.tell(403, {"error": {"message": "does not have storage.objects.list access"}})
        elif self.path.startswith("/storage"):
            self.tell(404, {"error": {"message": "The specified bucket does not exist."}})
        else:
            self.tell(404, {})

    def tell(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(context: ssl.SSLContext | None = None) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def own_certificate(folder: Path) -> ssl.SSLContext:
    """One that nobody has signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start.replace(year=2120))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "own.pem").write_bytes(pem + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")
    return context


def test_nothing_is_asked_for_unless_it_was_asked_for(tmp_path: Path) -> None:
    assert not {"ways", "buckets", "docker", "folders"} & set(look(tmp_path))


def test_any_answer_shows_that_the_way_is_open(tmp_path: Path) -> None:
    with served() as host:
        (way,) = look(tmp_path, "--reach", f"http://{host}/nothing-here")["ways"]
    assert way == {"url": f"http://{host}/nothing-here", "reachable": True, "status": 404, "error": ""}


def test_a_closed_way_and_a_false_certificate_are_told_with_their_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with served(own_certificate(tmp_path)) as host:
        urls = [f"https://127.0.0.1:{port}/", f"https://{host}/", "https://no.such.host.invalid/", "nonsense"]
        ways = look(tmp_path, *(word for url in urls for word in ("--reach", url)))["ways"]
    assert [way["reachable"] for way in ways] == [False] * 4
    assert "refused" in ways[0]["error"].lower()
    assert "certificate" in ways[1]["error"].lower()
    assert all(way["error"] for way in ways)


def test_a_bucket_is_read_with_the_account_that_the_machine_lends(tmp_path: Path) -> None:
    names = ["gs://open/some/folder", "mine", "theirs", "none"]
    words = [word for name in names for word in ("--bucket", name)]
    with served() as host:
        lent = look(tmp_path, *words, GCE_METADATA_HOST=host, STORAGE_EMULATOR_HOST=f"http://{host}")["buckets"]
        alone = look(tmp_path, *words, STORAGE_EMULATOR_HOST=f"http://{host}")["buckets"]
    assert [each["readable"] for each in lent] == [True, True, False, False]
    assert [each["account"] for each in lent] == [True] * 4
    assert [each["status"] for each in lent] == [200, 200, 403, 404]
    assert lent[2]["error"] == "does not have storage.objects.list access"
    assert [each["status"] for each in alone] == [200, 401, 403, 404]
    assert "lent" not in json.dumps(lent)


def test_dockers_login_is_told_and_never_what_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".docker").mkdir(parents=True)
    login = {
        "auths": {"https://index.docker.example/v1/": {"auth": "c2VjcmV0"}},
        "credHelpers": {"eu.pkg.example": "g"},
    }
    (home / ".docker" / "config.json").write_text(json.dumps(login))
    program = tmp_path / "docker"
    program.write_text(
        '#!/bin/sh\n[ -e "$0.down" ] || { echo 27.0; exit 0; }\necho Cannot connect to the daemon >&2; exit 1\n'
    )
    program.chmod(0o755)
    names = ("eu.pkg.example", "index.docker.example", "us.pkg.example")
    words = [word for name in names for word in ("--docker", name)]
    path = f"{tmp_path}:{os.environ['PATH']}"
    told = look(Path("/"), *words, HOME=str(home), PATH=path)["docker"]
    assert [(each["installed"], each["answers"], each["login"]) for each in told] == [
        (True, True, True),
        (True, True, True),
        (True, True, False),
    ]
    assert "c2VjcmV0" not in json.dumps(told)
    (tmp_path / "docker.down").touch()
    (down,) = look(Path("/"), "--docker", "eu.pkg.example", HOME=str(home), PATH=path)["docker"]
    assert (down["answers"], down["error"]) == (False, "Cannot connect to the daemon")


def digest(root: Path, folder: str) -> dict[str, Any]:
    (found,) = look(root, "--code", folder)["folders"]
    return dict(found)


def test_equal_copies_have_one_digest_and_any_change_another(tmp_path: Path) -> None:
    first = tmp_path / "first"
    (first / "package").mkdir(parents=True)
    (first / "package" / "train.py").write_text("print(1)\n")
    (first / "run.sh").write_text("exec python train.py\n")
    (first / "link").symlink_to("run.sh")
    known = digest(tmp_path, "/first")
    assert (known["files"], known["error"]) == (3, "")
    shutil.copytree(first, tmp_path / "second", symlinks=True)
    (tmp_path / "second" / "package" / "__pycache__").mkdir()
    (tmp_path / "second" / "package" / "__pycache__" / "train.pyc").write_bytes(b"x")
    (tmp_path / "second" / ".git").mkdir()
    (tmp_path / "second" / ".git" / "HEAD").write_text("x")
    assert digest(tmp_path, "/second")["digest"] == known["digest"]
    seen = {known["digest"]}
    for change in (
        lambda at: (at / "run.sh").chmod(0o755),
        lambda at: (at / "run.sh").write_text("exec python train.py \n"),
        lambda at: (at / "run.sh").rename(at / "go.sh"),
        lambda at: (at / "more").touch(),
        lambda at: ((at / "link").unlink(), (at / "link").symlink_to("more")),
    ):
        change(tmp_path / "second")
        seen.add(digest(tmp_path, "/second")["digest"])
    assert len(seen) == 6
    assert digest(tmp_path, "/none")["error"] == "there is no such folder"


def test_the_code_that_was_shipped_last_is_known(tmp_path: Path) -> None:
    place = tmp_path / ".slicetower" / "bundles"
    place.mkdir(parents=True)
    assert look(Path("/"), HOME=str(tmp_path))["bundles"] == {"newest": "", "count": 0}
    for age, name in enumerate(("new", "old", "older")):
        (place / f"{name}.ok").touch()
        os.utime(place / f"{name}.ok", (1_000 - age, 1_000 - age))
    assert look(Path("/"), HOME=str(tmp_path))["bundles"] == {"newest": "new", "count": 3}
