"""Targets: what is written is what is chosen, and what does not exist is said so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.model import Fleet, QueuedResource, Slice, Worker
from backend.outcomes import ExitCode, OperatorError
from backend.targets import fold, select, workers_of


def resource(name: str, slices: int, workers: int, state: str = "ACTIVE", zone: str = "us-west4-a") -> QueuedResource:
    return QueuedResource(
        project="p",
        zone=zone,
        name=name,
        state=state,
        slice_count=slices,
        slices=tuple(
            Slice(
                project="p",
                zone=zone,
                node_id=f"{name}-{index}",
                index=index,
                state="READY",
                uid=str(1000 + index),
                queued_resource=name,
                workers=tuple(Worker(number, f"127.1.{index}.{number}") for number in range(workers)),
            )
            for index in range(slices)
        ),
    )


FLEET = Fleet(
    queued_resources=(
        resource("train-a", 12, 4),
        resource("train-ab", 1, 1),
        resource("wait-b", 2, 0, "WAITING_FOR_RESOURCES"),
    ),
    standalone=(
        Slice(
            project="p", zone="us-west4-a", node_id="vm-1", index=0, state="READY", workers=(Worker(0, "127.9.9.9"),)
        ),
    ),
)


def addresses(*texts: str) -> list[str]:
    return [worker.address for worker in select(FLEET, texts)]


def test_a_name_is_exact_never_a_prefix() -> None:
    assert all(address.startswith("train-a/") for address in addresses("train-a"))
    assert len(addresses("train-a")) == 48


def test_order_is_numeric() -> None:
    assert addresses("train-a/*/0")[:3] == ["train-a/0/0", "train-a/1/0", "train-a/2/0"]
    assert addresses("train-a/*/0")[10] == "train-a/10/0"


def test_ranges_and_lists() -> None:
    assert addresses("train-a/0-1/0,2") == ["train-a/0/0", "train-a/0/2", "train-a/1/0", "train-a/1/2"]


def test_each_worker_once_whatever_overlaps() -> None:
    assert addresses("train-a/0", "train-a/0/1", "train-a/0-0") == [f"train-a/0/{index}" for index in range(4)]


def test_a_star_in_a_name_is_the_only_pattern() -> None:
    assert {address.split("/")[0] for address in addresses("train-*")} == {"train-a", "train-ab"}
    with pytest.raises(OperatorError, match="called 'train-\\?'"):
        addresses("train-?")


def test_a_standalone_vm_is_a_target() -> None:
    assert addresses("vm-1") == ["vm-1/0/0"]


@pytest.mark.parametrize(
    ("text", "what", "cure"),
    [
        ("trian-a", "No queued resource is called 'trian-a'", "train-a"),
        ("train-a/x", "'x' in the target", "A target is"),
        ("train-a/3-1", "runs backwards", "1-3"),
        ("train-a/99", "matches no worker", "0 to 11"),
        ("train-a/0/0,9", "asks for worker 9", "0 to 3"),
        ("train-a/0,99", "asks for slice 99", "0 to 11"),
        ("train-a/0/0/0", "is no target", "A target is"),
        ("", "is no target", "A target is"),
        ("wait-b", "has no workers: it is WAITING_FOR_RESOURCES", "qr wait wait-b"),
        ("train-a/0-99999999", "beyond any", "A target is"),
    ],
)
def test_a_mistake_is_named_with_its_cure(text: str, what: str, cure: str) -> None:
    with pytest.raises(OperatorError) as caught:
        addresses(text)
    assert what in caught.value.what
    assert cure in caught.value.cure
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_name_in_two_zones_is_ambiguous() -> None:
    fleet = Fleet(queued_resources=(resource("x", 1, 1), resource("x", 1, 1, zone="us-east5-a")))
    with pytest.raises(OperatorError, match="exists 2 times"):
        select(fleet, ["x"])


def test_a_hostile_target_is_shown_safely() -> None:
    with pytest.raises(OperatorError) as caught:
        addresses("\x1b]52;c;QUJD\x07x")
    assert "\x1b" not in str(caught.value)


@given(st.sets(st.tuples(st.integers(0, 11), st.integers(0, 3)), min_size=1))
def test_folding_and_selecting_are_inverse(chosen: set[tuple[int, int]]) -> None:
    wanted = sorted(f"train-a/{slice_index}/{worker}" for slice_index, worker in chosen)
    assert sorted(addresses(*fold(wanted).split())) == wanted


def test_folding_reads_well() -> None:
    assert fold([worker.address for worker in workers_of(FLEET.queued_resources[0])]) == "train-a/0-11/0-3"
    assert fold(["a/0/0", "a/0/1", "a/0/2", "a/1/5"]) == "a/0/0-2 a/1/5"
