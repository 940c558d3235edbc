"""What the operator set for the screen: `[ui]`, `[keys]` and `[commands]` of config.toml.

Read before the first paint, so it uses the standard library alone and never fails: what cannot be used is told on screen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tui import keymap
from tui.keymap import Keymap

UI_KEYS = {"theme": str, "ascii": bool, "plot": str}


@dataclass(frozen=True, slots=True)
class Settings:
    """The screen's part of the configuration."""

    theme: str = ""
    """Empty: the default."""
    ascii: bool = False
    """Glyphs from ASCII only."""
    plot: str = ""
    """`braille`, `block` or `ascii`; empty: chosen by `ascii`."""
    keymap: Keymap = field(default_factory=Keymap)
    commands: Mapping[str, str] = field(default_factory=dict)
    """Saved commands of the run dialog: name -> command text."""
    problems: tuple[str, ...] = ()
    """Sentences about what was not taken."""


def load_settings(file: Path | None) -> Settings:
    """Reads the file; a missing one means the defaults."""
    if file is None:
        return Settings()
    try:
        source = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        return Settings(problems=(f"{file}: cannot be read: {error}. The defaults are used.",))
    try:
        data = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        return Settings(problems=(f"{file}: {error}. The defaults are used.",))
    problems: list[str] = []

    def table(name: str) -> dict[str, object]:
        value = data.get(name, {})
        if isinstance(value, dict):
            return value
        problems.append(f"{file}: [{name}] must be a table.")
        return {}

    user = table("ui")
    for name, value in user.items():
        if name not in UI_KEYS:
            problems.append(f"{file}: [ui] {name}: there is no such setting; there are {', '.join(UI_KEYS)}.")
        elif not isinstance(value, UI_KEYS[name]):
            problems.append(f"{file}: [ui] {name}: {value!r} is not a {UI_KEYS[name].__name__}.")
    theme, ascii_only, plot = user.get("theme"), user.get("ascii"), user.get("plot")
    keys = keymap.build(table("keys"), file=file, source=source)
    return Settings(
        theme=theme if isinstance(theme, str) else "",
        ascii=ascii_only if isinstance(ascii_only, bool) else False,
        plot=plot if isinstance(plot, str) else "",
        keymap=keys,
        commands={name: text for name, text in table("commands").items() if isinstance(text, str)},
        problems=(*problems, *keys.problems),
    )
