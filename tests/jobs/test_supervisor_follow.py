"""Following a run: no byte lost, none twice, through cuts, rotation, two readers, and on a full disk."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.programs import supervisor
from tests.jobs.supervised import BOUND_S, Worker, until, worker

WRITER = r"""
import os, sys, time
count, gate = int(sys.argv[1]), os.path.expanduser("~/gate")
for number in range(count):
    # Torn writes: half a line, and half a letter, at a time.
    line = ("line %d \u00e9\u00e9 %s\n" % (number, "x" * (number % 90))).encode()
    os.write(1, line[:9]); os.write(1, line[9:])
    if number % 500 == 499:
        time.sleep(0.005)
while not os.path.exists(gate):
    time.sleep(0.01)
"""


def written(count: int) -> bytes:
    return b"".join(f"line {number} \u00e9\u00e9 {'x' * (number % 90)}\n".encode() for number in range(count))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Worker]:
    with worker(tmp_path) as made:
        yield made


class Reader:
    """Follows like the console: remembers (inode, bytes) and resumes after each cut."""

    def __init__(self, here: Worker, run: str, inode: int) -> None:
        self.here, self.run, self.inode = here, run, inode
        self.data = b""
        self.ended = False

    def follow(self, limit: int | None = None) -> None:
        """Take at most `limit` bytes, then kill the follower without notice; without a limit, to the end."""
        place = ("--inode", str(self.inode), "--offset", str(len(self.data)))
        process = self.here.popen("follow", self.run, *place)
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            header = json.loads(process.stdout.readline())
            assert (header["inode"], header["offset"], header["lost"]) == (self.inode, len(self.data), False)
            while limit is None or limit > 0:
                data = process.stdout.read(limit if limit is not None and limit < 65536 else 65536)
                if not data:
                    self.ended = True
                    break
                self.data += data
                limit = None if limit is None else limit - len(data)
        finally:
            if not self.ended:
                process.send_signal(signal.SIGKILL)
            process.stdin.close()
            process.stdout.close()
            code = process.wait(BOUND_S)
        assert code == (0 if self.ended else -signal.SIGKILL)


def write_lines(here: Worker, count: int) -> Reader:
    started = here.start("r1", argv=["python3", "-c", WRITER, str(count)])
    return Reader(here, "r1", started["inode"])


def test_follower_killed_50_times_at_random_bytes_gets_each_byte_once(here: Worker) -> None:
    lines = 20_000
    expected = written(lines)
    reader = write_lines(here, lines)
    chance = random.Random(7)
    cuts = sorted(chance.randrange(1, len(expected)) for _ in range(50))
    for cut in cuts:
        reader.follow(cut - len(reader.data))
    (here.home / "gate").touch()
    reader.follow()
    assert reader.data == expected


def rotate(here: Worker, run: str = "r1") -> None:
    """As logrotate does without copytruncate: every file one number up, an empty one in its place."""
    folder = here.folder(run)
    for number in range(8, 0, -1):
        if (folder / f"output.{number}").exists():
            (folder / f"output.{number}").rename(folder / f"output.{number + 1}")
    (folder / "output").rename(folder / "output.1")
    (folder / "output").touch()


REOPENING = r"""
import os, time
home = os.path.expanduser("~")
for part in range(3):
    out = open(os.path.join(home, ".slicetower/runs/r1/output"), "ab", buffering=0)
    for number in range(2000):
        out.write(b"part %d line %d\n" % (part, number))
    while not os.path.exists(os.path.join(home, "gate%d" % part)):
        time.sleep(0.01)
