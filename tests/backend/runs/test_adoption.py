"""Jobs that others began: another operator's, by the request alone, and those of other processes of this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.outcomes import ExitCode, OperatorError
from backend.paths import Paths
from backend.runs.adoption import adopted
from backend.runs.boots import BootPace
from backend.tower import Tower
from tests.backend.runs.test_production_simulated import create, restored, until
from tests.simulator import SimulatorFactory, run_cli

KEY = ("demo-project", "us-west4-a", "prod")


def body(**metadata: str) -> dict[str, object]:
    node = {"acceleratorType": "v5litepod-16", "runtimeVersion": "r", "metadata": metadata}
    spec = {"nodeId": "prod", "node": node}
    return {"name": "projects/demo-project/locations/us-west4-a/queuedResources/prod", "tpu": {"nodeSpec": [spec]}}


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({}, "carries no job"),
        ({"slicetower-run": "20261130-145501-k3f9"}, "can't be read"),
        ({"slicetower-run": "20261130-145501-k3f9", "startup-script": "JOB: Job = {\n[(\n}\n"}, "can't be read"),
        (
            {"slicetower-run": "20261130-145501-k3f9", "startup-script": "JOB: Job = {\n'run': open('/x'),\n}\n"},
            "can't be read",
        ),
        (
            {
                "slicetower-run": "../../../x",
                "startup-script": "JOB: Job = {\n'run': '../../../x', 'argv': ['a'],\n}\n",
            },
            "can't be read",
        ),
        (
            {
                "slicetower-run": "20261130-145501-k3f9",
                "startup-script": "JOB: Job = {\n'run': 'x', 'argv': ['a'],\n}\n",
            },
            "can't be read",
        ),
    ],
)
def test_metadata_that_is_no_job_of_ours_is_refused(metadata: dict[str, str], what: str) -> None:
    with pytest.raises(OperatorError) as refused:
        adopted(body(**metadata), KEY, "demo")
    assert what in refused.value.what


async def test_another_operators_job_is_adopted_and_followed_as_the_same_run(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    simulator = simulators(fresh=True)
    (tmp_path / "shared").mkdir()
    run_id = create(simulator, tmp_path, "prod", "--setup=echo prepared")
    other = tmp_path / "other"
    other.mkdir()
    dry = run_cli(
        "--context-file", str(simulator.context_file), "qr", "adopt", "prod", "--dry-run", "--format=json", home=other
    )
    assert json.loads(dry.stdout)["known"] is False, dry.stderr
    done = run_cli("--context-file", str(simulator.context_file), "qr", "adopt", "prod", home=other)
    assert done.returncode == ExitCode.OK, done.stderr
    assert f"Adopted: run {run_id}" in done.stdout
    assert "program.py" in done.stdout
    again = run_cli("--context-file", str(simulator.context_file), "qr", "adopt", "prod", "--format=json", home=other)
    assert json.loads(again.stdout) == {
        "name": "prod", "zone": "us-west4-a", "run": run_id, "known": True, "user": "operator",
    }  # fmt: skip
    none = run_cli("--context-file", str(simulator.context_file), "qr", "adopt", "train-a", home=other)
    assert none.returncode == ExitCode.USAGE
    assert "carries no job" in none.stderr

    tower = Tower(simulator.context, Paths(other / ".config" / "slicetower", other / ".state" / "slicetower"))
    tower.runs.boot_pace = BootPace(first_s=0.05, most_s=0.3, settle_s=1.0, gone_s=1.0)
    try:
        run = tower.runs.attach(run_id)
        assert (run.request.setup, run.request.kind) == ("echo prepared", "job")
        await until(lambda: all(restored(run, index) for index in range(8)))
        simulator.inject("repair", "prod/1")
        await until(lambda: all(len(restored(run, index)) == 2 for index in range(8)))
    finally:
        await tower.close()
