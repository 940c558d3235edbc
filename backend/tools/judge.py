"""What the probe's facts mean: each rule looks at all workers together and says what, where and what to do. No I/O.

Thresholds are named below. What a worker does not tell is not judged: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median_high, median_low
from typing import Any

from backend.sanitize import plain
from backend.targets import fold
from backend.tools import judge_outside, judge_places
from backend.tools.looked import Expected, Looked, Said, grouped, is_cpu
from backend.tools.model import Finding, Severity

__all__ = ["Expected", "Looked", "judge", "names_of"]

DISK_FULL = 0.9
"""Share of bytes or inodes from which a disk is told."""
DISK_OUT = 0.98
"""From here on nothing can be written that matters."""
MEMORY_LOW = 0.1
"""Share of RAM that is available, below which a launch is at risk."""
NOFILE_LEAST = 4096
"""Open files: a JAX host with a data loader and gRPC to its peers passes the old default of 1,024."""
SKEW_WARN_S = 1.0
SKEW_FAIL_S = 60.0
"""Signed requests to Google Cloud Storage are refused at minutes; logs can't be merged at seconds."""
YOUNG_S = 300.0
"""A worker that is up for less is still booting, or was just repaired."""
VERSIONS = ("python", "jax", "jaxlib", "libtpu", "libtpu-nightly")


def _process(about: Mapping[str, Any]) -> str:
    age = about.get("age_s")
    since = f", for {age:.0f} s" if isinstance(age, int | float) else ""
    return f"pid {about.get('pid')} of {about.get('user') or '?'}{since}: {about.get('command') or '?'}"


# -- rules -----------------------------------------------------------------------------------------------------------


def nodes(looked: Looked) -> Iterator[Finding]:
    """The cloud's own word: maintenance minutes ahead is mostly a preemption (field notes, section 0, fact 4)."""
    said = [(address, each.trouble) for address, each in looked.expected.items() if each.trouble]
    cure = "Save a checkpoint now: a node that is unhealthy for maintenance is mostly gone within minutes."
    yield from grouped("node", Severity.WARN, said, cure)


def devices(looked: Looked) -> Iterator[Finding]:
    """Device nodes against the chips that the type has on each worker."""
    cpu, right, wrong = [], [], []
    for address, section in looked.section("devices"):
        found, chips = int(section["count"]), looked.of(address).chips
        if found == 0 and is_cpu(looked.facts[address]):
            cpu.append((address, "CPU workers: JAX_PLATFORMS=cpu is set there, and no chip is looked for"))
        elif chips is None or found == chips:
            right.append((address, f"{found} chips"))
        elif is_cpu(looked.facts[address]):
            cpu.append((address, f"CPU workers with {found} device nodes"))
        else:
            wrong.append((address, f"{found} chips are found, and {chips} should be there"))
    yield from grouped("devices", Severity.OK, cpu)
    yield from grouped("devices", Severity.OK, right)
    cure = "A chip that is missing comes back with a new VM alone: `slicetower qr recreate`, or wait for the repair."
    yield from grouped("devices", Severity.FAIL, wrong, cure)


def holders(looked: Looked) -> Iterator[Finding]:
    """Who has the chips open."""
    said = [
        (address, f"the TPU is held by {_process(each)}")
        for address, section in looked.section("devices")
        for each in section["holders"]
    ]
    yield from grouped(
        "holders", Severity.FAIL, said, "If it should be gone: `slicetower free TARGET` stops it and confirms it."
    )
    blind = [
        (address, f"the files of {section['processes_not_seen']} processes of others could not be seen")
        for address, section in looked.section("devices")
        if section.get("processes_not_seen") and not section["holders"] and section["count"]
    ]
    yield from grouped("holders", Severity.WARN, blind, "Log in as a user with sudo to see who holds the chips.")


def lockfile(looked: Looked) -> Iterator[Finding]:
    """A stale one stops the next program, unless there is no chip that it could guard."""
    stale: dict[Severity, list[tuple[str, str]]] = {Severity.FAIL: [], Severity.WARN: []}
    for address, section in looked.section("lockfile"):
        if section["stale"]:
            chips = (looked.facts[address].get("devices") or {}).get("count")
            level = Severity.WARN if chips == 0 and is_cpu(looked.facts[address]) else Severity.FAIL
            stale[level].append((address, f"{section['path']} is left behind by a program that is gone"))
    for level, said in stale.items():
        yield from grouped("lockfile", level, said, "`slicetower free TARGET` removes it.")
    unknown = [
        (address, f"{section['path']} is there, and its owner can't be seen")
        for address, section in looked.section("lockfile")
        if section["exists"] and not section["stale"] and not section["owners"]
    ]
    yield from grouped("lockfile", Severity.WARN, unknown, "If nothing runs: `sudo rm` it.")


