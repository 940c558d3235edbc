"""Grouping: identical outputs are said once, and nothing that differs is folded away."""

from __future__ import annotations

from backend.diagnosis.grouping import DIFF_LINES, WorkerOutput, difference, differences, group, reference
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


def test_what_is_not_the_rule_is_told_by_its_differences_where_that_is_shorter() -> None:
    rule = b"python 3.11\njax 0.10\nlibtpu 1\ndevices 4\nready\n"
    outputs = [output(worker, rule) for worker in range(6)]
    outputs.append(output(6, rule.replace(b"jax 0.10", b"jax 0.9")))
    outputs.append(output(7, b"something else\nentirely\n", Outcome.FAILED, 1))
    outputs.append(output(8, b"", Outcome.FAILED, 2))
    groups = group(outputs)
    told = differences(groups)
    assert reference(groups) is next(each for each in groups if len(each.addresses) == 6)
    assert {each.addresses: lines for each, lines in told.items()} == {
        ("train-a/0/6",): ("@@ -1,3 +1,3 @@", " python 3.11", "-jax 0.10", "+jax 0.9", " libtpu 1")
    }


def test_of_groups_of_one_size_what_ended_well_is_the_rule() -> None:
    groups = group([output(0, b"a\nb\nc\n", Outcome.FAILED, 1), output(1, b"a\nb\nd\n")])
    rule = reference(groups)
    assert rule is not None
    assert rule.outcome is Outcome.OK
    assert [each.outcome for each in differences(groups)] == [Outcome.FAILED]


def test_what_would_take_long_to_compare_is_not() -> None:
    many = b"".join(b"%d\n" % number for number in range(DIFF_LINES + 1))
    assert differences(group([output(0, many), output(1, many + b"x\n")])) == {}
    assert differences(group([output(0, b"a\nb\nc\n"), output(1, b"a\nb\nd\n")]))
    assert differences(group([output(number, b"a\nb\n%d\n" % number) for number in range(99)])) == {}


def test_hostile_output_is_shown_safely() -> None:
    assert "\x1b" not in group([output(0, b"\x1b]52;c;QUJD\x07x")])[0].text
