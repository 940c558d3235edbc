"""The check at the end of a session finds what is left running, orphans as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.leftovers import MARK, end_leftovers, leftovers

SLEEPS = "import sys, time; print(flush=True); time.sleep(600)"


@pytest.mark.parametrize("known_by", ["mark", "environment", "words"])
def test_an_orphan_is_found_and_ended(known_by: str, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name != MARK}
    mark = f"mark-{os.getpid()}"
    if known_by == "mark":
        kept[MARK] = mark
    if known_by == "environment":
        kept["HOME"] = str(tmp_path / "home")
    more = [str(tmp_path / "file")] if known_by == "words" else []
    orphan = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=2); print(p.pid)"
    words = [sys.executable, "-c", SLEEPS, *more]
    pid = int(subprocess.run([sys.executable, "-c", orphan, *words], env=kept, stdout=subprocess.PIPE).stdout)
    process = psutil.Process(pid)
    assert [each.pid for each in leftovers(mark, tmp_path)] == [pid]
    assert [each.pid for each in end_leftovers(mark, tmp_path, timeout_s=0)] == [pid]
    process.wait(60)
    assert leftovers(mark, tmp_path) == []
