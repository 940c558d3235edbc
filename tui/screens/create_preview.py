"""The request of the create form as it would be written: its job, JSON, gcloud and curl."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from backend.cloud import equivalents
from backend.cloud.equivalents import Rest
from backend.cloud.requests import CreateRequest, carrier
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.screens.texts import to_json

PREVIEWS = ("JSON", "gcloud alpha", "gcloud", "curl")
JOB = "job"


def preview_text(request: CreateRequest, kind: str, rest: Rest) -> str:
    """The request in one of the ways; or why it has none: a file that it names is not there, or not yet typed to its end."""
    try:
        same = equivalents.create(request, rest)
    except OperatorError as error:
        return str(error)
    match kind:
        case "JSON":
            return to_json(same.json)
        case "gcloud alpha":
            return equivalents.wrap(same.gcloud_alpha or "")
        case "gcloud":
            return equivalents.wrap(same.gcloud_ga) if same.gcloud_ga else " ".join(same.notes)
        case _:
            return same.curl or ""


class PreviewPane(Vertical):
    """Beside the form where there is room; over it by a key where there is none."""

    def __init__(self) -> None:
        super().__init__(id="preview-pane")
        self._place = 0
        self._kinds: tuple[str, ...] = PREVIEWS
        self._shown: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="preview-title", markup=False)
        with VerticalScroll(id="preview-scroll", can_focus=False):
            yield Static(id="preview", markup=False)

    def next(self, *, narrow: bool) -> None:
        """The next of the ways; on a narrow screen also in and out of the sight."""
        if narrow and not self.has_class("-shown"):
            self.add_class("-shown")
            self._place = 0
        elif narrow and self._place >= len(self._kinds) - 1:
            self.remove_class("-shown")
        else:
            self._place = (self._place + 1) % len(self._kinds)

    def page(self, direction: int) -> None:
        """A page down or up.

        Raises:
            OperatorError: It is not in sight.
        """
        if not self.display:
            raise OperatorError("The preview is not shown.", "f3 shows it.")
        scroll = self.query_one("#preview-scroll", VerticalScroll)
        if direction > 0:
            scroll.scroll_page_down(animate=False)
        else:
            scroll.scroll_page_up(animate=False)

    def show(self, request: CreateRequest, rest: Rest, *, job: str = "") -> None:
        """Draws what changed.

        Args:
            request: As it would be sent; a long script in it by its size.
            rest: Of the context.
            job: The page about its job; empty: it has none.
        """
        self._kinds = (JOB, *PREVIEWS) if job else PREVIEWS
        kind = self._kinds[self._place % len(self._kinds)]
        how = carrier(request)
        self._say("#preview-title", f"{kind} · goes by {how.transport.value} {how.version} · f3 for the next")
        text = job if kind == JOB else "\n".join([*how.reasons, "", preview_text(request, kind, rest)])
        self._say("#preview", "\n".join(plain(line) for line in text.strip().splitlines()))

    def _say(self, selector: str, text: str) -> None:
        """Updates a text that changed: every update is a layout."""
        if self._shown.get(selector) != text:
            self._shown[selector] = text
            self.query_one(selector, Static).update(text)
