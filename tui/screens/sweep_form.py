"""The sweep form: which meshes and sizes, on which requests, listed in the order in which they would be run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget

from backend.model import EventKind, QueuedResource
from backend.outcomes import OperatorError
from backend.sanitize import plain
from jobs.meshes import Mesh
from jobs.statistics import rate_words
from tui.actions import SWEEP_FORM, bindings
from tui.numbers import whole_number
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, PlanForm
from tui.wording import count

if TYPE_CHECKING:
    from backend.bench.model import BenchRequest
    from backend.bench.sweep import Sweep

ALL = "all"
NAMED = 4
"""Of the points that are left out for one reason."""
ON = "yes"


def numbers_of(text: str, label: str) -> tuple[int, ...]:
    """Whole numbers with commas between them.

    Raises:
        OperatorError: They are none.
    """
    numbers = [whole_number(part) for part in text.split(",") if part.strip()]
    found = tuple(number for number in numbers if number is not None)
    if not numbers or len(found) < len(numbers):
        raise OperatorError(f"{label}: '{plain(text)}' is no list of whole numbers.", "Write 65536,131072.")
    return found


def sweep_lines(sweep: Sweep) -> list[str]:
    """The points in their order as a table; those that are left out by their reason."""
    several = len(sweep.targets) > 1
    table: list[tuple[str, ...]] = [("ICI/DCN DxFxT", "D", "B", "AT MOST")]
    left_out: dict[str, list[str]] = {}
    for point in sweep.points:
        request = point.request
        mesh, sizes = request.mesh.short(), (str(request.embedding_dimension), str(request.batch_size))
        if several:
            mesh = f"{point.target} {mesh}"
        if point.note:
            left_out.setdefault(point.note, []).append(" ".join((mesh, *sizes)))
        else:
            table.append((mesh, *sizes, rate_words(point.at_most_tflops) if point.at_most_tflops else "-"))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [f"{count(len(sweep.left), 'benchmark')} one after another, the most promising first"]
    if len(table) > 1:
        for first, *others in table:
            rest = "  ".join(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
            lines.append(f"{first.ljust(widths[0])}  {rest}")
    for reason, points in left_out.items():
        more = f", and {len(points) - NAMED} more" if len(points) > NAMED else ""
        lines += ["", f"left out: {count(len(points), 'point')}: {reason}", ", ".join(points[:NAMED]) + more]
    return lines


class SweepFormScreen(PlanForm):
    """Asks for a sweep; nothing is sent before ctrl+r."""

    SCOPE = SWEEP_FORM
    BINDINGS: ClassVar = bindings(SWEEP_FORM)

    def __init__(self, item: QueuedResource, base: BenchRequest, platform: str, meshes: Sequence[Mesh] = ()) -> None:
        """
        Args:
            base: What all points share.
            platform: `cpu` where the workers of `item` said so.
            meshes: Only these, to begin with; none: all legal ones.
        """
        super().__init__()
        self._item = item
        self._base = base
        self._platforms = {item.name: platform}
        """Queued resource -> what its own workers said; another's answer says nothing of them."""
        self._asked: set[str] = {item.name}
        self._meshes = tuple(meshes)
        self.crumb = f"sweep {item.name}"
        self.sweep: Sweep | None = None

    def fields(self) -> Iterable[FormLine]:
        base = self._base
        yield FormLine("targets", "requests", value=self._item.name, hint="several: other slice counts")
        yield FormLine(
            "meshes",
            "meshes",
            value=" ".join(mesh.short() for mesh in self._meshes) or ALL,
            hint=f"{ALL}, or axes as 2x1x1/1x16x1 ...",
        )
        yield FormLine(
            "batches", "batches per device", value=str(base.batch_size), hint="one or several: 65536 131072"
        )
        yield FormLine(
            "dimensions", "dimensions", value=str(base.embedding_dimension), hint="one or several: 2048 4096"
        )
        yield FormLine(
            "limit",
            "at most",
            value="8" if not self._meshes else "0",
            hint="so many, the most promising first; 0: all",
        )
        yield FormLine(
            "patience", "patience", value="0", hint="0: all are run; else the end after so many not faster"
        )
        yield FormLine("bound", "stop at the roofline", choices=(ON, "no"))

    def main_widget(self) -> Widget:
        return self.line("batches").control

    def resources(self) -> list[QueuedResource]:
        """What the form names.

        Raises:
            OperatorError: A request is not there.
        """
        found = []
        for name in dict.fromkeys(self.line("targets").value.replace(",", " ").split()):
            matches = self.console.fleet.find(name)
            if not matches:
                raise OperatorError(f"requests: there is no queued resource '{name}'.")
            found.append(matches[0])
        if not found:
            raise OperatorError("requests: a queued resource is missing.")
        return found

    def judge(self, texts: Mapping[str, str]) -> Judged:
        self.sweep = None
        try:
            resources = self.resources()
            unasked = [each for each in resources if each.name not in self._platforms]
            if unasked:
                self._ask(unasked)
                raise OperatorError(f"asking the workers of {', '.join(each.name for each in unasked)} what they are")
            self.sweep = self._planned(resources)
        except OperatorError as error:
            return Judged([str(error)], refused=True)
        return Judged([*sweep_lines(self.sweep), "", "ctrl+r starts it"])

    def _ask(self, resources: Sequence[QueuedResource]) -> None:
        fresh = [each for each in resources if each.name not in self._asked]
        self._asked |= {each.name for each in fresh}
        for each in fresh:
            self.background(self._ask_one(each), group=f"survey {each.name}", title=f"ask the workers of {each.name}")

    async def _ask_one(self, item: QueuedResource) -> None:
        from backend.bench.plan import platform_of

        try:
            answers, _ = await self.console.require_tower().benches.platform_of(item)
        except OperatorError:
            self._asked.discard(item.name)
            raise
        self._platforms[item.name] = platform_of(answers)
        self.check()

    def _planned(self, resources: Sequence[QueuedResource]) -> Sweep:
        from backend.bench.sweep import join_sweeps, parse_mesh, plan_sweep
        from jobs.sweep import StopRule

        texts = self.texts()
        codes = texts["meshes"].replace(",", " ").split()
        meshes = None if codes in ([], [ALL]) else [parse_mesh(code) for code in codes]
        patience = numbers_of(texts["patience"], "patience")[0]
        rule = StopRule(use_bound=texts["bound"] == ON, patience=patience)
        return join_sweeps(
            [
                plan_sweep(
                    resource,
                    self._base,
                    target=resource.name,
                    context=self.console.context.name,
                    meshes=meshes,
                    batch_sizes=numbers_of(texts["batches"], "batches per device"),
                    embedding_dimensions=numbers_of(texts["dimensions"], "dimensions"),
                    platform=self._platforms[resource.name],
                    limit=numbers_of(texts["limit"], "at most")[0],
                    rule=replace(rule),
                )
                for resource in resources
            ]
        )

    def do_submit(self) -> None:
        """Begins it, and shows it."""
        from tui.screens.sweep import SweepScreen

        resources = self.resources()
        unasked = [each.name for each in resources if each.name not in self._platforms]
        if unasked:
            raise OperatorError(f"The workers of {', '.join(unasked)} have not answered yet. Nothing was sent.")
        sweep = self._planned(resources)
        self.console.require_tower().sweeps.begin(sweep, resources)
        self.console.note(
            EventKind.ACTION, f"{sweep.id}: {count(len(sweep.left), 'benchmark')}", subject=self._item.name
        )
        self.give_way(SweepScreen(sweep))
