"""What a look at workers found: the odd first, each with the workers where it is so and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on

from backend.outcomes import OperatorError
from tui.actions import BY_ID, CHECK, bindings
from tui.command_line import in_console
from tui.screens.tool_options import CheckFormScreen, CheckOptions
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row
from tui.wording import count, utc_now

if TYPE_CHECKING:
    from backend.tools.model import CheckReport, Finding

TOKENS = {"ok": "outcome-ok", "warn": "log-warning", "fail": "outcome-failed"}
ORDER = {"fail": 0, "warn": 1, "ok": 2}
COLUMNS = (
    Column("severity", "", width=6),
    Column("check", "CHECK", min_width=8, max_width=14),
    Column("workers", "WORKERS", min_width=8, max_width=26),
    Column("found", "FOUND", min_width=20, max_width=400, flex=1),
)


def rows(findings: Sequence[Finding]) -> list[Row]:
    """One row a finding, in the order of the report: the worst first."""
    result = []
    for ordinal, each in enumerate(findings):
        token = TOKENS[each.severity.value]
        severity = Cell(each.severity.value, token=token, glyph=token, sort=ORDER[each.severity.value])
        result.append(Row(ordinal, (severity, each.check, each.where, each.what)))
    return result


def summary(report: CheckReport, workers: int) -> str:
    """How many workers were looked at, and how many findings are of which weight."""
    counts = Counter(each.severity.value for each in report.findings)
    words = [count(counts[name], word) for name, word in (("fail", "failure"), ("warn", "warning")) if counts[name]]
    silent = [f"{count(len(report.errors), 'worker')} did not answer"] if report.errors else []
    return " · ".join([count(workers, "worker"), *silent, *(words or ["all is well"])])


class CheckScreen(WorkScreen):
    """Looks at once when it opens, and again on `r`; changes nothing."""

    SCOPE = CHECK
    BINDINGS: ClassVar = bindings(CHECK)
    COLUMNS = COLUMNS
    word = "check"

    report: CheckReport | None = None
    options: CheckOptions = CheckOptions()

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        self.report = None
        self.detail("")
        self.begin(self._look(), f"Looking at {' '.join(self.targets)}")

    async def _look(self) -> None:
        from backend.tools.check import check

        workers = self.chosen_workers()
        self.head(f"Looking at {count(len(workers), 'worker')} …")
        self.report = await check(self.console.require_tower(), workers, told=self.told, **self.options.arguments)
        self.table.set_rows(rows(self.report.findings))
        also = f" · also {self.options.words}" if self.options.words else ""
        self.head(f"{summary(self.report, len(workers))} · {utc_now():%H:%M:%S} UTC{also}")
        self._show_cure()

    def tick(self) -> None:
        if self.is_working and (waiting := self.waiting_words()):
            self.head(f"Looking at {' '.join(self.targets)} … {waiting}")

    def finding(self) -> Finding | None:
        """What the cursor is on."""
        row = self.table.cursor_row
        if self.report is None or row is None or not isinstance(row.key, int):
            return None
        return self.report.findings[row.key]

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._show_cure()

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def _show_cure(self) -> None:
        found = self.finding()
        if found is None:
            self.detail("")
            return
        keymap = self.console.settings.keymap
        offers = {
            "holders": f"{keymap.shown(BY_ID['free'])} frees the chips.",
            "lockfile": f"{keymap.shown(BY_ID['free'])} frees the chips.",
            "versions": f"{keymap.shown(BY_ID['setup'])} makes one environment on all.",
        }
        offer = offers.get(found.check, "") if found.severity.value != "ok" and not self.console.read_only else ""
        self.detail(
            "\n".join(part for part in (f"{found.where}: {found.what}", in_console(found.cure), offer) if part)
        )

    def targets_here(self) -> list[str]:
        """The workers of the marked findings; without marks everyone that was looked at."""
        if self.report is None or not self.table.marks:
            return list(self.targets)
        marked = [each for number, each in enumerate(self.report.findings) if number in self.table.marks]
        return list(dict.fromkeys(address for each in marked for address in each.workers))

    def do_tool_options(self) -> None:
        """Asks what to look at as well, and looks."""
        self.console.push_screen(CheckFormScreen(self.targets, self.options, self._take))

    def _take(self, targets: tuple[str, ...], options: CheckOptions) -> None:
        self.targets, self.options = targets, options
        self.crumb = f"{self.word} {' '.join(targets)}"
        self.do_refresh()

    def do_facts(self) -> None:
        """All that the first worker of the finding said."""
        from tui.screens.describe import DescribeScreen

        found, report = self.finding(), self.report
        told = report.facts if report is not None else {}
        address = next((each for each in (found.workers if found is not None else ()) if each in told), "")
        if not address:
            raise OperatorError("No worker of this finding has said anything.")

        async def facts() -> Mapping[str, Any]:
            return dict(told[address])

        self.console.push_screen(DescribeScreen(address, facts))

    def do_open(self) -> None:
        """The workers of this finding."""
        from tui.screens.workers import WorkersScreen

        found = self.finding()
        if found is None or not found.workers:
            raise OperatorError("There is no finding under the cursor.")
        self.console.push_screen(WorkersScreen(found.workers))
