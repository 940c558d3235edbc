"""`slicetower bench` refuses with sentences, plans without asking anybody, and prints what the journal keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.bench_model import BenchRecord, BenchRequest, BenchState, BenchSummary, StepPoint
from backend.bench_store import BenchStore
from backend.context import paths
from backend.journal import Journal
from backend.outcomes import ExitCode, OperatorError
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
