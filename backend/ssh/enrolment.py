"""A node that refuses the operator's public key: the key is added where it counts, or it is said why that would not help.

The order is gcloud's: a key that the project's or the node's metadata holds already is left alone, one that both lack is
added to the node's beside those of others. With OS Login, which the node or its project may ask for, the metadata's keys
count for nothing: the key is added to the operator's profile, and the user is the profile's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from backend import inventory
from backend.context import Context
from backend.model import Slice
from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.ssh.hostkeys import KeyJournal, node_of
from backend.ssh.keys import Identity
from backend.ssh.oslogin import PROFILE_COMMAND, gcloud_account, is_on, os_login_user, profile_user
from backend.targets import WorkerRef

STEPS = (
    """
    CREATE TABLE added_keys (
        node TEXT NOT NULL,
        user TEXT NOT NULL,
        key TEXT NOT NULL,
        added_at REAL NOT NULL,
        PRIMARY KEY (node, user, key)
    );
    """,
)

PROPAGATION_S = 90.0
"""How long a worker may take to accept a key that its node's metadata holds (field notes: 1 to 2 minutes at boot)."""


class KeyService(Protocol):
    """The part of backend.cloud.client.CloudClient that is needed here."""

    async def node_metadata(self, item: Slice) -> dict[str, str]: ...

    async def add_ssh_key(self, item: Slice, user: str, public_key: str) -> bool: ...

    async def project_metadata(self, project: str) -> dict[str, str] | None: ...

    async def account(self) -> str: ...

    async def import_login_key(self, project: str, account: str, public_key: str) -> dict[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What became of it: whether another login is worth a try, and if not, why."""

    until: float = 0.0
    """Unix seconds until which a refusal may still be on its way to an end; 0 when nothing has changed."""
    user: str = ""
    """The user to log in as from now on; empty: the same."""
    why: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class _Profile:
    """The operator's OS Login profile, as far as it is known."""

    user: str = ""
    account: str = ""
    """To whose profile the key was added; empty when it was not."""
    added_at: float = 0.0
    error: str = ""


class Enrolment:
    """Adds the operator's key to nodes, each at most once.

    Args:
        context: Its `ssh.user` always wins; a read-only one adds nothing.
        service: The Cloud TPU client.
        slice_of: The slice of a worker as it is known now; raises OperatorError for none.
        journal: Remembers what was added, so that a key that somebody took away stays away.
        tell: Told in a sentence what was done, with the node it was done to: for people and the journal's events.
    """

    def __init__(
        self,
        context: Context,
        service: KeyService,
        slice_of: Callable[[WorkerRef], Slice],
        journal: KeyJournal,
        tell: Callable[[str, str], None],
    ) -> None:
        self._context = context
        self._service = service
        self._slice_of = slice_of
        self._journal = journal
        self._tell = tell
        self._nodes: dict[tuple[str, str], asyncio.Task[Enrolled]] = {}
        self._profiles: dict[str, asyncio.Task[_Profile]] = {}
        """OS Login, by project."""
        self._projects: dict[str, asyncio.Task[dict[str, str]]] = {}
        """Metadata, by project."""
        journal.migrate("added_keys", STEPS)

    async def enrol(self, worker: WorkerRef, user: str, identity: Identity) -> Enrolled:
        """Asked for by every worker of a node that refuses `user`; done once for all of them."""
        if worker.zone == inventory.ZONE:
            return Enrolled(
                cure="Add the public key to authorized_keys there, or correct user and key in the inventory."
            )
        place = (node_of(worker), user)
        task = self._nodes.get(place)
        if task is None or (task.done() and (task.cancelled() or not task.result().until)):
            task = self._nodes[place] = asyncio.create_task(self._enrol(worker, user, identity))
        return await asyncio.shield(task)

    async def _enrol(self, worker: WorkerRef, user: str, identity: Identity) -> Enrolled:
        try:
            item = self._slice_of(worker)
            metadata = await self._service.node_metadata(item)
            common = await self._of_project(item.project)
            if is_on(metadata.get("enable-oslogin", common.get("enable-oslogin", ""))):
                return await self._as_os_login_user(item, user, identity)
            if not is_on(metadata.get("block-project-ssh-keys", "")):
                known = _words(identity.public_key)
                if known and _holds(common.get("ssh-keys", ""), user, known):
                    return Enrolled(
                        why=f"The metadata of the project {item.project} holds the key for {plain(user)} already.",
                        cure="It may take a minute to arrive; look whether another user is meant by the [ssh] of the context.",
                    )
            return await self._add(worker, item, user, identity, metadata.get("ssh-keys", ""))
        except OperatorError as error:
            return Enrolled(why=f"The key could not be added to {worker.node_id}: {error.what}", cure=error.cure)

    async def _add(self, worker: WorkerRef, item: Slice, user: str, identity: Identity, present: str) -> Enrolled:
        key = identity.public_key
        if not key:
            return Enrolled(
                why=f"Which key of {identity.origin} to add to the node is not clear.",
                cure="Name a key file with key = in the [ssh] of the context.",
            )
        known = _words(key)
        row = self._journal.row(
            "SELECT added_at FROM added_keys WHERE node = ? AND user = ? AND key = ?", (node_of(worker), user, known)
        )
        added_at = float(row[0]) if row is not None else 0.0
        if _holds(present, user, known):
            return Enrolled(
                until=added_at + PROPAGATION_S if added_at + PROPAGATION_S > time.time() else 0.0,
                why=f"The metadata of {item.node_id} holds the key for {plain(user)} already.",
                cure=f"If the project uses OS Login, set user = in the [ssh] of the context to what `{PROFILE_COMMAND}` tells.",
            )
        if self._context.read_only:
            return Enrolled(
                why=f"The key was not added to {item.node_id}, because the context is read-only.",
                cure="Leave out --read-only, or have the key added to the node's ssh-keys metadata.",
            )
        if added_at:
            return Enrolled(
                why=f"The key was added to {item.node_id} before, and somebody has taken it away since.",
                cure="Ask who did; add it with `gcloud compute tpus tpu-vm ssh`, or use another key.",
            )
        await self._service.add_ssh_key(item, user, key)
        now = time.time()
        with self._journal.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO added_keys (node, user, key, added_at) VALUES (?, ?, ?, ?)",
                (node_of(worker), user, known, now),
            )
        self._tell(
            f"The key of {identity.origin} was added to the metadata of {item.node_id} for user {plain(user)}.",
            f"{worker.queued_resource}/{worker.slice_index}",
        )
        return Enrolled(
            until=now + PROPAGATION_S,
            why=f"The key was added to the metadata of {item.node_id}, and is still refused.",
            cure=f"If the project uses OS Login, set user = in the [ssh] of the context to what `{PROFILE_COMMAND}` tells.",
        )

    async def _of_project(self, project: str) -> dict[str, str]:
        """The project's metadata, asked for once; empty where nobody serves it or it may not be read."""
        task = self._projects.get(project)
        if task is None:
            task = self._projects[project] = asyncio.create_task(self._ask_project(project))
        return await asyncio.shield(task)

    async def _ask_project(self, project: str) -> dict[str, str]:
        try:
            return await self._service.project_metadata(project) or {}
        except OperatorError:
            return {}

    async def _as_os_login_user(self, item: Slice, user: str, identity: Identity) -> Enrolled:
        """Keys in the metadata are ignored there: the profile must hold the key, and its user logs in."""
        why = f"{item.node_id} uses OS Login: keys in its metadata count for nothing there."
        cure = "Add the key to your profile: `gcloud compute os-login ssh-keys add --key-file=KEY.pub`."
        task = self._profiles.get(item.project)
        if task is None or (task.done() and not task.result().user):
            task = self._profiles[item.project] = asyncio.create_task(self._profile_of(item, identity))
        profile = await asyncio.shield(task)
        if profile.account:
            why = f"{item.node_id} uses OS Login, and the key was added to the profile of {plain(profile.account)}."
            cure = "It may take a minute; your account needs roles/compute.osLogin (or osAdminLogin) on the project."
        elif profile.error:
            why = f"{why} {profile.error}"
        until = profile.added_at + PROPAGATION_S if profile.account else 0.0
        if self._context.ssh.user:
            note = f"{cure} Its user must be the profile's (`{PROFILE_COMMAND}`)."
            return Enrolled(until=until if profile.user == user else 0.0, why=why, cure=note)
        if not profile.user:
            return Enrolled(
                why=f"{why} The user of your profile can't be known here.",
                cure=f"Set user = in the [ssh] of the context to what `{PROFILE_COMMAND}` tells. {cure}",
            )
        if profile.user == user:
            return Enrolled(until=until, why=why, cure=cure)
        self._tell(
            f"{item.node_id} uses OS Login: logging in as {plain(profile.user)} instead of {plain(user)}.",
            item.node_id,
        )
        return Enrolled(until=max(until, time.time()), user=profile.user, why=why, cure=cure)

    async def _profile_of(self, item: Slice, identity: Identity) -> _Profile:
        """Adds the key to the operator's profile as gcloud would, or asks gcloud for the profile's user."""
        error = ""
        if identity.public_key and not self._context.read_only:
            try:
                account = await self._service.account() or await gcloud_account()
                answer = None
                if account:
                    answer = await self._service.import_login_key(item.project, account, identity.public_key)
                if answer is not None and (user := profile_user(answer)):
                    self._tell(
                        f"The key of {identity.origin} was added to the OS Login profile of {plain(account)}.",
                        item.project,
                    )
                    return _Profile(user, account, time.time())
            except OperatorError as refused:
                error = f"It could not be added to your profile: {refused.what}"
        return _Profile(await os_login_user(item.project), error=error)

    async def close(self) -> None:
        """Gives up what is on its way; the service may still complete it."""
        tasks: list[asyncio.Task[Any]] = [*self._nodes.values(), *self._profiles.values(), *self._projects.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(key: str) -> str:
    """Type and key without the comment: what tells two keys apart."""
    return " ".join(key.split()[:2])


def _holds(present: str, user: str, known: str) -> bool:
    """Whether `ssh-keys` metadata gives a key to a user, whatever its comment."""
    for line in present.splitlines():
        name, colon, rest = line.strip().partition(":")
        if colon and name == user and _words(rest) == known:
            return True
    return False
