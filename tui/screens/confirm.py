"""Questions before something changes: yes or no with the list of what it touches, or a name to be typed."""

from __future__ import annotations

import math
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Static

from backend.outcomes import OperatorError
from tui.actions import DIALOG, Action, bindings
from tui.screens.base import Answer, Dialog
from tui.screens.entry import Entry
from tui.widgets.hints_footer import Hint

if TYPE_CHECKING:
    from backend.cloud.equivalents import Equivalent

LIST_LINES = 14
"""Lines of the list that are seen at once; the rest scrolls."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a question."""

    answer: str
    label: str
    variant: str = "default"
    """`default`, `primary`, `warning` or `error`."""


YES_NO = (Choice("yes", "Yes", "primary"), Choice("no", "No"))


class Question(Dialog[str]):
    """A question with a few answers, each a button and a number key; `escape` answers None."""

    BINDINGS: ClassVar = [
        *bindings(DIALOG),
        *(Binding(str(number), f"answer({number - 1})", show=False) for number in range(1, 10)),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]

    def __init__(
        self, title: str, lines: Sequence[str] = (), choices: Sequence[Choice] = YES_NO, *, chosen: int = 0
    ) -> None:
        super().__init__()
        self._question = title
        self._lines = tuple(lines)
        self._choices = tuple(choices)
        self._chosen = chosen
        self._asked_at = math.inf

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="dialog-title", markup=False)
            if self._lines:
                with VerticalScroll(classes="dialog-lines", can_focus=len(self._lines) > LIST_LINES):
                    yield Static("\n".join(self._lines), markup=False)
            with Horizontal(classes="dialog-buttons"):
                for number, choice in enumerate(self._choices, 1):
                    button = Button(f"{number} {choice.label}", id=f"answer-{number}", compact=True)
                    button.add_class(f"-{choice.variant}")
                    yield button

    def on_mount(self) -> None:
        self.query_one(f"#answer-{self._chosen + 1}", Button).focus()
        self._asked_at = time.monotonic()

    def hints(self) -> list[Hint]:
        numbers = Hint(f"1-{len(self._choices)}", "answers", priority=9)
        return [
            numbers,
            Hint("left right", "choose", priority=8),
            Hint("enter", "takes it", priority=8),
            *super().hints(),
        ]

    def applies(self, action: Action) -> bool:
        return action.id == "back"

    def answers(self, pressed_at: float) -> bool:
        """Whether a key pressed at `pressed_at` (monotonic seconds) can be an answer: it came after the question."""
        return pressed_at >= self._asked_at

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.action_answer(int(str(event.button.id).removeprefix("answer-")) - 1)

    def action_answer(self, index: int) -> None:
        if index < len(self._choices):
            self.dismiss(self._choices[index].answer)

    def do_submit(self) -> None:
        self.action_answer(self._chosen)


class TypedDialog(Dialog[Answer]):
    """A question that is answered by typing into the input `typed`; enter submits it."""

    @property
    def typed(self) -> str:
        """What it says now."""
        return self.query_one("#typed", Input).value

    def on_mount(self) -> None:
        self.query_one("#typed", Input).focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.do_submit()

    def complain(self, text: str) -> None:
        """Says below the input why it is not taken."""
        self.query_one("#typed-problem", Static).update(text)

    def do_submit(self) -> None:
        raise NotImplementedError


