"""Colour themes from TOML files: the ones that are shipped, and the operator's own, reloaded when saved.

A mistake in a theme is a sentence with file and line, never a crash: that theme is left out, or keeps its last good form.

```toml
name = "mine"
dark = true
[colors]                      # Textual's: primary is required
primary = "#58a6ff"
[tokens]                      # slicetower's: any of tui.look.TOKENS
state-active = "#56d364"
[variables]                   # any other variable of Textual's CSS
```
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

import themes
from tui.look import TOKENS

DEFAULT_THEME = "tower-dark"
COLORS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
)
_TOP_KEYS = ("name", "dark", "ansi", "colors", "tokens", "variables")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_PERCENTAGE = re.compile(r"\d{1,3}(?:\.\d+)?%")
_AUTO = re.compile(r"auto(?: \d{1,3}%)?")
_STYLE_WORDS = frozenset({"none", "not", "bold", "dim", "italic", "underline", "reverse", "strike"})
_ANSI_VARIABLES = {
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
    "surface-active": "ansi_default",
    "foreground-disabled": "ansi_default 50%",
    "screen-selection-background": "ansi_cyan",
    "screen-selection-foreground": "ansi_black",
}
"""What Textual's CSS asks for and its ANSI generator leaves out."""
THEME_BYTES_MOST = 64 * 1024
"""A larger file is no theme; it is not read."""


@dataclass(frozen=True, slots=True)
class ThemeFailure:
    """Why a theme could not be used."""

    file: str
    line: int | None
    key: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.reason}" if self.key else f"{place}: {self.reason}"


def parse_theme(text: str, file: str) -> tuple[Theme | None, list[ThemeFailure]]:
    """Reads one theme; every mistake is named, not only the first.

    Args:
        text: The TOML.
        file: What to call it in messages.

    Returns:
        The theme, or None and at least one failure.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)", str(error))
        reason = re.sub(r" \(at [^)]*\)$", "", str(error))
        return None, [ThemeFailure(file, int(place[1]) if place else None, "", f"is not TOML: {reason}")]
    reader = _Reader(document, text, file)
    theme = reader.theme()
    return (None, reader.failures) if reader.failures else (theme, [])


class _Reader:
    """Checks one document and gathers what is wrong with it."""

    def __init__(self, document: dict[str, Any], text: str, file: str) -> None:
        self.document = document
        self.lines = text.splitlines()
        self.file = file
        self.failures: list[ThemeFailure] = []

    def theme(self) -> Theme | None:
        for key in self.document:
            if key not in _TOP_KEYS:
                self.fail("", key, f"is not known; a theme has {', '.join(_TOP_KEYS)}")
        name = self.document.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.fail("", "name", "must be given, in lower-case letters, digits and '-'")
        dark, ansi = self.flag("dark", True), self.flag("ansi", False)
        colors = self.colors("colors", COLORS)
        tokens = self.colors("tokens", TOKENS)
        variables = self.variables()
        if ansi:
            variables = {**_ANSI_VARIABLES, **variables}
        if "primary" not in colors and not any(each.key == "primary" for each in self.failures):
            self.fail("colors", "primary", "must be given: the other colours are derived from it")
        if self.failures:
            return None
        return Theme(name=str(name), dark=dark, ansi=ansi, variables={**variables, **tokens}, **colors)  # type: ignore[arg-type]

    def flag(self, key: str, default: bool) -> bool:
        value = self.document.get(key, default)
        if not isinstance(value, bool):
            self.fail("", key, "must be true or false")
            return default
        return value

    def table(self, section: str) -> dict[str, Any]:
        value = self.document.get(section, {})
        if not isinstance(value, dict):
            self.fail("", section, f"must be a table: [{section}]")
            return {}
        return value

    def colors(self, section: str, known: Iterable[str]) -> dict[str, str]:
        names = tuple(known)
        found: dict[str, str] = {}
        for key, value in self.table(section).items():
            if key not in names:
                self.fail(section, key, f"is not one of {', '.join(names)}")
            elif reason := color_problem(value):
                self.fail(section, key, reason)
            else:
                found[key] = value
        return found

    def variables(self) -> dict[str, str]:
        """Textual's own variables: what does not parse here would take the whole screen down as CSS."""
        found: dict[str, str] = {}
        for key, value in self.table("variables").items():
            if key not in _textual_variables():
                self.fail("variables", key, "is no variable of Textual's themes")
            elif reason := style_problem(value) if key.endswith("-style") else variable_problem(value):
                self.fail("variables", key, reason)
            else:
                found[key] = value
        return found

    def fail(self, section: str, key: str, reason: str) -> None:
        self.failures.append(ThemeFailure(self.file, self.line_of(section, key), key, reason))

    def line_of(self, section: str, key: str) -> int | None:
        """Where a key stands, as far as plain TOML goes; a missing key has the line of its section."""
        inside, heading = section == "", None
        quoted = re.compile(rf"""\s*(?:"{re.escape(key)}"|'{re.escape(key)}'|{re.escape(key)})\s*=""")
        for number, line in enumerate(self.lines, 1):
            header = re.match(r"\s*\[\s*([\w-]+)\s*\]", line)
            if header:
                inside = header[1] == section
                if inside or (section == "" and header[1] == key):
                    heading = number
            elif inside and quoted.match(line):
                return number
        return heading


