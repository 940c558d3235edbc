"""Everything that the command line can do is in the console, or says in a word why not; and the other way round.

A new verb, option or action fails here until `tests/tui/parity` says where the other half is. `docs/parity.md` is made of
that table: `make parity` writes it anew.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.tui.fixed.scenes import Way, at_train, command, keys, on_train, tool, with_options
from tests.tui.fixed.world import FixedConsole, fixed_console
from tests.tui.parity.answers import Answer, Column, Field, Key, Reason, Word
from tests.tui.parity.page import page
from tests.tui.parity.reverse import ACTIONS as ANSWERED
from tests.tui.parity.reverse import Alone
from tests.tui.parity.verbs import COMMON, VERBS
from tui.action_model import Group
from tui.actions import ACTIONS, BY_ID, FULL_FORMS, words
from tui.cli.main import VERBS as MODULES
from tui.cli.main import Parser, build_parser
from tui.command_line import ARGUMENTS
from tui.screens.form_screen import FormScreen
from tui.widgets.live_table import LiveTable

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The first name of each option, and arguments by their destination."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            yield action.option_strings[0] if action.option_strings else action.dest.upper()


def walked(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
    """(verb, its options) of a parser and all below it."""
    yield path, set(options(parser))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from walked(f"{path} {name}", below)


def command_line() -> dict[str, set[str]]:
    """Every verb with its options; the faults of `sim inject` are one verb with what each takes."""
    found = dict(walked("slicetower", build_parser()))
    for verb, (module, _) in {**MODULES, "console": ("tui.cli.console", "")}.items():
        parser = Parser(prog=verb)
        importlib.import_module(module).add_arguments(parser)
        found |= dict(walked(verb, parser))
    return {path: told for path, told in found.items() if not path.startswith("sim inject ")}


LINE = command_line()


def answers_of(path: str) -> Mapping[str, Answer]:
    """The table's answers for one verb, with those that mean the same everywhere."""
    common = {name: answer for name, answer in COMMON.items() if name in LINE.get(path, ())}
    return {**common, **VERBS.get(path, {})}


def test_every_verb_and_every_option_is_answered() -> None:
    unanswered = {
        path: sorted(({""} | told) - set(answers_of(path)))
        for path, told in LINE.items()
        if ({""} | told) - set(answers_of(path))
    }
    assert not unanswered, "say in tests/tui/parity/verbs.py where the console has these"


def test_nothing_is_answered_that_the_command_line_has_not() -> None:
    gone = {
        path: sorted(set(told) - LINE.get(path, set()) - {""})
        for path, told in VERBS.items()
        if path not in LINE or set(told) - LINE[path] - {""}
    }
    assert not gone


def test_actions_and_words_of_the_table_exist() -> None:
    wrong = []
    for path in VERBS:
        for option, answer in answers_of(path).items():
            if isinstance(answer, Key) and answer.action not in BY_ID:
                wrong.append(f"{path} {option}: there is no action {answer.action}")
            elif isinstance(answer, Word):
                taken = ARGUMENTS.get(answer.word, "")
                if answer.word not in words() or answer.argument not in taken:
                    wrong.append(f"{path} {option}: :{answer.word} takes {taken!r}, not {answer.argument!r}")
    assert not wrong


def test_what_is_said_to_be_of_a_shell_alone_has_no_action() -> None:
    names = {*words(), *BY_ID}
    both = [path for path in VERBS if answers_of(path).get("") is Reason.SHELL and path in names]
    assert not both, "the console has these now: say so in tests/tui/parity/verbs.py"


async def keep_form(driven: FixedConsole) -> None:
    await at_train(driven, "K")


async def race_form(driven: FixedConsole) -> None:
    from tests.tui.fixed import facts
    from tui.screens.create import CreateScreen

    await at_train(driven)
    driven.app.push_screen(CreateScreen({"name": "r", "zone": facts.WEST, "accelerator_type": "v5litepod-16"}))
    await driven.shows("ctrl+r sends it")
    await driven.press("f6")


async def all_of_create(driven: FixedConsole) -> None:
    """With its further options, which are made when they are gone to."""
    await keys("C")(driven)
    await driven.until(lambda: bool(driven.app.screen.query("#further")))
    driven.app.screen.query_one("#further").focus()
    await driven.until(lambda: not driven.app.screen.query("#further"))


