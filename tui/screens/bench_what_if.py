"""The benchmark form of a type that nobody has asked for yet: its meshes, its predictions, its preflight."""

from __future__ import annotations

from collections.abc import Mapping

from backend.model import QueuedResource
from backend.outcomes import OperatorError
from backend.sanitize import plain
from jobs.accelerators import Accelerator, UnknownAccelerator, parse
from jobs.meshes import advice
from jobs.roofline import predict, problems
from tui.numbers import whole_number
from tui.preflight_words import prediction_words
from tui.screens.bench_fields import request_of
from tui.screens.bench_form import BenchFormScreen
from tui.screens.plan_form import Judged
from tui.wording import count

MOST_SLICES = 256


def read_shape(words: list[str]) -> tuple[Accelerator, int]:
    """A type, and how many slices of it.

    Raises:
        OperatorError: There is no such type, or such a number of slices cannot be one request.
    """
    usage = "Write v5p-128 4: a type, and how many slices."
    if not 1 <= len(words) <= 2:
        raise OperatorError("A type is missing." if not words else "That is more than a type and a number.", usage)
    try:
        accelerator = parse(words[0])
    except UnknownAccelerator as error:
        raise OperatorError(str(error)) from error
    text = words[1] if len(words) > 1 else "1"
    slices = whole_number(text) or 0
    if not 1 <= slices <= MOST_SLICES:
        raise OperatorError(f"'{plain(text)}' is no number of slices.", usage)
    if slices > 1 and not accelerator.generation.multislice:
        raise OperatorError(f"{accelerator.name} has no Multislice: it needs v4 or later.")
    return accelerator, slices


class WhatIfScreen(BenchFormScreen):
    """Nobody is asked and nothing is sent; ctrl+r leads to the create form."""

    def __init__(self, accelerator: Accelerator, slices: int) -> None:
        super().__init__(
            QueuedResource("", "", accelerator.name, "", accelerator_type=accelerator.name, slice_count=slices)
        )
        self.crumb = f"what if {slices} x {accelerator.name}"
        self._asking, self._news = False, ""

    def on_mount(self) -> None:
        """There are no workers to ask."""

    def judge(self, texts: Mapping[str, str]) -> Judged:
        try:
            request = request_of(texts)
        except OperatorError as error:
            return Judged([str(error)], refused=True)
        accelerator, slices = self._known_accelerator(), self._item.slice_count
        devices = count(accelerator.devices * slices, "device")
        lines = [f"{slices} x {accelerator.name}, {devices}: {request.mesh.words()}"]
        wrong = problems(accelerator, slices, request.mesh, request.model)
        if wrong:
            return Judged([*lines, *(f"refused: {text}" for text in wrong)], refused=True)
        found = predict(accelerator, request.mesh, request.model)
        lines += [*advice(request.mesh), "", *prediction_words(found), ""]
        return Judged([*lines, "ctrl+r asks for such a request, f3 next legal mesh, f4 all of them, f5 preflight"])

    def do_setup_here(self) -> None:
        raise OperatorError("Nobody has these chips yet: there is nothing to set up.")

    def do_sweep(self) -> None:
        raise OperatorError("Nobody has these chips yet: there is nothing to measure on.", "f4 has all meshes.")

    async def do_submit(self) -> None:
        """The create form, with this type and so many slices."""
        from tui.screens.create import CreateScreen

        self.console.drafts[self.draft_name] = self.texts()
        item = self._item
        texts = {"accelerator_type": item.accelerator_type, "node_count": str(item.slice_count)}
        self.console.pop_screen()
        self.console.push_screen(CreateScreen(texts))
