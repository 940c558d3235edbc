"""One of many, browsed: a list that narrows while it is typed at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import DIALOG, Action, bindings
from tui.screens.base import Dialog
from tui.screens.entry import Entry
from tui.widgets.hints_footer import Hint


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be chosen."""

    answer: str
    label: str = ""
    """Empty: the answer itself."""
    note: str = ""

    @property
    def text(self) -> str:
        return plain("  ".join(part for part in (self.label or self.answer, self.note) if part))


class Choose(Dialog[str]):
    """Up and down browse, letters narrow, enter takes; `escape` answers None."""

    BINDINGS: ClassVar = [
        *bindings(DIALOG),
        Binding("down", "browse('cursor_down')", show=False, priority=True),
        Binding("up", "browse('cursor_up')", show=False, priority=True),
        Binding("pagedown", "browse('page_down')", show=False, priority=True),
        Binding("pageup", "browse('page_up')", show=False, priority=True),
        Binding("ctrl+x", "forget", show=False, priority=True),
    ]

    def __init__(
        self,
        title: str,
        offers: Sequence[Offer] | Awaitable[Sequence[Offer]],
        *,
        empty: str = "There is nothing to choose from.",
        forget: Callable[[str], None] | None = None,
    ) -> None:
        """
        Args:
            title: What is chosen.
            offers: All of them, or who fetches them.
            empty: Said when there are none.
            forget: Removes one for good, by ctrl+x; None: nothing can be removed.
        """
        super().__init__()
        self._question = title
        self._source = offers
        self._offers: tuple[Offer, ...] = ()
        self._shown: tuple[Offer, ...] = ()
        self._empty = empty
        self._forget = forget

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="dialog-title", markup=False)
            yield Entry(placeholder="type to narrow", id="typed", compact=True)
            yield OptionList(id="offers", compact=True)
            yield Static("", id="offers-none", classes="muted", markup=False)

    def on_mount(self) -> None:
        self.query_one("#typed", Input).focus()
        self.query_one(OptionList).can_focus = False
        if isinstance(self._source, Sequence):
            self._take(self._source)
        else:
            self.query_one("#offers-none", Static).update("Asking …")
            self.background(self._fetch(self._source), group="offers", title=self._question)

    async def _fetch(self, source: Awaitable[Sequence[Offer]]) -> None:
        try:
            self._take(await source)
        except OperatorError as error:
            self.query_one("#offers-none", Static).update(plain(str(error)))
            raise

    def _take(self, offers: Sequence[Offer]) -> None:
        self._offers = tuple(offers)
        self._narrow()

    @on(Input.Changed)
    def _narrow(self) -> None:
        typed = self.query_one("#typed", Input).value.lower()
        words = typed.split()
        found = [each for each in self._offers if all(word in each.text.lower() for word in words)]
        # What is called so stands before what only speaks of it.
        self._shown = tuple(sorted(found, key=lambda each: not each.text.lower().startswith(typed.strip())))
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(Content(each.text)) for each in self._shown])
        options.display = bool(self._shown)
        if self._shown:
            options.highlighted = 0
        none = "" if self._shown else "Nothing matches." if self._offers else self._empty
        self.query_one("#offers-none", Static).update(none)

    def hints(self) -> list[Hint]:
        own = [Hint("up down", "browse", priority=8), Hint("enter", "takes it", priority=9)]
        forget = [Hint("ctrl+x", "forgets it", priority=7)] if self._forget is not None else []
        return [*own, *forget, *super().hints()]

    def applies(self, action: Action) -> bool:
        return action.id == "back"

    def action_browse(self, way: str) -> None:
        getattr(self.query_one(OptionList), f"action_{way}")()

    def chosen(self) -> Offer | None:
        """What the cursor is on."""
        place = self.query_one(OptionList).highlighted
        return self._shown[place] if place is not None and place < len(self._shown) else None

    def action_forget(self) -> None:
        found = self.chosen()
        if self._forget is not None and found is not None:
            self._forget(found.answer)
            self._take([each for each in self._offers if each != found])

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.do_submit()

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index].answer)

    def do_submit(self) -> None:
        found = self.chosen()
        if found is not None:
            self.dismiss(found.answer)
