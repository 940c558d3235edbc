"""What the create form offers: values of its fields as the zone has them, and a place for a pasted command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from tui.actions import DIALOG, bindings
from tui.screens.base import Dialog
from tui.screens.choose import Offer
from tui.screens.create_form import generations, topologies, type_words

if TYPE_CHECKING:
    from tui.console import Console


PASTED = (
    "gcloud [alpha] compute tpus queued-resources create ...",
    "the API's JSON, or TOML of the options; or ./request.json, ~/train.toml",
)
"""What may be pasted."""


class PasteDialog(Dialog[str]):
    """A place to paste a request into."""

    BINDINGS: ClassVar = bindings(DIALOG)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Paste a request, or the path of a file with one", classes="dialog-title", markup=False)
            yield TextArea(id="paste", soft_wrap=True, compact=True)
            yield Static("\n".join(PASTED), classes="muted", markup=False)
            yield Static("ctrl+r fills the form · esc leaves it", classes="muted", markup=False)

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()

    def do_submit(self) -> None:
        self.dismiss(self.query_one(TextArea).text)


async def value_offers(
    console: Console, name: str, zone: str, *, kind: str = "", known: Sequence[str] = ()
) -> Sequence[Offer]:
    """What a field may hold; empty where anything may.

    Args:
        console: Whose context is asked.
        name: Of the field.
        zone: That the form names.
        kind: The generation that the form names.
        known: Types that the zone is known to offer.

    Raises:
        OperatorError: The zone does not answer.
    """
    context, client = console.context, console.require_tower().client
    match name:
        case "zone":
            return [Offer(each) for each in context.zones]
        case "accelerator_type":
            names = known or await client.accelerator_types(context.project, zone)
            return [Offer(each, note=type_words(each)) for each in names]
        case "runtime_version":
            return [Offer(each) for each in await client.runtime_versions(context.project, zone)]
        case "reservation":
            return [Offer(each) for each in await client.reservations(context.project, zone)]
        case "type":
            return [Offer(each) for each in generations()]
        case "topology":
            return [Offer(each) for each in topologies(kind)]
        case _:
            return ()
