"""Keys from the configuration: `[keys]` maps an action's id to a key, or to several separated by commas.

A mistake never stops the console: it costs that one line, and becomes a sentence that names the file, the line and the
key. Whatever remains is free of clashes on every screen.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from tui.action_widgets import WIDGET_DEFAULTS
from tui.actions import ACTIONS, BY_ID, KEY_NAMES, RESERVED_KEYS, Action, key_name

SPELLINGS = {shown: name for name, shown in KEY_NAMES.items()} | {"return": "enter", "del": "delete"}
"""How people write a key -> Textual's name."""

MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})
NAMED_KEYS = frozenset(key.value for key in Keys) | frozenset(KEY_NAME_REPLACEMENTS.values()) | frozenset(KEY_NAMES)


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys in force."""

    overrides: Mapping[str, str] = field(default_factory=dict)
    """Action id -> Textual's key list, only what the configuration changed."""
    problems: tuple[str, ...] = ()
    """One sentence per line of the configuration that was not taken."""

    def keys(self, action: Action) -> tuple[str, ...]:
        """The keys of an action, rebound or not."""
        changed = self.overrides.get(action.id)
        return tuple(changed.split(",")) if changed else action.keys

    def for_textual(self) -> dict[str, str]:
        """What `App.set_keymap` takes: ids of bindings, the widgets' own too, with their keys."""
        found = dict(WIDGET_DEFAULTS)
        for action_id, keys in self.overrides.items():
            found[BY_ID[action_id].widget_id or action_id] = keys
        return found

    def nothing_here(self, key: str) -> str:
        """A sentence on a key, by Textual's name, that does nothing where it was pressed."""
        help_key = self.shown(BY_ID["help"])
        elsewhere = dict.fromkeys(action.title for action in ACTIONS if key in self.keys(action))
        what = f"{key_name(key)} ({', '.join(list(elsewhere)[:2])})" if elsewhere else key_name(key)
        return f"{what} does nothing here. {help_key} lists what does."

    def shown(self, action: Action, *, typing: bool = False) -> str:
        """The first key, as people write it; empty when the action has none.

        Args:
            action: What it does.
            typing: A text field has the keys: one that it does not take for a letter goes first.
        """
        names = [key_name(key) for key in self.keys(action)]
        if typing:
            names.sort(key=lambda name: len(name) == 1)
        return names[0] if names else ""


def normal_key(text: str) -> str | None:
    """Textual's name of a key as an operator writes it: `?`, `ctrl+p`, `f5`; None when there is no such key."""
    text = text.strip()
    if not text:
        return None
    *modifiers, last = (
        text.split("+") if text != "+" and not text.endswith("++") else [*text[:-1].split("+")[:-1], "+"]
    )
    if any(item.lower() not in MODIFIERS for item in modifiers):
        return None
    last = SPELLINGS.get(last, last)
    if len(last) != 1 and last.lower() not in NAMED_KEYS:
        return None
    last = last if len(last) == 1 else last.lower()
    return "+".join([*(item.lower() for item in modifiers), last])


def clashes(keymap: Keymap) -> list[tuple[str, str, str, str]]:
    """(scope, key, first id, second id) of keys that mean two things on one screen; widgets' own keys count too."""
    found = []
    scopes = sorted({scope for action in ACTIONS for scope in action.scopes})
    for scope in scopes:
        owner: dict[str, str] = {}
        for action in ACTIONS:
            if scope not in action.scopes:
                continue
            for key in keymap.keys(action):
                if key in owner and owner[key] != action.id:
                    found.append((scope, key, owner[key], action.id))
                owner.setdefault(key, action.id)
    return found


def _line_of(source: str, action_id: str) -> int:
    """The line that sets an id, 1-based; 0 when it cannot be told."""
    in_keys = False
    for number, line in enumerate(source.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            in_keys = stripped.replace(" ", "").startswith("[keys]")
        elif in_keys and stripped.split("=")[0].strip().strip("\"'") == action_id:
            return number
    return 0


def build(table: Mapping[str, object], *, file: Path | None = None, source: str = "") -> Keymap:
    """The keymap of a configuration's `[keys]` table.

    Args:
        table: action id -> key text, as parsed.
        file: Named in messages.
        source: The file's text, for line numbers.
    """
    overrides: dict[str, str] = {}
    problems: list[str] = []

    def refuse(action_id: str, why: str) -> None:
        line = _line_of(source, action_id)
        place = f"{file or 'config.toml'}{f', line {line}' if line else ''}"
        problems.append(f"{place}: [keys] {action_id}: {why}")

    for action_id, value in table.items():
        if action_id not in BY_ID:
            near = difflib.get_close_matches(action_id, BY_ID, n=3)
            refuse(action_id, f"there is no such action{'; near: ' + ', '.join(near) if near else ''}.")
            continue
        if not isinstance(value, str):
            refuse(action_id, f'a key is a text such as "x" or "ctrl+x", not {value!r}.')
            continue
        keys = [normal_key(part) for part in (value.split(",") if value != "," else [value])]
        unknown = next((part for part, key in zip(value.split(","), keys, strict=False) if key is None), None)
        if unknown is not None:
            refuse(action_id, f"'{unknown.strip()}' is not a key.")
            continue
        chosen = [key for key in keys if key is not None]
        reserved = [key for key in chosen if key in RESERVED_KEYS]
        if reserved:
            refuse(action_id, f"'{reserved[0]}' belongs to shells and multiplexers and is not used here.")
            continue
        candidate = Keymap({**overrides, action_id: ",".join(chosen)})
        overrides[action_id] = candidate.overrides[action_id]

    # Judged together, so that two actions may swap their keys.
    while found := clashes(Keymap(overrides)):
        scope, key, first, second = found[0]
        loser = second if second in overrides else first
        if loser not in overrides:
            break
        other = first if loser == second else second
        refuse(loser, f"'{key_name(key)}' is '{other}' on the {scope} screen already; the key stays as it was.")
        del overrides[loser]
    return Keymap(overrides, tuple(problems))
