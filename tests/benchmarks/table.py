"""What one refresh of the live table costs, all of it: new rows, order, layout, paint.

Budget (design.md, section 7): at most 8 ms CPU a refresh at 1,024 rows, 10 ms at 16,384. Main-thread CPU, median; printed,
not asserted. `fresh` replaces every row by another object with other cells, as nobody should; `live` changes a tenth of
them, as a fleet does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time

from textual.app import App, ComposeResult

from tui.look import default_variables
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell, state_cell

SIZE = (160, 50)
COUNTS = (40, 1_024, 16_384)
ROUNDS = 30
COLUMNS = (
    Column("worker", "WORKER"),
    Column("state", "STATE"),
    Column("address", "ADDRESS", priority=2),
    Column("step", "STEP", align="right"),
    Column("loss", "LOSS", align="right", priority=3),
    Column("mfu", "MFU", align="right"),
    Column("last-log", "LAST LOG", align="right"),
    Column("note", "NOTE", flex=1, priority=1),
)


class TableApp(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return default_variables(self.current_theme.to_color_system().generate())

    def compose(self) -> ComposeResult:
        yield LiveTable(COLUMNS)


def make_row(index: int, dice: random.Random) -> Row:
    age = dice.randrange(100)
    return Row(
        index,
        (
            f"train-a/{index // 16}/{index % 16}",
            state_cell(dice.choice(("READY", "READY", "READY", "REPAIRING"))),
            f"10.0.{index // 256}.{index % 256}",
            number_cell(dice.randrange(10_000)),
            number_cell(dice.random() * 3, f"{dice.random() * 3:.3f}"),
            Cell(f"{dice.random() * 60:.1f}%", sort=dice.random()),
            number_cell(age, f"{age}s"),
            "ok",
        ),
    )


async def refresh_ms(table: LiveTable, sets: list[list[Row]], rounds: int) -> float:
    """Median CPU of handing rows over until they are painted, in milliseconds."""
    costs: list[float] = []
    for turn in range(rounds):
        painted = asyncio.Event()
        start = time.thread_time()
        table.set_rows(sets[turn % len(sets)])
        table.call_after_refresh(painted.set)
        await asyncio.wait_for(painted.wait(), 30)
        costs.append((time.thread_time() - start) * 1e3)
    return round(statistics.median(costs), 2)


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    for count in COUNTS:
        dice = random.Random(7)
        fresh = [[make_row(index, dice) for index in range(count)] for _ in range(3)]
        live = [fresh[0]]
        for _ in range(5):
            rows = list(live[-1])
            for index in dice.sample(range(count), count // 10):
                rows[index] = make_row(index, dice)
            live.append(rows)
        app = TableApp()
        async with app.run_test(size=SIZE) as pilot:
            table = app.query_one(LiveTable)
            table.focus()
            table.set_rows(fresh[0])
            await pilot.pause()
            result = {"live": await refresh_ms(table, live, rounds), "fresh": await refresh_ms(table, fresh, rounds)}
            result["nothing changed"] = await refresh_ms(table, fresh[:1], rounds)
            for column in ("worker", "step"):
                table.sort_by(column)
                await pilot.pause()
                result[f"live, by {column}"] = await refresh_ms(table, live, rounds)
            table.sort_by("")
            table.set_filter("state=READY train")
            await pilot.pause()
            result["live, filtered"] = await refresh_ms(table, live, rounds)
        results[f"{count} rows"] = result
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    print(json.dumps({"cpu_ms_a_refresh": asyncio.run(measure(parser.parse_args().rounds))}, indent=2))


if __name__ == "__main__":
    main()
