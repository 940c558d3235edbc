"""Grouping: identical outputs are said once, and nothing that differs is folded away."""

from __future__ import annotations

from backend.diagnosis.grouping import WorkerOutput, difference, group
from backend.outcomes import Outcome


def output(worker: int, text: bytes, outcome: Outcome = Outcome.OK, code: int | None = 0) -> WorkerOutput:
    return WorkerOutput(f"train-a/0/{worker}", outcome, code, text)


def test_identical_outputs_are_one_group_with_a_folded_header() -> None:
    groups = group([output(worker, b"3.11\n") for worker in range(4)])
    assert [each.header for each in groups] == ["train-a/0/0-3 (4) ok"]
    assert groups[0].text == "3.11"


def test_failures_come_first_and_larger_groups_before_smaller() -> None:
    groups = group(
        [
            output(0, b"a"),
            output(1, b"a"),
            output(2, b"b"),
            output(3, b"a", Outcome.FAILED, 7),
            output(4, b"a", Outcome.FAILED, 9),
        ]
    )
    assert [(each.outcome, each.exit_code, len(each.addresses)) for each in groups] == [
        (Outcome.FAILED, 7, 1),
        (Outcome.FAILED, 9, 1),
        (Outcome.OK, 0, 2),
        (Outcome.OK, 0, 1),
    ]


def test_noise_is_ignored_only_on_request() -> None:
    outputs = [output(0, b"12:00:01 pid 4 done 0xff"), output(1, b"12:00:02 pid 5 done 0xfe")]
    assert len(group(outputs)) == 2
    assert len(group(outputs, ignore_noise=True)) == 1


def test_the_difference_names_both_sides() -> None:
    first, other = group([output(0, b"same\nold\n"), output(1, b"same\nnew\n")])
    text = difference(first, other)
    assert "-old" in text
    assert "+new" in text
    assert "train-a/0/1" in text


def test_hostile_output_is_shown_safely() -> None:
    assert "\x1b" not in group([output(0, b"\x1b]52;c;QUJD\x07x")])[0].text
