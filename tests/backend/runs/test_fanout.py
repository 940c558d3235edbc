"""Batches, failure limits, the deadlock detector, exit codes: without any network."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.outcomes import ExitCode, OperatorError, Outcome
from backend.runs.fanout import (
    Amount,
    BatchPlan,
    FailurePolicy,
    Fanout,
    Phase,
    WorkerResult,
    exit_code,
    first_failure,
    summarize,
)
from tests.backend.openssh import worker
from tests.backend.sim.worker_world import until

BOUND_S = 90.0


@pytest.mark.parametrize(
    ("text", "total", "sizes"),
    [
        ("all", 7, [7]),
        ("4", 8, [4, 4]),
        ("4", 10, [4, 4, 2]),
        ("100", 3, [3]),
        ("1,5,25%", 40, [1, 5, 10, 10, 10, 4]),
        ("25%", 8, [2, 2, 2, 2]),
        ("1%", 8, [1] * 8),
        ("1,all", 1, None),
    ],
)
def test_batches_are_split_as_the_operator_wrote_them(text: str, total: int, sizes: list[int] | None) -> None:
    if sizes is None:
        with pytest.raises(OperatorError):
            BatchPlan.parse(text)
    else:
        assert [len(batch) for batch in BatchPlan.parse(text).split(total)] == sizes


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "four", "1,", "101%", "5,0", "1;2", "²"])
def test_what_is_no_batch_size_is_refused(text: str) -> None:
    with pytest.raises(OperatorError) as caught:
        BatchPlan.parse(text)
    assert "--batch-size" in caught.value.cure


@given(
    sizes=st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=4),
    total=st.integers(0, 500),
)
def test_every_worker_is_in_exactly_one_batch_in_order(sizes: list[tuple[int, bool]], total: int) -> None:
    plan = BatchPlan(tuple(Amount(value, percent) for value, percent in sizes))
    batches = plan.split(total)
    assert [index for batch in batches for index in batch] == list(range(total))
    assert all(batches)


@pytest.mark.parametrize(
    ("policy", "failures", "total", "stops"),
    [
        (FailurePolicy(), 0, 10, False),
        (FailurePolicy(), 1, 10, True),
        (FailurePolicy("continue"), 10, 10, False),
        (FailurePolicy.parse("stop", "2"), 2, 10, False),
        (FailurePolicy.parse("stop", 2), 3, 10, True),
        (FailurePolicy.parse("continue", "50%"), 5, 10, False),
        (FailurePolicy.parse("continue", "50%"), 6, 10, True),
    ],
)
def test_a_failure_limit_must_be_exceeded(policy: FailurePolicy, failures: int, total: int, stops: bool) -> None:
    assert policy.stops(failures, total) is stops


@pytest.mark.parametrize(
    ("on_failure", "limit"), [("ignore", None), ("stop", "many"), ("stop", "-1"), ("stop", "120%")]
)
def test_an_unknown_policy_is_refused(on_failure: str, limit: str | None) -> None:
    with pytest.raises(OperatorError):
        FailurePolicy.parse(on_failure, limit)


class Bench:
    """A fan-out over workers that end when the test says so."""

    def __init__(self, total: int, batch: str, policy: FailurePolicy | None = None, quiet_s: float = 60.0) -> None:
        self.results = [WorkerResult(worker(index)) for index in range(total)]
        self.running: dict[int, asyncio.Future[Outcome]] = {}
        self.order: list[int] = []
        self.changes = 0
        self.fanout = Fanout(
            self.results,
            BatchPlan.parse(batch).split(total),
            policy or FailurePolicy(),
            self.execute,
            self.changed,
            quiet_s=quiet_s,
        )

    def changed(self) -> None:
        self.changes += 1

    async def execute(self, index: int) -> None:
        self.order.append(index)
        self.running[index] = asyncio.get_running_loop().create_future()
        self.results[index].outcome = await self.running[index]
        del self.running[index]

    async def started(self, count: int) -> None:
        await until(lambda: len(self.order) >= count, f"{count} workers to start")

    def end(self, outcome: Outcome = Outcome.OK) -> None:
        for future in list(self.running.values()):
            future.set_result(outcome)


async def test_the_next_batch_starts_when_the_last_one_has_ended() -> None:
    bench = Bench(5, "2")
    task = asyncio.create_task(bench.fanout.run())
    await bench.started(2)
    bench.running[0].set_result(Outcome.OK)
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.order == [0, 1], "half a batch does not let the next one begin"
    bench.end()
    await bench.started(4)
    bench.end()
    await bench.started(5)
    bench.end()
    await asyncio.wait_for(task, BOUND_S)
    assert summarize(bench.results) == {Outcome.OK: 5}
    assert bench.fanout.batch == 3


@pytest.mark.parametrize(
    "outcome", [Outcome.FAILED, Outcome.SIGNALLED, Outcome.TIMED_OUT, Outcome.UNREACHABLE, Outcome.UNKNOWN]
)
async def test_any_failure_stops_further_batches_and_says_so(outcome: Outcome) -> None:
    bench = Bench(6, "2")
    task = asyncio.create_task(bench.fanout.run())
    await bench.started(2)
    bench.end(outcome)
    await asyncio.wait_for(task, BOUND_S)
    assert summarize(bench.results) == {outcome: 2, Outcome.NOT_STARTED: 4}
    assert "2 of the workers before it failed" in bench.results[2].error
    assert bench.results[5].phase is Phase.ENDED


async def test_start_rest_begins_everything_at_once() -> None:
    bench = Bench(100, "4")
    task = asyncio.create_task(bench.fanout.run())
    await bench.started(4)
    bench.fanout.start_rest()
    await bench.started(100)
    assert len(bench.running) == 100
    bench.end()
    await asyncio.wait_for(task, BOUND_S)
    assert summarize(bench.results) == {Outcome.OK: 100}


async def test_silence_with_unstarted_batches_is_called_a_probable_deadlock_and_output_withdraws_it() -> None:
    bench = Bench(100, "64", quiet_s=0.05)
    task = asyncio.create_task(bench.fanout.run())
    await bench.started(64)
    await until(lambda: bench.fanout.deadlock, "the alarm")
    assert "64 of 100 started" in bench.fanout.deadlock
    bench.fanout.activity()
    assert not bench.fanout.deadlock
    bench.fanout.start_rest()
    await bench.started(100)
    bench.end()
    await asyncio.wait_for(task, BOUND_S)


async def test_a_silent_last_batch_is_no_deadlock() -> None:
    bench = Bench(4, "all", quiet_s=0.01)
    task = asyncio.create_task(bench.fanout.run())
    await bench.started(4)
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not bench.fanout.deadlock
    bench.end()
    await asyncio.wait_for(task, BOUND_S)


async def test_stop_launching_leaves_what_runs() -> None:
    bench = Bench(4, "2")
    task = asyncio.create_task(bench.fanout.run())
    await bench.started(2)
    bench.fanout.stop_launching("because")
    bench.end()
    await asyncio.wait_for(task, BOUND_S)
    assert summarize(bench.results) == {Outcome.OK: 2, Outcome.NOT_STARTED: 2}
    assert bench.results[3].error == "because"


async def test_a_bug_in_one_worker_is_not_swallowed_and_the_others_end() -> None:
    bench = Bench(2, "all")

    async def execute(index: int) -> None:
        if index == 0:
            raise RuntimeError("a bug")
        bench.results[index].outcome = Outcome.OK

    fanout = Fanout(bench.results, [(0, 1)], FailurePolicy(), execute, bench.changed)
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(fanout.run(), BOUND_S)
    assert bench.results[1].outcome is Outcome.OK


def _result(outcome: Outcome, second: float | None = None) -> WorkerResult:
    at = None if second is None else datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return WorkerResult(worker(0), outcome=outcome, ended_at=at)


def test_the_first_failure_is_the_first_in_time_not_in_order() -> None:
    late = _result(Outcome.FAILED, 60.0)
    first = _result(Outcome.SIGNALLED, 3.0)
    assert first_failure([_result(Outcome.OK, 1.0), late, first, _result(Outcome.NOT_STARTED)]) is first
    assert first_failure([_result(Outcome.OK, 1.0), _result(Outcome.NOT_STARTED)]) is None


@pytest.mark.parametrize(
    ("outcomes", "interrupted", "code"),
    [
        ([Outcome.OK], False, ExitCode.OK),
        ([Outcome.OK, Outcome.FAILED], False, ExitCode.COMMAND_FAILED),
        ([Outcome.SIGNALLED], False, ExitCode.COMMAND_FAILED),
        ([Outcome.FAILED, Outcome.TIMED_OUT], False, ExitCode.TIMED_OUT),
        ([Outcome.TIMED_OUT, Outcome.UNKNOWN], False, ExitCode.UNREACHABLE),
        ([Outcome.UNREACHABLE, Outcome.FAILED], False, ExitCode.UNREACHABLE),
        ([Outcome.UNREACHABLE], True, ExitCode.INTERRUPTED),
        ([Outcome.FAILED, Outcome.NOT_STARTED], False, ExitCode.COMMAND_FAILED),
    ],
)
def test_where_several_hold_the_exit_code_is_the_gravest(
    outcomes: list[Outcome], interrupted: bool, code: ExitCode
) -> None:
    assert exit_code([_result(outcome) for outcome in outcomes], interrupted=interrupted) is code