"""


@pytest.mark.parametrize("cut", [False, True])
def test_follow_goes_through_rotation_and_resumes_behind_it(here: Worker, cut: bool) -> None:
    """A program that reopens its log after rotation; the reader counts on from where it began."""
    started = here.start("r1", argv=["python3", "-c", REOPENING])
    parts = [b"".join(b"part %d line %d\n" % (part, number) for number in range(2000)) for part in range(3)]
    reader = Reader(here, "r1", started["inode"])
    for part in range(2):
        if cut:
            reader.follow(len(parts[part]) - 7)
        else:
            until(lambda part=part: here.output("r1") == parts[part], "the part")  # type: ignore[misc]
        rotate(here)
        (here.home / f"gate{part}").touch()
    (here.home / "gate2").touch()
    reader.follow()
    assert reader.data == b"".join(parts)


def test_follow_that_is_connected_during_a_rotation_sees_both_files(here: Worker) -> None:
    started = here.start("r1", argv=["python3", "-c", REOPENING])
    parts = [b"".join(b"part %d line %d\n" % (part, number) for number in range(2000)) for part in range(3)]
    process = here.popen("follow", "r1", "--inode", str(started["inode"]))
    assert process.stdout is not None
    process.stdout.readline()
    for part in range(3):
        assert process.stdout.read(len(parts[part])) == parts[part]
        if part < 2:
            rotate(here)
        (here.home / f"gate{part}").touch()
    assert process.stdout.read() == b""
    process.communicate()
    assert process.returncode == 0


def test_program_that_keeps_the_rotated_file_is_still_followed(here: Worker) -> None:
    """It never reopens: the new file stays empty, and the old one grows on after the follower has seen both."""
    here.start("r1", "echo before; until [ -e ~/gate ]; do sleep 0.01; done; echo after")
    process = here.popen("follow", "r1")
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdout.readline() == b"before\n"
    rotate(here)
    fresh = str(here.folder("r1") / "output")
    links = Path(f"/proc/{process.pid}/fd")
    until(lambda: fresh in [os.readlink(link) for link in links.iterdir()], "the follower to open the new file")
    (here.home / "gate").touch()
    assert process.stdout.read() == b"after\n"
    process.communicate()


LATE = """
import os, sys
sys.path.insert(0, sys.argv[1])
import supervisor

def ended(watch):
    with open(os.path.join(supervisor.run_folder("r1"), "output"), "ab") as output:
        output.write(b"last\\n" if not late else b"")
    late.append(1)
    return True

