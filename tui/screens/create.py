"""The create form: capacity asked for with everything checked while it is typed, and the request seen before it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import ClassVar

from textual import events, on
from textual.containers import Container
from textual.widget import AwaitMount, Widget
from textual.widgets import Input, Static

from backend.cloud.errors import CloudError
from backend.cloud.request_files import pasted
from backend.cloud.requests import CreateRequest, Problem
from backend.cloud.validation import problems
from backend.model import EventKind
from backend.outcomes import OperatorError
from tui.actions import BY_ID, CREATE, bindings
from tui.command_line import in_console
from tui.screens.choose import Offer
from tui.screens.confirm import Choice, Question
from tui.screens.create_advice import Advice
from tui.screens.create_form import (
    FIELD_HINTS,
    FIELDS,
    ON,
    Field,
    Kind,
    read,
    size_words,
    suggested_runtime,
    type_names,
)
from tui.screens.create_job import COMMAND, JOB_FIELDS, job_preview, shipped_words, without_script, write_job
from tui.screens.create_offers import PasteDialog, value_offers
from tui.screens.create_preview import PreviewPane
from tui.screens.create_shipping import JobShipping
from tui.screens.deeds import rest_of
from tui.screens.form import FormBody, FormInput, FormLine, Further, PickedChoice
from tui.screens.form_choices import SavingForm, command_requests
from tui.screens.packing import TYPED_S, Packing

EVERY = (*FIELDS, *JOB_FIELDS)
JOB_FURTHER = tuple(field for field in JOB_FIELDS if field.more)
FURTHER = (*JOB_FURTHER, *(field for field in FIELDS if field.more))
LABELS = {field.name: field.label for field in EVERY}


class CreateScreen(SavingForm):
    """Asks for a new queued resource."""

    SCOPE = CREATE
    BINDINGS: ClassVar = bindings(CREATE)
    crumb = "create"
    draft_name = "create"
    saved_kind = "create"

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        """
        Args:
            texts: What the form begins with, by field name.
        """
        super().__init__()
        self._texts = dict(texts or {})
        self._dirty = True
        self._shown: dict[str, str] = {}
        self._runtime_is_ours = not self._texts.get("runtime_version")
        self.request: CreateRequest | None = None
        self.found: list[Problem] = []

    def compose_body(self) -> Iterable[Widget]:
        if not self._texts:
            self._texts = self.draft()
            self._runtime_is_ours = not self._texts.get("runtime_version")
        with Container(id="create"):
            with FormBody(id="form"):
                yield from (self._line(field) for field in EVERY if not field.more)
                if any(self._texts.get(field.name) for field in FURTHER):
                    yield from self._further_lines()
                else:
                    yield Further(len(FURTHER))
            yield PreviewPane()
        yield Static(id="create-standing", markup=False)
        yield Static(id="create-summary", markup=False)

    def _further_lines(self) -> Iterable[Widget]:
        yield Static("of the job", classes="form-heading", markup=False)
        yield from (self._line(field) for field in JOB_FURTHER)
        yield Static("further options", classes="form-heading", markup=False)
        yield from (self._line(field) for field in FURTHER if field not in JOB_FURTHER)

    def open_further(self, texts: Mapping[str, str] | None = None) -> AwaitMount | None:
        """Makes the lines of the further options, without which the form opens: there are a hundred widgets to them."""
        place = next(iter(self.query(Further)), None)
        if place is None:
            return None
        self._texts |= texts or {}
        mounted = self.query_one(FormBody).mount_all(list(self._further_lines()), before=place)
        self.__dict__.pop("_lines", None)
        self._dirty = True
        return mounted

    @on(Further.Wanted)
    async def _further_wanted(self) -> None:
        mounted = self.open_further()
        if mounted is None:
            return
        await mounted
        place = self.query_one(Further)
        if self.focused is place:
            self.set_focus(self.line(FURTHER[0].name).control)
            for event in place.early:
                if isinstance(event, events.Key) and event.key == "tab":
                    self.focus_next()
                elif self.focused is not None:
                    self.focused._forward_event(event)
        await place.remove()

    def do_next_field(self) -> None:
        if isinstance(self.focused, Further):
            self.focused.early.append(events.Key("tab", None))
        else:
            super().do_next_field()

    def _line(self, field: Field) -> FormLine:
        context = self.console.context
        value = self._texts.get(field.name, "")
        choices: Sequence[str] = field.choices
        suggestions: Sequence[str] = ()
        hint = field.hint
        if field.kind is Kind.FLAG:
            choices, hint = ("", ON), "no"
        elif field.name == "zone":
            value = value or next(iter(context.zones), "")
            suggestions = context.zones
        elif field.name == "tier":
            value = value or choices[0]
        elif field.name == "node_count":
            value = value or "1"
        return FormLine(field.name, field.label, value=value, hint=hint, choices=choices, suggestions=suggestions)

    @cached_property
    def advice(self) -> Advice:
        """What is known beside the form."""
        return Advice(self.console)

    @cached_property
    def shipping(self) -> JobShipping:
        """Its job."""
        return JobShipping(
            self.console,
            lambda packing: self.background(self._pack(packing), group="pack", title="pack the folder"),
            lambda: self.background(self._load_job(), group="job", title="plan the job"),
        )

    async def _pack(self, packing: Packing) -> None:
        # What is wrong with it is told beside its field.
        with suppress(OperatorError):
            await packing.pack(after_s=TYPED_S)
        self._dirty = True

    async def _load_job(self) -> None:
        await self.shipping.load()
        self._dirty = True

    def main_widget(self) -> Widget:
        return self.line("name").control

    async def offers(self, name: str) -> Sequence[Offer]:
        """What the zone offers, asked for when it is not known yet."""
        zone = self.line("zone").value
        kind = self.line("type").value if "type" in self.lines else ""
        if name == COMMAND:
            return [Offer(text) for text in command_requests(self.console)]
        return await value_offers(self.console, name, zone, kind=kind, known=self.advice.known_types(zone))

    def fill_saved(self, texts: dict[str, str]) -> None:
        self.fill({**{field.name: "" for field in EVERY if field.name not in ("name", "zone")}, **texts})

    # Reading and showing

    @on(Input.Changed)
    @on(PickedChoice.Changed)
    def _changed(self, event: Input.Changed | PickedChoice.Changed) -> None:
        self._dirty = True
        if isinstance(event, Input.Changed) and event.input.id == "field-runtime_version" and event.input.has_focus:
            self._runtime_is_ours = not event.value
        self.call_after_refresh(self.check)

    def tick(self) -> None:
        self._dirty |= bool(self.shipping.waits)
        self.check()

    def check(self) -> None:
        """Reads the form, tells what is wrong beside each field, and redraws the preview. Cheap; nothing is sent."""
        if not self._dirty or not self.is_mounted:
            return
        self._dirty = False
        texts = self.texts()
        self._suggest_types(texts.get("zone", ""))
        request, unread = read(texts, project=self.console.context.project)
        runtime = suggested_runtime(request)
        edited = self.line("runtime_version").control.has_focus
        if self._runtime_is_ours and not edited and runtime and texts.get("runtime_version") != runtime:
            self.line("runtime_version").value = runtime
            request, unread = read({**texts, "runtime_version": runtime}, project=self.console.context.project)
        fleet = self.console.fleet
        here = [
            item for item in fleet.queued_resources if item.zone == request.zone and item.project == request.project
        ]
        bad = {problem.field for problem in unread}
        self.request = request
        self.found = unread + [
            problem
            for problem in problems(
                request,
                taken_names=[item.name for item in here],
                taken_node_ids=[one.node_id for item in here for one in item.slices],
            )
            if problem.field not in bad
        ]
        wrong, notes = self.shipping.judge(request, texts)
        self.found += wrong
        self._tell(texts, [*self.advice.about(request), *notes])
        lines = self.advice.lines(request)
        self.query_one("#create-standing").display = bool(lines)
        self._say("#create-standing", "\n".join(lines))
        job = self.shipping.job
        self.query_one(PreviewPane).show(
            without_script(job) if job is not None else request,
            rest_of(self.console.context),
            job=job_preview(job, self.shipping.user) if job is not None else "",
        )

    def _tell(self, texts: Mapping[str, str], advice: Sequence[Problem]) -> None:
        for line in self.lines.values():
            name = line.field_name
            mine = [problem for problem in self.found if problem.field == name]
            # An empty field is not scolded before anything was typed in it; the summary counts it.
            if mine and (texts.get(name) or self._submitted):
                line.say(str(mine[0]))
                continue
            notes = [str(problem) for problem in advice if problem.field == name]
            line.say(" ".join(notes) if notes and texts.get(name) else "", warning=True)
        request = self.request
        words = size_words(request) if request is not None else ""
        homeless = [str(problem) for problem in self.found if problem.field not in LABELS]
        if homeless:
            state = homeless[0]
        elif self.found:
            missing = ", ".join(dict.fromkeys(LABELS[problem.field] for problem in self.found))
            state = f"still to mend: {missing}"
        else:
            state = self.shipping.waits or "ctrl+r sends it"
        self._say("#create-summary", " · ".join(part for part in (words, state) if part))

    def _say(self, selector: str, text: str) -> None:
        """Updates a text that changed: every update is a layout."""
        if self._shown.get(selector) != text:
            self._shown[selector] = text
            self.query_one(selector, Static).update(text)

    _submitted = False

    def _suggest_types(self, zone: str) -> None:
        advice = self.advice
        self.line("accelerator_type").suggest(type_names(zone, advice.offered.get(zone)))
        if zone in self.console.context.zones and zone not in advice.asked and self.console.tower is not None:
            advice.asked.add(zone)
            self.background(self._ask(advice.ask_types(zone)), group=f"types-{zone}", title=f"types of {zone}")
            self.background(
                self._ask(advice.ask_reservations(zone)), group=f"held-{zone}", title=f"reservations of {zone}"
            )
        names = advice.reservations.get(zone, [])
        line = self.line("reservation")
        line.suggest(names)
        hint = FIELD_HINTS["reservation"]
        line.set_hint(f"{', '.join(names[:4])}; {hint}" if names else hint)

    async def _ask(self, asking: Awaitable[None]) -> None:
        await asking
        self._dirty = True

    # Actions

    def do_next_preview(self) -> None:
        self.query_one(PreviewPane).next(narrow=not self.is_wide)
        self._dirty = True
        self.check()

    def do_preview_down(self) -> None:
        self.query_one(PreviewPane).page(1)

    def do_preview_up(self) -> None:
        self.query_one(PreviewPane).page(-1)

    async def do_paste_command(self) -> None:
        text = await self.console.push_screen_wait(PasteDialog())
        if text:
            self.fill_from(text)

    @on(FormInput.CommandPasted)
    def _command_pasted(self, event: FormInput.CommandPasted) -> None:
        try:
            self.fill_from(event.text)
        except OperatorError as error:
            self.console.tell(error, doing="paste")

    def fill_from(self, command: str) -> None:
        """Fills the form from a gcloud command, JSON of the API or TOML, or from a file that holds one of them.

        Raises:
            OperatorError: It cannot be read; it names the flag or the place.
        """
        context = self.console.context
        texts, note = write_job(pasted(command, project=context.project, zone=self.line("zone").value))
        self.fill(texts)
        self.console.say(f"The form was filled from it. {note}".strip())

    def fill(self, texts: Mapping[str, str]) -> None:
        """Replaces what the form says."""
        self._runtime_is_ours = not texts.get("runtime_version")
        if any(texts.get(field.name) for field in FURTHER) and self.open_further(texts) is not None:
            self.query_one(Further).remove()
        for line in self.lines.values():
            if line.field_name in texts and (texts[line.field_name] or line.field_name not in ("zone", "name")):
                line.value = texts[line.field_name]
        self._dirty = True
        self.check()

    async def do_race(self) -> None:
        """The same in several zones or of several types."""
        from tui.screens.policy_forms import RaceFormScreen

        self._submitted = self._dirty = True
        self.check()
        found = [problem for problem in self.found if problem.field != "zone"]
        if self.request is None or found:
            raise OperatorError("Nothing can be raced for: the form has mistakes.", str(found[0]) if found else "")
        texts = self.texts()
        if await self.shipping.settled(self.request, texts):
            self.console.push_screen(RaceFormScreen(self.request, self.shipping, texts))

    async def do_submit(self) -> None:
        """Checks, asks, sends, and goes to the fleet with the cursor on the new request."""
        self._submitted = self._dirty = True
        self.check()
        request = self.request
        if request is None or self.found:
            await self._go_to_first()
            raise OperatorError("Nothing was sent: the form has mistakes.", str(self.found[0]) if self.found else "")
        if not await self.shipping.settled(request, self.texts()):
            raise OperatorError("Nothing was sent: the packing was broken off.")
        job = self.shipping.job
        place = self.advice.standing(request)
        lines = [
            f"{request.name} in {request.zone}: {size_words(request)}",
            f"tier {request.tier.value}, runtime {request.runtime_version}",
            *(shipped_words(job) if job is not None else []),
            *([place] if place else []),
            *(f"! {in_console(str(problem))}" for problem in self.advice.about(request)),
        ]
        title = "Ask for this capacity?" if job is None else "Ask for this capacity, with its job?"
        answer = await self.console.push_screen_wait(
            Question(title, lines, (Choice("yes", "Ask for it", "primary"), Choice("no", "Back")))
        )
        if answer != "yes":
            return
        await self._send(request if job is None else job.create, size_words(request))

    async def _go_to_first(self) -> None:
        """To the first field with a mistake."""
        field = self.found[0].field if self.found else ""
        if field not in LABELS:
            return
        if field not in self.lines and (mounted := self.open_further()) is not None:
            await mounted
            await self.query_one(Further).remove()
        self.line(field).control.focus()

    async def _send(self, request: CreateRequest, size: str) -> None:
        """The code to its bucket, the run into the journal, then the request."""
        job = self.shipping.job
        if job is not None and not await self.shipping.begin([job]):
            raise OperatorError("Nothing was sent: putting the code into its bucket was broken off.")
        try:
            await self.console.require_recovery().create(request)
        except CloudError as error:
            if job is not None:
                self.shipping.refused(job, error)
            raise
        self.console.note(EventKind.ACTION, f"asked for {size} as {request.name}", subject=request.name)
        self.drop_draft()
        told = f"{request.name} was asked for."
        if job is not None:
            self.shipping.follow([job])
            key = self.console.settings.keymap.shown(BY_ID["go.runs"])
            told += f" Its job is run {job.run_id}: {key} has it."
        self.console.say(told)
        self.console.require_tower().watch.poke()
        self.console.go()
        self.console.await_request(request.key)
