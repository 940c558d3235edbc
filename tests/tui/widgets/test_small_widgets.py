"""Header, footer, heat strip, timeline and outcome groups: by line, then by key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from textual.message import Message

from tests.tui.widgets.harness import WidgetApp, lines_of, posted, seen
from tui.glyphs import ASCII
from tui.look import PLAIN, Look
from tui.widgets.heat_strip import HeatSlice, HeatStrip, by_slice, heat_lines, heat_words, lay_out
from tui.widgets.hints_footer import Hint, HintsFooter, hint_line
from tui.widgets.outcome_groups import OutcomeGroup, OutcomeGroups, group_lines, sort_groups
from tui.widgets.state_timeline import StateTimeline, TimelineSpan, timeline_line
from tui.widgets.status_header import HeaderFacts, StatusHeader, header_line

WELL = HeaderFacts("demo", "demo-project", ("us-west4-a", "us-east5-a"), "simulated", False, 1, "", 8, 8, 32, 192, 16)
ILL = HeaderFacts(
    "prod",
    "p",
    ("us-west4-a", "us-east5-a"),
    "",
    True,
    95,
    "us-east5-a: no answer",
    7,
    8,
    32,
    0,
    0,
    ("2 deletes pending",),
)


@pytest.mark.parametrize(
    ("facts", "width", "left", "right"),
    [
        (
            WELL,
            160,
            " slicetower · demo  simulated  demo-project  us-west4-a us-east5-a",
            "RW  API 1s  ssh 8/8  active 32 · waiting 192 · dead 16 chips",
        ),
        (WELL, 100, " demo  simulated  demo-project", "RW  API 1s  ssh 8/8  active 32 · waiting 192 · dead 16 chips"),
        (WELL, 80, " demo  simulated", "RW  API 1s  ssh 8/8  active 32 · waiting 192 · dead 16 chips"),
        (WELL, 60, " demo  simulated", "RW  API 1s  32 up 192 wait 16 dead"),
        (WELL, 40, " demo", "RW  32 up 192 wait 16 dead"),
        (WELL, 20, "", "RW"),
        (
            replace(WELL, ssh_open=3),
            160,
            " slicetower · demo  simulated  demo-project  us-west4-a us-east5-a",
            "RW  API 1s  ssh 8/8 3 open  active 32 · waiting 192 · dead 16 chips",
        ),
        (replace(WELL, ssh_open=3), 60, " demo  simulated", "RW  API 1s  32 up 192 wait 16 dead"),
        (
            ILL,
            160,
            " slicetower · prod  p  us-west4-a us-east5-a",
            "RO  API 95s us-east5-a: no answer  ssh 7/8  2 deletes pending  active 32 · waiting 0 chips",
        ),
        (ILL, 80, " prod", "RO  API 95s us-east5-a: no answer  2 deletes pending  32 up 0 wait"),
        (ILL, 60, " prod", "RO  API 95s !  2 deletes pending  32 up 0 wait"),
    ],
)
def test_the_header_keeps_what_matters(facts: HeaderFacts, width: int, left: str, right: str) -> None:
    line = header_line(facts, width, PLAIN)
    assert line.cell_length == width
    assert line.text.startswith(left)
    assert line.text.rstrip().endswith(right)
    assert line.text.replace(left, "", 1).replace(right, "", 1).strip() == ""


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_long_error_is_cut_to_the_room_there_is_and_costs_no_badge_and_no_label(width: int) -> None:
    error = (
        "us-west4-a: The service is unavailable now and will be asked again and again until it answers (and 1 more)"
    )
    facts = replace(WELL, api_age_s=5, api_error=error)
    line = header_line(facts, width, PLAIN).text
    assert line.startswith(" demo  simulated")
    assert "RW  API 5s us-west4-a: The" in line
    assert "…" in line
    assert "     " not in line, "words were cut although there was room"


def test_the_header_before_the_first_poll_and_when_the_poll_is_old() -> None:
    assert "API -" in header_line(HeaderFacts("x"), 80, PLAIN).text
    assert "API 40s old" in header_line(HeaderFacts("x", api_age_s=40), 80, PLAIN).text


@given(st.integers(1, 200), st.booleans(), st.text(max_size=20), st.integers(0, 10**7))
def test_the_header_always_fits(width: int, read_only: bool, error: str, chips: int) -> None:
    facts = HeaderFacts(
        "context-of-some-length", "p", ("a", "b"), "l", read_only, 1e6, error, 1, 2, chips, chips, chips
    )
    assert header_line(facts, width, PLAIN).cell_length == width


HINTS = [
    Hint("enter", "workers", 9, "app.open"),
    Hint("l", "logs", 8),
    Hint("D", "delete", 3),
    Hint("g", "gcloud", 1),
    Hint("?", "help", 10, "app.help"),
]


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (80, " enter workers  l logs  D delete  g gcloud  ? help"),
        (45, " enter workers  l logs  D delete  ? help"),
        (35, " enter workers  l logs  ? help"),
        (24, " enter workers  ? help"),
        (10, "? help"),
        (3, "?"),
    ],
)
def test_hints_go_by_weight_and_stay_in_order(width: int, text: str) -> None:
    line = hint_line(HINTS, width, PLAIN)
    assert line.text.rstrip() == text
    assert line.cell_length == width


SPANS = [
    TimelineSpan("CREATING", 1),
    TimelineSpan("ACCEPTED", 4),
    TimelineSpan("WAITING_FOR_RESOURCES", 420),
    TimelineSpan("PROVISIONING", 92),
    TimelineSpan("ACTIVE", 6660),
]


@pytest.mark.parametrize(
    ("spans", "width", "text"),
    [
        (SPANS, 100, "CREATING 1s > ACCEPTED 4s > WAITING 7m > PROVISIONING 92s > ● ACTIVE 1h51m"),
        (SPANS, 60, "… > WAITING 7m > PROVISIONING 92s > ● ACTIVE 1h51m"),
        (SPANS, 20, "… > ● ACTIVE 1h51m"),
        ([TimelineSpan("FAILED", 1860, True)], 40, "✗ FAILED >= 31m"),
        ([TimelineSpan("SOMETHING_NEW", None)], 40, "? SOMETHING_NEW"),
        ([], 40, "no history yet"),
    ],
)
def test_the_timeline_says_what_was_seen(spans: list[TimelineSpan], width: int, text: str) -> None:
    line = timeline_line(spans, width, PLAIN)
    assert line.text.rstrip() == text
    assert line.cell_length == width


def slices(count: int, workers: int, bad: tuple[int, int] | None = None) -> list[HeatSlice]:
    return [
        HeatSlice(
            f"slice {number}",
            tuple("node-preempted" if (number, worker) == bad else "node-ready" for worker in range(workers)),
        )
        for number in range(count)
    ]


def test_slices_stand_abreast_in_columns() -> None:
    assert lines_of(heat_lines(slices(5, 4, (1, 2)), 50, PLAIN)) == [
        "slice 0 ●●●●   slice 1 ●●⊗●   slice 2 ●●●●",
        "slice 3 ●●●●   slice 4 ●●●●",
    ]
    assert heat_words(slices(5, 4, (1, 2))) == "5 slices, 19 ready, 1 preempted"


def test_a_slice_wider_than_the_line_is_folded() -> None:
    assert lines_of(heat_lines(slices(1, 20), 18, PLAIN)) == ["slice 0 ●●●●●●●●●●", "        ●●●●●●●●●●"]


def test_sixteen_thousand_workers_fit_on_one_screen() -> None:
    whole = [HeatSlice(f"{number}", ("node-ready",) * 64) for number in range(256)]
    strips = heat_lines(whole, 160, PLAIN)
    assert sum(strip.text.count("●") for strip in strips) == 16_384
    assert len(strips) == 128


def test_without_room_a_cell_is_a_slice_and_shows_the_odd_worker_in_it() -> None:
    folded = by_slice(slices(100, 16, (70, 3)), 90)
    assert [item.label for item in folded] == ["slice 0-63", "slice 64-99"]
    text = lines_of(heat_lines(folded, 90, PLAIN))
    assert text == [
        f"slice 0-63  {'●' * 64}",
        f"slice 64-99 {'●' * 6}⊗{'●' * 29}",
    ]
    mixed = [HeatSlice("a/0", ("node-ready",)), HeatSlice("a/1", ("node-ready",)), HeatSlice("b/0", ("node-ready",))]
    assert [item.label for item in by_slice(mixed, 80)] == ["a/0-1", "b/0"]


async def test_a_strip_that_is_cut_folds_and_says_what_it_holds() -> None:
    strip = HeatStrip()
    strip.styles.max_height = 5
    app = WidgetApp(strip)
    async with app.run_test(size=(90, 24)) as pilot:
        strip.set_slices(slices(64, 16, (63, 15)))
        await pilot.pause()
        text = seen(strip)
        assert text[0].startswith("64 slices, 1,023 ready, 1 preempted; a cell a slice")
        assert text[1:] == [f"slice 0-63 {'●' * 63}⊗"], "no line is left empty"
        strip.set_slices(slices(4, 16))
        await pilot.pause()
        assert "a cell a slice" not in "".join(seen(strip))


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 120))
def test_every_worker_has_its_cell(sizes: list[int], width: int) -> None:
    whole = [HeatSlice(f"s{number}", ("node-ready",) * size) for number, size in enumerate(sizes)]
    strips = heat_lines(whole, width, PLAIN)
    assert all(strip.cell_length == width for strip in strips)
    if width >= 4:
        cells = [
            (run.slice, cell) for line in lay_out(whole, width) for run in line for cell in range(run.start, run.stop)
        ]
        assert cells == [(number, cell) for number, size in enumerate(sizes) for cell in range(size)]


async def test_a_click_on_a_cell_names_its_worker() -> None:
    told: list[Message] = []
    strip = HeatStrip()
    async with WidgetApp(strip).run_test(size=(50, 12), message_hook=told.append) as pilot:
        strip.set_slices(slices(5, 4))
        await pilot.pause()
        assert strip.size.height == 2
        assert "20 ready" in strip.summary
        await pilot.click(strip, offset=(25, 1))
        await pilot.click(strip, offset=(0, 0))
        assert [(m.slice_position, m.worker_index) for m in posted(told, HeatStrip.WorkerClicked)] == [(4, 2)]


GROUPS = [
    OutcomeGroup("ok", 60, "train-a/0-3/0-14", lines=("TPU v5 lite", "4 devices"), first_member="train-a/0/0"),
    OutcomeGroup("signalled", 3, "train-a/1/1-3", "SIGABRT", ("\x1b[31mbarrier\x1b[0m time-out",)),
    OutcomeGroup("failed", 1, "train-a/1/0", "exit 1", ("Traceback", "[bold]OOM[/]"), True, 3, "train-a/1/0"),
]


def test_the_worst_comes_first_and_the_first_failure_before_all() -> None:
    assert [group.outcome for group in sort_groups(GROUPS)] == ["failed", "signalled", "ok"]
    later = OutcomeGroup("failed", 50, "x", is_first_failure=False)
    assert sort_groups([later, GROUPS[2]])[0] is GROUPS[2]


def test_the_output_beside_the_cursor_is_written_in_the_colour_of_the_cursor() -> None:
    look = Look({"cursor-foreground": "#000000", "cursor-background": "#ffffff", "muted": "#d0d0d0"})
    group = OutcomeGroup("ok", 1, "train-a/0/0", lines=("host-0",), first_member="train-a/0/0")
    (head,) = group_lines(group, look, Style.null(), unfolded=False, cursor=True, focused=True)
    (output,) = [segment for segment in head if "host-0" in segment.text]
    assert output.style is not None
    assert (output.style.color, output.style.bgcolor) == (look.style("cursor").color, look.style("cursor").bgcolor)
    (head,) = group_lines(group, look, Style.null(), unfolded=False, cursor=False, focused=True)
    (output,) = [segment for segment in head if "host-0" in segment.text]
    assert output.style is not None
    assert output.style.color == look.style("muted").color


def test_a_group_says_who_what_and_what_follows() -> None:
    strips = group_lines(GROUPS[2], PLAIN, Style.null(), unfolded=True, cursor=True, focused=False)
    assert lines_of(strips) == [
        "▌▾ ✗ failed (exit 1)  1 worker  train-a/1/0  failed first",
        "     3 other failures follow from it",
        "   │ Traceback",
        "   │ [bold]OOM[/]",
    ]
    ascii_lines = group_lines(GROUPS[2], Look(glyphs=ASCII), Style.null(), unfolded=True, cursor=True, focused=True)
    assert "".join(lines_of(ascii_lines)).isascii()


async def test_groups_open_close_move_and_tell() -> None:
    told: list[Message] = []
    view = OutcomeGroups()
    async with WidgetApp(view).run_test(size=(70, 12), message_hook=told.append) as pilot:
        assert seen(view)[1].strip() == "nothing has ended yet"
        view.set_groups(GROUPS)
        await pilot.pause()
        assert [line.strip("▌▾▸ │") for line in seen(view)[:7]] == [
            "✗ failed (exit 1)  1 worker  train-a/1/0  failed first",
            "3 other failures follow from it",
            "Traceback",
            "[bold]OOM[/]",
            "↯ signalled (SIGABRT)  3 workers  train-a/1/1-3",
            "barrier time-out",
            "✓ ok  60 workers  train-a/0-3/0-14",
        ]
        await pilot.press("enter")
        assert "Traceback" not in "\n".join(seen(view))
        await pilot.press("G", "enter")
        assert seen(view)[-5].strip(" │") == "TPU v5 lite" or "TPU v5 lite" in "\n".join(seen(view))
        grown = OutcomeGroup("ok", 61, "train-a/0-3/0-15", lines=GROUPS[0].lines, first_member="train-a/0/0")
        view.set_groups([grown, *GROUPS[1:]])
        await pilot.pause()
        assert view.current == grown
        assert "TPU v5 lite" in "\n".join(seen(view))
        await pilot.press("l")
        assert [message.group.first_member for message in posted(told, OutcomeGroups.GroupActivated)] == [
            "train-a/0/0"
        ]


async def test_header_footer_and_timeline_show_what_they_are_told() -> None:
    header, footer, timeline = StatusHeader(), HintsFooter(HINTS), StateTimeline()
    async with WidgetApp(header, timeline, footer).run_test(size=(80, 12)) as pilot:
        header.set_facts(WELL)
        timeline.set_spans(SPANS)
        await pilot.pause()
        assert "dead 16 chips" in seen(header)[0]
        assert "ACTIVE 1h51m" in seen(timeline)[0]
        assert "? help" in seen(footer)[0]
        footer.set_message("[red]no such target[/]", "log-error")
        await pilot.pause()
        assert seen(footer)[0] == " [red]no such target[/]"
        footer.set_message("")
        footer.set_hints(HINTS[:1])
        await pilot.pause()
        assert seen(footer)[0] == " enter workers"


class ClickApp(WidgetApp):
    opened = 0

    def action_open(self) -> None:
        self.opened += 1


async def test_a_click_on_a_hint_does_what_its_key_does() -> None:
    footer = HintsFooter(HINTS)
    app = ClickApp(footer)
    async with app.run_test(size=(80, 12)) as pilot:
        await pilot.click(footer, offset=(3, 0))
        assert app.opened == 1
        await pilot.click(footer, offset=(18, 0))
        assert app.opened == 1
