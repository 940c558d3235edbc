"""What is browsed, saved and jumped to by keys; groups, contexts, a passphrase and the ASCII set in the console."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from backend.context import Context
from backend.outcomes import OperatorError
from backend.runs.model import RunState
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.completion import Known, complete
from tui.saved import Saved
from tui.screens.bench_form import BenchFormScreen
from tui.screens.choose import Choose
from tui.screens.confirm import Ask, Question, Secret
from tui.screens.create import CreateScreen
from tui.screens.logs import LogsScreen
from tui.screens.run import RunScreen
from tui.screens.run_form import RunFormScreen, read_form
from tui.screens.workers import WorkersScreen
from tui.settings import Settings
from tui.widgets.log_view import LogView


@pytest.fixture
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators()


@pytest.fixture
def context(simulator: Simulator) -> Context:
    return simulator.context


def configure(home: Path, text: str) -> None:
    folder = home / "config" / "slicetower"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


async def run_form(driven: Console, line: str) -> RunFormScreen:
    await driven.shows("train-a", "8/8")
    await driven.command(line)
    await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
    screen = driven.app.screen
    assert isinstance(screen, RunFormScreen)
    await driven.until(lambda: screen.focused is not None)
    return screen


async def chooser(driven: Console, key: str) -> None:
    await driven.press(key)
    await driven.until(lambda: isinstance(driven.app.screen, Choose))


@pytest.mark.parametrize("size", [SMALL, MEDIUM], ids=["80x24", "120x40"])
async def test_reservations_types_and_zones_are_browsed_and_narrowed(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        driven.app.push_screen(CreateScreen({"name": "a", "zone": "us-east5-a"}))
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        form.line("reservation").control.focus()
        await chooser(driven, "f5")
        await driven.shows("Which reservation?", "team-v5p", "up down browse")
        await driven.press("enter")
        await driven.until(lambda: form.texts()["reservation"] == "team-v5p")
        form.line("accelerator_type").control.focus()
        await chooser(driven, "f5")
        await driven.shows("v5p-", "chips", "Multislice")
        await driven.write("v5p-32")
        await driven.shows("v5p-32  16 chips")
        await driven.press("enter")
        await driven.until(lambda: form.texts()["accelerator_type"] == "v5p-32")
        form.line("zone").control.focus()
        await chooser(driven, "f5")
        await driven.press("down", "enter")
        await driven.until(lambda: form.texts()["zone"] == context.zones[1])
        form.line("name").control.focus()
        await chooser(driven, "f5")
        await driven.shows("there is no list of it")
        await driven.press("escape")
        assert driven.app.screen is form


async def test_a_request_is_saved_as_a_template_and_fills_another_form(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        texts = {"name": "mine", "zone": "us-west4-a", "accelerator_type": "v5litepod-16", "node_count": "2"}
        driven.app.push_screen(CreateScreen({**texts, "labels": "team=llm"}))
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
        await driven.press("f8")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.press("enter")
        await driven.shows("A name is missing")
        await driven.write("nightly")
        await driven.press("enter")
        await driven.until(lambda: "Saved as nightly" in driven.toasts())
        driven.app.go()
        driven.app.drafts.clear()
        await driven.press("C")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        await driven.write("other")
        await chooser(driven, "f7")
        await driven.shows("nightly", "v5litepod-16")
        await driven.press("enter")
        await driven.until(lambda: form.texts().get("labels") == "team=llm")
        got = form.texts()
        assert (got["name"], got["accelerator_type"], got["node_count"]) == ("other", "v5litepod-16", "2")
        await chooser(driven, "f7")
        await driven.press("ctrl+x")
        await driven.shows("Nothing is saved yet")
        file = driven.app.require_tower().paths.state_dir / "saved.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert Saved(file).names("create") == {}


async def test_a_command_is_saved_and_commands_that_were_run_come_back_with_their_policies(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(commands={"uptime": "uptime -p"})
    async with console(context, tmp_path, monkeypatch, size=MEDIUM, settings=settings) as driven:
        form = await run_form(driven, "run train-a/0 -- echo $HOSTNAME | wc -c")
        form.line("shell").value = "yes"
        form.line("batch").value = "2"
        await driven.press("f8")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.write("count")
        await driven.press("enter")
        await driven.until(lambda: driven.app.screen is form)
        await driven.until(lambda: form.plan is not None)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        screen = driven.app.screen
        assert isinstance(screen, RunScreen)
        await driven.until(lambda: screen.run_.state is RunState.ENDED)
        driven.app.go()
        form = await run_form(driven, "run train-a/1")
        await chooser(driven, "f5")
        await driven.shows("uptime -p  saved as uptime", "echo $HOSTNAME | wc -c")
        await driven.write("wc")
        await driven.press("enter")
        await driven.until(lambda: driven.app.screen is form)
        request, _ = read_form(form.texts())
        assert (request.argv, request.shell, request.batch) == (("echo $HOSTNAME | wc -c",), True, "2")
        await chooser(driven, "f7")
        await driven.shows("count", "uptime")
        await driven.write("uptime")
        await driven.press("enter")
        await driven.until(lambda: form.texts()["command"] == "uptime -p")
        assert form.texts()["targets"] == "train-a/1"


async def test_groups_are_targets_everywhere(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, '[groups]\nfirst = ["train-a/*/0"]\nwhole = ["train-a"]\n')
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        assert complete("w @fi", Known(driven.app.completions())) == "w @first"
        await driven.command("w @first")
        await driven.until(lambda: isinstance(driven.app.screen, WorkersScreen))
        await driven.shows("train-a/0/0", "train-a/1/0")
        assert "train-a/0/1" not in driven.text
        driven.app.go()
        form = await run_form(driven, "run @first -- hostname")
        await driven.shows("2 workers, all at once")
        form.line("targets").control.focus()
        await chooser(driven, "f5")
        await driven.shows("@whole  train-a")
        await driven.write("whole")
        await driven.press("enter")
        await driven.until(lambda: form.texts()["targets"] == "@first @whole")
        driven.app.go()
        await driven.command("bench @whole")
        await driven.until(lambda: isinstance(driven.app.screen, BenchFormScreen))
        assert driven.app.screen.crumb == "bench train-a"  # type: ignore[attr-defined]


async def test_another_context_is_chosen_and_opened(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = simulator.context
    configure(
        tmp_path,
        "".join(
            f'[contexts.{name}]\nproject = "{one.project}"\nzones = ["{zone}"]\nendpoint = "{one.endpoint}"\n'
            f'rest_endpoint = "{one.rest_endpoint}"\ntransport = "insecure"\ncredentials = "none"\n'
            for name, zone in (("west", "us-west4-a"), ("east", "us-east5-a"))
        ),
    )
    async with console(one, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "big-c")
        await driven.command("ctx")
        await driven.until(lambda: isinstance(driven.app.screen, Choose))
        await driven.shows("This is demo", "west", "east")
        await driven.write("east")
        await driven.press("enter")
        await driven.until(lambda: driven.app.context.name == "east" and driven.app.fleet.loaded, "the other fleet")
        await driven.shows("big-c")
        await driven.until(lambda: "train-a" not in driven.text)
        await driven.command("ctx west")
        await driven.until(lambda: driven.app.context.name == "west" and driven.app.fleet.loaded, "back")
        await driven.shows("train-a")
        await driven.command("ctx nowhere")
        await driven.until(lambda: "nowhere" in driven.toasts())
        assert driven.app.context.name == "west"
        assert driven.app.own_command()[-2:] == ["--context", "west"], "a shell is of the context that is open"
        await driven.command("ctx nowhere.toml")
        await driven.until(lambda: "There is no context file" in driven.toasts())
        await driven.command(f"ctx {simulator.context_file}")
        await driven.until(lambda: driven.app.context.name == "demo" and driven.app.fleet.loaded, "the file's")
        assert driven.app.own_command()[-2:] == ["--context-file", str(simulator.context_file)]


async def test_a_time_is_jumped_to_in_logs_and_what_is_no_time_is_refused(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        form = await run_form(driven, "run train-a/0/0 -- seq 1 400")
        await driven.until(lambda: form.plan is not None)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        screen = driven.app.screen
        assert isinstance(screen, RunScreen)
        await driven.until(lambda: screen.run_.state is RunState.ENDED)
        await driven.press("l")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.shows("400")
        moments: list[float] = []
        real = LogView.go_to_time

        def noted(self: LogView, moment: float) -> None:
            moments.append(moment)
            real(self, moment)

        monkeypatch.setattr(LogView, "go_to_time", noted)
        await driven.press("J")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.write("soon")
        await driven.press("enter")
        await driven.shows("'soon' is no time")
        await driven.press("ctrl+u")
        await driven.write("-1h")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        # An hour ago nothing had come: the first line.
        await driven.until(
            lambda: " 1\n" in driven.text or "\n1\n" in driven.text or " 1 \n" in driven.text, "line 1"
        )
        assert abs(time.time() - 3600 - moments[0]) < 600


async def test_a_passphrase_is_asked_for_and_never_shown(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        got: list[str | None] = []

        async def ask() -> None:
            got.append(await driven.app._ask_passphrase(Path("id_ed25519")))

        driven.app.run_worker(ask())
        await driven.until(lambda: isinstance(driven.app.screen, Secret))
        await driven.shows("Passphrase of id_ed25519")
        await driven.write("open sesame")
        assert "sesame" not in driven.text
        await driven.press("enter")
        await driven.until(lambda: got == ["open sesame"])
        driven.app.run_worker(ask())
        await driven.until(lambda: isinstance(driven.app.screen, Secret))
        await driven.press("escape")
        await driven.until(lambda: got == ["open sesame", None])


async def test_the_ascii_setting_draws_every_screen_in_ascii(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM, settings=Settings(ascii=True)) as driven:
        await driven.shows("train-a", "8/8")
        for keys, word in (
            ("1", "CHIPS"),
            ("2", "WORKER"),
            ("4", "runs"),
            ("6", "events"),
            ("9", "kept"),
            ("0", "port"),
            ("1", "CHIPS"),
        ):
            await driven.press(keys)
            await driven.shows(word)
            strange = {letter for letter in driven.text if not letter.isascii()}
            assert not strange, (keys, strange)
        await driven.press("q")
        await driven.shows("1-2 answers")
        assert driven.text.isascii()


async def test_the_bench_form_keeps_its_draft_for_each_shape(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        for steps, typed in (("steps", "7"), ("steps", "")):
            await driven.shows("train-a", "8/8")
            await driven.command("bench train-a")
            await driven.until(lambda: isinstance(driven.app.screen, BenchFormScreen))
            form = driven.app.screen
            assert isinstance(form, BenchFormScreen)
            await driven.shows("ctrl+r starts it")
            if typed:
                form.line(steps).value = typed
            else:
                assert form.texts()[steps] == "7"
            await driven.press("escape")
        assert "What you typed is kept" in driven.toasts()


async def test_a_known_failure_is_told_while_the_run_lives(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        text = (
            "echo 'RuntimeError: Unable to initialize backend tpu: The TPU is already in use by process with pid 77'"
        )
        form = await run_form(driven, f"run train-a/0/0 -- {text}; sleep 300")
        form.line("shell").value = "yes"
        await driven.until(lambda: form.plan is not None and form.plan.request.shell)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows("1 running", "train-a/0/0, line 1:")
        await driven.press("S")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.press("1")
        await driven.shows("1 signalled")


def test_what_was_saved_in_a_broken_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    file.write_text("{")
    with pytest.raises(OperatorError, match="cannot be read"):
        Saved(file).save("run", "a", {"command": "x"})
    assert file.read_text() == "{"


async def test_a_folder_is_shipped_set_up_and_run_from_the_form(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "hello.txt").write_text("first\n")
    monkeypatch.setenv("OWN_TOKEN", "never shown")
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        form = await run_form(driven, "run train-a/0/0-1 -- cat hello.txt made.txt")
        form.line("sync").value = str(tmp_path / "nothing")
        await driven.until(lambda: "there is no folder" in str(form.judged.mistake))
        form.line("sync").value = str(code)
        form.line("setup").value = "echo set-up > made.txt"
        form.line("environment").value = "A='b c' OWN_TOKEN"
        await driven.shows("ships 1 file", "first, once per content and boot")
        (code / "hello.txt").write_text("edited since\n")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows("edited since", "set-up")
        screen = driven.app.screen
        assert isinstance(screen, RunScreen)
        request = screen.run_.request
        assert (request.environment, request.secret_environment) == ((("A", "b c"),), ("OWN_TOKEN",))
        assert "never shown" not in driven.text


async def test_runs_are_noted_tagged_filtered_and_exported(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        form = await run_form(driven, "run train-a/0 -- hostname")
        await driven.until(lambda: form.plan is not None)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        screen = driven.app.screen
        assert isinstance(screen, RunScreen)
        await driven.until(lambda: screen.run_.state is RunState.ENDED)
        await driven.press("n")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.write("after the fix ")
        await driven.press("number_sign")
        await driven.write("base")
        await driven.press("enter")
        await driven.press("4")
        await driven.shows("after the fix #base")
        runs = driven.app.require_tower().runs
        assert runs.audit.tags(screen.run_.id) == ("base",)
        await driven.press("slash")
        await driven.write("nothing-like-it")
        await driven.press("enter")
        await driven.until(lambda: "after the fix" not in driven.text)
        await driven.press("escape")
        await driven.press("n")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.press("ctrl+u", "enter")
        await driven.until(lambda: runs.audit.tags(screen.run_.id) == ())
        await driven.command("export jsonl")
        await driven.until(lambda: "Wrote 4 lines" in driven.toasts())
        (file,) = driven.app.require_tower().paths.state_dir.glob("runs-*.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(lines) == 4
        assert file.stat().st_mode & 0o777 == 0o600
