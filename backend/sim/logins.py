"""Who may log in, beside the nodes' own metadata: a project's metadata and OS Login profiles. No I/O."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence

from backend.sim.refusals import Json

_TRUE = frozenset({"true", "1", "y", "yes"})


def is_on(value: str) -> bool:
    """What the guest environment takes for yes."""
    return value.strip().lower() in _TRUE


def user_of(account: str) -> str:
    """The POSIX user of an account: `ann@example.com` logs in as `ann_example_com`."""
    return re.sub(r"[^a-z0-9_-]", "_", account.lower())[:32]


def lines(profiles: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """`user:KEY` of every key of every profile."""
    return tuple(f"{user_of(account)}:{key}" for account, keys in profiles.items() for key in keys)


def profile(account: str, keys: Sequence[str]) -> Json:
    """A LoginProfile."""
    user = user_of(account)
    number = 1_000_000 + zlib.crc32(account.encode()) % 1_000_000
    return {
        "name": str(number),
        "posixAccounts": [
            {
                "primary": True,
                "username": user,
                "uid": str(number),
                "gid": str(number),
                "homeDirectory": f"/home/{user}",
            }
        ],
        "sshPublicKeys": {f"{zlib.crc32(key.encode()):08x}": {"key": key} for key in keys},
    }
