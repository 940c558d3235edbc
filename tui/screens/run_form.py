"""The run dialog: whom, what, in which batches, and exactly what each worker will run, before anything is sent."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from backend.cloud.gcloud_flags import parse_duration
from backend.outcomes import OperatorError
from backend.runs.bundles import Bundle
from backend.runs.model import RunPlan, RunRequest
from backend.targets import WorkerRef
from tui.actions import RUN_FORM, bindings
from tui.run_words import ON
from tui.screens.choose import Offer
from tui.screens.form import FormLine
from tui.screens.form_choices import SavingForm, command_requests
from tui.screens.packing import TYPED_S, Packing, of_folder
from tui.screens.plan_form import Judged, TargetForm
from tui.screens.working import work
from tui.wording import count

BATCH_WORDS = 8
"""Batch sizes that are written out; more are counted."""


def read_form(texts: Mapping[str, str]) -> tuple[RunRequest, dict[str, OperatorError]]:
    """What the form asks for, and every mistake in it by field; a field with a mistake counts as left out."""
    wrong: dict[str, OperatorError] = {}
    command = texts.get("command", "").strip()
    shell = texts.get("shell") == ON
    argv: tuple[str, ...] = (command,)
    if not command:
        wrong["command"] = OperatorError("The command is empty.", "Write what each worker shall run.")
    elif not shell:
        try:
            argv = tuple(shlex.split(command))
        except ValueError as error:
            wrong["command"] = OperatorError(
                f"The command cannot be read: {error}.", "Close the quotes, or choose shell."
            )
    timeout = texts.get("timeout", "").strip()
    timeout_s = None
    try:
        timeout_s = parse_duration(timeout if not timeout.isdecimal() else f"{timeout}s") if timeout else None
    except ValueError as error:
        wrong["timeout"] = OperatorError(f"timeout: {error}.")
    environment, secret = [], []
    try:
        variables = shlex.split(texts.get("environment", ""))
    except ValueError as error:
        variables = []
        wrong["environment"] = OperatorError(f"environment: it cannot be read: {error}.", "Close the quotes.")
    for item in variables:
        key, equals, value = item.partition("=")
        if not key:
            wrong.setdefault("environment", OperatorError(f"environment: '{item}' is not KEY=VALUE, nor KEY alone."))
        elif equals:
            environment.append((key, value))
        else:
            secret.append(key)
    request = RunRequest(
        argv=argv,
        shell=shell,
        batch=texts.get("batch", "").strip() or "all",
        on_failure=texts.get("on_failure") or "stop",
        max_failures=texts.get("max_failures", "").strip() or None,
        timeout_s=timeout_s,
        detach=texts.get("detach") == ON,
        gang=texts.get("gang") == ON,
        force=texts.get("force") == ON,
        environment=tuple(environment),
        secret_environment=tuple(secret),
        setup=texts.get("setup", "").strip(),
        title=texts.get("title", "").strip() or command,
    )
    return request, wrong


def request_of(texts: Mapping[str, str]) -> RunRequest:
    """What the form asks for.

    Raises:
        OperatorError: A field cannot be understood; it says which.
    """
    request, wrong = read_form(texts)
    if wrong:
        raise next(iter(wrong.values()))
    return request


def command_of(request: RunRequest) -> str:
    """The command as it is typed."""
    return request.argv[0] if request.shell else shlex.join(request.argv)


def write_form(request: RunRequest) -> dict[str, str]:
    """The fields that ask for the same: what `read_form` makes this request of."""
    command = command_of(request)
    return {
        "command": command,
        "title": request.title if request.title != command else "",
        "batch": request.batch,
        "on_failure": request.on_failure,
        "max_failures": request.max_failures or "",
        "timeout": f"{request.timeout_s:g}s" if request.timeout_s is not None else "",
        "detach": ON if request.detach else "",
        "gang": ON if request.gang else "",
        "shell": ON if request.shell else "",
        "force": ON if request.force else "",
        "environment": shlex.join(
            [*(f"{name}={value}" for name, value in request.environment), *request.secret_environment]
        ),
        "sync": request.bundle.source if request.bundle is not None else "",
        "setup": request.setup,
    }


def plan_words(plan: RunPlan) -> str:
    """How many workers, in how many batches."""
    sizes = [len(batch) for batch in plan.batches]
    workers = count(len(plan.workers), "worker")
    if len(sizes) <= 1:
        return f"{workers}, all at once"
    if len(set(sizes)) == 1:
        return f"{workers} in {len(sizes)} batches of {sizes[0]}"
    shown = ", ".join(map(str, sizes[:BATCH_WORDS])) + (", …" if len(sizes) > BATCH_WORDS else "")
    return f"{workers} in {len(sizes)} batches: {shown}"


def plan_lines(plan: RunPlan) -> list[str]:
    """The plan in words: its batches, what speaks against it, what is shipped, and exactly what is run."""
    lines = [plan_words(plan)]
    lines += [f"refused: {text}" for text in plan.refusals]
    lines += [f"! {text}" for text in plan.warnings]
    if plan.request.bundle is not None:
        lines.append(f"ships {plan.request.bundle.report}")
    if plan.request.setup:
        lines.append(f"first, once per content and boot: {plan.request.setup}")
    lines += ["", "each worker runs exactly:", plan.remote_text]
    return lines if plan.refusals else [*lines, "", "ctrl+r starts it"]


class RunFormScreen(TargetForm, SavingForm):
    """Asks for a command and its policies; shows the plan live."""

    SCOPE = RUN_FORM
    BINDINGS: ClassVar = bindings(RUN_FORM)
    crumb = "run"
    draft_name = "run"
    saved_kind = "run"
    first_field = "command"

    plan: RunPlan | None = None

    def __init__(
        self,
        targets: Sequence[str],
        command: str = "",
        like: RunRequest | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            targets: Whom.
            command: What to begin with; empty: what was typed last and not sent.
            like: A run to repeat, with its policies.
            texts: What further fields begin with, by name.
        """
        super().__init__(targets)
        self._command = command
        self._like = like
        self._texts = dict(texts or {})
        self._packing: Packing | None = None
        """The folder that is or is being packed."""

    def fields(self) -> Iterable[FormLine]:
        kept = write_form(self._like) if self._like is not None else {} if self._command else self.draft()
        kept = {**kept, **self._texts}
        yield self.targets_line()
        yield FormLine(
            "command",
            "command",
            value=self._command or kept.get("command", ""),
            hint="hostname",
            suggestions=self.console.command_history,
        )
        yield FormLine("batch", "batch size", value=kept.get("batch", "all"), hint="all, 4, or 1,5,25%")
        yield FormLine("on_failure", "on failure", value=kept.get("on_failure", ""), choices=("stop", "continue"))
        yield FormLine(
            "max_failures", "failures allowed", value=kept.get("max_failures", ""), hint="0; a number or 10%"
        )
        yield FormLine("timeout", "timeout", value=kept.get("timeout", ""), hint="none; such as 10m")
        yield FormLine("detach", "detached", value=kept.get("detach", ""), choices=("no", ON))
        yield FormLine("gang", "gang", value=kept.get("gang", ""), choices=("no", ON))
        yield FormLine("shell", "through a shell", value=kept.get("shell", ""), choices=("no", ON))
        yield FormLine(
            "environment",
            "environment",
            value=kept.get("environment", ""),
            hint="KEY=VALUE, or KEY to take yours",
        )
        yield FormLine("sync", "ship folder", value=kept.get("sync", ""), hint="none; such as ~/code")
        yield FormLine(
            "setup",
            "setup first",
            value=kept.get("setup", ""),
            hint="once a boot: pip install -e .",
        )
        yield FormLine("force", "even as a gang", value=kept.get("force", ""), choices=("no", ON))
        yield FormLine("title", "title", value=kept.get("title", ""), hint="the command; a name to find it by")

    async def offers(self, name: str) -> Sequence[Offer]:
        if name == "command":
            named = [Offer(text, note=f"saved as {key}") for key, text in self.console.settings.commands.items()]
            return named + [Offer(text) for text in command_requests(self.console)]
        return await super().offers(name)

    def take_choice(self, line: FormLine, picked: str) -> None:
        """A command that was run comes with its policies."""
        like = command_requests(self.console).get(picked) if line.field_name == "command" else None
        if like is None:
            super().take_choice(line, picked)
            return
        for name, text in write_form(like).items():
            self.line(name).value = text

    def more_saved(self) -> Iterable[Offer]:
        return [Offer(name, note=f"{text}  (configuration)") for name, text in self.console.settings.commands.items()]

    def saved_elsewhere(self, name: str) -> dict[str, str]:
        return {"command": self.console.settings.commands[name]}

    def judge(self, texts: Mapping[str, str]) -> Judged:
        self.plan = None
        request, wrong = read_form(texts)
        bundle = self._bundle(texts.get("sync", "").strip())
        if isinstance(bundle, OperatorError):
            wrong["sync"] = bundle
        else:
            request = replace(request, bundle=bundle)
        plan: RunPlan | None = None
        try:
            workers = self.workers_of(texts)
        except OperatorError as error:
            wrong = {"targets": error, **wrong}
        else:
            try:
                plan = self.console.require_tower().runs.plan(request, workers)
            except OperatorError as error:
                wrong |= self._policy_mistakes(request, workers) or {"command": error}
        if wrong or plan is None:
            first = next(iter(wrong.values()))
            return Judged([text for text in (first.what, first.cure) if text], wrong)
        self.plan = plan
        return Judged(plan_lines(plan), refused=bool(plan.refusals))

    def _bundle(self, folder: str) -> Bundle | OperatorError | None:
        """What would be shipped; packed in a thread, and the form is judged again when that is done."""
        before, self._packing = self._packing, of_folder(self._packing, folder)
        if self._packing is None:
            return None
        if self._packing is not before:
            self.background(self._pack(self._packing), group="pack", title="pack the folder")
        found = self._packing.found
        return found if found is not None else OperatorError(self._packing.words, "ctrl+r is for when it is done.")

    async def _pack(self, packing: Packing) -> None:
        with suppress(OperatorError):
            await packing.pack(after_s=TYPED_S)
        if self._packing is packing:
            self.check()

    def tick(self) -> None:
        """How far the packing is."""
        super().tick()
        if self._packing is not None and self._packing.found is None:
            self.check()

    def on_unmount(self) -> None:
        if self._packing is not None:
            self._packing.stop()

    def _policy_mistakes(self, request: RunRequest, workers: Sequence[WorkerRef]) -> dict[str, OperatorError]:
        """Which of the policies cannot be planned: each is tried without the other."""
        runs = self.console.require_tower().runs
        found: dict[str, OperatorError] = {}
        for name, alone in (
            ("batch", replace(request, max_failures=None)),
            ("max_failures", replace(request, batch="all")),
        ):
            try:
                runs.plan(alone, workers)
            except OperatorError as error:
                found[name] = error
        return found

    async def do_submit(self) -> None:
        """Starts the run and shows it."""
        from tui.screens.run import RunScreen

        self.require_right()
        plan = self.plan
        if plan is None or plan.refusals:
            raise OperatorError(f"Nothing was sent: {plan.refusals[0] if plan else 'there is no plan.'}")
        if plan.request.bundle is not None:
            # As it is now: it may have been edited since the form was filled.
            packing = Packing(plan.request.bundle.source)
            fresh = await work(self.console, "Pack the folder", packing.pack(), lambda: packing.words)
            if fresh is None:
                return
            plan = self.console.require_tower().runs.plan(replace(plan.request, bundle=fresh), plan.workers)
        run = await self.console.require_tower().runs.launch(plan)
        self.console.command_history.append(command_of(plan.request))
        self.give_way(RunScreen(run))