def color_problem(value: object) -> str:
    """Why a value is no colour, or empty. `#rgb`, `#rrggbb`, CSS names, `ansi_NAME`, each with an optional ` 50%`."""
    if not isinstance(value, str):
        return "must be a colour in quotes, such as '#58a6ff'"
    text, _, percentage = value.strip().partition(" ")
    try:
        Color.parse(text)
    except ColorParseError:
        return f"'{value}' is no colour: use #rrggbb, a CSS name, or ansi_green and the like"
    if percentage and not _PERCENTAGE.fullmatch(percentage):
        return f"'{percentage}' is no opacity: write it as '{text} 50%'"
    return ""


def variable_problem(value: object) -> str:
    """Why a value can't be one of Textual's colour variables, or empty: a colour, `auto 87%`, transparent or initial."""
    if isinstance(value, str) and (value in ("transparent", "initial") or _AUTO.fullmatch(value)):
        return ""
    return color_problem(value)


def style_problem(value: object) -> str:
    """Why a value is no text style, or empty."""
    if isinstance(value, str) and value.split() and set(value.split()) <= _STYLE_WORDS:
        return ""
    return f"must be words of {', '.join(sorted(_STYLE_WORDS))}"


@cache
def _textual_variables() -> frozenset[str]:
    return frozenset(Theme("any", "#000000").to_color_system().generate()) | frozenset(_ANSI_VARIABLES)


def load_themes(files: Mapping[str, str]) -> tuple[dict[str, Theme], list[ThemeFailure]]:
    """Reads themes from file name -> text. Of two with one name the later file is refused."""
    loaded: dict[str, Theme] = {}
    failed: list[ThemeFailure] = []
    origin: dict[str, str] = {}
    for file, text in sorted(files.items()):
        theme, failures = parse_theme(text, file)
        failed.extend(failures)
        if theme is None:
            continue
        if theme.name in loaded:
            failed.append(ThemeFailure(file, None, "name", f"'{theme.name}' is taken by {origin[theme.name]}"))
            continue
        loaded[theme.name] = theme
        origin[theme.name] = file
    return loaded, failed


def _shipped_folder() -> Path:
    # Not importlib.resources: its readers are imported for this alone, before the first frame.
    return Path(themes.__path__[0])


def shipped_themes() -> tuple[dict[str, Theme], list[ThemeFailure]]:
    """The themes of the package `themes`."""
    return load_themes({path.name: path.read_text("utf-8") for path in _shipped_folder().glob("*.toml")})


