"""`:inject`: faults without a second terminal, in a simulated context and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, console
from tests.tui.fixed.world import fixed_console
from tui.completion import Known, complete
from tui.keymap import Keymap
from tui.screens.choose import Choose
from tui.screens.confirm import Ask
from tui.screens.help import sections


async def test_a_fault_is_injected_by_its_line_or_chosen_and_is_told_loudly(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    async with console(simulator.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("inject preempt train-zz")
        await driven.until(lambda: "train-zz" in driven.toasts(), "the refusal")
        await driven.command("inject preemt train-a")
        await driven.until(lambda: "There is no fault 'preemt'. Near: preempt" in driven.toasts(), "the near one")
        await driven.command("inject preempt")
        await driven.until(lambda: "Write preempt TARGET [--notice NOTICE]." in driven.toasts(), "the usage")
        await driven.command("inject preempt train-a")
        await driven.until(lambda: "SIMULATED FAULT preempt train-a:" in driven.toasts(), "the loud word")
        await driven.shows("SUSPENDED")
        await driven.command("inject")
        await driven.until(lambda: isinstance(driven.app.screen, Choose))
        choice = driven.app.screen
        assert isinstance(choice, Choose)
        await driven.write("cap")
        chosen = choice.chosen()
        assert chosen is not None
        assert chosen.answer == "capacity", "a name stands before what only speaks of it"
        await driven.press("backspace", "backspace", "backspace")
        await driven.write("rate")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.shows("SIMULATED FAULT: rate", "0: any")
        await driven.write("many")
        await driven.press("enter")
        await driven.shows("invalid int value: 'many'")
        await driven.press(*["backspace"] * 4)
        await driven.write("7")
        await driven.press("enter")
        await driven.until(lambda: "SIMULATED FAULT rate 7:" in driven.toasts())
        await driven.press("6")
        await driven.shows("simulated fault: preempt train-a", "simulated fault: rate 7")


async def test_elsewhere_there_is_no_fault_to_inject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        driven.app.context = replace(driven.app.context, label="")
        offered = {command.title for command in driven.app.get_system_commands(driven.app.screen)}
        assert "inject" not in offered
        await driven.press("colon")
        await driven.write("inj")
        await driven.press("tab")
        assert driven.app.root().prompt.input.value == "inj"
        await driven.press("escape")
        for line in ("inject preempt train-a", "inject"):
            driven.told.clear()
            await driven.command(line)
            await driven.until(lambda: "is no simulated context" in driven.toasts(), line)
        await driven.press("question_mark")
        await driven.settle()
        page = driven.app.screen.page_text()  # type: ignore[attr-defined]
        assert "inject" not in page
        assert "screenshot" in page


def test_its_help_stands_where_it_works() -> None:
    told = {title for _, lines in sections("fleet", Keymap(), read_only=False) for _, title, _ in lines}
    assert "inject" in told
    told = {
        title for _, lines in sections("fleet", Keymap(), read_only=False, simulated=False) for _, title, _ in lines
    }
    assert "inject" not in told


def test_faults_options_and_targets_are_completed() -> None:
    faults = {"preempt": ("--notice",), "release": ()}
    for text, completed in (
        ("inject pre", "inject preempt"),
        ("inject preempt tr", "inject preempt train-a"),
        ("inject preempt train-a --n", "inject preempt train-a --notice"),
        ("inject release --n", None),
        ("inj", "inject"),
    ):
        assert complete(text, Known(["train-a"], faults=lambda: faults)) == completed, text
    assert complete("inject pre", Known(["train-a"])) is None
