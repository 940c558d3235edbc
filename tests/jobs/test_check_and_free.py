"""`check` sees what is there and `free` ends it: real processes that hold real files below a root folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.supervised import BOUND_S, PROGRAM, alive, until

PROGRAMS = PROGRAM.parent
HOLD = """
import fcntl, mmap, os, signal, sys, time
how, path = sys.argv[1:3]
if "stubborn" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = open(path, "r+b")
if "lock" in how:
    fcntl.flock(file, fcntl.LOCK_EX)
if "posix" in how:
    fcntl.lockf(file, fcntl.LOCK_EX)
if "map" in how:
    view = mmap.mmap(file.fileno(), 4096)
    file.close()
print("held", flush=True)
time.sleep(600)
"""


class Chips:
    """A root folder with device nodes, and processes that hold them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[bytes]] = []
        for folder in ("dev/vfio", "tmp", "var/lib/dpkg"):
            (root / folder).mkdir(parents=True)

    def node(self, name: str) -> Path:
        path = self.root / "dev" / name
        path.write_bytes(bytes(4096))
        return path

    def hold(self, path: Path, how: str = "") -> int:
        program = self.root / "hold.py"
        program.write_text(HOLD)
        process = subprocess.Popen(
            [sys.executable, "-S", str(program), how, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process.pid

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()

    @property
    def lockfile(self) -> Path:
        return self.root / "tmp" / "libtpu_lockfile"

    def run(
        self, program: str, *arguments: str, code: int = 0, environment: dict[str, str] | None = None
    ) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / program), "--root", str(self.root), *arguments],
            capture_output=True,
            timeout=BOUND_S,
            env={**os.environ, **(environment or {})},
        )
        assert not done.stderr, done.stderr.decode()
        assert done.returncode == code, done.stdout
        (line,) = done.stdout.splitlines()
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def chips(tmp_path: Path) -> Iterator[Chips]:
    made = Chips(tmp_path / "root")
    yield made
    made.end()


def test_nodes_are_counted_in_numeric_order_without_the_drivers_own(chips: Chips) -> None:
    for name in ("accel10", "accel2", "accel0", "accelerated"):
        chips.node(name)
    assert [Path(path).name for path in chips.run("check.py")["devices"]["nodes"]] == ["accel0", "accel2", "accel10"]
    for name in ("vfio/vfio", "vfio/1", "vfio/0"):
        chips.node(name)
    facts = chips.run("check.py")["devices"]
    assert [Path(path).name for path in facts["nodes"][3:]] == ["0", "1"]
    assert facts["count"] == 5


@pytest.mark.parametrize("how", ["", "map"])
def test_holder_is_told_with_command_user_and_age(chips: Chips, how: str) -> None:
    node = chips.node("accel0")
    chips.node("accel1")
    link = chips.root / "another name"
    link.symlink_to(node)
    pid = chips.hold(link, how)
    (holder,) = chips.run("check.py")["devices"]["holders"]
    assert (holder["pid"], holder["nodes"]) == (pid, [str(node)])
    assert "another name" in holder["command"]
    assert holder["user"]
    assert holder["age_s"] >= 0


@pytest.mark.parametrize("how", ["", "lock", "posix"])
def test_lockfile_is_stale_only_without_a_living_owner(chips: Chips, how: str) -> None:
    assert chips.run("check.py")["lockfile"]["exists"] is False
    chips.lockfile.write_bytes(bytes(4096))
    assert chips.run("check.py")["lockfile"]["stale"] is True
    pid = chips.hold(chips.lockfile, how)
    lock = chips.run("check.py")["lockfile"]
    assert (lock["stale"], [owner["pid"] for owner in lock["owners"]]) == (False, [pid])


def test_package_lock_holder_is_named(chips: Chips) -> None:
    lock = chips.root / "var/lib/dpkg/lock-frontend"
    lock.write_bytes(bytes(4096))
    assert chips.run("check.py")["packages"]["lock_holders"] == []
    pid = chips.hold(lock, "posix")
    (holder,) = chips.run("check.py")["packages"]["lock_holders"]
    assert (holder["pid"], holder["locks"]) == (pid, ["/var/lib/dpkg/lock-frontend"])