class TypedConfirmation(TypedDialog[bool]):
    """Shows what will be gone, and is content only with the exact text."""

    BINDINGS: ClassVar = bindings(DIALOG)

    def __init__(
        self, title: str, lines: Sequence[str], text: str, *, deed: str, same: Equivalent | None = None
    ) -> None:
        """
        Args:
            title: The question.
            lines: What will be gone and what it holds.
            text: What must be typed.
            deed: The word on the button.
            same: The gcloud command and REST call of the deed.
        """
        super().__init__()
        self._question = title
        self._lines = tuple(lines)
        self._text = text
        self._deed = deed
        self._same = same

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -danger"):
            yield Static(self._question, classes="dialog-title", markup=False)
            with VerticalScroll(classes="dialog-lines", can_focus=False):
                yield Static("\n".join(self._lines), markup=False)
            more = " f2 shows the same in gcloud." if self._same is not None else ""
            yield Static(f"Type {self._text} to {self._deed}; esc leaves everything as it is.{more}", markup=False)
            yield Entry(placeholder=self._text, id="typed", compact=True)
            yield Static("", id="typed-problem", markup=False)

    def applies(self, action: Action) -> bool:
        return action.id == "back" or (action.id == "explain" and self._same is not None)

    def hints(self) -> list[Hint]:
        return [Hint("enter", self._deed, priority=9), *super().hints()]

    def do_explain(self) -> None:
        if self._same is not None:
            self.console.show_equivalent(self._question, self._same)

    def do_submit(self) -> None:
        typed = self.typed.strip()
        if typed == self._text:
            self.dismiss(True)
        else:
            self.complain(f"'{typed}' is not {self._text}: nothing was sent." if typed else "Nothing was typed.")


class Secret(TypedDialog[str]):
    """A secret that is typed and never shown; `escape` gives up."""

    BINDINGS: ClassVar = bindings(DIALOG)

    def __init__(self, title: str) -> None:
        super().__init__()
        self._question = title

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="dialog-title", markup=False)
            yield Entry(password=True, id="typed", compact=True)

    def do_submit(self) -> None:
        self.dismiss(self.typed)


class Ask(TypedDialog[str]):
    """One line of text, checked before it is taken; `escape` answers None."""

    BINDINGS: ClassVar = bindings(DIALOG)

    def __init__(
        self,
        title: str,
        lines: Sequence[str] = (),
        *,
        value: str = "",
        hint: str = "",
        check: Callable[[str], object] | None = None,
    ) -> None:
        """
        Args:
            title: What is asked.
            lines: What helps to answer.
            value: To begin with.
            hint: Shown while nothing is typed.
            check: Raises OperatorError for what cannot be taken.
        """
        super().__init__()
        self._question = title
        self._lines = tuple(lines)
        self._value = value
        self._hint = hint
        self._check = check

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="dialog-title", markup=False)
            if self._lines:
                yield Static("\n".join(self._lines), markup=False)
            yield Entry(self._value, placeholder=self._hint, id="typed", compact=True)
            yield Static("", id="typed-problem", markup=False)

    def do_submit(self) -> None:
        typed = self.typed.strip()
        try:
            if self._check is not None:
                self._check(typed)
        except OperatorError as error:
            self.complain(str(error))
        else:
            self.dismiss(typed)


class Pick(Dialog[str]):
    """One of a list, each picked by a letter of its own."""

    BINDINGS: ClassVar = [*bindings(DIALOG), Binding("enter", "pick_first", show=False)]

    def __init__(self, title: str, choices: Sequence[tuple[str, str]], keys: Sequence[str] = ()) -> None:
        """
        Args:
            title: What is picked.
            choices: (answer, label).
            keys: The letter of each, in their order; none: the first of its label that is left.
        """
        super().__init__()
        self._question = title
        self._answers: dict[str, str] = {}
        self._labels: list[str] = []
        for ordinal, (answer, label) in enumerate(choices):
            own = keys[ordinal] if ordinal < len(keys) else ""
            offered = [own, *label.lower(), *string.ascii_lowercase]
            letters = [each for each in offered if len(each) == 1 and each.isalnum() and each not in self._answers]
            letter = letters[0]
            self._answers[letter] = answer
            self._labels.append(f"{letter}  {label}")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -small"):
            yield Static(self._question, classes="dialog-title", markup=False)
            yield Static("\n".join(self._labels), classes="dialog-lines", markup=False)

    def applies(self, action: Action) -> bool:
        return action.id == "back"

    def hints(self) -> list[Hint]:
        return [
            Hint(" ".join(self._answers), "picks", priority=9),
            Hint("enter", "the first", priority=5),
            *super().hints(),
        ]

    def on_key(self, event: events.Key) -> None:
        if event.character in self._answers:
            event.stop()
            self.dismiss(self._answers[event.character])

    def do_submit(self) -> None:
        self.action_pick_first()

    def action_pick_first(self) -> None:
        self.dismiss(next(iter(self._answers.values())))
