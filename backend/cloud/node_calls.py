"""What the workers of a node tell the service, and the SSH keys that it gives them."""

from __future__ import annotations

from backend.cloud import convert
from backend.cloud.calls import node_name, parsed
from backend.cloud.errors import CloudError
from backend.cloud.messages import message
from backend.cloud.operations import OperationCalls
from backend.model import Slice
from backend.outcomes import ExitCode, OperatorError

KEY_ATTEMPTS = 3
"""Tries to add an SSH key while others change the same metadata."""

_NONE_PUBLISHED = (5, 9)
"""NOT_FOUND and FAILED_PRECONDITION: how guest attributes that don't exist, or are switched off, are answered."""


class NodeCalls(OperationCalls):
    """One node: its description, guest attributes and metadata."""

    async def get_node(self, project: str, zone: str, node_id: str) -> Slice:
        request = message("GetNodeRequest")(name=node_name(project, zone, node_id))
        answer = await self._named("GetNode", request, node_id, "describe")
        return convert.node(parsed(message("Node"), answer), project, zone)

    async def guest_attributes(self, item: Slice, query_path: str) -> list[dict[str, str]]:
        """Per worker, key -> value of its guest attributes under `query_path` (`hostkeys/`; empty: all)."""
        request = message("GetGuestAttributesRequest")(
            name=node_name(item.project, item.zone, item.node_id), query_path=query_path
        )
        answer = await self._named("GetGuestAttributes", request, item.node_id, "read the guest attributes of")
        response = parsed(message("GetGuestAttributesResponse"), answer)
        wanted = query_path.strip("/").partition("/")[0]
        return [
            {
                entry.key: entry.value
                for entry in each.query_value.items
                if entry.namespace.strip("/") in ("", wanted) or not wanted
            }
            for each in response.guest_attributes
        ]

    async def host_keys(self, item: Slice) -> dict[int, list[str]]:
        """Worker index -> its public host keys, `ssh-ed25519 AAAA...`; workers that published none are left out.

        A project may forbid guest attributes: then, as for a node that has not published any yet, nothing is known.

        Raises:
            CloudError: also when the node itself is gone.
        """
        try:
            found = await self.guest_attributes(item, "hostkeys/")
        except CloudError as error:
            if error.code not in _NONE_PUBLISHED:
                raise
            await self.get_node(item.project, item.zone, item.node_id)
            return {}
        keys = {
            index: [f"{kind} {value.strip()}" for kind, value in sorted(each.items()) if value.strip()]
            for index, each in enumerate(found)
        }
        return {index: lines for index, lines in keys.items() if lines}

    async def hostnames(self, item: Slice) -> dict[int, str]:
        """Worker index -> its host name, as an IAP tunnel wants it. The attribute's namespace is not documented."""
        found = await self.guest_attributes(item, "")
        names = {index: each.get("hostname", "") for index, each in enumerate(found)}
        return {index: name for index, name in names.items() if name}

    async def node_metadata(self, item: Slice) -> dict[str, str]:
        """The node's metadata, as its workers see it beside the project's."""
        request = message("GetNodeRequest")(name=node_name(item.project, item.zone, item.node_id))
        answer = await self._named("GetNode", request, item.node_id, "describe")
        return dict(parsed(message("Node"), answer).metadata)

    async def add_ssh_key(self, item: Slice, user: str, public_key: str, *, timeout_s: float = 300.0) -> bool:
        """Adds `user:key` to the node's metadata, keeping every key that is there.

        The API replaces the whole map, so the node is read again afterwards; a key that another operator's
        patch has just swept away is added once more.

        Returns:
            False when it was there already.

        Raises:
            OperatorError: others kept changing the metadata; all CloudErrors.
        """
        line = f"{user}:{public_key.strip()}"
        name = node_name(item.project, item.zone, item.node_id)
        for attempt in range(KEY_ATTEMPTS):
            answer = await self._named("GetNode", message("GetNodeRequest")(name=name), item.node_id, "describe")
            current = parsed(message("Node"), answer)
            lines = [text for text in current.metadata.get("ssh-keys", "").splitlines() if text.strip()]
            if any(text.strip() == line for text in lines):
                return attempt > 0
            update = message("UpdateNodeRequest")()
            update.update_mask.paths.append("metadata")
            update.node.name = name
            for key, value in current.metadata.items():
                update.node.metadata[key] = value
            update.node.metadata["ssh-keys"] = "\n".join([*lines, line])
            operation = await self._operation(
                "UpdateNode", update, item.node_id, "add an SSH key to", routing=f"node.name={name}"
            )
            await self.wait_operation(operation, timeout_s)
        raise OperatorError(
            f"The SSH key could not be added to {item.node_id}: its metadata is changed by others all the time.",
            "Try again, or add the key to the project's metadata.",
            exit_code=ExitCode.CLOUD,
        )
