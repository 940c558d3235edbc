"""Ctrl-C of `slicetower run` in a real pseudo-terminal: the question, each of its answers, and the terminal afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment
from tests.tui.test_cli_run import holding, wait_for

BOUND_S = 120.0
CTRL_C = "\x03"


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    """train-a has 2 slices of 4 workers."""
    return simulators(seed=3)


def _take_terminal(*, nohup: bool) -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Said either way: the tests themselves may run under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)


class Terminal:
    """`slicetower ...` as the foreground job of a terminal of its own."""

    def __init__(self, sim: Simulator, *arguments: str, nohup: bool = False) -> None:
        self.master, self.slave = pty.openpty()
        self.before: list[Any] = termios.tcgetattr(self.slave)
        self.text = ""
        self.process = subprocess.Popen(
            [
                *(["env", "--ignore-signal=HUP"] if nohup else []),
                sys.executable,
                "-m",
                "tui.cli.main",
                "--context-file",
                str(sim.context_file),
                *arguments,
            ],
            cwd=ROOT,
            env=own_environment(sim.directory),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=partial(_take_terminal, nohup=nohup),
        )

    def read(self, seconds: float) -> None:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            self.text += os.read(self.master, 65536).decode("utf-8", "replace")

    def shows(self, words: str) -> str:
        """Waits until the words have come since the last wait, and returns what came before them."""
        ends_at = time.monotonic() + BOUND_S
        while words not in self.text:
            assert time.monotonic() < ends_at, f"never came: {words!r} in {self.text!r}"
            self.read(0.1)
        before, _, self.text = self.text.partition(words)
        return before

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ends(self) -> int:
        ends_at = time.monotonic() + BOUND_S
        while self.process.poll() is None:
            assert time.monotonic() < ends_at, f"never ended: {self.text!r}"
            self.read(0.1)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is given back as it was"
        return self.process.returncode

    def hang_up(self) -> None:
        """Closes the terminal, as its window does; the kernel sends SIGHUP."""
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(BOUND_S)
        if self.master >= 0:
            os.close(self.master)
            os.close(self.slave)


@pytest.fixture
def terminals(sim: Simulator) -> Iterator[Any]:
    made: list[Terminal] = []

    def start(*arguments: str, nohup: bool = False) -> Terminal:
        made.append(Terminal(sim, *arguments, nohup=nohup))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_the_first_ctrl_c_asks_and_the_second_stops_and_confirms(terminals: Any) -> None:
    mark = "611.25"
    terminal = terminals("run", "train-a", "--batch-size", "4", "--", "sleep", mark)
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    terminal.press(CTRL_C)
    terminal.shows("interrupted: 4 running, 0 done, 4 not reached")
    terminal.shows("s stop launching")
    assert "d detach" not in terminal.shows("(not started with --detach: it ends with this console)")
    terminal.shows("go on")
    assert "d detach" not in terminal.text, "nothing would hear a run that is tied to this console"
    assert len(holding(mark)) == 4, "asking stops nothing"
    terminal.press(CTRL_C)
    terminal.shows("stopped, confirmed: train-a/0/0-3")
    assert terminal.ends() == 130
    assert not holding(mark)


def test_k_stops_too(terminals: Any) -> None:
    mark = "612.25"
    terminal = terminals("run", "train-a/0", "--", "sleep", mark)
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    terminal.press(CTRL_C)
    terminal.shows("4 running, 0 done, 0 not reached")
    terminal.press("k")
    terminal.shows("stopped, confirmed: train-a/0/0-3")
    assert terminal.ends() == 130
    assert not holding(mark)


def test_s_starts_nothing_more_and_lets_the_rest_end(terminals: Any, tmp_path: Path) -> None:
    until = f"echo begun; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    terminal = terminals("run", "train-a", "--batch-size", "3", "--stream", "--", "sh", "-c", until)
    for _ in range(3):
        terminal.shows("begun")
    terminal.press(CTRL_C)
    terminal.shows("3 running, 0 done, 5 not reached")
    terminal.shows("go on")
    terminal.press("s")
    terminal.shows("starts nothing more")
    (tmp_path / "go").touch()
    terminal.shows("5 not_started, 3 ok")
    assert terminal.ends() == 130, "not everything that was asked for was done"


def test_any_other_key_goes_on_and_ctrl_c_asks_again(terminals: Any, tmp_path: Path) -> None:
    until = f"echo begun; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    terminal = terminals("run", "train-a/0", "--stream", "--", "sh", "-c", until)
    for _ in range(4):
        terminal.shows("begun")
    for key in ("x", "d", "s", "\r"):
        terminal.press(CTRL_C)
        terminal.shows("any other key: go on")
        terminal.press(key)
        terminal.shows("slicetower: goes on")
    (tmp_path / "go").touch()
    terminal.shows("4 ok")
    assert terminal.ends() == 0


def test_d_leaves_a_supervised_run_to_its_workers(sim: Simulator, terminals: Any) -> None:
    mark = "613.25"
    terminal = terminals("run", "train-a", "--detach", "--batch-size", "4", "--", "sleep", mark)
    terminal.shows("slicetower: run ")
    run = terminal.shows(" on 8 workers")
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    terminal.press(CTRL_C)
    terminal.shows("4 not reached")
    terminal.shows("d detach")
    terminal.press("d")
    terminal.shows("goes on without us")
    assert terminal.ends() == 0
    assert len(holding(mark)) == 4
    assert sim.cli("runs", "stop", run, "--grace", "0.5").returncode == 0
    assert not holding(mark)


def test_a_polite_kill_stops_without_a_question(terminals: Any) -> None:
    mark = "614.25"
    terminal = terminals("run", "train-a/0", "--", "sleep", mark)
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.shows("stopped, confirmed")
    assert terminal.ends() == 130
    assert not holding(mark)


@pytest.mark.parametrize("asks", [False, True])
def test_a_closed_terminal_leaves_no_tied_process_on_the_workers(terminals: Any, asks: bool) -> None:
    mark = f"617.{asks:d}25"
    terminal = terminals("run", "train-a/0", "--", "sleep", mark)
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    if asks:
        terminal.press(CTRL_C)
        terminal.shows("go on")
    terminal.hang_up()
    assert terminal.process.wait(BOUND_S) == 130
    assert not holding(mark)


def test_under_nohup_a_closed_terminal_changes_nothing(terminals: Any, tmp_path: Path) -> None:
    until = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    terminal = terminals("run", "train-a/0/0", "--", "sh", "-c", until, "mark-619", nohup=True)
    wait_for(lambda: bool(holding("mark-619")), "a remote process")
    terminal.process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    terminal.shows("1 ok")
    assert terminal.ends() == 0