def versions(looked: Looked) -> Iterator[Finding]:
    """Equal everywhere; the workers that differ from the most are named."""
    told = dict(looked.section("versions"))
    for name in VERSIONS:
        places: dict[str, list[str]] = {}
        for address, section in told.items():
            places.setdefault(str(section.get(name) or "none"), []).append(address)
        if len(places) < 2:
            continue
        most = max(places, key=lambda version: len(places[version]))
        for version, addresses in places.items():
            if version != most:
                what = f"{name} is {version} here, and {most} on the other {len(places[most])}"
                cure = "`slicetower setup TARGET` installs one set everywhere."
                yield Finding("versions", Severity.FAIL, tuple(addresses), plain(what), cure)
    missing = [
        (address, f"jax is not installed for {section['executable']}")
        for address, section in told.items()
        if not section.get("jax")
    ]
    yield from grouped("versions", Severity.WARN, missing, "`slicetower setup TARGET` makes a venv with it.")
    without = [
        (address, "jax is installed without libtpu")
        for address, section in told.items()
        if section.get("jax")
        and not (section.get("libtpu") or section.get("libtpu-nightly"))
        and not is_cpu(looked.facts[address])
    ]
    yield from grouped("versions", Severity.FAIL, without, "`slicetower setup TARGET` installs jax[tpu].")
    if told and not missing:
        shown = next(iter(told.values()))
        text = ", ".join(f"{name} {shown[name]}" for name in VERSIONS if shown.get(name))
        if all(all(each.get(name) == shown.get(name) for name in VERSIONS) for each in told.values()):
            yield Finding("versions", Severity.OK, tuple(told), plain(text))


def processes(looked: Looked) -> Iterator[Finding]:
    """Python of this login before a launch: mostly what an earlier run left behind."""
    held = {(address, each["pid"]) for address, section in looked.section("devices") for each in section["holders"]}
    said = [
        (address, f"Python runs already: {_process(each)}")
        for address, section in looked.section("processes")
        for each in section.get("own", ())
        if (address, each["pid"]) not in held
    ]
    yield from grouped(
        "processes", Severity.WARN, said, "If it is left over: `slicetower runs stop ID`, or kill that pid."
    )


def disks(looked: Looked) -> Iterator[Finding]:
    levels: dict[Severity, list[tuple[str, str]]] = {Severity.WARN: [], Severity.FAIL: []}
    for address, section in looked.section("disks"):
        for disk in section:
            for total, free, unit in (("bytes", "free_bytes", "GB"), ("inodes", "free_inodes", "inodes")):
                if not disk.get(total):
                    continue
                used = 1 - disk[free] / disk[total]
                if used > DISK_FULL:
                    left = f"{disk[free] / 1e9:.1f} GB" if unit == "GB" else f"{disk[free]} inodes"
                    level = Severity.FAIL if used > DISK_OUT else Severity.WARN
                    levels[level].append((address, f"{disk['path']} is {used:.0%} full, {left} are left"))
    cure = "Old checkpoints, /tmp/tpu_logs, model caches and docker images are the usual ones."
    for level, said in levels.items():
        yield from grouped("disk", level, said, cure)


def memory(looked: Looked) -> Iterator[Finding]:
    low = [
        (address, f"only {section['available_bytes'] / 1e9:.1f} of {section['bytes'] / 1e9:.0f} GB RAM are available")
        for address, section in looked.section("memory")
        if section["available_bytes"] < MEMORY_LOW * section["bytes"]
    ]
    yield from grouped(
        "memory", Severity.WARN, low, "`slicetower run TARGET -- ps aux --sort=-rss` shows who has it."
    )
    killed = [
        (address, f"the kernel has killed {section['oom_kills']} processes since boot for want of memory")
        for address, section in looked.section("memory")
        if section.get("oom_kills")
    ]
    yield from grouped("memory", Severity.WARN, killed, "Load less per host: a run there may have ended for that.")


