"""A node that refuses the operator's public key: the key is added to its metadata, or it is said why that would not help.

The order is gcloud's: a key that the node's metadata holds already is left alone, one that it lacks is added beside those
of others. Project-wide metadata is not served by the Cloud TPU API, so it is never looked at: a node that accepts the key
because of it never comes here. With OS Login the metadata's keys count for nothing, and the user is the profile's.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from backend import inventory
from backend.context import Context
from backend.model import Slice
from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.ssh.hostkeys import KeyJournal, node_of
from backend.ssh.keys import Identity
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

GCLOUD_TIMEOUT_S = 30.0
PROFILE_COMMAND = "gcloud compute os-login describe-profile"

_TRUE = frozenset({"true", "1", "y", "yes"})
"""What the guest environment takes for yes, in any case."""


class KeyService(Protocol):
    """The part of backend.cloud.client.CloudClient that is needed here."""

    async def node_metadata(self, item: Slice) -> dict[str, str]: ...

    async def add_ssh_key(self, item: Slice, user: str, public_key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What became of it: whether another login is worth a try, and if not, why."""

    until: float = 0.0
    """Unix seconds until which a refusal may still be on its way to an end; 0 when nothing has changed."""
    user: str = ""
    """The user to log in as from now on; empty: the same."""
    why: str = ""
    cure: str = ""


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
        self._profile: asyncio.Task[str] | None = None
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
            if metadata.get("enable-oslogin", "").strip().lower() in _TRUE:
                return await self._as_os_login_user(item, user)
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
        row = self._journal.connection.execute(
            "SELECT added_at FROM added_keys WHERE node = ? AND user = ? AND key = ?", (node_of(worker), user, known)
        ).fetchone()
        added_at = float(row[0]) if row is not None else 0.0
        if _holds(present, user, known):
            # OS Login may be set for the whole project, which the Cloud TPU API does not show.
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
        with self._journal.connection as connection:
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

    async def _as_os_login_user(self, item: Slice, user: str) -> Enrolled:
        """Keys in the metadata are ignored there: only the user can be set right."""
        why = f"{item.node_id} uses OS Login: keys in its metadata count for nothing there."
        cure = "Add the key to your profile: `gcloud compute os-login ssh-keys add --key-file=KEY.pub`."
        if self._context.ssh.user:
            return Enrolled(why=why, cure=f"{cure} Its user must be the profile's (`{PROFILE_COMMAND}`).")
        if self._profile is None or (self._profile.done() and not self._profile.result()):
            self._profile = asyncio.create_task(os_login_user(item.project))
        found = await asyncio.shield(self._profile)
        if not found:
            return Enrolled(
                why=f"{why} The user of your profile can't be known here.",
                cure=f"Set user = in the [ssh] of the context to what `{PROFILE_COMMAND}` tells. {cure}",
            )
        if found == user:
            return Enrolled(why=why, cure=cure)
        self._tell(
            f"{item.node_id} uses OS Login: logging in as {plain(found)} instead of {plain(user)}.", item.node_id
        )
        return Enrolled(until=time.time(), user=found, why=why, cure=cure)

    async def close(self) -> None:
        """Gives up what is on its way; the service may still complete it."""
        tasks = [task for task in (*self._nodes.values(), self._profile) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def os_login_user(project: str) -> str:
    """The user name of the operator's OS Login profile, as gcloud tells it; empty when nobody can tell."""
    program = shutil.which("gcloud")
    if program is None:
        return ""
    try:
        process = await asyncio.create_subprocess_exec(
            program, "compute", "os-login", "describe-profile", f"--project={project}", "--format=json",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return ""
    try:
        async with asyncio.timeout(GCLOUD_TIMEOUT_S):
            out, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        return ""
    try:
        return profile_user(json.loads(out))
    except ValueError:
        return ""


def profile_user(profile: Any) -> str:
    """The primary POSIX account of a login profile (google.cloud.oslogin.v1.LoginProfile as JSON)."""
    accounts = profile.get("posixAccounts") if isinstance(profile, dict) else None
    accounts = [each for each in accounts if isinstance(each, dict)] if isinstance(accounts, list) else []
    best = next((each for each in accounts if each.get("primary")), accounts[0] if accounts else {})
    name = best.get("username", "")
    return name if isinstance(name, str) else ""


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
