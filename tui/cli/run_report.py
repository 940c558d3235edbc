"""How a run is told on the command line: JSON lines, grouped output, live lines with prefixes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.diagnosis.grouping import OUTPUT_LIMIT, WorkerOutput, differences, group, reference
from backend.outcomes import Outcome
from backend.runs.attribution import Verdict, last_lines, of_run, tail
from backend.runs.fanout import WorkerResult
from backend.runs.live import Run
from backend.runs.model import StopReport
from backend.sanitize import LineSplitter, plain, plain_text
from backend.targets import fold
from tui.cli.output import print_json, timestamp
from tui.cli.symptoms import symptoms_json


def tail_of(path: Path, limit: int = OUTPUT_LIMIT) -> tuple[bytes, bool]:
    """The end of a log file, and whether it has more."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - limit))
            return stream.read(limit), size > limit
    except FileNotFoundError:
        return b"", False


def whole_lines_of(path: Path) -> tuple[bytes, int]:
    """What is shown of a log: all of it, or the whole lines of its end; and how many bytes before that are left out."""
    output, more = tail_of(path)
    if not more:
        return output, 0
    begin = output.find(b"\n") + 1
    output = output[begin if begin < len(output) else 0 :]
    return output, path.stat().st_size - len(output)


def worker_json(result: WorkerResult, path: Path) -> dict[str, Any]:
    """One worker of a run, as documented for `run --format json`."""
    output, truncated = tail_of(path)
    return {
        "target": result.worker.address,
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "started_at": timestamp(result.started_at),
        "ended_at": timestamp(result.ended_at),
        "output_bytes": result.output_bytes,
        "output": plain_text(output),
        "output_truncated": truncated,
        "output_path": str(path),
        "error": result.error,
    }


def summary_json(run: Run, first: WorkerResult | None) -> dict[str, Any]:
    return {
        "run": run.id,
        "summary": {str(outcome): count for outcome, count in sorted(run.summary.items())},
        "first_failure": None
        if first is None
        else {**failure_json(first), "last_lines": list(last_words(first, run.log_path(run.results.index(first))))},
        "state": run.state,
        "verdict": verdict_json(of_run(run)),
        "symptoms": symptoms_json(run.symptoms),
    }


def verdict_json(verdict: Verdict | None) -> dict[str, Any] | None:
    """Who broke the run, and why; None when nothing did or nothing is known."""
    if verdict is None:
        return None
    return {
        "culprit": verdict.culprit,
        "workers": list(verdict.workers),
        "signature": verdict.finding.id if verdict.finding is not None else None,
        "what": verdict.what,
        "why": verdict.why,
        "cure": verdict.cure,
        "last_lines": list(verdict.last_lines),
        "symptoms": [{"workers": list(each.workers), "what": each.what} for each in verdict.symptoms],
    }


def verdict_lines(verdict: Verdict) -> list[str]:
    """For people: the culprit, its last words, the cure, and what followed from it."""
    lines = [f"verdict   {verdict.text}"]
    lines += [f"          | {line}" for line in verdict.last_lines]
    if verdict.cure:
        lines.append(f"cure      {verdict.cure}")
    lines += [f"follows   {each.text}" for each in verdict.symptoms]
    return lines


def last_words(result: WorkerResult, log: Path) -> tuple[str, ...]:
    """The last lines of one that failed; nothing of one that printed nothing."""
    return last_lines(tail(log)) if result.output_bytes else ()


def failure_json(result: WorkerResult) -> dict[str, Any]:
    return {
        "target": result.worker.address,
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "ended_at": timestamp(result.ended_at),
        "error": result.error,
    }


def how(result: WorkerResult) -> str:
    """`failed (3)`, `signalled (KILL)`, `ok`."""
    detail = result.signal if result.outcome is Outcome.SIGNALLED else result.exit_code
    shown = result.outcome in (Outcome.FAILED, Outcome.SIGNALLED) and detail is not None
    return f"{result.outcome} ({detail})" if shown else str(result.outcome)


def counts(summary: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.items())) or "nothing"


