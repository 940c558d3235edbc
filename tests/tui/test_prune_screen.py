"""Old runs are cleaned up by key: listed first, removed after their number was typed, never one that may still run."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from backend.runs import retention
from backend.runs.live import RunLock
from backend.runs.retention import OldRun
from tests.tui.driving import MEDIUM, WIDE
from tests.tui.fixed import facts
from tests.tui.fixed.scenes import old_runs
from tests.tui.fixed.world import FixedConsole, fixed_console
from tui.screens import prune as prune_screen
from tui.screens.confirm import Question, TypedConfirmation
from tui.screens.prune import YES, PruneFormScreen, PruneScreen, read_form
from tui.screens.runs import RunsScreen

OLD = [facts.RUN_ID, facts.SHORN_ID, facts.BENCH_ID]


async def listed(driven: FixedConsole, age: str = "1m") -> PruneScreen:
    """What would go, of an age that all fixed runs have."""
    await old_runs(driven, age)
    await driven.press("ctrl+r")
    await driven.shows("would go")
    screen = driven.app.screen
    assert isinstance(screen, PruneScreen)
    await driven.until(lambda: not screen.is_working)
    return screen


async def confirmed(driven: FixedConsole, number: str) -> None:
    await driven.press("X")
    await driven.until(lambda: isinstance(driven.app.screen, TypedConfirmation))
    await driven.write(number)
    await driven.press("enter")


def kept(driven: FixedConsole) -> set[str]:
    return {record.id for record in driven.app.require_tower().runs.history()}


def folder(driven: FixedConsole, run_id: str) -> Path:
    return driven.app.require_tower().paths.runs_dir / run_id


def fates(screen: PruneScreen) -> dict[str, str]:
    rows = screen.table.visible_rows
    return {str(row.key): row.cells[4].text for row in rows}  # type: ignore[union-attr]


async def test_the_form_counts_what_would_go_and_tells_each_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        driven.listen(monkeypatch)
        await old_runs(driven, "1m")
        assert isinstance(driven.app.screen, PruneFormScreen)
        await driven.shows("3 of 4 runs would go: ended more than 60s ago", f"would stay: {facts.LIVE_ID}")
        await driven.press("tab")
        await driven.write("2")
        await driven.shows("2 of 4 runs would go: ended more than 60s ago, beyond the newest 2")
        await driven.press("ctrl+u")
        await driven.write("few")
        await driven.shows("'few' is no number of runs")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was removed" in driven.toasts())
        assert isinstance(driven.app.screen, PruneFormScreen)


def test_what_is_no_age_and_what_says_nothing_is_refused() -> None:
    assert "older" in read_form({"older": "", "keep": ""})[1]
    assert "older" in read_form({"older": "a month"})[1]
    assert "keep" in read_form({"keep": "-1"})[1]
    request, wrong = read_form({"older": "2d", "keep": "100", "unknown": YES})
    assert not wrong
    assert (request.older_than_s, request.keep, request.unknown) == (172800.0, 100, True)
    assert request.words == "ended more than 2d ago, beyond the newest 100"


async def test_old_runs_are_listed_with_their_size_and_go_after_their_number_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        driven.listen(monkeypatch)
        screen = await listed(driven)
        await driven.shows("3 runs with", "1 run as old may still run and will stay")
        assert fates(screen) == {**dict.fromkeys(OLD, "goes"), facts.LIVE_ID: "stays: it may still run"}
        await confirmed(driven, "2")
        await driven.shows("'2' is not 3: nothing was sent.")
        await driven.press("escape")
        assert kept(driven) == {*OLD, facts.LIVE_ID}
        await confirmed(driven, "3")
        await driven.shows("3 runs removed", "freed")
        assert kept(driven) == {facts.LIVE_ID}
        assert not any(folder(driven, run_id).exists() for run_id in OLD)
        assert folder(driven, facts.LIVE_ID).exists()
        assert fates(screen) == {**dict.fromkeys(OLD, "removed"), facts.LIVE_ID: "stays: it may still run"}
        await driven.press("X")
        assert "Nothing here may go." in driven.toasts()
        await driven.press("escape")
        await driven.until(lambda: isinstance(driven.app.screen, RunsScreen))
        await driven.until(lambda: facts.RUN_ID not in driven.text)
        await driven.press("6")
        await driven.shows("Removed 3 old runs with")


async def test_marked_runs_alone_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        screen = await listed(driven)
        screen.table.move_to(facts.SHORN_ID)
        await driven.press("space")
        await confirmed(driven, "1")
        await driven.shows("1 run removed")
        assert kept(driven) == {facts.RUN_ID, facts.BENCH_ID, facts.LIVE_ID}


async def test_a_run_that_another_console_has_open_or_that_lives_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backend.runs.model import RunState

    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        screen = await listed(driven)
        lock = RunLock(folder(driven, facts.RUN_ID) / "lock")
        assert lock.take()
        driven.app.require_tower().runs.store.set_state(facts.SHORN_ID, RunState.DETACHED, None)
        await confirmed(driven, "3")
        await driven.shows("1 run removed", "2 runs stayed")
        assert kept(driven) == {facts.RUN_ID, facts.SHORN_ID, facts.LIVE_ID}
        assert list(folder(driven, facts.RUN_ID).glob("*.log"))
        assert fates(screen)[facts.BENCH_ID] == "removed"
        lock.release()


@pytest.mark.parametrize("how", ["cancelled", "left"])
async def test_removing_is_broken_off_between_two_runs_and_none_is_left_half(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    remove = retention.remove_logs

    def slow(run: OldRun, paths: object) -> bool:
        begun.set()
        assert go_on.wait(30)
        return remove(run, paths)  # type: ignore[arg-type]

    monkeypatch.setattr(prune_screen, "remove_logs", slow)
    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        screen = await listed(driven)
        await confirmed(driven, "3")
        await driven.until(begun.is_set)
        await driven.shows("removing 1 of 3")
        await driven.press("escape")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("those that were not reached yet would stay")
        await driven.press("1" if how == "left" else "2")
        if how == "cancelled":
            await driven.press("Z")
        else:
            await driven.until(lambda: isinstance(driven.app.screen, RunsScreen))
        go_on.set()
        await driven.until(lambda: not screen.is_working)
        if how == "cancelled":
            await driven.shows("1 run removed", "2 runs not reached")
        assert kept(driven) == {facts.SHORN_ID, facts.BENCH_ID, facts.LIVE_ID}
        assert not folder(driven, facts.RUN_ID).exists()


async def test_a_folder_that_cannot_be_removed_is_told_and_its_record_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        driven.listen(monkeypatch)
        await listed(driven)

        def full(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as broken:
            broken.setattr(shutil, "rmtree", full)
            await confirmed(driven, "3")
            await driven.until(lambda: "can't be removed: Permission denied" in driven.toasts())
        await driven.shows("0 runs removed", "3 runs not reached")
        assert kept(driven) == {*OLD, facts.LIVE_ID}


async def test_a_read_only_console_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM, read_only=True) as driven:
        driven.listen(monkeypatch)
        await driven.press("4")
        await driven.shows("6 ok, 1 failed")
        await driven.press("X")
        await driven.command("prune")
        assert isinstance(driven.app.screen, RunsScreen)
        assert driven.toasts().count("is read-only") == 2


def test_a_run_that_was_taken_up_again_meanwhile_is_not_pruned(tmp_path: Path) -> None:
    from backend.journal import Journal
    from backend.paths import Paths
    from backend.runs.audit import RunAudit
    from backend.runs.model import RunState
    from backend.runs.store import RunStore

    paths = Paths(tmp_path / "config", tmp_path / "state")
    journal = Journal.open(paths.journal)
    store = RunStore(journal)
    store.create(facts.ENDED)
    planned = retention.plan_prune(store.history(), paths, keep=0)
    store.set_state(facts.RUN_ID, RunState.DETACHED, None)
    assert retention.prune(planned.old, store, RunAudit(journal), paths) == [facts.RUN_ID]
    assert store.has(facts.RUN_ID)
    with pytest.raises(OperatorError):
        retention.plan_prune(store.history(), paths)
    journal.close()


async def test_before_the_context_is_open_nothing_can_be_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.press("4")
        tower, driven.app.tower = driven.app.tower, None
        await driven.press("X")
        assert "still being opened" in driven.toasts()
        assert isinstance(driven.app.screen, RunsScreen)
        driven.app.tower = tower
