"""The pictures of the journey as one moving picture: `python -m tests.journeys.recording docs/pictures`.

An SVG that shows them one after the other by CSS alone, so that a page shows it like any image: no script, nothing fetched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

SHOWN_S = 3.0
"""How long each picture stands."""
NAME = "journey.svg"
_STEP = re.compile(r"(\d+)-[\w-]+\.svg")
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def steps(folder: Path) -> list[Path]:
    """The numbered pictures of one journey, in their order, without what came after its end."""
    found = [(int(match[1]), file) for file in folder.glob("*.svg") if (match := _STEP.fullmatch(file.name))]
    return [file for _, file in sorted(found)]


def moving(pictures: Sequence[str]) -> str:
    """One SVG of several of the same size; who wants no motion sees the last one alone.

    Raises:
        ValueError: There are none, or they differ in size.
    """
    sizes = {_SIZE.search(picture).group(1, 2) for picture in pictures}  # type: ignore[union-attr]
    if len(sizes) != 1:
        raise ValueError(f"pictures of {len(sizes)} sizes make no moving one")
    width, height = sizes.pop()
    share = 100 / len(pictures)
    last = len(pictures) - 1
    rules = [
        f".f{{visibility:hidden;animation:s {SHOWN_S * len(pictures):g}s step-end infinite}}",
        f"@keyframes s{{0%{{visibility:visible}}{share:.4f}%{{visibility:hidden}}}}",
        *(f".f{place}{{animation-delay:{SHOWN_S * place:g}s}}" for place in range(len(pictures))),
        f"@media(prefers-reduced-motion:reduce){{.f{{animation:none}}.f{last}{{visibility:visible}}}}",
    ]
    frames = [
        f'<g class="f f{place}">{re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL).strip()}</g>'
        for place, picture in enumerate(pictures)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            f"<style>{''.join(rules)}</style>",
            *frames,
            "</svg>",
            "",
        ]
    )


def main(folder: Path) -> None:
    path = folder / NAME
    path.write_text(moving([file.read_text(encoding="utf-8") for file in steps(folder)]), encoding="utf-8")
    print(f"{path}: {len(steps(folder))} pictures, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