def clocks(looked: Looked) -> Iterator[Finding]:
    """Skew that is certain: each worker's clock lies within the time of its own exec, and no further is concluded."""
    least: dict[str, float] = {}
    most: dict[str, float] = {}
    for address, section in looked.section("clock"):
        if address in looked.sent_at and address in looked.received_at:
            least[address] = section["time"] - looked.received_at[address]
            most[address] = section["time"] - looked.sent_at[address]
    for address in least:
        # Half of the others lie behind (ahead) of these for certain, however long their own execs took.
        others = [each for each in least if each != address]
        if not others:
            return
        ahead = least[address] - median_high(most[each] for each in others)
        behind = median_low(least[each] for each in others) - most[address]
        off = max(ahead, behind)
        if off > SKEW_WARN_S:
            level = Severity.FAIL if off > SKEW_FAIL_S else Severity.WARN
            what = (
                f"the clock is at least {off:.0f} s {'ahead of' if ahead > behind else 'behind'} the other workers'"
            )
            yield Finding(
                "clock", level, (address,), what, "Look at its time service: `timedatectl`, `chronyc tracking`."
            )


def limits(looked: Looked) -> Iterator[Finding]:
    few, locked = [], []
    for address, section in looked.section("limits"):
        soft, hard = section["nofile"]
        if soft is not None and soft < NOFILE_LEAST:
            few.append((address, f"a process may have {soft} open files (hard limit {hard})"))
        soft, _ = section["memlock"]
        if soft is not None and not is_cpu(looked.facts[address]):
            locked.append((address, f"a process may lock {soft // 1024} KiB of memory, and libtpu locks more"))
    cure = "Raise it in /etc/security/limits.d (nofile), or with `ulimit -n` before the program."
    yield from grouped("limits", Severity.WARN, few, cure)
    cure = "Set `* - memlock unlimited` in /etc/security/limits.d; for docker --ulimit memlock=-1:-1."
    yield from grouped("limits", Severity.WARN, locked, cure)


def multislice(looked: Looked) -> Iterator[Finding]:
    """The metadata's MEGASCALE variables against the number of slices that the request has."""
    wrong, absent, own = [], [], []
    for address, section in looked.section("multislice"):
        expected = looked.of(address)
        told = section.get("metadata")
        numbers = told or {}
        if expected.slices > 1 and told is not None:
            found = numbers.get("MEGASCALE_NUM_SLICES")
            if found is None:
                absent.append(
                    (
                        address,
                        f"the metadata has no MEGASCALE variables, and the request has {expected.slices} slices",
                    )
                )
            elif found != str(expected.slices):
                wrong.append(
                    (address, f"MEGASCALE_NUM_SLICES is {found}, and the request has {expected.slices} slices")
                )
            place = numbers.get("MEGASCALE_SLICE_ID")
            if place is not None and place != str(expected.slice_index):
                wrong.append((address, f"MEGASCALE_SLICE_ID is {place}, and this is slice {expected.slice_index}"))
        elif expected.slices == 1 and numbers.get("MEGASCALE_NUM_SLICES", "1") != "1":
            wrong.append(
                (address, f"MEGASCALE_NUM_SLICES is {numbers['MEGASCALE_NUM_SLICES']}, and this is one slice")
            )
        if section.get("environment"):
            names = ", ".join(sorted(section["environment"]))
            own.append((address, f"the login's environment sets {names}, which win over the metadata"))
    cure = (
        "Without them each slice runs for itself. Only a request with --node-count (or its API) makes a Multislice."
    )
    yield from grouped("multislice", Severity.FAIL, absent, cure)
    yield from grouped("multislice", Severity.FAIL, wrong, "Recreate the request: its slices do not belong together.")
    yield from grouped("multislice", Severity.WARN, own, "Remove them unless you meant them.")


def coordinator(looked: Looked) -> Iterator[Finding]:
    """A refusal means that the way is open and the port free; silence means a firewall."""
    busy, blocked, free = [], [], []
    for address, section in looked.section("coordinator"):
        where = section["address"]
        if section["reachable"]:
            busy.append((address, f"something listens on {where} already"))
        elif section.get("refused"):
            free.append((address, f"{where} can be reached, and its port is free"))
        else:
            blocked.append((address, f"{where} can't be reached: {section.get('error', '')}"))
    yield from grouped("coordinator", Severity.OK, free)
    yield from grouped(
        "coordinator", Severity.WARN, busy, "A run that goes on, or what is left of one: `slicetower runs list`."
    )
    yield from grouped(
        "coordinator", Severity.FAIL, blocked, "Open the port between the workers (VPC firewall, same network)."
    )


