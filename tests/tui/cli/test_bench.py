"""`slicetower bench` refuses with sentences, plans without asking anybody, and prints what the journal keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.bench.model import BenchRecord, BenchRequest, BenchState, BenchSummary, StepPoint
from backend.bench.store import BenchStore
from backend.journal import Journal
from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from tui.cli.main import main


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BenchStore]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    journal = Journal.open(paths().journal)
    yield BenchStore(journal)
    journal.close()


def kept(identity: str, rate: float) -> BenchRecord:
    return BenchRecord(
        id=identity,
        request=BenchRequest(dcn_data_parallelism=2, ici_fsdp_parallelism=16),
        target="train-a",
        project="demo",
        zone="us-west4-a",
        queued_resource="train-a",
        accelerator_type="v5litepod-16",
        slices=2,
        devices=32,
        platform="tpu",
        state=BenchState.DONE,
        context="demo",
        started_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        versions={"jax": "0.10.2"},
        summary=BenchSummary(2, {}, 0.5, 0.49, 0.51, rate, rate * 0.99, rate * 1.01, mfu=0.6),
        points=(
            StepPoint(1, 8, 0.5, 0.49, 0.51, rate, rate, rate),
            StepPoint(2, 8, 0.5, 0.49, 0.51, rate, rate, rate),
        ),
    )


def test_a_plan_lists_every_legal_mesh_by_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "plan", "v5litepod-16", "--slices", "2", "--limit", "0", "--format", "json"]
    assert main(arguments) == ExitCode.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 45
    ordered = [(not row["fits"], -round(row["tflops_per_device"], 6)) for row in rows]
    assert ordered == sorted(ordered)
    over_dcn = next(row for row in rows if row["mesh"] == "ici 1x16x1 dcn 1x1x2")
    assert over_dcn["bound"] == "DCN"
    assert over_dcn["rows_per_chip_dcn"] is None
    assert "tensor 2 over DCN" in over_dcn["advice"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "v5e-16"], "Did you mean v5litepod-16"),
        (["plan", "v3-32", "--slices", "2"], "v4 or later"),
        (["plan", "v5litepod-16", "--slices", "257"], "2 to 256 slices"),
        (["show", "nothing"], "no benchmark 'nothing'"),
        (["export", "nothing"], "no benchmark 'nothing'"),
    ],
)
def test_bad_input_is_refused(store: BenchStore, arguments: list[str], words: str) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        main(["bench", *arguments])
    assert caught.value.exit_code == ExitCode.USAGE


def test_what_is_kept_is_listed_shown_compared_and_exported(
    store: BenchStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store.save(kept("a-1", 120.0))
    store.save(kept("b-2", 90.0))
    assert main(["bench", "list"]) == ExitCode.OK
    assert "ICI fsdp 16, DCN data 2" in capsys.readouterr().out
    assert main(["bench", "list", "other", "--format", "json"]) == ExitCode.OK
    assert capsys.readouterr().out == ""
    assert main(["bench", "show", "a"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "60.0%" in shown
    assert "slicetower bench shardings train-a --dcn_data_parallelism 2" in shown
    assert main(["bench", "compare", "a-1", "b-2", "--format", "json"]) == ExitCode.OK
    base, other = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (base["verdict"], other["verdict"], other["ratio"]) == ("baseline", "slower", 0.75)
    file = tmp_path / "steps.csv"
    assert main(["bench", "export", "a-1", "b-2", "--output", str(file)]) == ExitCode.OK
    assert len(file.read_text().splitlines()) == 5
    assert main(["bench", "export", "a-1", "--format", "jsonl"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out.splitlines()[0])["bench"]["versions"] == {"jax": "0.10.2"}


def test_an_export_that_cannot_be_written_is_told(store: BenchStore, tmp_path: Path) -> None:
    store.save(kept("a-1", 120.0))
    with pytest.raises(OperatorError, match="can't be written"):
        main(["bench", "export", "a-1", "--output", str(tmp_path / "no" / "such")])


def test_a_regression_against_a_saved_baseline_shuts_the_gate_and_noise_does_not(
    store: BenchStore, capsys: pytest.CaptureFixture[str]
) -> None:
    for identity, rate in (("a-1", 120.0), ("b-2", 119.0), ("c-3", 90.0)):
        store.save(kept(identity, rate))
    assert main(["bench", "baseline", "nightly", "a-1"]) == ExitCode.OK
    assert main(["bench", "baseline"]) == ExitCode.OK
    listed = capsys.readouterr().out
    assert "nightly" in listed
    assert "120" in listed
    assert main(["bench", "compare", "--baseline", "nightly", "b-2"]) == ExitCode.OK
    assert "same" in capsys.readouterr().out
    assert main(["bench", "compare", "--baseline", "nightly", "b-2", "c-3"]) == ExitCode.COMMAND_FAILED
    told = capsys.readouterr()
    assert "c-3 is 25.0% slower than a-1; the noise is 2.0%." in told.err
    assert "b-2 is" not in told.err
    assert main(["bench", "baseline", "nightly", "c-3"]) == ExitCode.OK
    assert main(["bench", "compare", "--baseline", "nightly", "b-2"]) == ExitCode.OK
    assert "faster" in capsys.readouterr().out


def test_a_benchmark_without_figures_is_no_baseline_and_passes_no_gate(
    store: BenchStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(kept("a-1", 120.0))
    store.save(replace(kept("dead", 1.0), state=BenchState.FAILED, summary=BenchSummary()))
    with pytest.raises(OperatorError, match="has no throughput"):
        main(["bench", "baseline", "nightly", "dead"])
    with pytest.raises(OperatorError, match="no baseline 'nightly'"):
        main(["bench", "compare", "--baseline", "nightly", "a-1"])
    main(["bench", "baseline", "nightly", "a-1"])
    assert main(["bench", "compare", "--baseline", "nightly", "dead"]) == ExitCode.COMMAND_FAILED
    assert "dead can't be compared" in capsys.readouterr().err


def test_weak_scaling_is_told_against_linear(store: BenchStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(replace(kept("one", 120.0), slices=1, devices=16))
    store.save(replace(kept("two", 108.0), slices=2, devices=32))
    other = replace(kept("four", 60.0), slices=4, devices=64)
    earlier = datetime(2026, 11, 29, tzinfo=UTC)
    store.save(replace(other, started_at=earlier, request=replace(other.request, batch_size=7)))
    assert main(["bench", "scale", "one", "two", "four", "--format", "json"]) == ExitCode.OK
    told = capsys.readouterr()
    points = [json.loads(line) for line in told.out.splitlines()]
    assert [(each["slices"], each["tflops_total"], each["of_linear"]) for each in points] == [
        (1, 1920.0, 1.0),
        (2, 3456.0, 0.9),
    ]
    assert "1 left out" in told.err
    assert main(["bench", "scale", "--queued-resource", "train-a"]) == ExitCode.OK
    assert "90.0%" in capsys.readouterr().out
    with pytest.raises(OperatorError, match="several slice counts"):
        main(["bench", "scale"])


def test_a_plan_tells_from_how_many_rows_a_bound_is_lifted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "plan", "v5litepod-16", "--slices", "2", "--limit", "0"]
    assert main(arguments) == ExitCode.OK
    told = capsys.readouterr()
    head, *rows = told.out.splitlines()
    assert head.split("  ")[-1].strip() == "ROWS/SLICE DCN"
    assert "ROWS/CHIP ICI" in head
    usual = next(row for row in rows if row.startswith("ICI fsdp 16, DCN data 2 "))
    ici, chip, slice_ = (float(word) for word in usual.split()[-3:])
    assert (ici > 0, chip > 0) == (True, True)
    assert slice_ == pytest.approx(chip * 16, rel=0.01)
    assert any(row.split()[-1] == "never" for row in rows), "tensor over DCN is never lifted"


def test_a_cpu_has_no_utilisation_in_the_list_nor_alone(
    store: BenchStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record = kept("a-1", 0.0004)
    store.save(replace(record, platform="cpu", summary=replace(record.summary, mfu=0.0)))
    for words in (["list"], ["show", "a-1"]):
        assert main(["bench", *words]) == ExitCode.OK
        told = capsys.readouterr().out
        assert "no MFU for a CPU" in told
        assert "%" not in told.replace("(10 to 90 %)", "")
