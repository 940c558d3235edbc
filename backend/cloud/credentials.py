"""Application-default credentials: found and refreshed in a thread, handed out as headers, never logged."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from backend.outcomes import ExitCode, OperatorError

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
REFRESH_TIMEOUT_S = 30.0
LOGIN = "Run `gcloud auth application-default login`, then try again."


class Credentials(Protocol):
    """Where the headers of a call come from."""

    async def headers(self) -> dict[str, str]: ...

    def refused(self) -> None:
        """The service did not accept the last headers."""
        ...

    async def account(self) -> str: ...


class NoCredentials:
    """For a private endpoint that asks for none."""

    async def headers(self) -> dict[str, str]:
        return {}

    def refused(self) -> None:
        """There is nothing to renew."""

    async def account(self) -> str:
        return ""


class ApplicationDefaultCredentials:
    """What google-auth finds on this machine, loaded at the first call."""

    def __init__(self) -> None:
        self._found: Any = None
        self._lock = asyncio.Lock()
        self._refused = False

    def refused(self) -> None:
        """Renews the token before the next call, although it has not expired by this machine's clock."""
        self._refused = True

    async def headers(self) -> dict[str, str]:
        """The authorization header, with a token that is valid now.

        Raises:
            OperatorError: there are no credentials, or they can't be renewed; names the curing command.
        """
        async with self._lock:
            if self._found is None or not self._found.valid or self._refused:
                await self._renew()
                self._refused = False
            headers = {"authorization": f"Bearer {self._found.token}"}
            quota_project = getattr(self._found, "quota_project_id", None)
            if quota_project:
                headers["x-goog-user-project"] = quota_project
            return headers

    async def account(self) -> str:
        """The e-mail address whose credentials these are; empty where the file does not tell, as for most people.

        Raises:
            OperatorError: as `headers`.
        """
        await self.headers()
        names = (getattr(self._found, name, "") for name in ("service_account_email", "account"))
        return next((str(name) for name in names if name and "@" in str(name)), "")

    async def _renew(self) -> None:
        from google.auth import exceptions

        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                self._found = await asyncio.to_thread(_renewed, self._found, self._refused)
        except TimeoutError as error:
            raise OperatorError(
                f"The credentials could not be renewed within {REFRESH_TIMEOUT_S:.0f} s.",
                f"Check the network. {LOGIN}",
                exit_code=ExitCode.CLOUD,
            ) from error
        except exceptions.DefaultCredentialsError as error:
            unreadable = "not a valid json" in str(error)
            raise OperatorError(
                "The file of the application-default credentials is damaged."
                if unreadable
                else "There are no application-default credentials on this machine.",
                LOGIN,
                exit_code=ExitCode.CLOUD,
                raw=str(error),
            ) from error
        except exceptions.RefreshError as error:
            raise OperatorError(
                "The application-default credentials have expired or were revoked.",
                LOGIN,
                exit_code=ExitCode.CLOUD,
                raw=str(error),
            ) from error
        except exceptions.GoogleAuthError as error:
            raise OperatorError(
                "The application-default credentials can't be used.", LOGIN, exit_code=ExitCode.CLOUD, raw=str(error)
            ) from error


def _renewed(found: Any, refused: bool) -> Any:
    """Finds credentials where there are none yet, and refreshes them; blocks on files and network."""
    import google.auth
    from google.auth.transport.requests import Request

    if found is None:
        found, _ = google.auth.default(scopes=SCOPES)
    if refused or not found.valid:
        found.refresh(Request())
    return found
