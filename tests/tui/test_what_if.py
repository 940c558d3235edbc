"""Benchmarks planned for chips that nobody has, and the rarely changed options of the bench form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.outcomes import OperatorError
from tests.tui.fixed.scenes import at_train
from tests.tui.fixed.tools import preflight
from tests.tui.fixed.world import fixed_console
from tui.screens.bench_fields import mesh_texts, request_of
from tui.screens.bench_what_if import WhatIfScreen, read_shape
from tui.screens.create import CreateScreen
from tui.screens.meshes import MeshesScreen
from tui.screens.preflight import PreflightScreen
from tui.screens.sweep_form import SweepFormScreen

SIZES = {
    "batch_size": "64",
    "embedding_dimension": "256",
    "num_layers": "2",
    "steps": "3",
    "warmup": "1",
    "port": "1",
}


def texts(**more: str) -> dict[str, str]:
    from jobs.meshes import default_mesh

    return {**mesh_texts(default_mesh(16, 2)), **SIZES, **more}


def test_every_option_of_the_program_is_read_from_the_form() -> None:
    request = request_of(
        texts(
            dtype="float32",
            title="nightly",
            environment="A=b 'C=d e'",
            profiler_path="/tmp/profile",
            peak_tflops="197.5",
            no_communication_steps="0",
            stuck_after="5m",
            compile_limit="90",
            initialization_timeout="2m",
            heartbeat_timeout="45s",
            force="yes",
            python="python3.12",
        )
    )
    assert (request.dtype, request.title, request.environment) == ("float32", "nightly", (("A", "b"), ("C", "d e")))
    assert (request.profiler_path, request.peak_tflops, request.no_communication_steps) == ("/tmp/profile", 197.5, 0)
    times = (
        request.stuck_after,
        request.compile_limit,
        request.initialization_timeout,
        request.heartbeat_timeout,
    )
    assert times == (300.0, 90.0, 120.0, 45.0)
    assert request.force
    repeated = request.command("train-a")
    for words in ("--env A=b", "--env 'C=d e'", "--peak_tflops 197.5", "--title nightly", "--force"):
        assert words in repeated
    from backend.bench.model import BenchRequest

    plain = request_of(texts())
    assert (plain.stuck_after, plain.no_communication_steps) == (
        BenchRequest().stuck_after,
        BenchRequest().no_communication_steps,
    )
    assert "--env" not in plain.command("train-a")


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("peak_tflops", "fast", "no rate above 0"),
        ("peak_tflops", "nan", "no rate above 0"),
        ("environment", "A", "is not KEY=VALUE"),
        ("stuck_after", "soon", "ends after"),
        ("no_communication_steps", "-1", "no whole number"),
    ],
)
def test_a_mistake_names_its_field(field: str, text: str, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        request_of(texts(**{field: text}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "A type is missing"),
        ("v9-8", "v9-8"),
        ("v5p-128 0", "no number of slices"),
        ("v2-8 2", "no Multislice"),
        ("v5p-128 2 3", "more than a type"),
    ],
)
def test_a_shape_that_cannot_be_says_why(words: str, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        read_shape(words.split())


async def test_a_plan_for_chips_that_nobody_has_leads_to_meshes_preflight_and_the_create_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[dict[str, Any]] = []

    async def compiling(request: Any, **more: Any) -> object:
        compiled.append(more)
        return await preflight(request, **more)

    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        driven.listen(monkeypatch)
        monkeypatch.setattr("tui.screens.preflight.preflight", compiling)
        await driven.shows("train-a")
        await driven.command("plan v9-8")
        await driven.until(lambda: "v9-8" in driven.toasts())
        await driven.command("plan v5p-128 4")
        await driven.until(lambda: isinstance(driven.app.screen, WhatIfScreen))
        form = driven.app.screen
        assert isinstance(form, WhatIfScreen)
        await driven.shows("4 x v5p-128, 256 devices", "TFLOP/s", "ctrl+r asks for such a request")
        form.line("ici_fsdp_parallelism").value = "3"
        await driven.shows("refused:")
        await driven.press("f3")
        await driven.press("f4")
        await driven.until(lambda: isinstance(driven.app.screen, MeshesScreen))
        await driven.press("enter")
        await driven.until(lambda: driven.app.screen is form)
        await driven.press("f6")
        await driven.until(lambda: "nothing to measure on" in driven.toasts())
        form.line("preflight_python").value = "/opt/libtpu/python"
        await driven.press("f5")
        await driven.until(lambda: isinstance(driven.app.screen, PreflightScreen))
        await driven.shows("all-gather")
        await driven.press("r")
        await driven.until(lambda: len(compiled) == 2)
        assert [each["python"] for each in compiled] == ["/opt/libtpu/python"] * 2
        assert compiled[0]["cache"] is not None
        assert compiled[1]["cache"] is None
        await driven.press("escape")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        asked = driven.app.screen.texts()  # type: ignore[attr-defined]
        assert (asked["accelerator_type"], asked["node_count"]) == ("v5p-128", "4")


async def test_a_sweep_goes_on_beyond_the_roofline_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        await at_train(driven, "b")
        await driven.shows("32 devices on 8 workers")
        await driven.press("f6")
        await driven.until(lambda: isinstance(driven.app.screen, SweepFormScreen))
        form = driven.app.screen
        assert isinstance(form, SweepFormScreen)
        await driven.until(lambda: form.sweep is not None)
        assert form.sweep is not None
        assert form.sweep.rule.use_bound
        form.line("bound").value = "no"
        await driven.until(lambda: form.sweep is not None and not form.sweep.rule.use_bound)
