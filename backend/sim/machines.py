"""What the simulated world asks of its machines.

The world's rules are plain functions in time; the machines are real processes behind SSH. Between them stands this
protocol: calls return at once and are carried out in order for each address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Machine:
    """One worker, as the world wants it to be."""

    address: str
    """Unique in 127.0.0.0/8."""
    node_uid: str
    node_id: str
    slice_index: int
    worker_index: int
    hostname: str
    chips: int
    environment: tuple[tuple[str, str], ...] = ()
    authorized_keys: tuple[str, ...] = ()


class Machines(Protocol):
    """All workers of the world."""

    def add(self, machine: Machine) -> None: ...

    def boot(self, address: str, startup_script: str | None) -> None:
        """Starts it (again): a new boot, the startup script runs."""
        ...

    def power_off(self, address: str, *, wipe: bool) -> None:
        """Kills its processes and connections. `wipe`: the disk goes too, the machine is no more."""
        ...

    def authorize(self, address: str, keys: tuple[str, ...]) -> None:
        """The keys that may log in from now on: `user:KEY` lines, as in a node's metadata."""
        ...

    def host_key(self, address: str) -> str:
        """`ssh-ed25519 AAAA...`"""
        ...

    def reimage(self, address: str) -> None:
        """Gives it another host key."""
        ...

    def cut(self, address: str) -> None:
        """Drops its connections, and nothing else."""
        ...

    def freeze(self, address: str, seconds: float) -> None:
        """No answers for so long (of the clock's seconds)."""
        ...

    def refuse(self, address: str, refused: bool) -> None:
        """Whether new connections are refused."""
        ...
