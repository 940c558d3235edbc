"""`slicetower bench read`: step times and throughput out of any training log: a file, standard input, or a run's logs."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from backend.sanitize import LineSplitter, plain
from jobs.accelerators import UnknownAccelerator, parse
from jobs.readings import Reading, ReadingParser
from jobs.statistics import Distribution, Statistics, statistics
from tui.cli.output import add_format, print_json, print_table

BLOCK_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads the step lines of MaxText, MaxDiffusion, shardings.py, Levanter, tqdm, Pax, axlearn, torch_xla, TensorFlow"
        " and of our own programs; first steps and values above the peak are set aside and counted."
    )
    parser.add_argument(
        "sources", nargs="+", metavar="FILE|RUN|-", help="a log file, the id of a run, or standard input"
    )
    parser.add_argument(
        "--pattern", metavar="RE", help="named groups: step, seconds, milliseconds, tflops, tokens, loss"
    )
    parser.add_argument("--accelerator-type", metavar="TYPE", help="for the peak, and so the MFU")
    parser.add_argument("--peak_tflops", type=float, metavar="T", help="per device, instead of the catalogue's")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    peak = _peak(arguments)
    rows = []
    for name, blocks in _sources(arguments.sources):
        try:
            parser = ReadingParser(peak, arguments.pattern)
        except ValueError as error:
            raise OperatorError(f"--pattern: {error}.") from error
        readings = list(_readings(blocks, parser))
        figures = statistics(readings, peak)
        if arguments.format == "json":
            for reading in readings:
                print_json(_reading(name, reading))
            print_json({"summary": {"source": name, **_facts(figures, readings)}})
        rows.append(_row(name, figures, readings))
        if figures.error:
            print(f"slicetower: {plain(name)}: {figures.error}", file=sys.stderr)
    if arguments.format == "table":
        headers = [
            "LOG",
            "KIND",
            "STEPS",
            "LAST STEP",
            "SECONDS",
            "10 %",
            "90 %",
            "TFLOP/S/DEVICE",
            "MFU",
            "TOKENS/S/DEVICE",
        ]
        print_table([*headers, "LAST LOSS", "SET ASIDE"], rows)
    return ExitCode.OK


def _peak(arguments: argparse.Namespace) -> float | None:
    if arguments.peak_tflops is not None:
        return float(arguments.peak_tflops)
    if arguments.accelerator_type is None:
        return None
    try:
        return parse(arguments.accelerator_type).generation.peak_bf16_tflops_per_device
    except UnknownAccelerator as error:
        raise OperatorError(str(error)) from error


def _folder_of(name: str) -> Path | None:
    """Of a run's logs, by its id or by `last`."""
    if Path(name).name != name:
        return None
    if name != "last":
        return paths().runs_dir / name
    runs = [each.name for each in paths().runs_dir.glob("*") if each.is_dir()]
    return paths().runs_dir / max(runs) if runs else None


def _sources(names: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    for name in names:
        folder = _folder_of(name)
        if name == "-":
            yield "stdin", iter(lambda: os.read(sys.stdin.fileno(), BLOCK_BYTES), b"")
        elif Path(name).is_file():
            yield name, _blocks(Path(name))
        elif folder is not None and folder.is_dir():
            logs = sorted(folder.glob("*.log"))
            if not logs:
                raise OperatorError(f"Run {plain(name)} has no logs.", "`slicetower runs list` shows what there is.")
            for log in logs:
                yield log.stem, _blocks(log)
        else:
            raise OperatorError(
                f"There is no file and no run {plain(name)}.", "`slicetower runs list` shows the runs."
            )


def _blocks(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            while block := opened.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise OperatorError(f"{plain(str(file))} can't be read: {error.strerror}.") from error


def _readings(blocks: Iterator[bytes], parser: ReadingParser) -> Iterator[Reading]:
    splitter = LineSplitter()
    for block in blocks:
        for line in splitter.feed(block):
            yield from parser.feed(line.decode("utf-8", errors="replace"))
    rest = splitter.flush()
    if rest is not None:
        yield from parser.feed(rest.decode("utf-8", errors="replace"))


def _reading(name: str, reading: Reading) -> dict[str, object]:
    """JSON knows no NaN: a loss that is none is null, and the table shows it."""
    told: dict[str, object] = {"source": name, "kind": reading.source, "extra": _finite(reading.extra)}
    figures = {
        each: getattr(reading, each)
        for each in ("step", "step_time_s", "tflops_per_device", "tokens_per_device", "loss")
    }
    return {**told, **_finite(figures), "set_aside": reading.set_aside}


def _finite(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value if value is not None and math.isfinite(value) else None for name, value in figures.items()}


def _facts(figures: Statistics, readings: list[Reading]) -> dict[str, object]:
    return {
        "readings": len(readings),
        "counted": figures.counted,
        "set_aside": dict(figures.set_aside),
        "step_time_s": _spread(figures.step_time_s),
        "tflops_per_device": _spread(figures.tflops_per_device),
        "tokens_per_device": _spread(figures.tokens_per_device),
        "mfu": figures.mfu,
        "error": figures.error,
    }


def _spread(told: Distribution | None) -> dict[str, float] | None:
    return None if told is None else asdict(told)


def _row(name: str, figures: Statistics, readings: list[Reading]) -> list[object]:
    kinds = Counter(reading.source for reading in readings)
    times, rates, tokens = figures.step_time_s, figures.tflops_per_device, figures.tokens_per_device
    steps = [reading.step for reading in readings if reading.step is not None]
    losses = [reading.loss for reading in readings if reading.loss is not None]
    return [
        name,
        "+".join(kind for kind, _ in kinds.most_common()),
        figures.counted,
        steps[-1] if steps else "",
        f"{times.median:.4g}" if times else "",
        f"{times.p10:.4g}" if times else "",
        f"{times.p90:.4g}" if times else "",
        f"{rates.median:.4g}" if rates else "",
        f"{figures.mfu:.1%}" if figures.mfu is not None else "",
        f"{tokens.median:.4g}" if tokens else "",
        f"{losses[-1]:.4g}" if losses else "",
        ", ".join(f"{count} {reason}" for reason, count in figures.set_aside.items()),
    ]
