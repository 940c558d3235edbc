"""Who may log in, beyond one node: the project's metadata (Compute Engine) and the operator's OS Login profile.

Paths and fields as in the public REST references of both APIs; neither was ever called on the real service from here.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from backend.cloud.node_calls import NodeCalls


class LoginCalls(NodeCalls):
    """Calls to the two services that decide about logins beside Cloud TPU."""

    async def project_metadata(self, project: str) -> dict[str, str] | None:
        """The metadata that all VMs of the project see; None where the context has no Compute Engine.

        Raises:
            CloudError: It can't be read, as without compute.projects.get.
        """
        if not self.context.compute_url:
            return None
        answer = await self._channel.rest(
            "GET",
            f"compute/v1/projects/{quote(project, safe='')}",
            params={"fields": "commonInstanceMetadata"},
            action="read the metadata of the project",
            subject=project,
            endpoint=self.context.compute_url,
        )
        common = answer.get("commonInstanceMetadata")
        items = common.get("items") if isinstance(common, dict) else None
        pairs = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        return {str(each.get("key", "")): str(each.get("value", "")) for each in pairs}

    async def account(self) -> str:
        """The e-mail address of the credentials; empty where they don't tell."""
        return await self._channel.account()

    async def import_login_key(self, project: str, account: str, public_key: str) -> dict[str, Any] | None:
        """Adds a key to an account's OS Login profile; one that is there stays. None where the context has no OS Login.

        Returns:
            The profile (google.cloud.oslogin.v1.LoginProfile as JSON).

        Raises:
            CloudError: Refused.
        """
        if not self.context.oslogin_url:
            return None
        answer = await self._channel.rest(
            "POST",
            f"v1/users/{quote(account, safe='@')}:importSshPublicKey",
            params={"projectId": project},
            body={"key": public_key.strip()},
            action="add an SSH key to the OS Login profile of",
            subject=account,
            endpoint=self.context.oslogin_url,
        )
        profile = answer.get("loginProfile")
        return profile if isinstance(profile, dict) else {}
