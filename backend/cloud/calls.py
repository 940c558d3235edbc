"""What every call to the service shares: names of resources, pages, answers that must be readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.cloud import convert
from backend.cloud.channel import CALL_TIMEOUT_S, Channel
from backend.cloud.credentials import Credentials
from backend.cloud.messages import message, operations
from backend.cloud.pages import MalformedPage, split_page
from backend.context import Context
from backend.model import Operation
from backend.outcomes import ExitCode, OperatorError

PAGE_SIZE = 1000
"""Asked of each list; the service may give fewer and a token."""

MAX_PAGES = 1000
"""A list that does not end is an error, not a wait."""

TPU_SERVICE = "google.cloud.tpu.{version}.Tpu"


class Calls:
    """A channel and the ways to use it."""

    def __init__(self, context: Context, *, credentials: Credentials | None = None) -> None:
        self.context = context
        self._channel = Channel(context, credentials)

    async def close(self) -> None:
        await self._channel.close()

    async def rest_request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        action: str = "reach",
        subject: str = "Cloud TPU",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """One call of the REST API, e.g. `POST v2alpha1/projects/P/locations/Z/queuedResources`."""
        return await self._channel.rest(
            method, path, params=params, body=body, action=action, subject=subject, timeout_s=timeout_s
        )

    async def _list(self, method: str, project: str, zone: str, what: str, attempts: int | None) -> list[list[bytes]]:
        place = parent(project, zone)
        request = message(f"{method}Request")(parent=place, page_size=PAGE_SIZE)
        pages: list[list[bytes]] = []
        for _ in range(MAX_PAGES):
            answer = await self._tpu_call(
                method, request, f"list the {what} of", f"{project}, {zone}", f"parent={place}", attempts=attempts
            )
            try:
                items, token = split_page(answer)
            except MalformedPage as error:
                raise unreadable(error) from error
            pages.append(items)
            if not token:
                return pages
            request.page_token = token
        raise endless(zone, what)

    async def _tpu_call(
        self,
        method: str,
        request: Any,
        action: str,
        subject: str,
        routing: str,
        *,
        read: bool = True,
        attempts: int | None = None,
    ) -> bytes:
        options = {} if attempts is None else {"attempts": attempts}
        return await self._channel.call(
            f"/{TPU_SERVICE.format(version='v2alpha1')}/{method}",
            request,
            action=action,
            subject=subject,
            routing=routing,
            read=read,
            **options,
        )

    async def _named(self, method: str, request: Any, subject: str, action: str) -> bytes:
        return await self._tpu_call(method, request, action, subject, f"name={request.name}")

    async def _operation(self, method: str, request: Any, subject: str, action: str, routing: str = "") -> Operation:
        routing = routing or f"name={request.name}"
        answer = await self._tpu_call(method, request, action, subject, routing, read=False)
        return convert.operation(parsed(operations().Operation, answer))


def parsed(kind: Any, data: bytes) -> Any:
    """The raw message, or an OperatorError for bytes that are none."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> OperatorError:
    return OperatorError(
        "The service's answer can't be read.",
        "Check that the endpoint of the context is Cloud TPU's gRPC endpoint.",
        exit_code=ExitCode.CLOUD,
        raw=str(error),
    )


def parent(project: str, zone: str) -> str:
    return f"projects/{project}/locations/{zone}"


def queued_name(project: str, zone: str, name: str) -> str:
    return f"{parent(project, zone)}/queuedResources/{name}"


def node_name(project: str, zone: str, node_id: str) -> str:
    return f"{parent(project, zone)}/nodes/{node_id}"


def endless(zone: str, what: str) -> OperatorError:
    return OperatorError(
        f"The list of {what} of {zone} does not end after {MAX_PAGES} pages.",
        "Check that the endpoint is Cloud TPU's.",
        exit_code=ExitCode.CLOUD,
    )
