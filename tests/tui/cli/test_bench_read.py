"""`slicetower bench read` reads any training log, from a file, a run or standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from tui.cli.main import main

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    def no_nan(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    return [json.loads(line, parse_constant=no_nan) for line in capsys.readouterr().out.splitlines()]


def test_figures_of_a_maxtext_log(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "read", str(LOGS / "maxtext_classic.log"), "--accelerator-type", "v5p-8"]
    assert main([*arguments, "--format", "json"]) == ExitCode.OK
    *readings, last = lines(capsys)
    assert [each["step"] for each in readings] == list(range(10))
    assert readings[1]["set_aside"] == "above peak"
    summary = last["summary"]
    assert isinstance(summary, dict)
    assert (summary["counted"], round(summary["mfu"], 3)) == (8, 0.294)
    assert main(arguments) == ExitCode.OK
    assert "29.4%" in capsys.readouterr().out


def test_a_loss_that_is_no_number_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "read", str(LOGS / "maxtext_elastic_variants.log"), "--format", "json"])
    assert lines(capsys)[-2]["loss"] is None


def test_a_run_is_read_by_its_id(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = paths().runs_dir / "20261130-120000-abcd"
    folder.mkdir(parents=True)
    for worker in (0, 1):
        (folder / f"train-a.0.{worker}.log").write_bytes((LOGS / "tqdm_carriage_return.log").read_bytes())
    assert main(["bench", "read", "20261130-120000-abcd"]) == ExitCode.OK
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["train-a.0.0", "train-a.0.1"]
    assert all("119" in line for line in shown[1:])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no file and no run nothing"),
        ([str(LOGS / "maxtext_classic.log"), "--pattern", "("], "--pattern"),
        ([str(LOGS / "maxtext_classic.log"), "--accelerator-type", "v5p"], "no accelerator type"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        main(["bench", "read", *arguments])
