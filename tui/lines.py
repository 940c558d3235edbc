"""Command lines that name something: `:w train-a/0 state=READY`, `:run train-a -- hostname`, `:delete old-d`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from backend.local_files import own_path
from backend.outcomes import OperatorError
from tui.actions import refusal
from tui.command_line import CommandLine
from tui.screens.base import ConsoleScreen, TableScreen

if TYPE_CHECKING:
    from tui.navigation import Navigation
    from tui.screens.fleet import FleetScreen


MOST_TFLOPS = 1e9


def run_line(console: Navigation, screen: ConsoleScreen, line: CommandLine) -> None:
    """Performs a line: on the screen it names, or as the screen's own action.

    Raises:
        OperatorError: What it names does not exist, or the console is read-only.
    """
    why = refusal(line.action, read_only=console.read_only)
    if why:
        raise OperatorError(why)
    if screen.take_line(line):
        return
    named = LINES.get(line.word)
    if named is not None and (line.targets or line.rest or line.word in ALWAYS):
        named(console, line)
    else:
        screen.perform(line.action)


def _workers(console: Navigation, line: CommandLine) -> None:
    from tui.screens.workers import WorkersScreen

    targets = [text for text in line.targets if "=" not in text and not text.startswith(("!", "/"))]
    filters = [text.removeprefix("/") for text in line.targets if text not in targets]
    console.go(WorkersScreen(targets, " ".join(filters)))


def _fleet(console: Navigation, line: CommandLine) -> None:
    console.do_go_fleet()
    console.root().apply_filter(" ".join(line.targets))


def _events(console: Navigation, line: CommandLine) -> None:
    from tui.screens.events import EventsScreen

    console.go(EventsScreen(" ".join(line.targets)))


def _listed(console: Navigation, line: CommandLine) -> None:
    """A list with a filter in force."""
    from tui.screens.benches import BenchesScreen
    from tui.screens.operations import OperationsScreen
    from tui.screens.runs import RunsScreen

    lists: dict[str, type[TableScreen]] = {
        "runs": RunsScreen,
        "benches": BenchesScreen,
        "operations": OperationsScreen,
    }
    screen = lists[line.word]()
    screen.only = " ".join(line.targets)
    console.go(screen)


def _run(console: Navigation, line: CommandLine) -> None:
    from tui.run_words import read_options

    named, texts = read_options(line.targets)
    targets = named or tuple(item.name for item in _root(console).chosen())
    console.open_run_form(targets, line.rest, texts=texts)


def _bench(console: Navigation, line: CommandLine) -> None:
    from backend.targets import select

    root = _root(console)
    target = line.targets[0]
    if target.startswith("@"):
        named = {worker.queued_resource for worker in select(console.fleet, [target], console.groups())}
        if len(named) != 1:
            raise OperatorError(f"{target} is of {len(named)} queued resources.", "A benchmark runs on one.")
        (target,) = named
    root.show_request(target)
    console.open_bench_form(root.current_request())


def _plot(console: Navigation, line: CommandLine) -> None:

    from tui.screens.run import RunScreen
    from tui.screens.run_plot import FilePlotScreen, RunPlotScreen

    current = console.screen
    files = [text for text in line.targets if not text.startswith(("peak=", "type="))]
    peak = _peak([text for text in line.targets if text not in files])
    if len(files) > 1:
        raise OperatorError("One log at a time.", "Write :plot FILE -- PATTERN.")
    if files:
        console.push_screen(FilePlotScreen(own_path(files[0]), line.rest or None, peak))
    elif isinstance(current, RunScreen):
        console.push_screen(RunPlotScreen(current.run_, line.rest, peak))
    elif isinstance(current, RunPlotScreen):
        current.use_pattern(line.rest, peak)
    else:
        raise OperatorError("A pattern needs a run or a file to read.", "Open a run, or write :plot FILE -- PATTERN.")


def _peak(words: Sequence[str]) -> float | None:
    """The peak of a device in TFLOP/s, written so or by a type.

    Raises:
        OperatorError: There is no such type, or it is no rate.
    """
    from jobs.accelerators import UnknownAccelerator, parse

    found = None
    for word in words:
        name, _, text = word.partition("=")
        try:
            found = parse(text).generation.peak_bf16_tflops_per_device if name == "type" else float(text)
        except UnknownAccelerator as error:
            raise OperatorError(str(error)) from error
        except ValueError:
            found = 0.0
        if not 0 < found < MOST_TFLOPS:
            raise OperatorError(f"'{text}' is no rate above 0.", "Write peak=197, or type=v5litepod-16.")
    return found


def _shell(console: Navigation, line: CommandLine) -> None:
    worker = console.worker_at(line.targets[0])
    if worker is None:
        raise OperatorError(f"There is no worker '{line.targets[0]}' now.", "Write QR/SLICE/WORKER.")
    console.root().background(console.open_shell(worker), group="shell", title="shell")


def _on_request(console: Navigation, line: CommandLine) -> None:
    """An action of the fleet on a request by its name: the cursor goes there first."""
    root = _root(console)
    root.show_request(line.targets[0])
    console.do_go_fleet()
    root.perform(line.action)


def _race(console: Navigation, line: CommandLine) -> None:
    """The create form, from which a race begins: empty, or with what a request asked for."""
    from tui.actions import BY_ID

    root = _root(console)
    if line.targets:
        root.show_request(line.targets[0])
    console.do_go_fleet()
    root.perform(BY_ID["again" if line.targets else "create"])
    key = console.settings.keymap.shown(BY_ID["race"])
    console.say(f"Say what is to be raced for; {key} asks for it in several zones or types: the first ACTIVE wins.")


def _logs(console: Navigation, line: CommandLine) -> None:
    from tui.screens.logs import LogsScreen, RunLogs

    wanted = line.targets[0]
    runs = [
        run
        for run in console.live_runs()
        if run.id == wanted or any(f"{worker.address}/".startswith(f"{wanted}/") for worker in run.workers)
    ]
    try:
        run = max(runs, key=lambda item: item.started_at) if runs else console.find_run(wanted)
    except OperatorError as error:
        raise OperatorError(
            f"No run is called '{wanted}', and none of this console ran there.", "The screen 4 has all runs."
        ) from error
    names = [worker.address for worker in run.workers if f"{worker.address}/".startswith(f"{wanted}/")]
    console.go(LogsScreen(RunLogs(run, names or None), merged=len(names) != 1))


def _show(console: Navigation, line: CommandLine) -> None:
    """A run or a benchmark by its id, a beginning or an end of it; the newest by `last`."""
    run = console.find_run(line.targets[0] if line.targets else "last")
    console.go()
    console.open_run(run)


def _tool(console: Navigation, line: CommandLine) -> None:
    """A tool for the targets that are named."""
    words = {
        "ask-ssh": console.open_answers,
        "check": console.open_check,
        "free": console.open_free,
        "setup": console.open_setup,
        "copy": console.open_copy,
    }
    words[line.word](line.targets)


def _forward(console: Navigation, line: CommandLine) -> None:
    target, *ports = line.targets
    if len(ports) > 1:
        raise OperatorError("One port at a time.", "Write :forward train-a/0/0 6006.")
    if ports:
        console.open_forward(target, ports[0])
    else:
        console.root().background(console.ask_forward(target), group="forward", title="forward")


def _costs(console: Navigation, line: CommandLine) -> None:
    from tui.screens.costs import CostsScreen, period_of

    if len(line.targets) != 1:
        raise OperatorError("One time at a time.", "Write :costs 7d, 12h or all.")
    console.go(CostsScreen(period_of(line.targets[0]), console.request_here()))


def _theme(console: Navigation, line: CommandLine) -> None:
    wanted = line.targets[0]
    if wanted not in console.available_themes:
        raise OperatorError(f"There is no theme '{wanted}'.", f"There are: {', '.join(console.themes.names)}.")
    console.theme = wanted


def _context(console: Navigation, line: CommandLine) -> None:

    from backend.context import load_context

    if not line.targets:
        console.root().background(console.do_context(), group="context", title="contexts")
        return
    wanted = line.targets[0]
    read_only = console.started_read_only
    if "/" in wanted or wanted.endswith(".toml"):
        file = own_path(wanted).absolute()
        context, arguments = load_context(file=file, read_only=read_only), ("--context-file", str(file))
    else:
        context, arguments = load_context(wanted, read_only=read_only), ("--context", wanted)
    work = console.change_context(context, arguments)
    console.root().background(work, group="context", title=f"open {context.name}")


def _plan(console: Navigation, line: CommandLine) -> None:
    console.open_what_if(list(line.targets))


def _inject(console: Navigation, line: CommandLine) -> None:
    console.root().background(console.inject(line.targets), group="inject", title="inject")


def _root(console: Navigation) -> FleetScreen:
    return cast("FleetScreen", console.root())


LINES: dict[str, Callable[[Navigation, CommandLine], None]] = {
    "w": _workers,
    "workers": _workers,
    "qr": _fleet,
    "fleet": _fleet,
    "events": _events,
    "ev": _events,
    "runs": _listed,
    "benches": _listed,
    "operations": _listed,
    "run": _run,
    "x": _run,
    "bench": _bench,
    "plot": _plot,
    "shell": _shell,
    "describe": _on_request,
    "delete": _on_request,
    "recreate": _on_request,
    "reset": _on_request,
    "keep": _on_request,
    "race": _race,
    "maintenance": _on_request,
    "gcloud": _on_request,
    "again": _on_request,
    "adopt": _on_request,
    "logs": _logs,
    "show": _show,
    "ask-ssh": _tool,
    "check": _tool,
    "free": _tool,
    "setup": _tool,
    "copy": _tool,
    "forward": _forward,
    "costs": _costs,
    "theme": _theme,
    "ctx": _context,
    "inject": _inject,
    "plan": _plan,
}
"""Words that act on what is named after them."""

ALWAYS = frozenset({"w", "workers", "qr", "fleet", "events", "ev", "ctx", "race", "show"})
"""Words that are performed here even when nothing follows."""
