"""Saved groups: what `@name` stands for, and what a mistake is told as."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.groups import load_groups
from backend.model import Fleet, QueuedResource, Slice, Worker
from backend.outcomes import OperatorError
from backend.targets import select

GROUPS = {"front": ("a/*/0",), "all": ("@front", "b"), "loop": ("@pool",), "pool": ("@loop",)}


def fleet() -> Fleet:
    def slices(name: str) -> tuple[Slice, ...]:
        workers = (Worker(0), Worker(1))
        return tuple(
            Slice("p", "z", f"{name}-{n}", n, "READY", queued_resource=name, workers=workers) for n in (0, 1)
        )

    return Fleet(queued_resources=tuple(QueuedResource("p", "z", n, "ACTIVE", slices=slices(n)) for n in "ab"))


def addresses(*targets: str) -> list[str]:
    return [worker.address for worker in select(fleet(), targets, GROUPS)]


def test_a_group_stands_for_its_targets_and_groups_nest() -> None:
    assert addresses("@front") == ["a/0/0", "a/1/0"]
    assert addresses("@all", "a/0/0") == ["a/0/0", "a/1/0", "b/0/0", "b/0/1", "b/1/0", "b/1/1"]


def test_an_unknown_group_names_the_near_ones_and_a_loop_ends() -> None:
    with pytest.raises(OperatorError) as caught:
        addresses("@frnt")
    assert "@front" in caught.value.cure
    with pytest.raises(OperatorError, match="holds itself"):
        addresses("@loop")
    with pytest.raises(OperatorError, match="no group"):
        select(fleet(), ["@x"])


def test_groups_are_read_and_a_mistake_is_told_by_its_line(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    assert load_groups(config) == {}
    config.write_text('[groups]\nfront = ["a/0", "@x"]\n')
    assert load_groups(config) == {"front": ("a/0", "@x")}
    for text, words in (('"a b" = ["x"]', "no name"), ("front = []", "empty"), ('front = "a"', "list of texts")):
        config.write_text(f"# groups\n[groups]\n{text}\n")
        with pytest.raises(OperatorError, match=words) as caught:
            load_groups(config)
        assert f"{config}:3" in caught.value.what
