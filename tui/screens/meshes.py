"""The plan: every legal mesh of one request with what it can reach, what will bind it, and the memory it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from jobs.meshes import Mesh, advice, legal_meshes, size_problems
from jobs.roofline import predict
from tui.actions import BY_ID, MESHES, bindings
from tui.preflight_words import prediction_words
from tui.screens.base import TableScreen
from tui.screens.bench_figures import AXES, CPU, MESH
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column, Row, number_cell

if TYPE_CHECKING:
    from backend.bench.model import BenchRequest
    from backend.model import QueuedResource
    from jobs.accelerators import Accelerator
    from jobs.roofline import Model, Prediction

COLUMNS = (
    MESH,
    Column("rate", "TFLOP/S/DEV", width=11, align="right", hint="Predicted, at most."),
    Column("bound", "BOUND", width=7),
    Column("memory", "GIB/DEV", width=7, align="right"),
    Column("fits", "FITS", width=4),
    Column("ici", "ROWS/CHIP ICI", width=13, align="right", priority=1, hint="From so many on, ICI binds no more."),
    Column("dcn", "ROWS/CHIP DCN", width=13, align="right", priority=2, hint="From so many on, DCN binds no more."),
    AXES,
)


def rows_text(rows: float) -> str:
    """From how many rows a network no longer binds; `never` where more of them don't help."""
    return "never" if math.isinf(rows) else f"{rows:.0f}"


def lifted_words(network: str, rows: float, of_slice: float = 0.0) -> str:
    """From how many rows on a network no longer binds, in words."""
    if math.isinf(rows):
        return f"{network} binds whatever the batch: its share of a step grows with the rows"
    if rows < 1:
        return f"{network} never binds"
    a_slice = f" ({of_slice:.0f} a slice)" if of_slice else ""
    return f"{network} binds no more from {rows:.0f} rows a chip{a_slice}"


def predictions(accelerator: Accelerator, slices: int, model: Model) -> tuple[list[Prediction], int]:
    """All meshes that divide these sizes, the most promising first, and how many don't."""
    meshes = legal_meshes(accelerator.devices, slices)
    found = [
        predict(accelerator, mesh, model)
        for mesh in meshes
        if not size_problems(mesh, model.embedding_dimension, model.batch_per_device, model.num_layers)
    ]
    found.sort(key=lambda each: (not each.fits, -round(each.tflops_per_device, 6), each.serial_step_time_s))
    return found, len(meshes) - len(found)


def row(each: Prediction) -> Row:
    """One mesh."""
    return Row(
        each.mesh.code(),
        (
            each.mesh.short(),
            number_cell(each.tflops_per_device, f"{each.tflops_per_device:.4g}"),
            each.bound,
            number_cell(each.memory.total, f"{each.memory.total / 2**30:.3g}"),
            "yes" if each.fits else "no",
            number_cell(each.rows_per_chip_ici, rows_text(each.rows_per_chip_ici)),
            number_cell(each.rows_per_chip_dcn, rows_text(each.rows_per_chip_dcn)),
            each.mesh.words(),
        ),
    )


class MeshesScreen(TableScreen):
    """`enter` takes a mesh into the form; marked ones can be swept."""

    SCOPE = MESHES
    BINDINGS: ClassVar = bindings(MESHES)
    CSS_PATH = "work.tcss"

    def __init__(
        self,
        item: QueuedResource,
        accelerator: Accelerator,
        request: BenchRequest,
        platform: str,
        take: Callable[[Mesh], None],
    ) -> None:
        """
        Args:
            platform: `cpu` where the workers said so.
            take: Called with the mesh that was chosen.
        """
        super().__init__()
        self._item = item
        self._accelerator = accelerator
        self._request = request
        self._platform = platform
        self._take = take
        self._found, self._left_out = predictions(accelerator, item.slice_count, request.model)
        self._by_code = {each.mesh.code(): each for each in self._found}
        self.crumb = f"plan {item.name}"

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="meshes"):
            yield Static(id="meshes-head", markup=False)
            yield LiveTable(COLUMNS, id="table", empty="No legal mesh divides these sizes.")
            with VerticalScroll(id="mesh-detail", can_focus=False):
                yield Static(id="mesh-words", markup=False)

    def on_mount(self) -> None:
        request, slices = self._request, self._item.slice_count
        head = (
            f"{slices} x {self._accelerator.name}, dimension {request.embedding_dimension},"
            f" {request.batch_size} rows a device, {request.num_layers} layers"
        )
        if self._platform == CPU:
            head += f"\nPredicted for {self._accelerator.name}; these workers are CPUs and won't reach it."
        if self._left_out:
            head += f"\n{self._left_out} meshes left out, which don't divide these sizes."
        self.query_one("#meshes-head", Static).update(plain_text(head))
        self.table.set_rows([row(each) for each in self._found])
        self._tell()

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        found = self.table.cursor_row
        each = self._by_code.get(str(found.key)) if found is not None else None
        if each is None:
            return
        chips = self._accelerator.chips
        lines = [
            each.mesh.words(),
            lifted_words("ICI", each.rows_per_chip_ici),
            lifted_words("DCN", each.rows_per_chip_dcn, each.rows_per_slice_dcn(chips)),
            *advice(each.mesh),
            *prediction_words(each),
        ]
        self.query_one("#mesh-words", Static).update(plain_text("\n".join(lines)))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        found = self.table.cursor_row
        if found is None:
            raise OperatorError("There is no mesh under the cursor.")
        self.console.pop_screen()
        self._take(self._by_code[str(found.key)].mesh)

    def do_sweep(self) -> None:
        from tui.screens.sweep_form import SweepFormScreen

        marked = [self._by_code[str(key)].mesh for key in self.table.marks if key in self._by_code]
        self.console.push_screen(SweepFormScreen(self._item, self._request, self._platform, marked))
