"""The way to the real service: TLS with checked certificates, and credentials in every call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.fake_cloud import FakeCloud, fake_cloud, parent, raw_request
from tests.simulator import ROOT, own_environment

CLIENT = """
import asyncio, sys
from backend.cloud.client import CloudClient
from backend.cloud.errors import CloudError
from backend.context import Context

class Fixed:
    async def headers(self):
        return {"authorization": "Bearer not-a-real-token"}
    def refused(self):
        pass

async def ask():
    context = Context("c", "p", ("z",), endpoint=sys.argv[1])
    client = CloudClient(context, credentials=Fixed())
    try:
        print([item.name for item in await client.list_queued_resources("p", "z", attempts=1)])
    except CloudError as error:
        print(error.kind)
    finally:
        await client.close()

asyncio.run(ask())
"""


def self_signed(folder: Path) -> tuple[bytes, bytes]:
    """(key, certificate) for localhost, the certificate also as a file in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    (folder / "roots.pem").write_bytes(pem)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), pem


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[FakeCloud]:
    credentials = grpc.ssl_server_credentials([self_signed(folder)])
    async with fake_cloud(credentials) as fake:
        fake.queued[parent()] = [raw_request("a")]
        yield fake


async def ask(cloud: FakeCloud, home: Path, roots: Path | None) -> str:
    """A client in a process of its own: gRPC reads its trusted roots once a process."""
    environment = own_environment(home)
    if roots is not None:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(roots)
    endpoint = cloud.endpoint.replace("127.0.0.1", "localhost")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, endpoint, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    return output.decode().strip()


async def test_a_trusted_service_is_asked_with_credentials(tmp_path: Path) -> None:
    async with secured(tmp_path) as cloud:
        assert await ask(cloud, tmp_path, tmp_path / "roots.pem") == "['a']"
        assert cloud.metadata["authorization"] == "Bearer not-a-real-token"


async def test_a_service_with_an_unknown_certificate_gets_no_call(tmp_path: Path) -> None:
    async with secured(tmp_path) as cloud:
        assert await ask(cloud, tmp_path, None) == "unavailable"
        assert not cloud.calls
