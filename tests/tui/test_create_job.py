"""A request with its job from the create form: read, judged, shipped, sent, followed, asked for again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from backend.cloud.requests import RUN_KEY, CreateRequest
from backend.model import Tier
from backend.outcomes import Outcome
from backend.runs import bundles
from backend.runs.boots import BootPace
from backend.runs.model import RunState
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.screens.confirm import Question
from tui.screens.create import EVERY, CreateScreen
from tui.screens.create_job import planned, read_job, write_job
from tui.screens.fleet import FleetScreen
from tui.screens.policy_forms import RaceFormScreen
from tui.screens.working import Working

ZONE = "us-west4-a"
SHAPE = {"zone": ZONE, "accelerator_type": "v5litepod-8", "node_count": "1", "tier": "on-demand"}
REQUEST = CreateRequest(
    "made", "demo-project", ZONE, "v5litepod-8", runtime_version="v2-alpha-tpuv5-lite", tier=Tier.SPOT
)
RUN_ID = "20261130-145501-k3f9"


@pytest.mark.parametrize(
    ("texts", "field", "words"),
    [
        ({"job_setup": "true"}, "job_command", "setup first is about a job"),
        ({"job_command": "echo 'x"}, "job_command", "cannot be read"),
        ({"job_command": "x", "job_timeout": "soon"}, "job_timeout", "no duration"),
        ({"job_command": "x", "job_environment": "TOKEN"}, "job_environment", "gcloud secrets versions access"),
        ({"job_command": "x", "job_bundle": "s3://b/f", "job_sync": "."}, "job_bundle", "no bucket"),
        ({"job_command": "x", "job_bundle": "gs://b/f"}, "job_bundle", "no folder is shipped"),
    ],
)
def test_a_mistake_of_a_job_is_told_by_its_field(texts: Mapping[str, str], field: str, words: str) -> None:
    _, found = read_job(texts)
    assert [(each.field, words in str(each)) for each in found] == [(field, True)], found


def test_a_form_without_a_job_has_none() -> None:
    assert read_job({"name": "a"}) == (None, [])
    assert len({field.name for field in EVERY}) == len(EVERY)


def test_what_a_request_carries_fills_the_form_and_asks_for_the_same() -> None:
    texts = {
        "job_command": "python3 train.py --note 'two words'",
        "job_environment": "A=1 'B=two words'",
        "job_setup": "pip install -r requirements.txt",
        "job_timeout": "2700s",
    }
    run, found = read_job(texts)
    assert run is not None
    assert found == []
    job, problem = planned(REQUEST, run, user="operator", folder="", run_id=RUN_ID)
    assert problem is None
    assert job is not None
    again, note = write_job(job.create)
    assert note == ""
    assert {name: again[name] for name in texts} == texts
    assert again["metadata"] == "", "the script of the first would start the first one's run in another request"
    assert read_job(again)[0] == run


def test_code_that_does_not_fit_is_told_beside_the_bucket_with_the_sizes() -> None:
    code = bundles.from_files({"data": os.urandom(400_000)}, source="code")
    run, _ = read_job({"job_command": "x"})
    assert run is not None
    from dataclasses import replace

    job, problem = planned(REQUEST, replace(run, bundle=code), user="me", folder="", run_id=RUN_ID)
    assert job is None
    assert problem is not None
    assert (problem.field, "of 256 KiB" in problem.what or "256 KiB" in problem.what) == ("job_bundle", True)
    fits, problem = planned(REQUEST, replace(run, bundle=code), user="me", folder="gs://b/f", run_id=RUN_ID)
    assert problem is None
    assert fits is not None
    assert fits.bundle_url == f"gs://b/f/{code.digest}.tar.gz"


def test_metadata_that_the_job_needs_is_a_mistake() -> None:
    run, _ = read_job({"job_command": "x"})
    assert run is not None
    from dataclasses import replace

    own = replace(REQUEST, metadata=(("startup-script", "true"),))
    _, problem = planned(own, run, user="me", folder="", run_id=RUN_ID)
    assert problem is not None
    assert (problem.field, "startup-script" in problem.what) == ("job_command", True)


@pytest.fixture
def own(simulators: SimulatorFactory) -> Simulator:
    return simulators(scenario="empty", fresh=True)


def program(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder


async def form(driven: Console, texts: Mapping[str, str]) -> CreateScreen:
    """The create form with those texts."""
    driven.app.push_screen(CreateScreen({**SHAPE, **texts}))
    await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
    screen = driven.app.screen
    assert isinstance(screen, CreateScreen)
    return screen


async def answer(driven: Console, key: str, *words: str) -> None:
    await driven.until(lambda: isinstance(driven.app.screen, Question), "a question")
    await driven.shows(*words)
    await driven.press(key)


def log_of(driven: Console, run_id: str, index: int = 0) -> str:
    path = driven.app.require_tower().runs.active[run_id].log_path(index)
    return path.read_text() if path.exists() else ""


async def test_a_job_goes_from_the_form_to_its_log_and_goes_on_when_its_request_is_made_again(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = program(
        tmp_path / "code", "import os, time\nprint('rate', os.environ['RATE'], flush=True)\ntime.sleep(600)\n"
    )
    async with console(own.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.press("C")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
        screen = driven.app.screen
        assert isinstance(screen, CreateScreen)
        await driven.write("mine")
        await driven.press("down", "down")
        await driven.write("v5litepod-8")
        screen.line("job_command").control.focus()
        await driven.write("python3 train.py")
        await driven.press("down")
        await driven.until(lambda: "job_sync" in screen.lines and screen.focused is screen.line("job_shell").control)
        await driven.press("down")
        await driven.write(str(code))
        await driven.press("down", "down", "down")
        await driven.write("RATE=7")
        await driven.shows(
            "ships 1 file", "read the value of RATE", "each worker runs at every boot", "(9%)", "ctrl+r sends it"
        )
        await driven.press("ctrl+r")
        await answer(driven, "1", "with its job?", "ships 1 file", "within the startup script", "256 KiB")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        runs = driven.app.require_tower().runs
        await driven.until(lambda: runs.active, "the run is followed at once")
        (run_id,) = runs.active
        await driven.until(lambda: "rate 7" in log_of(driven, run_id), "its log")
        assert "Begun elsewhere" not in driven.toasts()
        record = runs.store.get(run_id)
        assert (record.bundle_source, record.request.at_boot) == (str(code), True)
        await driven.press("4")
        await driven.shows("python3 train.py")
        driven.app.go()

        driven.app.show_request("mine")
        await driven.press("A")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
        again = driven.app.screen
        assert isinstance(again, CreateScreen)
        assert again.line("job_command").value == "python3 train.py"
        assert again.line("job_sync").value == str(code)
        assert again.line("job_environment").value == "RATE=7"
        assert again.line("metadata").value == ""
        driven.app.go()

        made = driven.app.fleet.find("mine")[0].created_at
        driven.app.show_request("mine")
        await driven.press("R")
        await driven.shows("Recreate mine?")
        await driven.write("mine")
        await driven.press("enter")
        await driven.until(lambda: log_of(driven, run_id).count("rate 7") == 2, "its second life in the same log")
        assert driven.app.fleet.find("mine")[0].created_at != made
        assert "was replaced" in log_of(driven, run_id)


async def test_a_job_that_had_ended_goes_on_as_the_same_run_when_its_request_is_recreated(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await form(driven, {"name": "mine", "job_command": "echo once more"})
        await driven.shows("each worker runs at every boot", "ctrl+r sends it")
        await driven.press("ctrl+r")
        await answer(driven, "1")
        runs = driven.app.require_tower().runs
        await driven.until(lambda: any(run.state is RunState.ENDED for run in runs.active.values()), "its end")
        (run_id,) = runs.active
        assert log_of(driven, run_id).count("once more\n") == 1
        driven.app.show_request("mine")
        await driven.press("R")
        await driven.shows("Recreate mine?")
        await driven.write("mine")
        await driven.press("enter")
        await driven.until(
            lambda: log_of(driven, run_id).count("once more\n") == 2, "its second life in the same log"
        )
        assert len(runs.history()) == 1


async def test_a_job_whose_request_is_refused_is_over_and_the_form_stays(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        own.inject("error", "Create*", "PERMISSION_DENIED", "no")
        await form(driven, {"name": "mine", "job_command": "sleep 600"})
        await driven.shows("each worker runs at every boot", "ctrl+r sends it")
        await driven.press("ctrl+r")
        await answer(driven, "1")
        runs = driven.app.require_tower().runs
        await driven.until(lambda: runs.history(), "its run")
        (first,) = runs.history()
        await driven.until(lambda: runs.store.get(first.id).state is RunState.ENDED)
        assert {result.outcome for result in runs.store.get(first.id).results} == {Outcome.NOT_STARTED}
        assert isinstance(driven.app.screen, CreateScreen)
        own.inject("clear")
        await driven.press("ctrl+r")
        await answer(driven, "1")
        await driven.until(lambda: driven.app.fleet.find("mine"), "the second try")
        assert first.id not in runs.active
        assert len(runs.active) == 1


async def test_a_folder_is_packed_with_progress_and_broken_off_by_key(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = program(tmp_path / "code", "print(1)\n")
    ended = threading.Event()
    slow, pace = threading.Event(), threading.Event()
    whole = bundles.from_directory

    def from_directory(folder: Path, **more: Any) -> bundles.Bundle:
        progress = more["progress"]
        try:
            while slow.is_set():
                progress(1 << 20, 5 << 20)
                pace.wait(0.01)
        finally:
            ended.set()
        return whole(folder, **more)

    monkeypatch.setattr("tui.screens.packing.from_directory", from_directory)
    slow.set()
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        screen = await form(driven, {"name": "mine", "job_command": "python3 train.py", "job_sync": str(code)})
        await driven.shows("1.0 MiB of 5.0 MiB")
        screen.line("job_sync").value = ""
        await driven.until(ended.is_set, "the packing that nobody wants is over")
        await driven.shows("ctrl+r sends it")
        slow.clear()
        screen.line("job_sync").value = str(code)
        await driven.shows("ships 1 file", "ctrl+r sends it")
        slow.set()
        ended.clear()
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, Working), "its progress")
        await driven.shows("1.0 MiB of 5.0 MiB", "esc breaks it off")
        await driven.press("escape")
        await driven.until(ended.is_set, "the packing is over")
        await driven.until(lambda: "the packing was broken off" in driven.toasts())
        assert driven.app.screen is screen
        assert driven.app.require_tower().runs.history() == []
        slow.clear()
        screen.line("job_sync").value = str(tmp_path / "missing")
        await driven.shows("there is no folder")


def gcloud(home: Path, monkeypatch: pytest.MonkeyPatch, *, code: int) -> Path:
    """A gcloud that only copies, into a folder that stands for the bucket; or fails."""
    folder = home / "bin"
    folder.mkdir()
    bucket = home / "bucket"
    bucket.mkdir()
    script = folder / "gcloud"
    script.write_text(
        f'#!/bin/sh\n[ {code} = 0 ] && cp "$3" "{bucket}/$(basename "$4")"\necho "denied" >&2\nexit {code}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return bucket


@pytest.mark.parametrize("code", [0, 1], ids=["uploaded", "denied"])
async def test_code_for_a_bucket_is_there_before_anything_is_asked_for(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    bucket = gcloud(tmp_path, monkeypatch, code=code)
    folder = program(tmp_path / "code", "print(1)\n")
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        texts = {"name": "mine", "job_command": "python3 train.py", "job_sync": str(folder), "job_bundle": "gs://b/f"}
        screen = await form(driven, texts)
        await driven.shows("ships 1 file", "ctrl+r sends it")
        await driven.press("ctrl+r")
        await answer(driven, "1", "gs://b/f/", "uploaded first")
        runs = driven.app.require_tower().runs
        if code:
            await driven.until(lambda: "could not be put to gs://b/f/" in driven.toasts())
            assert driven.app.screen is screen
            assert runs.history() == []
            assert not driven.app.fleet.find("mine")
        else:
            await driven.until(lambda: driven.app.fleet.find("mine"), "the request")
            (run,) = runs.active.values()
            assert [path.name for path in bucket.iterdir()] == [f"{runs.store.get(run.id).bundle_digest}.tar.gz"]


async def test_a_race_carries_the_job_and_that_of_the_winner_goes_on(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.inject("capacity", "us-east5-a", "v5litepod", "0")
    async with console(own.context, tmp_path, monkeypatch, size=WIDE) as driven:
        runs = driven.app.require_tower().runs
        runs.boot_pace = BootPace(gone_s=3600.0)  # Whoever waits for a request to be gone waits for ever.
        await form(driven, {"name": "racer", "job_command": "echo from the winner; sleep 600", "job_shell": "yes"})
        await driven.shows("each worker runs at every boot")
        await driven.press("f6")
        await driven.until(lambda: isinstance(driven.app.screen, RaceFormScreen))
        driven.app.screen.query_one("#field-zones", Input).value = f"{ZONE} us-east5-a"
        await driven.shows("2 are asked for at once", "racer in us-east5-a", "ctrl+r begins it")
        await driven.press("ctrl+r")
        await answer(driven, "1", "Each carries the job, as a run of its own")
        await driven.shows(f"won by racer in {ZONE}")
        (winner,) = [item for item in driven.app.fleet.find("racer") if item.zone == ZONE]
        body = await driven.app.require_tower().client.describe(*winner.key)
        run_id = body["tpu"]["nodeSpec"][0]["node"]["metadata"][RUN_KEY]
        (lost,) = [record.id for record in runs.store.history() if record.id != run_id]
        await driven.until(lambda: runs.store.get(lost).state is RunState.ENDED, "the loser's run ended")
        told = {(result.outcome, result.error) for result in runs.store.get(lost).results}
        assert told == {(Outcome.NOT_STARTED, "Its queued resource was given up.")}
        await driven.until(lambda: run_id in runs.active and "from the winner" in log_of(driven, run_id), "its log")
        assert runs.store.get(run_id).state is not RunState.ENDED
        assert len(runs.history()) == 2


async def test_the_page_about_a_job_is_read_to_its_end_on_a_small_screen(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        screen = await form(driven, {"name": "mine", "job_command": "python3 train.py"})
        await driven.shows("ctrl+r sends it")
        await driven.until(lambda: screen.shipping.job is not None, "the job planned")
        await driven.press("pagedown")
        await driven.until(lambda: "f3 shows it" in driven.toasts())
        await driven.press("f3")
        await driven.shows("each worker runs at every boot")
        assert "The startup script of a" not in driven.text
        await driven.press("pagedown")
        await driven.shows("The startup script of a")
        await driven.press("pageup")
        await driven.shows("each worker runs at every boot")


async def test_a_form_with_its_job_is_saved_and_filled_again(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        screen = await form(driven, {"name": "mine", "job_command": "python3 train.py", "job_setup": "true"})
        saved = screen.texts()
        screen.fill_saved({"accelerator_type": "v6e-8"})
        assert screen.line("job_command").value == screen.line("job_setup").value == ""
        screen.fill_saved(saved)
        assert screen.line("job_command").value == "python3 train.py"
        assert screen.line("job_setup").value == "true"
        await driven.press("escape")
        await asyncio.sleep(0)
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
