"""All benchmarks, briefly: `make bench`. Each is a module here, and measures more when it is run by itself.

python -m tests.benchmarks [NAME ...] [--list]
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import pkgutil
import shutil
import subprocess
import sys
import time
from pathlib import Path

BRIEF: dict[str, list[str]] = {
    "fanout": ["--hosts", "32", "--rounds", "3"],
    "log_feed": [],
    "poll": ["--rounds", "3"],
    "table": [],
    "list_command": ["--rounds", "3"],
    "first_paint": ["--rounds", "3"],
    "idle": ["--seconds", "20"],
    "shardings": ["--pairs", "2"],
}
"""Those that are run, with options for a brief run; what else there is takes its time, and is run by itself."""

TIMEOUT_S = 900.0


def listing() -> dict[str, str]:
    """The first sentence of every benchmark's docstring, by name."""
    folder = Path(__file__).parent
    found = {}
    for module in pkgutil.iter_modules([str(folder)]):
        text = ast.get_docstring(ast.parse((folder / f"{module.name}.py").read_text("utf-8"))) or ""
        if module.name != "__main__":
            found[module.name] = text.partition("\n")[0]
    return found


def main(names: list[str]) -> int:
    """Runs them one after another, and tells which could not be run."""
    found = listing()
    failed = []
    for name in names or list(BRIEF):
        options = BRIEF[name]
        lacks = "sshd" if name == "fanout" and not shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin:/bin") else ""
        lacks = "jax" if name == "shardings" and importlib.util.find_spec("jax") is None else lacks
        print(f"== {name}: {found[name]}", flush=True)
        if lacks:
            print(f"   not run: {lacks} is not installed", flush=True)
            continue
        began = time.monotonic()
        command = [sys.executable, "-m", f"tests.benchmarks.{name}", *options]
        try:
            code = subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        if code:
            failed.append(name)
        ended = "failed" if code else "done"
        print(f"   {ended} after {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BRIEF)}; all when none is given")
    parser.add_argument("--list", action="store_true", help="tell what there is, and run nothing")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BRIEF]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BRIEF)}")
    if arguments.list:
        for each, about in listing().items():
            print(f"python -m tests.benchmarks.{each:<14} {about}")
        sys.exit(0)
    sys.exit(main(arguments.names))
