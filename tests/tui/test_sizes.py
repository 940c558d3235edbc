"""What stands where at which size of the terminal, also after it was resized."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, console

LOG = Path(__file__).parents[1] / "fixtures" / "logs" / "maxtext_classic.log"


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def test_a_form_stands_beside_its_preview_at_every_wide_size_and_above_it_nowhere(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.press("C")
        await driven.shows("JSON")
        pane, form = driven.app.screen.query_one("#preview-pane"), driven.app.screen.query_one("#form")
        for size in (MEDIUM, WIDE):
            await driven.pilot.resize_terminal(*size)
            await driven.until(lambda wide=size: driven.app.screen.size.width == wide[0] and pane.region.width > 0)  # type: ignore[misc]
            assert pane.region.x >= form.region.right
            assert pane.region.y == form.region.y
            for title in ("gcloud alpha", "gcloud ·", "curl", "JSON"):
                await driven.press("f3")
                await driven.shows(title)
        await driven.pilot.resize_terminal(*SMALL)
        await driven.until(lambda: not pane.display or not pane.region, "the preview to go")


async def test_the_figures_of_a_benchmark_stay_beside_its_plot_and_in_their_order_when_it_is_resized(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.command(f"plot {LOG}")
        await driven.shows("steps by their time", "set aside")
        plot, figures = driven.app.screen.query_one("#plot"), driven.app.screen.query_one("#figures-scroll")
        for size in (MEDIUM, WIDE):
            await driven.pilot.resize_terminal(*size)
            await driven.until(lambda wide=size: driven.app.screen.size.width == wide[0] and figures.region.y < 8)  # type: ignore[misc]
            text = driven.text
            assert figures.region.x >= plot.region.right
            assert (
                text.index("step time")
                < text.index("p10 to p90")
                < text.index("set aside")
                < text.index("by their time")
            )
            assert not any("step time" in line and "by their time" in line for line in text.splitlines())
        await driven.pilot.resize_terminal(110, 40)
        await driven.until(
            lambda: any("step time" in line and "by their time" in line for line in driven.text.splitlines())
        )
