"""What the log view costs while 100,000 lines come, and how long a key press waits.

Main-thread CPU; printed, not asserted. The feed is cut into flushes as the app's clock makes them; the log is the real one on
disk. Beside it stands Textual's own `Log`, in the same run, fed the same batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.app import App, ComposeResult
from textual.widget import Widget
from textual.widgets import Log

from backend.logs.worker_log import WorkerLog
from tui.look import default_variables
from tui.widgets.log_view import LogView

SIZE = (160, 50)
LINES = 100_000
FLUSHES = 100
LINE = (
    "step: {n}, seconds: 1.234, TFLOP/s/device: 123.456, Tokens/s/device: 4567.890, total_weights: 65536, loss: 2.345"
)


class FeedApp(App[None]):
    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return default_variables(self.current_theme.to_color_system().generate())

    def compose(self) -> ComposeResult:
        yield self.widget


async def painted(widget: Widget) -> None:
    done = asyncio.Event()
    widget.call_after_refresh(done.set)
    await asyncio.wait_for(done.wait(), 30)


async def measure_view(folder: Path, lines: int, flushes: int, *, paused: bool, wrapped: bool) -> dict[str, float]:
    log = WorkerLog(folder / f"view-{paused}-{wrapped}.log")
    view = LogView(log)
    app = FeedApp(view)
    batch = lines // flushes
    store, keys = 0.0, []
    async with app.run_test(size=SIZE) as pilot:
        log.append(b"first\n" * 200)
        view.poll(time.time())
        view.focus()
        await pilot.press(*(["z"] if wrapped else []), *(["pageup"] if paused else []))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.thread_time()
        for flush in range(flushes):
            data = b"".join(LINE.format(n=flush * batch + n).encode() + b"\n" for n in range(batch))
            at = time.thread_time()
            log.append(data)
            store += time.thread_time() - at
            view.poll(time.time())
            await painted(view)
        total = time.thread_time() - start
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        for action in ("page(-1)", "cursor(-1)", "jump('error', -1)", "page(1)", "end") * 4:
            start = time.thread_time()
            await view.run_action(action)
            await painted(view)
            keys.append((time.thread_time() - start) * 1e3)
    log.close()
    return {
        "cpu_s": round(total, 3),
        "of_it_store_s": round(store, 3),
        "ms_a_flush": round(total / flushes * 1e3, 2),
        "rss_grown_mb": round(grown / 1024, 1),
        "key_ms_median": round(statistics.median(keys), 1),
        "key_ms_most": round(max(keys), 1),
    }


async def measure_textual(lines: int, flushes: int) -> dict[str, float]:
    view = Log(max_lines=10_000)
    batch = lines // flushes
    async with FeedApp(view).run_test(size=SIZE):
        start = time.thread_time()
        for flush in range(flushes):
            view.write_lines([LINE.format(n=flush * batch + n) for n in range(batch)])
            await painted(view)
        total = time.thread_time() - start
    return {"cpu_s": round(total, 3), "ms_a_flush": round(total / flushes * 1e3, 2)}


async def measure(lines: int, flushes: int) -> dict[str, dict[str, float]]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "following": await measure_view(folder, lines, flushes, paused=False, wrapped=False),
            "paused": await measure_view(folder, lines, flushes, paused=True, wrapped=False),
            "following, wrapped": await measure_view(folder, lines, flushes, paused=False, wrapped=True),
            "textual Log, 10,000 lines kept": await measure_textual(lines, flushes),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--flushes", type=int, default=FLUSHES)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.lines, arguments.flushes)), indent=2))


if __name__ == "__main__":
    main()
