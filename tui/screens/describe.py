"""A resource as the API tells it: every field, as YAML or JSON, to search, select and copy."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar

from textual.widget import Widget
from textual.widgets import TextArea

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from tui.actions import DESCRIBE, bindings
from tui.screens.base import ConsoleScreen
from tui.screens.texts import to_json, to_yaml


class DescribeScreen(ConsoleScreen):
    """One resource; asked for when the screen opens, and again on refresh."""

    SCOPE = DESCRIBE
    BINDINGS: ClassVar = bindings(DESCRIBE)
    CSS_PATH = "pages.tcss"

    def __init__(
        self,
        name: str,
        fetch: Callable[[], Awaitable[Mapping[str, Any]]],
        equivalent: Callable[[], None] | None = None,
    ) -> None:
        """
        Args:
            name: What it is, for the crumbs.
            fetch: Asks the API.
            equivalent: Shows the gcloud command and REST call for it.
        """
        super().__init__()
        self.crumb = f"describe {name}"
        self._subject = name
        self._fetch = fetch
        self._equivalent = equivalent
        self._data: Mapping[str, Any] | None = None
        self._as_json = False
        self._pattern = ""

    def compose_body(self) -> Iterable[Widget]:
        yield TextArea("", read_only=True, soft_wrap=False, compact=True, id="page", show_line_numbers=False)

    def main_widget(self) -> Widget:
        return self.query_one("#page")

    @property
    def page(self) -> TextArea:
        return self.query_one("#page", TextArea)

    def on_mount(self) -> None:
        self.page.load_text(f"Asking for {self._subject} …")
        self.do_refresh()

    def do_refresh(self) -> None:
        self.background(self._load(), group="describe", title=f"describe {self._subject}")

    async def _load(self) -> None:
        try:
            self._data = await self._fetch()
        except OperatorError as error:
            self.page.load_text(plain_text("\n".join(part for part in (error.what, error.cure, error.raw) if part)))
            raise
        self._show()

    def _show(self) -> None:
        if self._data is None:
            return
        text = to_json(self._data) if self._as_json else to_yaml(self._data)
        self.page.load_text(plain_text(text))

    def do_view(self) -> None:
        self._as_json = not self._as_json
        self._show()

    def do_copy_page(self) -> None:
        self.console.copy(self.page.selected_text or self.page.text)

    def do_equivalent(self) -> None:
        if self._equivalent is None:
            raise OperatorError("There is no gcloud command for this page.")
        self._equivalent()

    def page_text(self) -> str:
        return self.page.text

    # Search

    def filter_text(self) -> str:
        return self._pattern

    def apply_filter(self, text: str) -> None:
        try:
            re.compile(text)
        except re.error as error:
            raise OperatorError(f"'{text}' is no regular expression: {error}.") from error
        self._pattern = text
        if text:
            self._find(forward=True, here=True)

    def do_next_hit(self) -> None:
        self._find(forward=True)

    def do_previous_hit(self) -> None:
        self._find(forward=False)

    def _find(self, *, forward: bool, here: bool = False) -> None:
        if not self._pattern:
            return
        flags = 0 if any(letter.isupper() for letter in self._pattern) else re.IGNORECASE
        hits = [
            (row, match.start(), match.end())
            for row, line in enumerate(self.page.text.split("\n"))
            for match in re.finditer(self._pattern, line, flags)
            if match.end() > match.start()
        ]
        if not hits:
            return
        start = min(self.page.selection.start, self.page.selection.end)
        if forward:
            after = [hit for hit in hits if (hit[0], hit[1]) > start or (here and (hit[0], hit[1]) == start)]
            row, left, right = (after or hits)[0]
        else:
            before = [hit for hit in hits if (hit[0], hit[1]) < start]
            row, left, right = (before or hits)[-1]
        self.page.selection = type(self.page.selection)((row, left), (row, right))
        self.page.scroll_cursor_visible(center=True)
