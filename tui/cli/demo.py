"""`slicetower demo`: the console on a simulated Cloud TPU, which is another process and ends with this one."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from backend.outcomes import ExitCode, OperatorError

READY_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0
KILL_LIMIT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, metavar="DIR", help="the simulator's folder (default: a temporary one)")
    parser.add_argument("--scenario", default="default", metavar="S", help="as `sim serve` takes it")
    parser.add_argument("--speed", type=float, metavar="X", help="as `sim serve` takes it")
    parser.add_argument("--seed", type=int, metavar="N", help="as `sim serve` takes it")


def main(arguments: argparse.Namespace) -> int:
    from tui.cli import console

    with contextlib.ExitStack() as stack:
        stack.enter_context(signals_as_exits())
        if arguments.dir is None:
            made = tempfile.TemporaryDirectory(prefix="slicetower-demo-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(made))
        else:
            directory = arguments.dir
        # The simulated past stays with its world, out of the journal and the runs of the real one.
        os.environ["XDG_STATE_HOME"] = str(directory.absolute() / "state")
        options = ["--scenario", arguments.scenario]
        for name in ("speed", "seed"):
            if getattr(arguments, name) is not None:
                options += [f"--{name}", str(getattr(arguments, name))]
        context_file = stack.enter_context(simulator(directory, options))
        parser = argparse.ArgumentParser()
        console.add_arguments(parser)
        opened = parser.parse_args([])
        opened.context, opened.context_file, opened.read_only = None, str(context_file), arguments.read_only
        return int(console.main(opened))


@contextlib.contextmanager
def signals_as_exits() -> Iterator[None]:
    """Inside, a closed terminal (SIGHUP) and SIGTERM unwind like an exit: the simulator and its folder go too."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def simulator(directory: Path, options: list[str]) -> Iterator[Path]:
    """Runs `sim serve` and gives its context file; at the end it is stopped and awaited.

    Raises:
        OperatorError: It did not become ready.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = directory / "simulator.log"
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, "-m", "tui.cli.main", "sim", "serve", "--dir", str(directory)]
    command += ["--exit-with-parent", str(os.getpid())]
    with open(log, "w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    try:
        yield _context_file(process, log)
    finally:
        _stop(process)


def _context_file(process: subprocess.Popen[bytes], log: Path) -> Path:
    assert process.stdout is not None
    deadline = time.monotonic() + READY_LIMIT_S
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise OperatorError(f"The simulator was not ready after {READY_LIMIT_S:.0f} s.", f"See {log}.")
            part = os.read(process.stdout.fileno(), 65536)
            if not part:
                said = log.read_text("utf-8", "replace").strip()
                if process.wait(STOP_LIMIT_S) == ExitCode.USAGE:
                    what, _, cure = said.removeprefix("slicetower: ").partition("\n")
                    raise OperatorError(what, cure.strip())
                raise OperatorError(
                    f"The simulator ended before it was ready: {said or 'it said nothing'}",
                    exit_code=ExitCode.UNREACHABLE,
                )
            line += part
    return Path(json.loads(line)["context_file"])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(KILL_LIMIT_S)
    if process.stdout is not None:
        process.stdout.close()
