"""`python -m tests.benchmarks`: what can be measured, each by `python -m tests.benchmarks.NAME`."""

from __future__ import annotations

import ast
import pkgutil
from pathlib import Path


def listing() -> dict[str, str]:
    """The first sentence of every benchmark's docstring, by name."""
    folder = Path(__file__).parent
    found = {}
    for module in pkgutil.iter_modules([str(folder)]):
        text = ast.get_docstring(ast.parse((folder / f"{module.name}.py").read_text("utf-8"))) or ""
        if module.name != "__main__":
            found[module.name] = text.partition("\n")[0]
    return found


if __name__ == "__main__":
    for name, line in listing().items():
        print(f"python -m tests.benchmarks.{name:<14} {line}")
