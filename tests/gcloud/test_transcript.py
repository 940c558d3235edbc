"""What the real gcloud says on the simulator is what was recorded. Minutes long: `make test-heavy` runs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.gcloud import recording


def test_every_command_is_recorded_once_and_in_order() -> None:
    _, said = recording.read()
    recorded = [item.command.removeprefix("gcloud ") for item in said]
    assert recorded == recording.commands()


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="not run: there is no gcloud on this machine")
async def test_gcloud_says_on_the_simulator_what_was_recorded(tmp_path: Path) -> None:
    """Exit codes always; the whole text where the gcloud is the one that was recorded."""
    gcloud = shutil.which("gcloud")
    assert gcloud is not None
    version, recorded = recording.read()
    said = await recording.record(gcloud, tmp_path)
    assert [(item.command, item.code) for item in said] == [(item.command, item.code) for item in recorded]
    if await recording.version(gcloud) == version:
        for now, before in zip(said, recorded, strict=True):
            assert now.text == before.text, now.command
