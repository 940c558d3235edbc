"""The create form: capacity asked for with everything checked while it is typed, and the request seen before it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.containers import Container, Vertical, VerticalScroll
from textual.widget import AwaitMount, Widget
from textual.widgets import Input, Static

from backend.cloud import equivalents
from backend.cloud.cautions import warnings
from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.requests import CreateRequest, Problem, carrier
from backend.cloud.usage import Limit, LimitStore, configured, standing, warn_of_limit
from backend.cloud.validation import problems
from backend.cloud.waits import Waits, statistics
from backend.cloud.waits import find as find_waits
from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import CREATE, bindings
from tui.durations import format_duration
from tui.screens.choose import Offer
from tui.screens.confirm import Choice, Question
from tui.screens.create_form import (
    FIELD_HINTS,
    FIELD_NAMES,
    FIELDS,
    ON,
    Field,
    Kind,
    read,
    size_words,
    suggested_runtime,
    type_names,
    write,
)
from tui.screens.create_offers import PasteDialog, value_offers
from tui.screens.deeds import rest_of
from tui.screens.form import FormBody, FormInput, FormLine, Further, PickedChoice
from tui.screens.form_choices import SavingForm
from tui.screens.texts import to_json
from tui.wording import count

FURTHER = tuple(field for field in FIELDS if field.more)
LABELS = {field.name: field.label for field in FIELDS}
PREVIEWS = ("JSON", "gcloud alpha", "gcloud", "curl")


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
        self._preview = 0
        self._offered: dict[str, tuple[str, ...]] = {}
        self._asked: set[str] = set()
        self._reservations: dict[str, list[str]] = {}
        self._limits: list[Limit] = []
        self._waits: list[Waits] | None = None
        self._runtime_is_ours = not self._texts.get("runtime_version")
        self.request: CreateRequest | None = None
        self.found: list[Problem] = []

    def compose_body(self) -> Iterable[Widget]:
        if not self._texts:
            self._texts = self.draft()
            self._runtime_is_ours = not self._texts.get("runtime_version")
        with Container(id="create"):
            with FormBody(id="form"):
                yield from (self._line(field) for field in FIELDS if not field.more)
                if any(self._texts.get(field.name) for field in FURTHER):
                    yield from self._further_lines()
                else:
                    yield Further(len(FURTHER))
            with Vertical(id="preview-pane"):
                yield Static(id="preview-title", markup=False)
                with VerticalScroll(id="preview-scroll", can_focus=False):
                    yield Static(id="preview", markup=False)
        yield Static(id="create-standing", markup=False)
        yield Static(id="create-summary", markup=False)

    def _further_lines(self) -> Iterable[Widget]:
        yield Static("further options", classes="form-heading", markup=False)
        yield from (self._line(field) for field in FURTHER)

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
        self.set_focus(self.line(FURTHER[0].name).control)
        for event in place.early:
            if self.focused is not None:
                self.focused._forward_event(event)
        await place.remove()

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

    def main_widget(self) -> Widget:
        return self.line("name").control

    async def offers(self, name: str) -> Sequence[Offer]:
        """What the zone offers, asked for when it is not known yet."""
        zone = self.line("zone").value
        kind = self.line("type").value if "type" in self.lines else ""
        return await value_offers(self.console, name, zone, kind=kind, known=self._offered.get(zone, ()))

    def fill_saved(self, texts: dict[str, str]) -> None:
        self.fill({**{field.name: "" for field in FIELDS if field.name not in ("name", "zone")}, **texts})

    # Reading and showing

    @on(Input.Changed)
    @on(PickedChoice.Changed)
    def _changed(self, event: Input.Changed | PickedChoice.Changed) -> None:
        self._dirty = True
        if isinstance(event, Input.Changed) and event.input.id == "field-runtime_version" and event.input.has_focus:
            self._runtime_is_ours = not event.value
        self.call_after_refresh(self.check)

    def tick(self) -> None:
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
        advice = warnings(request, existing=fleet.queued_resources, zone_types=self._offered.get(request.zone))
        advice += self._advise(request)
        self._tell(texts, advice)
        self._show_standing(request)
        self._show_preview(request)

    def _advise(self, request: CreateRequest) -> list[Problem]:
        """What the journal and the zone's reservations say about it."""
        found = warn_of_limit(request, self.console.fleet.queued_resources, self._limits)
        listed = self._reservations.get(request.zone)
        wanted = request.reservation.rpartition("/")[2]
        if wanted and not request.reservation_host and listed is not None and wanted not in listed:
            cure = f"It lists {', '.join(listed[:5])}." if listed else "It lists none."
            found.append(Problem("reservation", f"{request.zone} lists no reservation {wanted}.", cure))
        return found

    def _show_standing(self, request: CreateRequest) -> None:
        """Chips held and limits told, and how long such a request waited before; each with its source."""
        tower = self.console.tower
        if self._waits is None and tower is not None:
            self._limits = [*configured(tower.context.limits), *LimitStore(tower.journal).known(request.project)]
            self._waits = statistics(tower.journal.queue_waits())
        place = standing(request, self.console.fleet.queued_resources, self._limits)
        lines = [place.sentence] if place is not None else []
        waited = find_waits(
            self._waits or (), request.project, request.zone, request.accelerator_type, request.tier.value
        )
        if waited is not None:
            lines.append(
                f"waited for before, seen here: median {format_duration(waited.median_s)}, "
                f"{format_duration(waited.shortest_s)} to {format_duration(waited.longest_s)} ({count(waited.count, 'time')})"
            )
        self.query_one("#create-standing").display = bool(lines)
        self._say("#create-standing", "\n".join(lines))

    def _tell(self, texts: Mapping[str, str], advice: Sequence[Problem]) -> None:
        for line in self.lines.values():
            name = line.field_name
            mine = [problem for problem in self.found if problem.field == name]
            # An empty field is not scolded before anything was typed in it; the summary counts it.
            if mine and (texts.get(name) or self._submitted):
                line.say(str(mine[0]))
                continue
            notes = [problem for problem in advice if problem.field == name]
            line.say(str(notes[0]) if notes and texts.get(name) else "", warning=True)
        request = self.request
        words = size_words(request) if request is not None else ""
        homeless = [str(problem) for problem in self.found if problem.field not in FIELD_NAMES]
        if homeless:
            state = homeless[0]
        elif self.found:
            missing = ", ".join(dict.fromkeys(LABELS[problem.field] for problem in self.found))
            state = f"still to mend: {missing}"
        else:
            state = "ctrl+r sends it"
        self._say("#create-summary", " · ".join(part for part in (words, state) if part))

    def _say(self, selector: str, text: str) -> None:
        """Updates a text that changed: every update is a layout."""
        if self._shown.get(selector) != text:
            self._shown[selector] = text
            self.query_one(selector, Static).update(text)

    _submitted = False

    def _suggest_types(self, zone: str) -> None:
        self.line("accelerator_type").suggest(type_names(zone, self._offered.get(zone)))
        if zone in self.console.context.zones and zone not in self._asked and self.console.tower is not None:
            self._asked.add(zone)
            self.background(self._ask_types(zone), group=f"types-{zone}", title=f"types of {zone}")
            self.background(self._ask_reservations(zone), group=f"held-{zone}", title=f"reservations of {zone}")
        names = self._reservations.get(zone, [])
        line = self.line("reservation")
        line.suggest(names)
        hint = FIELD_HINTS["reservation"]
        line.set_hint(f"{', '.join(names[:4])}; {hint}" if names else hint)

    async def _ask_types(self, zone: str) -> None:
        client = self.console.require_tower().client
        self._offered[zone] = tuple(await client.accelerator_types(self.console.context.project, zone))
        self._dirty = True

    async def _ask_reservations(self, zone: str) -> None:
        client = self.console.require_tower().client
        self._reservations[zone] = await client.reservations(self.console.context.project, zone)
        self._dirty = True

    def preview_text(self, request: CreateRequest, kind: str) -> str:
        """The request as it would be written."""
        same = equivalents.create(request, rest_of(self.console.context))
        match kind:
            case "JSON":
                text = to_json(same.json)
            case "gcloud alpha":
                text = equivalents.wrap(same.gcloud_alpha or "")
            case "gcloud":
                text = equivalents.wrap(same.gcloud_ga) if same.gcloud_ga else " ".join(same.notes)
            case _:
                text = same.curl or ""
        return "\n".join(plain(line) for line in text.splitlines())

    def _show_preview(self, request: CreateRequest) -> None:
        kind = PREVIEWS[self._preview]
        how = carrier(request)
        route = f"{how.transport.value} {how.version}"
        self._say("#preview-title", f"{kind} · goes by {route} · f3 for the next")
        body = "\n".join([*how.reasons, "", self.preview_text(request, kind)]).strip()
        self._say("#preview", body)

    # Actions

    def do_next_preview(self) -> None:
        narrow = not (self.has_class("-wide") or self.has_class("-vast"))
        pane = self.query_one("#preview-pane")
        if narrow and not pane.has_class("-shown"):
            pane.add_class("-shown")
            self._preview = 0
        elif narrow and self._preview == len(PREVIEWS) - 1:
            pane.remove_class("-shown")
        else:
            self._preview = (self._preview + 1) % len(PREVIEWS)
        self._dirty = True
        self.check()

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
        """Fills the form from a gcloud command.

        Raises:
            OperatorError: The command cannot be read; it names the flag.
        """
        context = self.console.context
        self.fill(write(from_gcloud(command, project=context.project, zone=self.line("zone").value)))
        self.console.say("The form was filled from the command.")

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

    def do_race(self) -> None:
        """The same in several zones or of several types."""
        from tui.screens.policy_forms import RaceFormScreen

        self._submitted = self._dirty = True
        self.check()
        found = [problem for problem in self.found if problem.field != "zone"]
        if self.request is None or found:
            raise OperatorError("Nothing can be raced for: the form has mistakes.", str(found[0]) if found else "")
        self.console.push_screen(RaceFormScreen(self.request))

    async def do_submit(self) -> None:
        """Checks, asks, sends, and goes to the fleet with the cursor on the new request."""
        self._submitted = self._dirty = True
        self.check()
        request = self.request
        if request is None or self.found:
            first = self.found[0] if self.found else None
            if first is not None and first.field in FIELD_NAMES:
                if first.field not in self.lines and (mounted := self.open_further()) is not None:
                    await mounted
                    await self.query_one(Further).remove()
                self.line(first.field).control.focus()
            raise OperatorError("Nothing was sent: the form has mistakes.", str(first) if first is not None else "")
        tower = self.console.require_tower()
        advice = warnings(
            request, existing=self.console.fleet.queued_resources, zone_types=self._offered.get(request.zone)
        )
        advice += self._advise(request)
        place = standing(request, self.console.fleet.queued_resources, self._limits)
        lines = [
            f"{request.name} in {request.zone}: {size_words(request)}",
            f"tier {request.tier.value}, runtime {request.runtime_version}",
            *([place.sentence] if place is not None else []),
            *(f"! {problem}" for problem in advice),
        ]
        answer = await self.console.push_screen_wait(
            Question("Ask for this capacity?", lines, (Choice("yes", "Ask for it", "primary"), Choice("no", "Back")))
        )
        if answer != "yes":
            return
        await self.console.require_recovery().create(request)
        self.console.note(
            EventKind.ACTION, f"asked for {size_words(request)} as {request.name}", subject=request.name
        )
        self.drop_draft()
        self.console.say(f"{request.name} was asked for.")
        tower.watch.poke()
        self.console.go()
        self.console.await_request(request.key)
