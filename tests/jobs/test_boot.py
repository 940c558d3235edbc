"""The startup script of a production job as a real process: what it starts at each boot, and what it refuses."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backend.runs import bundles
from backend.runs.bundles import Bundle
from backend.runs.model import RunRequest
from backend.runs.startup_script import SCRIPT_LIMIT_BYTES, startup_script
from jobs.programs import boot

RUN = "20261130-120000-test"
LIMIT_S = 90.0


class Machine:
    """A home, a boot id, and the script that each boot runs."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.boot_file = folder / "boot_id"
        self.script = folder / "startup-script"
        self.reboot()

    def reboot(self) -> None:
        self.boot_file.write_text(f"{uuid.uuid4()}\n")

    def install(self, *argv: str, bundle: Bundle | None = None, setup: str = "", shell: bool = False) -> None:
        request = RunRequest(argv, bundle=bundle, setup=setup, shell=shell, environment=(("WORD", "a 'b'\n"),))
        self.script.write_text(startup_script(RUN, request, user="nobody", shown=" ".join(argv), bundle=bundle))
        self.script.chmod(0o700)

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], boot.BOOT_ID_VARIABLE: str(self.boot_file)}
        return subprocess.run(
            [sys.executable, str(self.script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def output(self, number: int) -> str:
        return (self.home / ".slicetower" / "runs" / f"{RUN}-b{number:05d}" / "output").read_text()

    def status(self, number: int) -> str:
        path = self.home / ".slicetower" / "runs" / f"{RUN}-b{number:05d}" / "status.json"
        return path.read_text() if path.exists() else ""

    def ended(self, number: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while '"exited"' not in self.status(number):
            assert time.monotonic() < deadline, self.status(number)
            time.sleep(0.01)

    @property
    def boots(self) -> list[str]:
        return sorted(path.name for path in (self.home / ".slicetower" / "runs").iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_each_boot_starts_it_once_with_words_and_values_as_they_were_given(machine: Machine) -> None:
    machine.install("sh", "-c", 'printf "%s|%s" "$1" "$WORD"', "sh", "x  'y' $HOME é")
    for number in (1, 2):
        for _ in range(2):
            assert machine.run().returncode == 0
        machine.ended(number)
        first, _, rest = machine.output(number).partition("\n")
        assert first.startswith(f"[slicetower] boot {number} of run {RUN} on ")
        assert rest == "x  'y' $HOME é|a 'b'\n"
        machine.reboot()
    assert machine.boots == [f"{RUN}-b00001", f"{RUN}-b00002"]


def test_code_and_setup_come_before_the_command_at_every_boot(machine: Machine) -> None:
    bundle = bundles.from_files({"pkg/word.txt": b"shipped\n"}, source="test")
    machine.install("cat pkg/word.txt setup.txt", bundle=bundle, setup="echo ready > setup.txt", shell=True)
    for number in (1, 2):
        assert machine.run().returncode == 0
        machine.ended(number)
        assert machine.output(number).splitlines()[1:] == ["shipped", "ready"]
        machine.reboot()


def test_a_setup_that_fails_is_told_and_the_command_is_not_started(machine: Machine) -> None:
    machine.install("touch", "started", setup="echo trouble; exit 9")
    assert machine.run().returncode == 0
    machine.ended(1)
    assert machine.output(1).splitlines()[1:] == [
        "trouble",
        "[slicetower] setup ended with 9: the command is not started",
    ]
    assert '"exit_code": 9' in machine.status(1)
    assert not (machine.home / "started").exists()


def test_a_program_that_is_not_there_ends_with_127(machine: Machine) -> None:
    machine.install("no-such-program")
    machine.run()
    machine.ended(1)
    assert "no-such-program: No such file" in machine.output(1)
    assert '"exit_code": 127' in machine.status(1)


def test_damaged_code_is_never_run(machine: Machine) -> None:
    bundle = bundles.from_files({"go.sh": b"touch ran\n"}, source="test")
    machine.install("sh", "go.sh", bundle=replace(bundle, digest="0" * 64))
    machine.run()
    machine.ended(1)
    assert "it arrived damaged" in machine.output(1)
    assert '"exit_code": 1' in machine.status(1)


def test_a_boot_that_died_before_its_status_is_passed_over(machine: Machine) -> None:
    machine.install("true")
    (machine.home / ".slicetower" / "runs" / f"{RUN}-b00001").mkdir(parents=True)
    assert machine.run().returncode == 0
    machine.ended(2)


def test_the_script_fits_into_a_metadata_value_with_room_for_code(machine: Machine) -> None:
    machine.install("true")
    assert machine.script.stat().st_size < SCRIPT_LIMIT_BYTES / 4


@pytest.mark.parametrize("exists", [True, False])
def test_a_script_without_a_home_becomes_the_operators_user(monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    """The calls alone: a test must not make users."""
    calls: list[tuple[object, ...]] = []
    known = [exists]
    account = pwd.struct_passwd(("alice", "x", 1234, 5678, "", "/home/alice", "/bin/bash"))

    def look_up(name: str) -> pwd.struct_passwd:
        if not known[0]:
            raise KeyError(name)
        return account

    def run(command: list[str], *, check: bool) -> None:
        calls.append(tuple(command))
        known[0] = True

    def record(name: str) -> Callable[..., None]:
        return lambda *values: calls.append((name, *values))

    for name in ("initgroups", "setgid", "setuid", "chdir"):
        monkeypatch.setattr(os, name, record(name))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", look_up)
    monkeypatch.setattr(subprocess, "run", run)
    for name in ("HOME", "USER", "LOGNAME", "SHELL"):
        monkeypatch.setenv(name, "")
    boot.become("alice")
    made = [] if exists else [("useradd", "--create-home", "--shell", "/bin/bash", "alice")]
    assert calls == [
        *made,
        ("initgroups", "alice", 5678),
        ("setgid", 5678),
        ("setuid", 1234),
        ("chdir", "/home/alice"),
    ]
    assert (os.environ["HOME"], os.environ["USER"]) == ("/home/alice", "alice")
