"""Rules about which process of the whole each worker will be. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from backend.tools.looked import Looked, grouped
from backend.tools.model import Finding, Severity


def process_index(looked: Looked) -> Iterator[Finding]:
    """JAX numbers its processes by the metadata's worker number within a slice: no two of a slice may have the same."""
    holders: dict[tuple[str, str], list[str]] = {}
    for address, section in looked.section("multislice"):
        number = (section.get("metadata") or {}).get("WORKER_ID")
        if number is not None:
            holders.setdefault((address.rpartition("/")[0], number), []).append(address)
    twice, other = [], []
    for (place, number), addresses in holders.items():
        for address in addresses:
            if len(addresses) > 1:
                twice.append(
                    (address, f"{len(addresses)} workers of {place} are worker {number}, the same process index")
                )
            elif number != address.rpartition("/")[2]:
                other.append((address, f"the metadata calls it worker {number}, and the API lists it as another"))
    cure = "`slicetower qr reset` boots the slice anew; if it stays so, recreate the request."
    yield from grouped("process index", Severity.FAIL, twice, cure)
    yield from grouped("process index", Severity.WARN, other, "Output and outcomes stand under the API's number.")


RULES = (process_index,)