def test_machine_facts_are_those_of_the_machine(chips: Chips) -> None:
    facts = chips.run("check.py", environment={"MEGASCALE_NUM_SLICES": "2", "HOSTNAME": "t1v-n-1-w-0"})
    assert facts["unreadable"] == {}
    assert facts["name"] == "t1v-n-1-w-0"
    assert facts["hostname"] == socket.gethostname()
    assert facts["versions"]["python"] == sys.version.split()[0]
    assert facts["versions"]["libtpu-nightly"] is None
    assert facts["boot"]["id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < facts["memory"]["available_bytes"] < facts["memory"]["bytes"]
    assert facts["disks"]
    assert all(0 <= disk["free_bytes"] <= disk["bytes"] for disk in facts["disks"])
    assert facts["multislice"]["environment"] == {"MEGASCALE_NUM_SLICES": "2"}
    assert set(facts["limits"]) == {"nofile", "memlock"}


def test_python_processes_are_counted_without_the_probe(chips: Chips) -> None:
    before = chips.run("check.py")["processes"]["python"]
    for name in ("accel0", "accel1", "accel2"):
        chips.hold(chips.node(name))
    # Others on this machine come and go: at least ours must be among them.
    until(lambda: chips.run("check.py")["processes"]["python"] >= 3)
    assert before >= 0


def test_own_boot_id_is_read_where_the_environment_names_it(chips: Chips, tmp_path: Path) -> None:
    (tmp_path / "boot").write_text("my-boot\n")
    facts = chips.run("check.py", environment={"SLICETOWER_BOOT_ID_FILE": str(tmp_path / "boot")})
    assert facts["boot"]["id"] == "my-boot"


class Metadata(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert self.headers["Metadata-Flavor"] == "Google"
        assert self.path == "/computeMetadata/v1/instance/attributes/tpu-env"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ACCELERATOR_TYPE: 'v5litepod-16'\nMEGASCALE_NUM_SLICES: '2'\nSECRET: 'x'\n")

    def log_message(self, *_: object) -> None:
        pass


def test_multislice_settings_come_from_the_metadata_server(chips: Chips) -> None:
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        facts = chips.run("check.py", environment={"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"})
    finally:
        server.shutdown()
        server.server_close()
    assert facts["multislice"]["metadata"] == {"ACCELERATOR_TYPE": "v5litepod-16", "MEGASCALE_NUM_SLICES": "2"}


def test_section_that_fails_is_said_and_costs_no_other(chips: Chips) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    facts = chips.run("check.py", environment={"GCE_METADATA_HOST": f"127.0.0.1:{port}"})
    assert facts["multislice"] is None
    assert "refused" in facts["unreadable"]["multislice"]
    assert facts["memory"]["bytes"] > 0


def test_coordinator_is_reached_or_not(chips: Chips) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert chips.run("check.py", "--coordinator", address)["coordinator"]["reachable"] is True
    refused = chips.run("check.py", "--coordinator", address)["coordinator"]
    assert refused["reachable"] is False
    assert "refused" in refused["error"]
    assert chips.run("check.py", "--coordinator", "nonsense")["coordinator"]["reachable"] is False


def test_free_ends_holders_then_removes_the_lockfile(chips: Chips) -> None:
    chips.lockfile.write_bytes(bytes(4096))
    polite = chips.hold(chips.node("accel0"))
    stubborn = chips.hold(chips.node("accel1"), "stubborn")
    bystander = chips.hold(chips.node("not-a-chip"))
    facts = chips.run("free.py", "--grace", "0.3")
    assert (facts["free"], facts["terminated"], facts["killed"]) == (True, [polite], [stubborn])
    assert facts["holders_after"] == []
    assert facts["lockfile"]["removed"] is True
    assert not chips.lockfile.exists()
    assert not alive(polite)
    assert not alive(stubborn)
    assert alive(bystander)


def test_free_removes_a_stale_lockfile_when_nobody_holds_a_chip(chips: Chips) -> None:
    chips.node("accel0")
    chips.lockfile.touch()
    assert chips.run("free.py")["lockfile"]["removed"] is True


def test_free_keeps_the_lockfile_of_a_process_that_it_may_not_end(chips: Chips) -> None:
    """Its owner holds no chip, so it is nobody whom free would stop."""
    chips.lockfile.write_bytes(bytes(4096))
    owner = chips.hold(chips.lockfile, "lock")
    facts = chips.run("free.py", "--grace", "0", code=1)
    assert (facts["free"], facts["lockfile"]["removed"]) == (False, False)
    assert [found["pid"] for found in facts["lockfile"]["owners"]] == [owner]
    assert alive(owner)


def test_dry_run_changes_nothing(chips: Chips) -> None:
    chips.lockfile.write_bytes(bytes(4096))
    pid = chips.hold(chips.node("accel0"))
    facts = chips.run("free.py", "--dry-run")
    assert (facts["would_stop"], facts["would_remove_lockfile"], facts["free"]) == ([pid], True, False)
    assert alive(pid)
    assert chips.lockfile.exists()


def test_free_spares_itself_and_its_parents(chips: Chips) -> None:
    """A shell that holds a node and asks for it to be freed is told, not killed."""
    node = chips.node("accel0")
    shell = 'exec 9<>"$1"; shift; "$@"; echo status=$?'
    command = [sys.executable, str(PROGRAMS / "free.py"), "--root", str(chips.root), "--grace", "0.1"]
    done = subprocess.run(["sh", "-c", shell, "sh", str(node), *command], capture_output=True, timeout=BOUND_S)
    answer, status = done.stdout.splitlines()
    assert status == b"status=1"
    assert json.loads(answer)["free"] is False


def test_free_runs_as_a_module_of_the_package(chips: Chips) -> None:
    command = [sys.executable, "-m", "jobs.programs.free", "--root", str(chips.root)]
    done = subprocess.run(command, capture_output=True, cwd=PROGRAMS.parents[1], timeout=BOUND_S)
    assert json.loads(done.stdout)["free"] is True