async def sweep_form(driven: FixedConsole) -> None:
    await at_train(driven, "b")
    await driven.shows("32 devices on 8 workers")
    await driven.press("f6")


FORMS: Mapping[str, Way] = {
    "create": all_of_create,
    "run form": command("run train-a -- hostname"),
    "bench form": on_train("b"),
    "sweep form": sweep_form,
    "setup form": tool("setup"),
    "copy form": tool("copy"),
    "keep form": keep_form,
    "race form": race_form,
    "check form": with_options("check"),
    "free form": with_options("free"),
}
TABLES: Mapping[str, Way] = {
    "fleet": on_train(),
    "runs": keys("4"),
    "benches": keys("5"),
    "operations": keys("8"),
}


def wanted(kind: type[Field] | type[Column]) -> dict[str, set[str]]:
    """What the table says that forms or tables have."""
    found: dict[str, set[str]] = {}
    for path in VERBS:
        for answer in answers_of(path).values():
            if isinstance(answer, Field) and kind is Field:
                found.setdefault(answer.form, set()).add(answer.name)
            elif isinstance(answer, Column) and kind is Column:
                found.setdefault(answer.screen, set()).add(answer.column)
    return found


def test_the_forms_and_tables_of_the_table_are_opened_here() -> None:
    assert set(wanted(Field)) == set(FORMS)
    assert set(FORMS) <= FULL_FORMS
    assert set(wanted(Column)) == set(TABLES)


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_has_the_fields_that_it_is_said_to_have(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        await FORMS[form](driven)

        def opened() -> bool:
            screen = driven.app.screen
            return isinstance(screen, FormScreen) and form == screen.SCOPE and bool(screen.lines)

        await driven.until(opened)
        screen = driven.app.screen
        assert isinstance(screen, FormScreen)
        lines = {name: line.label for name, line in screen.lines.items()}
        assert wanted(Field)[form] - set(lines) == set()
        assert all(lines.values()), "a field without a label"


@pytest.mark.parametrize("table", TABLES)
async def test_a_table_has_the_columns_that_it_is_said_to_have(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(160, 50)) as driven:
        await TABLES[table](driven)
        await driven.settle()
        shown = driven.app.screen.query_one("#table", LiveTable)
        assert wanted(Column)[table] - {column.id for column in shown.columns} == set()


# The other way round


def test_every_action_that_does_something_has_its_verb_or_a_reason() -> None:
    by_table = {answer.action for path in VERBS for answer in answers_of(path).values() if isinstance(answer, Key)}
    unanswered = [
        action.id
        for action in ACTIONS
        if action.group is not Group.MOVE and action.id not in by_table and action.id not in ANSWERED
    ]
    assert not unanswered, "say in tests/tui/parity/reverse.py which verb does it, or why none does"


def test_what_an_action_is_answered_with_exists_and_is_said_once() -> None:
    by_table = {answer.action for path in VERBS for answer in answers_of(path).values() if isinstance(answer, Key)}
    assert set(ANSWERED) - set(BY_ID) == set()
    assert not set(ANSWERED) & by_table, "the table of verbs says it already"
    verbs = {answer for answer in ANSWERED.values() if not isinstance(answer, Alone)}
    assert verbs - set(LINE) == set()


def test_whatever_changes_the_cloud_or_workers_has_a_verb() -> None:
    own = (Alone.OWN, Alone.FORM)
    alone = [
        action.id
        for action in ACTIONS
        if action.changes and isinstance(why := ANSWERED.get(action.id), Alone) and why not in own
    ]
    assert not alone, "what changes something must be possible without the console"


def test_reasons_are_few_and_each_is_used() -> None:
    used = {answer for path in VERBS for answer in answers_of(path).values() if isinstance(answer, Reason)}
    assert used == set(Reason)
    assert len(Reason) <= 8
    assert {answer for answer in ANSWERED.values() if isinstance(answer, Alone)} == set(Alone)


def test_the_page_says_what_the_table_says() -> None:
    told = page({path: answers_of(path) for path in VERBS}, ANSWERED)
    if os.environ.get("SLICETOWER_PARITY") == "write":
        PAGE.write_text(told, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == told, "docs/parity.md is not the table: make parity writes it"
