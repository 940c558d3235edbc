"""Counts devices on every worker at once: are they chips x slices, is each process there once?

The first thing of the Multislice introduction's manual ("check the device count"), as a program whose answer can be trusted.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter

from jobs.programs.process import Limits, Watchdog, about, fail, finish, join, place, say, slices_of


def main() -> None:
    """Prints one `check` line: what is seen and whether it is what was launched."""
    parser = argparse.ArgumentParser(prog="devices", description=__doc__)
    parser.add_argument("--initialization_timeout", type=float, default=Limits.initialize_s, metavar="S")
    arguments = parser.parse_args()
    limits = Limits(initialize_s=arguments.initialization_timeout)
    watchdog = Watchdog()
    try:
        where = place(os.environ)
        jax = join(where, watchdog, limits)
        devices = list(jax.devices())
        by_slice = Counter(slices_of(devices, where).values())
        processes = sorted({device.process_index for device in devices})
        equal = len(set(by_slice.values())) == 1
        whole = processes == list(range(jax.process_count()))
        say(
            {
                "check": {
                    **about(jax, where),
                    "devices_by_slice": {str(index): count for index, count in sorted(by_slice.items())},
                    "expected_devices": where.slice_devices * where.slices or None,
                    "ok": equal and whole,
                }
            }
        )
        finish(jax, watchdog, limits)
    except Exception as error:
        fail(error)


if __name__ == "__main__":
    main()
