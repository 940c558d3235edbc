"""The two ways to the service: gRPC with stubs of our own, and REST for what the message classes lack.

Both use the same credentials, and both turn every error into a CloudError. The channel has no receive limit (a large
fleet's list exceeds gRPC's 4 MiB), every call a time-out; only idempotent reads are sent again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from backend.cloud.credentials import ApplicationDefaultCredentials, Credentials, NoCredentials
from backend.cloud.errors import CloudError, details_from_grpc, explain, from_http
from backend.context import Context, is_loopback
from backend.outcomes import OperatorError

CALL_TIMEOUT_S = 30.0
"""One attempt of one call. The slowest seen reads of the service take a few seconds."""

ATTEMPTS = 3
"""Tries of an idempotent read that the service could not answer."""

FIRST_PAUSE_S = 0.3
"""Before the second try; doubled for the third, with jitter."""

_UNAVAILABLE, _DEADLINE_EXCEEDED = 14, 4

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 300),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.keepalive_time_ms", 60_000),
)


class Channel:
    """An open way to one service, made at the first call on the running loop."""

    def __init__(self, context: Context, credentials: Credentials | None = None) -> None:
        if context.transport == "insecure" and not is_loopback(context.endpoint):
            raise OperatorError(
                f"'{context.endpoint}' is not on this machine: an insecure transport is refused.",
                'Use transport = "tls".',
            )
        if context.transport == "insecure" and not is_loopback(context.rest_endpoint):
            raise OperatorError(
                f"'{context.rest_endpoint}' is not on this machine: an insecure transport is refused.",
                'Use transport = "tls".',
            )
        self._context = context
        if credentials is None:
            credentials = NoCredentials() if context.credentials == "none" else ApplicationDefaultCredentials()
        self._credentials = credentials
        self._channel: Any = None
        self._session: Any = None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        request: Any,
        *,
        action: str,
        subject: str,
        routing: str = "",
        read: bool = True,
        timeout_s: float = CALL_TIMEOUT_S,
        attempts: int = ATTEMPTS,
    ) -> bytes:
        """One unary gRPC call; the answer stays serialized.

        Args:
            method: `/google.cloud.tpu.v2alpha1.Tpu/ListNodes`.
            request: A raw protobuf message.
            action: What is tried, as an infinitive, for the sentence of an error.
            subject: What it is tried on.
            routing: `parent=...` or `name=...`, as the service's routing header wants it.
            read: Idempotent: may be sent again while the service is unavailable.
            timeout_s: Of each attempt.

        Raises:
            CloudError: the service refused, or could not be reached.
            OperatorError: credentials are missing or can't be renewed.
        """
        payload = request.SerializeToString()
        for attempt in range(1, attempts + 1):
            try:
                return await self._attempt(method, payload, action, subject, routing, timeout_s)
            except CloudError as error:
                may_repeat = read and error.code in (_UNAVAILABLE, _DEADLINE_EXCEEDED) and attempt < attempts
                if not may_repeat or error.retry_after_s is not None:
                    raise
            await asyncio.sleep(_pause(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(
        self, method: str, payload: bytes, action: str, subject: str, routing: str, timeout_s: float
    ) -> bytes:
        channel = self._open()
        import grpc

        metadata = list((await self._credentials.headers()).items())
        if routing:
            key, _, value = routing.partition("=")
            metadata.append(("x-goog-request-params", f"{key}={quote(value, safe='')}"))
        stub = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        try:
            answer: bytes = await stub(payload, timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                self._credentials.refused()
            trailing: Any = error.trailing_metadata() or ()
            raise explain(
                error.code().value[0],
                error.details() or "",
                action=action,
                subject=subject,
                details=details_from_grpc(tuple(trailing)),
            ) from error
        return answer

    def _open(self) -> Any:
        if self._channel is None:
            # gRPC's C core writes to file descriptor 2; only errors, and the operator's own choice wins.
            os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
            import grpc

            options = list(_OPTIONS)
            if self._context.transport == "insecure":
                options.append(("grpc.enable_http_proxy", 0))
                self._channel = grpc.aio.insecure_channel(self._context.endpoint, options=options)
            else:
                endpoint = self._context.endpoint
                target = endpoint if ":" in endpoint else f"{endpoint}:443"
                self._channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
        return self._channel

    async def account(self) -> str:
        """Whom the credentials are for; empty where they don't tell."""
        return await self._credentials.account()

    async def rest(
        self,
        method: str,
        path: str,
        *,
        action: str,
        subject: str,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        endpoint: str = "",
    ) -> dict[str, Any]:
        """One REST call; `path` starts with the version: `v2alpha1/projects/...`. GETs are sent again as reads are.

        `endpoint` is another service's than Cloud TPU's, with the same credentials.

        Raises:
            CloudError: the service refused, or could not be reached.
            OperatorError: credentials are missing or can't be renewed.
        """
        url = f"{endpoint or self._context.rest_endpoint}/{path.lstrip('/')}"
        attempts = ATTEMPTS if method == "GET" else 1
        for attempt in range(1, attempts + 1):
            try:
                return await self._rest_attempt(method, url, action, subject, params, body, timeout_s)
            except CloudError as error:
                may_repeat = error.code in (_UNAVAILABLE, _DEADLINE_EXCEEDED) and attempt < attempts
                if not may_repeat or error.retry_after_s is not None:
                    raise
            await asyncio.sleep(_pause(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _rest_attempt(
        self,
        method: str,
        url: str,
        action: str,
        subject: str,
        params: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        timeout_s: float,
    ) -> dict[str, Any]:
        import aiohttp

        if self._session is None:
            # Proxies of the environment are for the world, not for an endpoint on this machine.
            self._session = aiohttp.ClientSession(trust_env=self._context.transport != "insecure")
        try:
            async with self._session.request(
                method,
                url,
                params=dict(params or {}),
                json=None if body is None else dict(body),
                headers=await self._credentials.headers(),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as response:
                content = await response.read()
                status = response.status
        except TimeoutError as error:
            text = f"no answer within {timeout_s:.0f} s"
            raise explain(_DEADLINE_EXCEEDED, text, action=action, subject=subject) from error
        except aiohttp.ClientError as error:
            raise explain(_UNAVAILABLE, str(error), action=action, subject=subject) from error
        if status == 401:
            self._credentials.refused()
        if status >= 300:
            raise from_http(status, content, action=action, subject=subject)
        try:
            answer = json.loads(content or b"{}")
        except ValueError as error:
            raise from_http(502, "the answer is not JSON", action=action, subject=subject) from error
        if not isinstance(answer, dict):
            raise from_http(502, "the answer is not a JSON object", action=action, subject=subject)
        return answer


def _pause(attempt: int) -> float:
    return FIRST_PAUSE_S * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