def shipped_theme(name: str) -> Theme | None:
    """One theme of the package `themes`, whose file has its name; None where there is none."""
    path = _shipped_folder() / f"{name}.toml"
    if not _NAME.fullmatch(name) or not path.is_file():
        return None
    theme, _ = parse_theme(path.read_text("utf-8"), path.name)
    return theme


def user_themes(folder: Path) -> tuple[dict[str, Theme], list[ThemeFailure]]:
    """The operator's own themes; a folder that is not there holds none."""
    texts: dict[str, str] = {}
    failed: list[ThemeFailure] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            if path.stat().st_size > THEME_BYTES_MOST:
                failed.append(
                    ThemeFailure(path.name, None, "", f"is over {THEME_BYTES_MOST // 1024} KiB: not a theme")
                )
                continue
            texts[path.name] = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            failed.append(ThemeFailure(path.name, None, "", f"can't be read: {error}"))
    loaded, more = load_themes(texts)
    return loaded, failed + more


@dataclass(frozen=True, slots=True)
class ThemeChange:
    """What a reload did."""

    names: tuple[str, ...]
    """Themes that are new or different."""
    failures: tuple[ThemeFailure, ...]


class ThemeStore:
    """All themes of one app: shipped ones, and the operator's over them.

    Args:
        folder: The operator's `themes` folder; None for none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.own: dict[str, Theme] = {}
        self.failures: tuple[ThemeFailure, ...] = ()
        self._stamp: tuple[tuple[str, int, int], ...] | None = None

    @cached_property
    def shipped(self) -> dict[str, Theme]:
        """The themes that come with the program."""
        loaded, failures = shipped_themes()
        if failures:
            raise ValueError(f"a shipped theme is broken: {failures[0]}")
        return loaded

    @property
    def names(self) -> tuple[str, ...]:
        """In the order to cycle through: shipped first."""
        return (*self.shipped, *(name for name in self.own if name not in self.shipped))

    def install_one(self, app: App[Any], name: str) -> bool:
        """Registers what the first frame needs; `install` must follow.

        Returns:
            Whether one shipped theme is enough: it has that name, and no theme of the operator's can be meant.
        """
        if self._look() or (theme := shipped_theme(name)) is None:
            return False
        app.register_theme(theme)
        return True

    def install(self, app: App[Any]) -> tuple[ThemeFailure, ...]:
        """Registers every theme with the app. Returns what is wrong with the operator's own."""
        for theme in self.shipped.values():
            app.register_theme(theme)
        self.poll(app)
        return self.failures

    def poll(self, app: App[Any]) -> ThemeChange | None:
        """Reloads the operator's themes if a file was saved, added or removed; the app's clock calls it.

        A theme whose file is now broken keeps its last good form, one whose file is gone stays until another is chosen.

        Returns:
            What changed, or None.
        """
        if self.folder is None or (stamp := self._look()) == self._stamp:
            return None
        self._stamp = stamp
        loaded, failed = user_themes(self.folder)
        changed = [name for name, theme in loaded.items() if self.own.get(name) != theme]
        self.failures = tuple(failed)
        for name in changed:
            self.own[name] = loaded[name]
            app.register_theme(loaded[name])
        if not failed:
            for name in [name for name in self.own if name not in loaded and name != app.theme]:
                del self.own[name]
                if name in self.shipped:
                    app.register_theme(self.shipped[name])
                else:
                    app.unregister_theme(name)
        if app.theme in changed:
            app.mutate_reactive(App.theme)
        return ThemeChange(tuple(changed), self.failures)

    def _look(self) -> tuple[tuple[str, int, int], ...]:
        seen: list[tuple[str, int, int]] = []
        for path in sorted(self.folder.glob("*.toml")) if self.folder else ():
            try:
                status = path.stat()
            except OSError:
                continue
            seen.append((path.name, status.st_mtime_ns, status.st_size))
        return tuple(seen)
