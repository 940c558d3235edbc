"""One environment on every worker: the form with its exact script, then the progress of each, then whether all are equal."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.widgets import ContentSwitcher

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.runs.model import RunPlan, RunState
from backend.sanitize import plain
from backend.targets import fold
from backend.tools.setup import APT_WAIT_S, PYTHON_PLACE, SetupRequest, Verification, plan, script, verify
from tui.actions import SETUP_FORM, bindings
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, TargetForm
from tui.screens.run import RunScreen
from tui.screens.run_form import plan_words
from tui.wording import count

if TYPE_CHECKING:
    from backend.runs.manager import Run

TOLD = re.compile(r"^setup: (?!has )(.*)")
LOOK_BACK = 40
"""Lines from the end of a log in which its last word of progress is looked for."""
MAIN_PACKAGES = ("python", "jax", "jaxlib", "libtpu")


def read_form(texts: Mapping[str, str]) -> tuple[SetupRequest, dict[str, str]]:
    """What the form asks for, and each mistake by field."""
    wrong: dict[str, str] = {}

    def words(name: str) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(texts.get(name, "")))
        except ValueError as error:
            wrong[name] = f"It cannot be read: {error}. Close the quotes."
            return ()

    base = SetupRequest()
    values = {name: texts.get(name, "").strip() for name in ("python", "jax", "maxtext", "maxtext_source")}
    request = SetupRequest(
        python=values["python"] or base.python,
        jax=values["jax"],
        packages=words("packages"),
        pip_options=words("pip_options"),
        maxtext=values["maxtext"],
        maxtext_source=values["maxtext_source"] or base.maxtext_source,
        apt_wait_s=_seconds(texts.get("apt_wait", "").strip(), wrong),
        root=texts.get("root", "").strip(),
    )
    if request.jax and request.packages:
        wrong["jax"] = "A version of jax and packages exclude each other. Write jax[tpu]==0.10.2 among the packages."
    if "apt_wait" not in wrong and (problems := SetupRequest(apt_wait_s=request.apt_wait_s).problems()):
        wrong["apt_wait"] = problems[0]
    for name in ("python", "jax", "packages", "pip_options", "maxtext"):
        alone = SetupRequest(**{name: getattr(request, name)})
        if name not in wrong and (problems := alone.problems()):
            wrong[name] = problems[0]
    return request, wrong


def _seconds(text: str, wrong: dict[str, str]) -> int:
    """How long apt's locks are waited for; a mistake is put beside its field."""
    from backend.cloud.gcloud_flags import parse_duration

    try:
        return int(parse_duration(f"{text}s" if text.isdecimal() else text)) if text else APT_WAIT_S
    except ValueError as error:
        wrong["apt_wait"] = f"{error}."
        return APT_WAIT_S


class SetupFormScreen(TargetForm):
    """Asks what every worker shall have; shows the script that would make it."""

    SCOPE = SETUP_FORM
    BINDINGS: ClassVar = bindings(SETUP_FORM)
    crumb = "setup"
    draft_name = "setup"
    first_field = "python"

    plan: RunPlan | None = None

    def fields(self) -> Iterable[FormLine]:
        kept = self.draft()
        base = SetupRequest()
        fields = (
            ("python", "python", "python3; or 3.12, or a path there"),
            ("jax", "jax", "the newest; or a version such as 0.10.2"),
            ("packages", "packages", "jax[tpu]; or others, for pip"),
            ("pip_options", "pip options", "--find-links=DIR"),
            ("maxtext", "MaxText at", "none; or a branch, tag or commit"),
            ("maxtext_source", "MaxText from", base.maxtext_source),
            ("apt_wait", "wait for apt", f"{APT_WAIT_S}s; for its locks at first boot"),
            ("root", "root there", "/; where /var is looked for"),
        )
        yield self.targets_line()
        for name, label, hint in fields:
            yield FormLine(name, label, value=kept.get(name, ""), hint=hint)

    def judge(self, texts: Mapping[str, str]) -> Judged:
        request, wrong = read_form(texts)
        self.plan = None
        try:
            workers = self.workers_of(texts)
            if not wrong:
                self.plan = plan(self.console.require_tower(), request, workers)
        except OperatorError as error:
            wrong["targets"] = str(error)
        if self.plan is None:
            return Judged([next(iter(wrong.values()))], wrong)
        lines = [plan_words(self.plan), *(f"refused: {text}" for text in self.plan.refusals)]
        lines += [f"! {text}" for text in self.plan.warnings]
        lines += ["It goes on when this console ends. Asked for again, it only looks.", "ctrl+r starts it"]
        lines += ["", "each worker runs exactly:", script(request)]
        return Judged(lines, refused=bool(self.plan.refusals))

    async def do_submit(self) -> None:
        self.require_right()
        planned = self.plan
        if planned is None or planned.refusals:
            raise OperatorError(f"Nothing was sent: {planned.refusals[0] if planned else 'there is no plan.'}")
        run = await self.console.require_tower().runs.launch(planned)
        where = fold(worker.address for worker in planned.workers)
        self.console.note(EventKind.ACTION, f"sets up {where}: {planned.request.title}", subject=run.id)
        self.give_way(SetupScreen(run))


def verdict(found: Verification, run_id: str) -> str:
    """Whether all have the same, in sentences."""
    lines = [f"NOT equal: {each}" for each in found.differences]
    if found.missing:
        lines.append(f"not ready: {fold(found.missing)}; l shows pip's words (run {run_id})")
    if found.equal:
        told = [each for each in found.common if each.partition("==")[0] in MAIN_PACKAGES]
        words = plain(", ".join(told)) or count(len(found.common), "package")
        lines.append(f"equal on {count(len(found.packages), 'worker')}: {words}. Its Python: {PYTHON_PLACE}")
    return "\n".join(lines)


class SetupScreen(RunScreen):
    """A run that says of each worker how far it is, and at its end whether all are equal."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.crumb = f"setup {run.id}"
        self._said: dict[str, tuple[int, str]] = {}
        self._verified = False
        self._found = ""

    def on_mount(self) -> None:
        self.query_one(ContentSwitcher).current = "table"
        self.call_after_refresh(self.focus_main)

    def notes(self) -> dict[str, str]:
        """The last word of progress of each worker."""
        for index, result in enumerate(self.run_.results):
            address = result.worker.address
            if not result.output_bytes or not self.run_.has_log(index):
                continue
            if self._said.get(address, (-1, ""))[0] == result.output_bytes:
                continue
            log = self.run_.log(index)
            log.refresh()
            texts = (
                log.line(number).text
                for number in range(log.total - 1, max(log.first, log.total - LOOK_BACK) - 1, -1)
            )
            found = next((match[1] for text in texts if (match := TOLD.match(plain(text)))), None)
            known = self._said.get(address, (0, ""))[1]
            self._said[address] = (result.output_bytes, found if found is not None else known)
        return {address: text for address, (_, text) in self._said.items()}

    def tick(self) -> None:
        super().tick()
        if self.run_.state is RunState.ENDED and not self._verified:
            self._verified = True
            self.background(self._verify(), group="verify", title="compare the environments")

    async def _verify(self) -> None:
        found = await asyncio.to_thread(verify, self.run_)
        self._found = verdict(found, self.run_.id)
        self._alarm()

    def _set_alarm(self, text: str) -> None:
        super()._set_alarm("\n".join(part for part in (self._found, text) if part))
