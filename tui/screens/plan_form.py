"""Forms with their plan beside them: judged at each change, and nothing is sent before it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual import on
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from backend.targets import select
from tui.command_line import in_console
from tui.screens.form import FormBody, FormLine, PickedChoice
from tui.screens.form_choices import ChoosingForm
from tui.screens.form_screen import FormScreen

if TYPE_CHECKING:
    from backend.targets import WorkerRef


@dataclass(frozen=True, slots=True)
class Judged:
    """What a form comes to."""

    lines: Sequence[str]
    """The plan in words."""
    wrong: Mapping[str, str | OperatorError] = field(default_factory=dict)
    """Each mistake by the name of its field."""
    refused: bool = False
    """Whether it cannot be sent though no field is wrong by itself."""

    @property
    def mistake(self) -> str | OperatorError | None:
        """The first mistake."""
        return next(iter(self.wrong.values()), None)


class PlanForm(FormScreen):
    """Fields, and the plan of what they say: below them, or beside them where there is room."""

    def fields(self) -> Iterable[FormLine]:
        """The lines of the form."""
        raise NotImplementedError

    def judge(self, texts: Mapping[str, str]) -> Judged:
        """What the form comes to. Sends nothing."""
        raise NotImplementedError

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="run-form"):
            with FormBody(id="form"):
                yield from self.fields()
            with VerticalScroll(id="plan-pane", can_focus=False):
                yield Static(id="plan", markup=False)

    def main_widget(self) -> Widget:
        return next(iter(self.lines.values())).control

    def on_mount(self) -> None:
        self.check()

    @on(Input.Changed)
    @on(PickedChoice.Changed)
    def _changed(self) -> None:
        self.call_after_refresh(self.check)

    judged = Judged(())

    def check(self) -> None:
        """Judges what the form says, and shows it: each mistake beside its field, all of it in the plan."""
        if not self.is_mounted:
            return
        texts = self.texts()
        self.judged = self.judge(texts)
        wrong = self.judged.wrong
        for name, line in self.lines.items():
            # What was not typed yet is no mistake to scold; the plan says what is missing.
            line.say(str(wrong[name]) if name in wrong and texts.get(name) else "")
        plan = self.query_one("#plan", Static)
        plan.set_class(bool(wrong) or self.judged.refused, "-refused")
        plan.update(plain_text(in_console("\n".join(self.judged.lines))))

    def require_right(self, without: str = "Nothing was sent.") -> None:
        """Judges once more, before it is sent.

        Raises:
            OperatorError: The first mistake.
        """
        self.check()
        mistake = self.judged.mistake
        if isinstance(mistake, OperatorError):
            raise mistake
        if mistake is not None:
            raise OperatorError(without, mistake)

    def give_way(self, screen: Screen[None]) -> None:
        """It was sent: its screen takes the place of the form, and the next form begins anew."""
        self.drop_draft()
        self.console.pop_screen()
        self.console.push_screen(screen)


class TargetForm(PlanForm, ChoosingForm):
    """A form that names workers in its field `targets`."""

    first_field: str
    """Where typing begins when the targets are known."""

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__()
        self._targets = tuple(targets)

    def targets_line(self) -> FormLine:
        """The field of the targets, filled with those that the form was opened for."""
        return FormLine("targets", "targets", value=" ".join(self._targets), hint="train-a, train-a/0, train-a/*/0")

    def main_widget(self) -> Widget:
        return self.line(self.first_field if self._targets else "targets").control

    def workers_of(self, texts: Mapping[str, str]) -> tuple[WorkerRef, ...]:
        """Whom the targets name now.

        Raises:
            OperatorError: They name nobody.
        """
        words = texts.get("targets", "").split()
        if not words:
            raise OperatorError("No target is given.", "Write train-a, train-a/0 or train-a/*/0.")
        return select(self.console.fleet, words, self.console.require_tower().groups)