def print_groups(run: Run) -> None:
    """Identical output once, under the workers that printed it."""
    outputs: list[WorkerOutput] = []
    left_out: dict[str, int] = {}
    for index, item in enumerate(run.results):
        shown, left_out[item.worker.address] = whole_lines_of(run.log_path(index))
        outputs.append(WorkerOutput(item.worker.address, item.outcome, item.exit_code, shown))
    groups = group(outputs)
    rule, differ = reference(groups), differences(groups)
    for each in groups:
        print(f"--- {each.header} ---")
        most = max(left_out[address] for address in each.addresses)
        if most:
            print(
                f"[{most} bytes before this are not shown nor compared: slicetower logs {run.id} {each.addresses[0]}]"
            )
        if each.text:
            print(each.text)
        if rule is not None and each in differ:
            print(f"    differs from {fold(rule.addresses)} (-) in:")
            print("\n".join(f"    {line}" for line in differ[each]))
        for error in dict.fromkeys(item.error for item in run.results if item.worker.address in each.addresses):
            if error:
                print(f"    {plain(error)}")
    sys.stdout.flush()


def print_ending(run: Run) -> None:
    """The verdict on stderr: counts, and who failed first."""
    print(f"slicetower: run {run.id}: {counts(run.summary)}", file=sys.stderr)
    print_unrecorded(run)
    first = run.first_failure
    if first is not None and len(run.results) > 1:
        why = f": {plain(first.error)}" if first.error else ""
        print(f"  first in time: {first.worker.address} {how(first)}{why}", file=sys.stderr)
        for line in last_words(first, run.log_path(run.results.index(first))):
            print(f"    | {line}", file=sys.stderr)
    verdict = of_run(run) if first is not None else None
    if verdict is not None:
        print(f"  verdict: {verdict.text}", file=sys.stderr)
        if verdict.cure:
            print(f"    {verdict.cure}", file=sys.stderr)


def print_unrecorded(run: Run) -> None:
    """On stderr, that `runs show` will not know what was just told."""
    if run.unrecorded:
        print(f"slicetower: warning: run {run.id} is not recorded: {plain(run.unrecorded)}", file=sys.stderr)


def print_stop(report: StopReport) -> None:
    """What became of the remote processes, on stderr."""
    if report.stopped:
        print(f"slicetower: stopped, confirmed: {fold(report.stopped)}", file=sys.stderr)
    for address, pids in report.survivors:
        print(f"slicetower: {address}: still there: {', '.join(map(str, pids))}", file=sys.stderr)
    for address, why in report.unverified:
        print(f"slicetower: {address}: not confirmed: {plain(why)}", file=sys.stderr)


class LiveLines:
    """Prints what is new in the logs of a run, line by line, with the worker before each line when there are several.

    Reads the files, not the ring: a flood is printed whole, in blocks.
    """

    BLOCK = 256 * 1024

    def __init__(
        self,
        run: Run,
        *,
        raw: bool = False,
        prefixes: bool | None = None,
        places: Sequence[int] | None = None,
        pattern: re.Pattern[bytes] | None = None,
    ) -> None:
        self._run = run
        self._shown = range(len(run.results)) if places is None else places
        self._pattern = pattern
        self._raw = raw
        self._prefixes = len(run.results) > 1 if prefixes is None else prefixes
        self._places = [0] * len(run.results)
        self._splitters = [LineSplitter() for _ in run.results]

    def pump(self) -> None:
        """Prints everything that has come since the last call."""
        for index in self._shown:
            path = self._run.log_path(index)
            try:
                if path.stat().st_size == self._places[index]:
                    continue
                with path.open("rb") as stream:
                    stream.seek(self._places[index])
                    while data := stream.read(self.BLOCK):
                        self._places[index] += len(data)
                        self._print(index, data)
            except FileNotFoundError:
                continue
        sys.stdout.flush()

    def finish(self) -> None:
        """Prints the rest, lines without an end too."""
        self.pump()
        for index in self._shown:
            rest = self._splitters[index].flush()
            if rest is not None:
                self._line(index, rest)
        sys.stdout.flush()

    def _print(self, index: int, data: bytes) -> None:
        if self._raw and not self._prefixes and self._pattern is None:
            sys.stdout.buffer.write(data)
            return
        for line in self._splitters[index].feed(data):
            self._line(index, line)

    def _line(self, index: int, line: bytes) -> None:
        if self._pattern is not None and not self._pattern.search(line):
            return
        prefix = f"{self._run.workers[index].address}: " if self._prefixes else ""
        if self._raw:
            sys.stdout.buffer.write(prefix.encode() + line + b"\n")
        else:
            sys.stdout.write(f"{prefix}{plain(line)}\n")


def print_worker_json(run: Run, index: int) -> None:
    print_json(worker_json(run.results[index], run.log_path(index)))
