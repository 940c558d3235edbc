"""Every screen of the console as an operator reaches it: the keys, and the words that say that it is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.tui.fixed import facts, tools
from tests.tui.fixed.world import FixedClient, FixedConsole

Way = Callable[[FixedConsole], Awaitable[object]]


def client(**facts_of_it: object) -> Callable[[], FixedClient]:
    """How the service answers in a scene."""

    def make() -> FixedClient:
        made = FixedClient()
        for name, value in facts_of_it.items():
            setattr(made, name, value)
        return made

    return make


@dataclass(frozen=True, slots=True)
class Scene:
    """One screen in one state."""

    name: str
    way: Way
    shows: tuple[str, ...]
    client: Callable[[], FixedClient] = FixedClient
    loaded: bool = True
    read_only: bool = False
    again: Way | None = None
    """How it is opened anew in another theme, where it keeps that of its opening."""


async def at_train(driven: FixedConsole, *keys: str) -> None:
    """The cursor on train-a, then keys."""
    await driven.shows("train-a")
    driven.app.show_request("train-a")
    await driven.settle()
    if keys:
        await driven.press(*keys)


def on_train(*keys: str) -> Way:
    return lambda driven: at_train(driven, *keys)


def keys(*pressed: str) -> Way:
    async def way(driven: FixedConsole) -> None:
        await driven.settle()
        await driven.press(*pressed)

    return way


def command(line: str, *then: str) -> Way:
    async def way(driven: FixedConsole) -> None:
        await driven.shows("train-a")
        await driven.command(line)
        await driven.settle()
        if then:
            await driven.press(*then)

    return way


async def stale(driven: FixedConsole) -> None:
    """One zone falls silent under a full fleet."""
    await at_train(driven)
    tower = driven.app.require_tower()
    answers = type(tower).answers  # type: ignore[attr-defined]
    answers.failing = (facts.WEST,)
    tower.watch.poke()
    await driven.until(lambda: any(poll.error for poll in driven.app.fleet.polls), "the failure")


async def typing(driven: FixedConsole) -> None:
    await at_train(driven, "colon")
    await driven.write("run tr")


async def palette(driven: FixedConsole) -> None:
    await at_train(driven, "ctrl+p")
    await driven.write("bench")
    await driven.shows("Measure a sharding")


async def palette_again(driven: FixedConsole) -> None:
    await driven.press("escape", "escape")
    await driven.until(lambda: len(driven.app.screen_stack) == driven.app.root_depth, "the fleet alone")
    await palette(driven)


async def run_of(driven: FixedConsole, identity: str, *then: str) -> None:
    await driven.shows("train-a")
    driven.app.open_run(driven.app.find_run(identity))
    await driven.settle()
    if then:
        await driven.press(*then)


async def delete(driven: FixedConsole) -> None:
    await driven.shows("train-a")
    driven.app.show_request("old-d")
    await driven.settle()
    await driven.press("D")


def tool(name: str) -> Way:
    """A tool for the fixed workers, opened as its key does."""

    async def way(driven: FixedConsole) -> None:
        await at_train(driven)
        getattr(driven.app, f"open_{name}")(["train-a"])

    return way


def with_options(name: str) -> Way:
    """The options of a tool."""

    async def way(driven: FixedConsole) -> None:
        await tool(name)(driven)
        await driven.shows("4711")
        await driven.press("w")

    return way


async def log_search(driven: FixedConsole) -> None:
    await at_train(driven, "l")
    await driven.shows("merged", "train.sh")
    await driven.press("a")
    await driven.shows("Search all logs for what?")
    await driven.write("error|warn")
    await driven.press("enter")
    await driven.shows("8 logs")


async def copies(driven: FixedConsole) -> None:
    from tui.screens.copies import CopiesScreen, CopyRequest

    await at_train(driven)
    driven.app.push_screen(CopiesScreen(CopyRequest(True, ("train-a",), ("train.py",), "code")))


async def forwards(driven: FixedConsole) -> None:
    await at_train(driven)
    driven.app.open_forward("train-a", "6006")
    await driven.shows("127.0.0.1:6006")
    driven.app.open_forward("train-a/1/0", "9012:0")
    for item in driven.app.forwards.items:
        item.since = facts.ago(minutes=3)


async def job_of_a_form(driven: FixedConsole) -> None:
    """A job that would carry a secret: told beside its field, and nothing is planned."""
    from tui.screens.create import CreateScreen

    await at_train(driven)
    texts = {"name": "next-f", "job_command": "python3 train.py", "job_environment": "RATE=0.1 TOKEN"}
    driven.app.push_screen(CreateScreen({"zone": facts.WEST, "accelerator_type": "v5litepod-16", **texts}))
    await driven.until(lambda: driven.app.screen.focused)
    screen = driven.app.screen
    assert isinstance(screen, CreateScreen)
    screen.line("job_environment").control.focus()


async def policies(driven: FixedConsole) -> None:
    from backend.cloud.intents import IntentKind, IntentStore
    from backend.cloud.policies import Keep, PolicyStore
    from backend.cloud.requests import CreateRequest

    await at_train(driven)
    journal = driven.app.require_tower().journal
    store = PolicyStore(journal)
    store.start_keep(Keep(facts.PROJECT, facts.WEST, "train-a", 5, 2))
    store.update_keep(facts.TRAIN.key, preempted=True, text="made again after a preemption")
    asked = (facts.WEST, facts.EAST)
    race = store.start_race(CreateRequest(f"race-{zone}", facts.PROJECT, zone, "v5litepod-16") for zone in asked)
    assert store.ask_entry(race, store.races()[0].parts[0])
    IntentStore(journal, lambda: facts.NOW.timestamp()).wish(
        IntentKind.DELETE, facts.OLD.key, force=True, target_created_at=facts.ago(days=3, hours=2).timestamp()
    )
    await driven.press("9")


async def nothing_seen(driven: FixedConsole) -> None:
    with driven.app.require_tower().journal.transaction() as connection:
        connection.execute("DELETE FROM spans")
    await driven.press("dollar_sign")


async def late_one(driven: FixedConsole) -> None:
    await driven.settle()
    await driven.press("percent_sign")
    await driven.shows("longer than any")
    await driven.press("V")


async def old_runs(driven: FixedConsole, age: str = "1h") -> None:
    """The form of what may go, with an age that finds some of the fixed runs."""
    await driven.settle()
    await driven.press("4", "X")
    await driven.shows("older than")
    await driven.press("ctrl+u")
    await driven.write(age)


async def old_and_listed(driven: FixedConsole, age: str) -> None:
    await old_runs(driven, age)
    await driven.press("ctrl+r")


async def prune(driven: FixedConsole) -> None:
    await old_runs(driven, "30m")
    await driven.press("ctrl+r")
    await driven.shows("would go")


async def confirm_prune(driven: FixedConsole) -> None:
    await prune(driven)
    await driven.settle()
    await driven.press("X")


async def costs_of(driven: FixedConsole, name: str) -> None:
    await driven.shows("train-a")
    await driven.press("dollar_sign")
    await driven.settle()
    await driven.press("slash")
    await driven.write(f"name={name}")
    await driven.press("enter", "enter")


async def sweep(driven: FixedConsole) -> None:
    from tui.screens.sweep import SweepScreen

    await at_train(driven)
    driven.app.push_screen(SweepScreen(tools.sweep()))


SCENES = (
    Scene("fleet", on_train(), ("train-a", "ACTIVE", "8/8")),
    Scene("fleet-read-only", on_train(), ("RO",), read_only=True),
    Scene("fleet-empty", keys(), ("No queued resource",), client(fleet=())),
    Scene("fleet-loading", keys(), ("Asking demo-project",), client(silent=True), loaded=False),
    Scene("fleet-error", keys(), ("asks again now",), client(failing=(facts.WEST, facts.EAST)), loaded=False),
    Scene("fleet-stale", stale, ("ACTIVE ?", "as last heard")),
    Scene("fleet-no-ssh", on_train(), ("no ssh on worker 2",), client(lacks={"train-a/1/2": "connection refused"})),
    Scene(
        "workers-no-ssh",
        on_train("enter"),
        ("no ssh (refused)",),
        client(lacks={"train-a/1/2": "connection refused"}),
    ),
    Scene("ask-ssh", tool("answers"), ("ssh answers on 7 of 8",)),
    Scene("workers", on_train("enter"), ("train-a/0/0", "READY", "train.sh")),
    Scene("workers-none", on_train("k", "enter"), ("taken-e",)),
    Scene("logs-merged", on_train("l"), ("merged", "train.sh")),
    Scene("logs-one", on_train("enter", "l"), ("1 of 8 workers",)),
    Scene("logs-tiles", on_train("l", "plus", "plus"), ("of 8 workers",)),
    Scene("run", lambda driven: run_of(driven, facts.RUN_ID), ("first failure", "6 workers")),
    Scene("run-workers", lambda driven: run_of(driven, facts.RUN_ID, "V"), ("train-a/0/2", "unreachable")),
    Scene("run-live", lambda driven: run_of(driven, facts.LIVE_ID), ("0/8 ended",)),
    Scene("run-form", command("run train-a -- python3 train.py --steps 10"), ("8 workers", "ctrl+r starts it")),
    Scene("runs", keys("4"), ("6 ok, 1 failed",)),
    Scene("bench", lambda driven: run_of(driven, facts.BENCH_ID), ("step time",)),
    Scene("bench-form", on_train("b"), ("32 devices on 8 workers",)),
    Scene("benches", keys("5"), ("done",)),
    Scene("bench-plan", on_train("b", "f4"), ("TFLOP/S/DEV",)),
    Scene("bench-compare", keys("5", "asterisk", "equals_sign"), ("OF A", "the first")),
    Scene("bench-baseline", keys("5", "B"), ("Save this benchmark as a baseline",)),
    Scene("plot-file", command("plot tests/fixtures/logs/maxtext_classic.log"), ("over 8 steps",)),
    Scene(
        "readings-file",
        command("plot tests/fixtures/logs/maxtext_classic.log", "v"),
        ("above peak", "completed step"),
    ),
    Scene("readings", lambda driven: run_of(driven, facts.BENCH_ID, "v"), ("RATE/DEVICE", "set aside")),
    Scene("sweep", sweep, ("151", "skipped")),
    Scene("sweep-form", on_train("b", "f6"), ("sweep",)),
    Scene("preflight", on_train("b", "f5"), ("all-gather",)),
    Scene("check", tool("check"), ("process 4711",)),
    Scene("free", tool("free"), ("4711",)),
    Scene("check-form", with_options("check"), ("ctrl+r looks",)),
    Scene("free-form", with_options("free"), ("KILL 10 s later",)),
    Scene("log-search", log_search, ("FIRST AT",)),
    Scene("what-if", command("plan v5p-128 4"), ("256 devices",)),
    Scene("setup-form", tool("setup"), ("jax",)),
    Scene("copy-form", tool("copy"), ("train-a",)),
    Scene("copies", copies, ("No space left",)),
    Scene("forwards", forwards, ("127.0.0.1:6006", "127.0.0.1:40001")),
    Scene("policies", policies, ("another process", "race 1", "delete")),
    Scene("policies-none", keys("9"), ("Nothing is kept",)),
    Scene("create", keys("C"), ("further options",)),
    Scene("create-job", job_of_a_form, ("still to mend: environment",)),
    Scene("describe", on_train("d"), ("queuedResources/train-a",)),
    Scene("events", keys("6"), ("PROVISIONING", "started on")),
    Scene("operations", keys("8"), ("create",)),
    Scene("costs", keys("dollar_sign"), ("chip-hours", "old-d")),
    Scene("costs-totals", keys("dollar_sign", "V"), ("generation", "v5e", "us-west4-a")),
    Scene("costs-none", nothing_seen, ("No request was seen",), client(fleet=())),
    Scene("costs-states", lambda driven: costs_of(driven, "train-a"), ("WAITING_FOR_RESOURCES", "59.2 chip-hours")),
    Scene("waits", keys("percent_sign"), ("MEDIAN", "longer than any"), client(fleet=(*facts.FLEET, facts.LATE))),
    Scene("waits-now", late_one, ("late-g", "AGAINST", "big-c"), client(fleet=(*facts.FLEET, facts.LATE))),
    Scene("runs-export", keys("4", "E"), ("Export as", "CSV")),
    Scene("bench-repeat", keys("5", "asterisk", "g"), ("slicetower bench shardings", "jax 0.10.2")),
    Scene("doctor", command("doctor"), ("1 to mend", "chmod 600")),
    Scene("locate", command("locate"), ("49.5 MB", "not made yet")),
    Scene("prune-form", old_runs, ("would go", "ctrl+r lists them")),
    Scene("prune", prune, ("goes", "3 runs with")),
    Scene("prune-none", lambda driven: old_and_listed(driven, "9d"), ("No run ended more than",)),
    Scene("confirm-prune", confirm_prune, ("Type 3", "nothing on workers")),
    Scene("help", on_train("question_mark"), ("help: fleet", "Go into")),
    Scene("palette", palette, ("bench",), again=palette_again),
    Scene("command-line", typing, ("run train-a",)),
    Scene("filter", command("qr state=ACTIVE"), ("lame-f",)),
    Scene("confirm-delete", delete, ("Type old-d",)),
    Scene("confirm-cleanup", keys("X"), ("old-d", "taken-e")),
    Scene("gcloud", on_train("g"), ("gcloud",)),
    Scene("quit", on_train("q"), ("Quit slicetower?",)),
)
