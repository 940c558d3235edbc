"""The forms of keep and race: budgets and what runs on ready; zones and types that are asked for at once."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

from backend.cloud.cautions import warnings
from backend.cloud.gcloud_flags import parse_duration
from backend.cloud.kept_races import RACE_TIMEOUT_S
from backend.cloud.policies import FAILURE_BUDGET, PREEMPTION_BUDGET, Keep
from backend.cloud.race import candidates
from backend.cloud.requests import CreateRequest
from backend.cloud.validation import problems
from backend.model import QueuedResource
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import KEEP_FORM, RACE_FORM, bindings
from tui.command_line import in_console
from tui.numbers import whole_number
from tui.screens.confirm import Choice, Question
from tui.screens.create_job import shipped_words
from tui.screens.create_shipping import JobShipping
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, PlanForm
from tui.wording import count


def _budget(text: str, default: int) -> int:
    text = text.strip()
    if not text:
        return default
    number = whole_number(text)
    if number is None:
        raise OperatorError(f"'{plain(text)}' is no number of times.", "0 means: never made again for that reason.")
    return number


class KeepFormScreen(PlanForm):
    """How often a request may be made again, and what this machine runs when it is ready."""

    SCOPE = KEEP_FORM
    BINDINGS: ClassVar = bindings(KEEP_FORM)

    def __init__(self, item: QueuedResource) -> None:
        super().__init__()
        self._item = item
        self.crumb = f"keep {item.name}"
        self._keep: Keep | None = None
        self._plan = [f"Asking what {item.name} was asked for with …"]

    def fields(self) -> Iterable[FormLine]:
        yield FormLine(
            "preemptions", "preemptions", value=str(PREEMPTION_BUDGET), hint="how often it may be made again"
        )
        yield FormLine("failures", "failures", value=str(FAILURE_BUDGET), hint="how often after a failure")
        yield FormLine("on_ready", "on ready", hint="a command of this machine, each time it is ready anew")

    def on_mount(self) -> None:
        self.background(self._ask(), group="plan", title="what it was asked for with")

    async def _ask(self) -> None:
        try:
            plan = await self.console.require_recovery().plan(self._item.key)
        except OperatorError as error:
            self._plan = [f"It cannot be made again: {error.what}"]
            self.check()
            raise
        made = f"{plan.request.node_count} × {plan.request.shape}, {plan.request.tier.value}"
        self._plan = [f"Made again it would be: {made}, in {self._item.zone}.", *plan.notes]
        self.check()

    def judge(self, texts: Mapping[str, str]) -> Judged:
        wrong: dict[str, str] = {}
        numbers = {"preemptions": PREEMPTION_BUDGET, "failures": FAILURE_BUDGET}
        for name, default in numbers.items():
            try:
                numbers[name] = _budget(texts.get(name, ""), default)
            except OperatorError as error:
                wrong[name] = str(error)
        on_ready: tuple[str, ...] = ()
        try:
            on_ready = tuple(shlex.split(texts.get("on_ready", "")))
        except ValueError as error:
            wrong["on_ready"] = f"It cannot be read: {error}. Close the quotes."
        self._keep = None if wrong else Keep(*self._item.key, numbers["preemptions"], numbers["failures"], on_ready)
        name = self._item.name
        lines = [
            f"{name} is deleted and made again after up to {count(numbers['preemptions'], 'preemption')} and"
            f" {count(numbers['failures'], 'failure')}, while this console is open."
            f" `slicetower qr keep {name}` does the same without a console.",
            *self._plan,
        ]
        return Judged([*lines, "", next(iter(wrong.values()), "ctrl+r keeps it")], wrong)

    async def do_submit(self) -> None:
        self.check()
        if self._keep is None:
            raise OperatorError("It is not kept: the form has mistakes.")
        # The form has said what it comes to: nothing is asked twice.
        self.console.policies.keep(self._keep)
        self.console.show_policies()


class RaceFormScreen(PlanForm):
    """The same request in several zones or of several types."""

    SCOPE = RACE_FORM
    BINDINGS: ClassVar = bindings(RACE_FORM)
    crumb = "race"

    def __init__(self, request: CreateRequest, shipping: JobShipping, texts: Mapping[str, str]) -> None:
        """
        Args:
            request: What is raced for, without its job.
            shipping: The job of the create form.
            texts: What that form says.
        """
        super().__init__()
        self._request = request
        self._shipping = shipping
        self._texts = dict(texts)
        self._entries: list[CreateRequest] = []
        self._timeout_s = RACE_TIMEOUT_S

    def fields(self) -> Iterable[FormLine]:
        yield FormLine("zones", "zones", value=" ".join(self.console.context.zones), hint="us-west4-a us-east5-a")
        yield FormLine("types", "types", value=self._request.accelerator_type, hint="v5litepod-16 v6e-16")
        yield FormLine("timeout", "give up after", value="1h", hint="such as 30m or 2h")

    def judge(self, texts: Mapping[str, str]) -> Judged:
        wrong: dict[str, str] = {}
        zones = list(dict.fromkeys(texts.get("zones", "").replace(",", " ").split()))
        types = list(dict.fromkeys(texts.get("types", "").lower().replace(",", " ").split()))
        strange = [zone for zone in zones if zone not in self.console.context.zones]
        if not zones or strange:
            known = ", ".join(self.console.context.zones)
            wrong["zones"] = f"This console watches {known}" + (f", not {strange[0]}." if strange else ".")
        try:
            self._timeout_s = parse_duration(texts.get("timeout", "").strip() or "1h")
        except ValueError as error:
            wrong["timeout"] = f"{error}."
        base = self._request if len(types) < 2 else replace(self._request, runtime_version="")
        self._entries = candidates(base, zones, types) if zones else []
        taken = {item.key for item in self.console.fleet.queued_resources}
        lines = [
            f"{len(self._entries)} are asked for at once; the first that is ACTIVE wins, the others are cancelled:"
        ]
        for entry in self._entries:
            bad = [str(problem) for problem in problems(entry)]
            bad += [f"{entry.name} exists there already."] if entry.key in taken else []
            mark = f"  refused: {bad[0]}" if bad else ""
            lines.append(f"  {entry.name} in {entry.zone}: {entry.node_count} × {entry.shape}{mark}")
            found = warnings(entry, existing=self.console.fleet.queued_resources)
            lines += [f"    ! {in_console(str(problem))}" for problem in found]
            if bad:
                wrong.setdefault("types" if len(types) > 1 else "zones", bad[0])
        if len(self._entries) < 2 and "zones" not in wrong:
            wrong["zones"] = "One request is no race: give several zones or types."
        return Judged([*lines, "", "ctrl+r begins it" if not wrong else next(iter(wrong.values()))], wrong)

    async def do_submit(self) -> None:
        self.require_right()
        entries = list(self._entries)
        jobs = [job for entry in entries if (job := self._shipping.again(entry, self._texts)) is not None]
        lines = [f"{entry.name} in {entry.zone}: {entry.node_count} × {entry.shape}" for entry in entries]
        if jobs:
            lines += [
                *shipped_words(jobs[0]),
                "Each carries the job, as a run of its own; that of the winner goes on.",
            ]
        lines.append(
            "It goes on while this console is open. Left before that, it waits, and so does what it asked for:"
            " `slicetower qr race --resume` takes it up without a console."
        )
        choices = (Choice("yes", "Begin", "primary"), Choice("no", "Back"))
        if await self.console.push_screen_wait(Question("Race for these?", lines, choices)) != "yes":
            return
        if jobs and not await self._shipping.begin(jobs):
            raise OperatorError("Nothing was sent: putting the code into its bucket was broken off.")
        self.console.drafts.pop("create", None)
        await self.console.policies.race([job.create for job in jobs] or entries, self._timeout_s)
        self.console.show_policies()
