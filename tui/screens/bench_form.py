"""The benchmark form: axes whose legality is judged while they are typed, the prediction, and what would be sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from backend.model import EventKind, QueuedResource
from backend.outcomes import OperatorError
from jobs.meshes import Mesh, default_mesh, legal_meshes
from tui.actions import BENCH_FORM, BY_ID, bindings
from tui.screens.bench_fields import NUMBER_HINTS, NUMBERS, further_lines, mesh_texts, request_of
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, PlanForm
from tui.wording import count

if TYPE_CHECKING:
    from backend.bench.model import BenchPlan, Survey
    from jobs.accelerators import Accelerator


def plan_lines(plan: BenchPlan) -> list[str]:
    """The plan in words: size, mesh, refusals, warnings, advice, prediction, and the command that repeats it."""
    lines = [f"{count(plan.devices, 'device')} on {count(len(plan.workers), 'worker')}: {plan.mesh.words()}"]
    lines += [f"refused: {text}" for text in plan.refusals]
    lines += [f"! {text}" for text in plan.warnings]
    lines += list(plan.advice)
    if plan.prediction is not None:
        from tui.preflight_words import prediction_words

        lines += ["", *prediction_words(plan.prediction)]
    elif plan.platform == "cpu":
        lines.append("The workers are CPUs: no prediction and no utilisation are told for them.")
    return [*lines, "", "the same from a shell:", plan.command]


class BenchFormScreen(PlanForm):
    """Asks for one sharding on a queued resource."""

    SCOPE = BENCH_FORM
    BINDINGS: ClassVar = bindings(BENCH_FORM)

    def __init__(self, item: QueuedResource) -> None:
        super().__init__()
        self._item = item
        self.crumb = f"bench {item.name}"
        self._survey: Survey | None = None
        self._accelerator: Accelerator | None = None
        self._meshes: tuple[Mesh, ...] = ()
        self._mesh = 0
        self.plan: BenchPlan | None = None
        self._asking = True
        self._asks_again = False
        self._kept: dict[str, str] = {}
        self._news = "Asking the workers what they are …"

    def fields(self) -> Iterable[FormLine]:
        from backend.bench.model import BenchRequest
        from backend.bench.plan import accelerator_of

        self._accelerator = accelerator_of(self._item)
        defaults = BenchRequest()
        texts = {name: str(getattr(defaults, name)) for name, _ in NUMBERS}
        if self._accelerator is not None:
            devices, slices = self._accelerator.devices, self._item.slice_count
            texts |= mesh_texts(default_mesh(devices, slices))
            self._meshes = legal_meshes(devices, slices)
        # Axes that are legal for one shape are not for another: each shape has a draft of its own.
        self.draft_name = f"bench {self._item.slice_count} x {self._item.accelerator_type}"
        self._kept = self.draft()
        texts |= {name: text for name, text in self._kept.items() if name in texts}
        for name, label in NUMBERS:
            yield FormLine(name, label, value=texts[name], hint=NUMBER_HINTS[name])
        yield FormLine("python", "python", value=self._kept.get("python", defaults.python), hint="there, with jax")
        yield from further_lines(self._kept)

    def on_mount(self) -> None:
        self.background(self._ask(), group="survey", title="ask the workers")

    async def _ask(self) -> None:
        """Asks every worker what it is, and takes the sizes that suit it."""
        try:
            answers, sizes = await self.console.require_tower().benches.platform_of(self._item)
        except OperatorError as error:
            self._asking, self._news = False, f"The workers could not be asked: {error.what}"
            self.check()
            raise
        self._asking, self._survey, self._news = False, answers, ""
        for name, value in sizes.items():
            if name not in self._kept:
                self.line(name).value = self._opened[name] = str(value)
        self.check()

    def judge(self, texts: Mapping[str, str]) -> Judged:
        from backend.bench.plan import plan_bench

        lines = [self._news] if self._news else []
        self.plan = None
        try:
            plan = self.plan = plan_bench(self._item, request_of(texts), None, self._survey)
        except OperatorError as error:
            return Judged([*lines, str(error)], refused=True)
        if self._asking:
            # The sizes may still change with what the workers are: only what is wrong already is told.
            lines += [f"refused: {text}" for text in plan.refusals]
        else:
            lines += plan_lines(plan)
            if lacking := sum(not each.jax and not each.error for each in (self._survey or {}).values()):
                key = self.console.settings.keymap.shown(BY_ID["setup-here"])
                lines.insert(0, f"{count(lacking, 'worker')} without jax: {key} sets them up, and comes back here.")
            if not plan.refusals:
                lines += ["", "ctrl+r starts it, f3 next legal mesh, f4 all of them, f5 preflight, f6 sweep"]
        return Judged(lines, refused=bool(plan.refusals))

    def do_setup_here(self) -> None:
        """One environment for all of them; the workers are asked again when this form is seen again."""
        self._asks_again = True
        self.console.open_setup([self._item.name])

    def on_screen_resume(self) -> None:
        if self._asks_again:
            self._asks_again, self._asking = False, True
            self._news = "Asking the workers again what they are …"
            self.background(self._ask(), group="survey", title="ask the workers")

    def do_next_mesh(self) -> None:
        """Fills in the next legal mesh."""
        if not self._meshes:
            raise OperatorError(f"The type of {self._item.name} is not known: no mesh can be suggested.")
        self._mesh = (self._mesh + 1) % len(self._meshes)
        self.fill(self._meshes[self._mesh])

    def fill(self, mesh: Mesh) -> None:
        """Writes a mesh into the fields of the axes."""
        for name, text in mesh_texts(mesh).items():
            self.line(name).value = text

    def do_plan(self) -> None:
        """All legal meshes of this request."""
        from tui.screens.meshes import MeshesScreen

        accelerator = self._known_accelerator()
        self.console.push_screen(
            MeshesScreen(self._item, accelerator, request_of(self.texts()), self._platform(), self.fill)
        )

    def do_preflight(self) -> None:
        """Compiles what the form says for the real chips."""
        from tui.screens.preflight import PreflightScreen, preflight_request

        wanted = preflight_request(self._known_accelerator(), self._item.slice_count, request_of(self.texts()))
        python = self.texts().get("preflight_python", "").strip()
        self.console.push_screen(PreflightScreen(wanted, python))

    def do_sweep(self) -> None:
        """Measures many."""
        from tui.screens.sweep_form import SweepFormScreen

        self._known_accelerator()
        self.console.push_screen(SweepFormScreen(self._item, request_of(self.texts()), self._platform()))

    def _platform(self) -> str:
        from backend.bench.plan import platform_of

        return platform_of(self._survey or {})

    def _known_accelerator(self) -> Accelerator:
        if self._accelerator is None:
            raise OperatorError(f"The type of {self._item.name} is not known: nothing can be predicted for it.")
        return self._accelerator

    async def do_submit(self) -> None:
        """Plans with the workers' answers, launches, and shows it."""
        from tui.screens.bench import BenchScreen

        if self._asking:
            raise OperatorError(
                "Nothing was sent: the workers have not answered yet what they are.", "Wait for the plan."
            )
        request = request_of(self.texts())
        benches = self.console.require_tower().benches
        plan = await benches.plan(self._item, request, survey=self._survey)
        if plan.refusals:
            raise OperatorError(f"Nothing was sent: {plan.refusals[0]}")
        bench = await benches.launch(plan)
        self.console.note(EventKind.ACTION, f"benchmark {bench.id}: {plan.command}", subject=bench.id)
        # The next one is mostly this one with a change.
        self.console.drafts[self.draft_name] = self.texts()
        self.console.pop_screen()
        self.console.push_screen(BenchScreen(bench))