def startup(looked: Looked) -> Iterator[Finding]:
    going, bad, apt = [], [], []
    for address, section in looked.section("startup"):
        if section.get("state") in ("activating", "reloading"):
            going.append((address, "the startup script still runs"))
        elif section.get("state") == "failed" or section.get("result") not in (None, "", "success"):
            bad.append((address, f"the startup script failed: {section.get('result')}"))
    for address, section in looked.section("packages"):
        apt += [(address, f"apt is locked by {_process(each)}") for each in section["lock_holders"]]
    yield from grouped(
        "startup", Severity.WARN, going, "Wait for it; its output: `journalctl -u google-startup-scripts`."
    )
    yield from grouped("startup", Severity.FAIL, bad, "Its output: `journalctl -u google-startup-scripts`.")
    yield from grouped(
        "apt", Severity.WARN, apt, "At first boot it takes some minutes; `slicetower setup` waits for it."
    )


def names(looked: Looked) -> Iterator[Finding]:
    """Two workers of one name are one machine behind two addresses, or an image that was copied."""
    places: dict[str, list[str]] = {}
    for address, facts in looked.facts.items():
        name = str(facts.get("name") or facts.get("hostname") or "")
        if name:
            places.setdefault(name, []).append(address)
    for name, addresses in places.items():
        if len(addresses) > 1:
            what = f"{len(addresses)} workers are called {plain(name)}"
            yield Finding(
                "names", Severity.FAIL, tuple(addresses), what, "Compare their addresses in `slicetower qr describe`."
            )


def boots(looked: Looked) -> Iterator[Finding]:
    again, young = [], []
    for address, section in looked.section("boot"):
        before = looked.of(address).boot_id
        if before and before != section["id"]:
            again.append((address, "it was booted again since the last check: what ran there is gone"))
        elif section["uptime_s"] < YOUNG_S:
            young.append((address, f"it has been up for {section['uptime_s']:.0f} s"))
    yield from grouped("boot", Severity.WARN, again, "`slicetower runs list` shows runs that were lost with it.")
    yield from grouped("boot", Severity.WARN, young, "It may still be setting itself up.")


def tokens(looked: Looked) -> Iterator[Finding]:
    said = [
        (address, f"{', '.join(section['empty'])} is set and empty")
        for address, section in looked.section("settings")
        if section.get("empty")
    ]
    yield from grouped(
        "environment", Severity.WARN, said, "Unset it, or give it its value: an empty token is refused."
    )


def unreadable(looked: Looked) -> Iterator[Finding]:
    said = [
        (address, f"{name} could not be read: {reason}")
        for address, facts in looked.facts.items()
        for name, reason in (facts.get("unreadable") or {}).items()
    ]
    yield from grouped("probe", Severity.WARN, said)


RULES: Sequence[Callable[[Looked], Iterator[Finding]]] = (
    nodes,
    devices,
    holders,
    lockfile,
    versions,
    processes,
    disks,
    memory,
    clocks,
    limits,
    multislice,
    coordinator,
    startup,
    names,
    boots,
    tokens,
    *judge_outside.RULES,
    *judge_places.RULES,
    unreadable,
)
_ORDER = {Severity.FAIL: 0, Severity.WARN: 1, Severity.OK: 2}


def judge(looked: Looked, errors: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """All findings, the worst first; a worker that gave no answer is the worst.

    Args:
        looked: What was told.
        errors: By address, why a worker told nothing.
    """
    found = list(
        grouped("reach", Severity.FAIL, _without_address(errors or {}), "`slicetower fleet` shows its state.")
    )
    for rule in RULES:
        found += rule(looked)
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def _without_address(errors: Mapping[str, str]) -> Said:
    """So that one reason is told once for all."""
    return [(address, error.removeprefix(f"{address}: ").replace(address, "it")) for address, error in errors.items()]


def names_of(findings: Iterable[Finding]) -> str:
    """Every worker with a failure, in short."""
    return fold({address for each in findings if each.severity is Severity.FAIL for address in each.workers})
