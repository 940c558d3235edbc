from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from backend.model import EventKind, Fleet
from backend.outcomes import OperatorError
from backend.tower import Tower
from tests.fake_cloud import FakeCloud, fake_cloud, parent, raw_request

BOUND_S = 90.0


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as fake:
        yield fake


def loaded(fleet: Fleet) -> Fleet | None:
    return fleet if fleet.loaded else None


async def test_an_open_tower_watches_and_a_closed_one_has_stopped(cloud: FakeCloud) -> None:
    cloud.queued[parent()] = [raw_request("a")]
    async with Tower.open(cloud.context()) as tower:
        fleet = await tower.watch.wait_for(loaded, BOUND_S)
        assert [item.name for item in fleet.queued_resources] == ["a"]
    asked = cloud.calls["ListNodes"]
    version = tower.watch.fleet.version
    async with Tower.open(cloud.context(), watch=False) as other:
        await other.refresh()
    assert tower.watch.fleet.version == version
    assert cloud.calls["ListNodes"] == asked + 1


async def test_two_waits_at_the_start_share_the_one_watch(cloud: FakeCloud) -> None:
    async with Tower.open(cloud.context()) as tower:
        await tower.watch.wait_for(loaded, BOUND_S)
        await tower.watch.wait_for(loaded, BOUND_S)
    assert cloud.calls["ListNodes"] <= 2


async def test_without_a_watch_nothing_is_asked_until_it_is_wanted(cloud: FakeCloud) -> None:
    async with Tower.open(cloud.context(), watch=False) as tower:
        assert "client" not in tower.__dict__
        assert "journal" not in tower.__dict__
        assert not cloud.calls
        assert (await tower.refresh()).loaded
        assert cloud.calls["ListNodes"] == 1


async def test_an_action_is_in_the_journal_and_on_screen(cloud: FakeCloud) -> None:
    async with Tower.open(cloud.context(), watch=False) as tower:
        tower.record("asked for 2 x v5litepod-16", subject="train-a")
        assert [(event.kind, event.subject) for event in tower.watch.events] == [(EventKind.ACTION, "train-a")]
    async with Tower.open(cloud.context(), watch=False) as tower:
        assert [event.text for event in tower.journal.events()] == ["asked for 2 x v5litepod-16"]


async def test_an_error_of_the_body_comes_through_as_it_is(cloud: FakeCloud) -> None:
    cloud.fail("ListNodes", grpc.StatusCode.PERMISSION_DENIED, "denied")

    async def use() -> None:
        async with Tower.open(cloud.context(), watch=False) as tower:
            await tower.refresh()

    with pytest.raises(OperatorError) as caught:
        await use()
    assert caught.value.__class__.__name__ == "CloudError"


async def test_a_damaged_journal_is_told_before_anything_is_asked(cloud: FakeCloud, tmp_path: Path) -> None:
    file = tmp_path / "state" / "slicetower" / "journal.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rubbish" * 1000)

    async def use() -> None:
        async with Tower.open(cloud.context()):
            pass

    with pytest.raises(OperatorError, match=r"journal\.db is damaged"):
        await use()
    assert not cloud.calls