late = []
supervisor.Watch.ended = ended
sys.exit(supervisor.follow("r1", None, 0))
"""


def test_bytes_written_between_the_last_read_and_the_end_are_sent(here: Worker) -> None:
    here.start("r1", "echo first; sleep 600")
    until(lambda: here.output("r1") == b"first\n")
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(Path(supervisor.__file__).parent)],
        env=here.environment,
        capture_output=True,
        timeout=BOUND_S,
    )
    assert done.stdout.partition(b"\n")[2] == b"first\nlast\n"


@pytest.mark.parametrize("how", ["truncated", "replaced"])
def test_what_cannot_be_resumed_is_said_to_be_lost(here: Worker, how: str) -> None:
    reader = write_lines(here, 1000)
    reader.follow(5000)
    output = here.folder("r1") / "output"
    if how == "truncated":
        until(lambda: len(here.output("r1")) == len(written(1000)), "all lines")
        os.truncate(output, 0)
    else:
        output.rename(here.home / "kept elsewhere")
        output.write_bytes(b"new\n")
    (here.home / "gate").touch()
    here.ended("r1")
    header, data = here.follow("r1", "--inode", str(reader.inode), "--offset", str(len(reader.data)))
    assert header["lost"] is True
    assert (header["offset"], data) == (0, output.read_bytes())


def test_follow_stops_when_its_file_shrinks_under_it(here: Worker) -> None:
    write_lines(here, 1000)
    process = here.popen("follow", "r1")
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdout.read(len(written(1000))) == written(1000)
    os.truncate(here.folder("r1") / "output", 3)
    assert process.stdout.read() == b""
    process.communicate()
    assert process.returncode == supervisor.TRUNCATED


def test_two_followers_both_get_all(here: Worker) -> None:
    write_lines(here, 5000)
    followers = [here.popen("follow", "r1") for _ in range(2)]
    (here.home / "gate").touch()
    for follower in followers:
        assert follower.communicate(timeout=BOUND_S)[0].partition(b"\n")[2] == written(5000)


def test_follow_ends_when_its_reader_has_gone_although_nothing_is_written(here: Worker) -> None:
    here.start("r1", "sleep 600")
    process = here.popen("follow", "r1")
    assert process.stdout is not None
    header = json.loads(process.stdout.readline())
    assert (header["state"], header["size"]) == ("running", 0)
    process.stdout.close()
    assert process.wait(BOUND_S) == 0


def test_follow_waits_for_a_start_that_waits(here: Worker) -> None:
    here.start("r1", "echo go", wait_for="ready")
    process = here.popen("follow", "r1")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["state"] == "starting"
    (here.home / "ready").touch()
    assert process.stdout.read() == b"go\n"
    process.communicate()


def test_follow_of_a_lost_run_sends_what_there_is_and_ends(here: Worker) -> None:
    here.start("r1", "echo before; sleep 600")
    until(lambda: here.output("r1") == b"before\n")
    here.reboot("boot-2")
    header, data = here.follow("r1")
    assert (header["state"], data) == ("lost", b"before\n")


def test_follow_of_nothing_is_an_error(here: Worker) -> None:
    assert "no such run" in here.say("follow", "nothing", code=1)["error"]


def test_binary_output_arrives_as_it_is(here: Worker) -> None:
    here.start("r1", argv=["python3", "-c", "import os; os.write(1, bytes(range(256)) * 4000)"])
    assert here.follow("r1")[1] == bytes(range(256)) * 4000


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_status_is_written_in_blocks_that_it_has_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an overwrite of existing blocks works, as on a full disk: no new block for any file."""
    file = supervisor.StatusFile(str(tmp_path))
    file.allocate()
    file.write({"state": "starting"})
    real = os.pwrite

    def write_existing(descriptor: int, data: bytes, offset: int) -> int:
        if os.fstat(descriptor).st_size < offset + len(data):
            full()
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write_existing)
    monkeypatch.setattr(os, "write", full)
    for state in ("running", "waiting", "exited"):
        file.write({"state": state})
        assert json.loads((tmp_path / "status.json").read_text())["state"] == state
    assert "No space left" in json.loads((tmp_path / "status.json").read_text())["write_error"]


SMALL_DISK = """
set -e
mount -t tmpfs -o size=256k none "$HOME"
python3 -S "$PROGRAM" start < "$REQUEST"
until python3 -S "$PROGRAM" status r1 | grep -q '"exited"'; do sleep 0.02; done
python3 -S "$PROGRAM" status r1
python3 -S "$PROGRAM" start < "$REQUEST2" || true
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0,
    reason="this machine lets nobody mount a small disk; the test above covers the rule",
)
def test_exit_code_survives_a_disk_that_the_program_fills_and_the_next_start_is_refused(here: Worker) -> None:
    filler = "head -c 9000000 /dev/zero > ~/full; cat /dev/zero; exit 6"
    requests = []
    for run in ("r1", "r2"):
        requests.append(here.home.parent / f"{run}.json")
        requests[-1].write_text(json.dumps({"run": run, "shell": filler}))
    environment = {"PROGRAM": str(supervisor.__file__), "REQUEST": str(requests[0]), "REQUEST2": str(requests[1])}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL_DISK],
        env={**here.environment, **environment},
        capture_output=True,
        timeout=BOUND_S,
    )
    assert done.returncode == 0, done.stderr
    started, ended, refused = map(json.loads, done.stdout.splitlines())
    assert started["started"] is True
    assert (ended["state"], ended["exit_code"]) == ("exited", 6)
    assert "No space left" in refused["error"]
