"""Long-running operations: listed, looked at, waited for, cancelled."""

from __future__ import annotations

import asyncio
import random

from backend.cloud import convert
from backend.cloud.calls import MAX_PAGES, PAGE_SIZE, Calls, endless, parent, parsed
from backend.cloud.errors import CloudError, explain
from backend.cloud.messages import operations
from backend.model import Operation
from backend.outcomes import ExitCode, OperatorError

OPERATION_POLL_S = (0.5, 5.0)
"""Between looks at an operation: from, to."""


class OperationCalls(Calls):
    """The operations of a project."""

    async def operations(self, project: str, zone: str) -> list[Operation]:
        request = operations().ListOperationsRequest(name=parent(project, zone), page_size=PAGE_SIZE)
        method = "/google.longrunning.Operations/ListOperations"
        found: list[Operation] = []
        for _ in range(MAX_PAGES):
            answer = await self._channel.call(
                method, request, action="list the operations of", subject=zone, routing=f"name={request.name}"
            )
            response = parsed(operations().ListOperationsResponse, answer)
            found += [convert.operation(raw) for raw in response.operations]
            if not response.next_page_token:
                return found
            request.page_token = response.next_page_token
        raise endless(zone, "operations")

    async def get_operation(self, path: str) -> Operation:
        """One operation by its full name."""
        request = operations().GetOperationRequest(name=path)
        answer = await self._channel.call(
            "/google.longrunning.Operations/GetOperation",
            request,
            action="describe",
            subject=convert.last_part(path),
            routing=f"name={path}",
        )
        return convert.operation(parsed(operations().Operation, answer))

    async def cancel_operation(self, path: str) -> None:
        """Asks the service to cancel an operation; it may end all the same."""
        await self._channel.call(
            "/google.longrunning.Operations/CancelOperation",
            operations().CancelOperationRequest(name=path),
            action="cancel",
            subject=convert.last_part(path),
            routing=f"name={path}",
            read=False,
        )

    async def wait_operation(self, operation: Operation, timeout_s: float) -> Operation:
        """Waits until it is done. A service that is unavailable meanwhile is asked again.

        Raises:
            CloudError: the operation ended with an error.
            OperatorError: it is not done after `timeout_s` (exit code TIMED_OUT); it goes on at the service.
        """
        pause, most = OPERATION_POLL_S
        try:
            async with asyncio.timeout(timeout_s):
                while not operation.done:
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                    pause = min(pause * 1.5, most)
                    try:
                        operation = await self.get_operation(operation.path)
                    except CloudError as error:
                        if not error.transient:
                            raise
                        pause = max(pause, error.retry_after_s or 0.0)
        except TimeoutError as error:
            raise OperatorError(
                f"The operation {operation.name} is not done after {timeout_s:.0f} s; it goes on at the service.",
                "Look with `slicetower operations list`.",
                exit_code=ExitCode.TIMED_OUT,
            ) from error
        if operation.error is not None:
            raise explain(
                operation.error.code,
                operation.error.message,
                action=operation.verb or "finish the operation on",
                subject=convert.last_part(operation.target) or operation.name,
            )
        return operation
