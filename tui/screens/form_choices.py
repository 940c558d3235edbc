"""What forms offer to choose from: values of the field that has the focus, and what was saved under a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Input

from backend.outcomes import OperatorError
from tui.actions import BY_ID
from tui.saved import Saved
from tui.screens.choose import Choose, Offer
from tui.screens.confirm import Ask
from tui.screens.form import FormLine
from tui.screens.form_screen import FormScreen
from tui.wording import count

if TYPE_CHECKING:
    from backend.runs.model import RunRequest
    from tui.console import Console

HISTORY_RUNS = 200
"""Runs of the journal whose commands are offered."""


def target_offers(console: Console) -> list[Offer]:
    """Groups, then everything that can be named."""
    groups = [Offer(f"@{name}", note=" ".join(targets)) for name, targets in console.groups().items()]
    return [*groups, *(Offer(name) for name in console.target_names())]


def command_requests(console: Console) -> dict[str, RunRequest]:
    """Commands that were run, the newest first, each once with its policies."""
    found: dict[str, RunRequest] = {}
    for record in console.require_tower().runs.heads(limit=HISTORY_RUNS):
        if record.request.kind == "command" and record.request.argv[:2] != ("/bin/sh", "-c"):
            found.setdefault(record.request.title or " ".join(record.request.argv), record.request)
    return found


class ChoosingForm(FormScreen):
    """A form whose fields can be browsed by a key."""

    def focused_line(self) -> FormLine:
        """The line of the field that has the focus.

        Raises:
            OperatorError: None has it.
        """
        focused = self.focused
        found = next((line for line in self.lines.values() if focused is not None and focused is line.control), None)
        if found is None:
            raise OperatorError("No field has the focus.", "tab goes to one.")
        return found

    async def offers(self, name: str) -> Sequence[Offer]:
        """What the field of that name may hold; empty where anything may."""
        return target_offers(self.console) if name == "targets" else ()

    def takes_several(self, name: str) -> bool:
        """Whether a choice is added to what the field holds."""
        return name == "targets"

    async def do_pick_value(self) -> None:
        """Browses what the field that has the focus may hold."""
        line = self.focused_line()
        empty = "This field takes what is typed; there is no list of it."
        picked = await self.console.push_screen_wait(
            Choose(f"Which {line.label}?", self.offers(line.field_name), empty=empty)
        )
        if picked is None:
            return
        if self.takes_several(line.field_name):
            words = line.value.split()
            picked = " ".join(words if picked in words else [*words, picked])
        self.take_choice(line, picked)
        line.control.focus()

    def take_choice(self, line: FormLine, picked: str) -> None:
        """Puts a choice into its field."""
        control = line.control
        if isinstance(control, Input):
            control.value = ""
        line.value = picked


class SavingForm(ChoosingForm):
    """A form that can be saved under a name, and filled from one."""

    saved_kind: ClassVar[str] = ""

    @property
    def saved(self) -> Saved:
        """The file of this console's state.

        Raises:
            OperatorError: The context is not open yet.
        """
        return Saved(self.console.require_tower().paths.state_dir / "saved.json")

    def fill_saved(self, texts: dict[str, str]) -> None:
        """Takes what was saved."""
        for name, line in self.lines.items():
            if name in texts:
                line.value = texts[name]

    def summary(self, texts: dict[str, str]) -> str:
        """A few words about what was saved."""
        return texts.get("command", "") or " ".join(text for text in list(texts.values())[:4])

    async def do_save_as(self) -> None:
        saved = self.saved
        known = saved.names(self.saved_kind)
        lines = (f"{count(len(known), 'name')} so far: {', '.join(known)}",) if known else ()

        def check(name: str) -> None:
            if not name:
                raise OperatorError("A name is missing.")

        name = await self.console.push_screen_wait(Ask("Save this form as", lines, hint="nightly", check=check))
        if name:
            saved.save(self.saved_kind, name, self.texts())
            self.console.say(f"Saved as {name}.")

    async def do_open_saved(self) -> None:
        saved = self.saved
        kept = saved.names(self.saved_kind)
        offers = [Offer(name, note=self.summary(texts)) for name, texts in kept.items()]
        offers += self.more_saved()
        key = self.console.settings.keymap.shown(BY_ID["save-as"])
        picked = await self.console.push_screen_wait(
            Choose(
                "Which of the saved?",
                offers,
                empty=f"Nothing is saved yet: {key} saves what the form says.",
                forget=lambda name: saved.forget(self.saved_kind, name),
            )
        )
        if picked is not None:
            self.fill_saved(kept.get(picked) or self.saved_elsewhere(picked))

    def more_saved(self) -> Iterable[Offer]:
        """What is saved in the configuration."""
        return ()

    def saved_elsewhere(self, name: str) -> dict[str, str]:
        """The texts of one of `more_saved`."""
        return {}
