"""What the simulated world asks of its machines, and the machines that only remember it.

The world's rules are plain functions in time; the machines are real processes behind SSH. Between them stands this
protocol: calls return at once and are carried out in order for each address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass
class RememberedMachines:
    """Machines without processes: they remember what was asked of them. For rules that need no real worker."""

    machines: dict[str, Machine] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(what, address), in order."""
    scripts: list[tuple[str, str]] = field(default_factory=list)
    """(address, startup script), one entry for each boot that had one."""
    refused: set[str] = field(default_factory=set)

    def add(self, machine: Machine) -> None:
        self.machines[machine.address] = machine
        self.calls.append(("add", machine.address))

    def boot(self, address: str, startup_script: str | None) -> None:
        self.running.add(address)
        self.calls.append(("boot", address))
        if startup_script:
            self.scripts.append((address, startup_script))

    def power_off(self, address: str, *, wipe: bool) -> None:
        self.running.discard(address)
        if wipe:
            self.machines.pop(address, None)
        self.calls.append(("wipe" if wipe else "power_off", address))

    def authorize(self, address: str, keys: tuple[str, ...]) -> None:
        self.calls.append(("authorize", address))

    def host_key(self, address: str) -> str:
        image = self.calls.count(("reimage", address)) or ""
        return f"ssh-ed25519 key-of-{self.machines[address].node_uid}-{self.machines[address].worker_index}{image}"

    def reimage(self, address: str) -> None:
        self.calls.append(("reimage", address))

    def cut(self, address: str) -> None:
        self.calls.append(("cut", address))

    def freeze(self, address: str, seconds: float) -> None:
        self.calls.append(("freeze", address))

    def refuse(self, address: str, refused: bool) -> None:
        (self.refused.add if refused else self.refused.discard)(address)
        self.calls.append(("refuse" if refused else "accept", address))
