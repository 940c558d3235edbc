"""The supervisor launches once, tells the truth about the end, and stops all of it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.programs import supervisor
from tests.jobs.supervised import BOUND_S, PROGRAM, Worker, alive, until, worker


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Worker]:
    with worker(tmp_path) as made:
        yield made


def pid_in(path: Path) -> int:
    return int(until(lambda: path.exists() and path.read_text().strip(), str(path)))


@pytest.mark.parametrize(
    ("shell", "code", "name"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -SEGV $$", None, "SEGV"), ("kill -9 $$", None, "KILL")],
)
def test_end_is_told_as_it_was(here: Worker, shell: str, code: int | None, name: str | None) -> None:
    started = here.start("r1", shell)
    assert started["started"] is True
    assert started["pid"] == started["pgid"] > 0
    assert started["inode"] == os.stat(here.folder("r1") / "output").st_ino
    ended = here.ended("r1")
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("exited", code, name)
    assert ended["ended_at"] >= ended["started_at"]


def test_both_streams_go_to_the_output_and_arguments_stay_literal(here: Worker) -> None:
    text = "a b;$HOME 'q' \"d\" \\ * é"
    here.start(
        "r1", argv=["sh", "-c", 'printf "%s" "$1"; echo err >&2; pwd; echo $X', "sh", text], environment={"X": "y"}
    )
    here.ended("r1")
    assert here.output("r1") == f"{text}err\n{here.home}\ny\n".encode()


def test_command_that_is_not_there_is_said_in_status_and_output(here: Worker) -> None:
    here.start("r1", argv=["/nowhere/program"])
    ended = here.ended("r1")
    assert (ended["exit_code"], ended["error"]) == (127, "/nowhere/program: No such file or directory")
    assert b"/nowhere/program" in here.output("r1")


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (b"", "JSON"),
        (b'{"run": "r1", "argv": ["tr', "JSON"),
        (b'{"run": "r1"}', "empty command"),
        (b'{"argv": ["true"]}', "run"),
    ],
)
def test_torn_or_empty_request_starts_nothing(here: Worker, request_: bytes, word: str) -> None:
    assert word in here.say("start", stdin=request_, code=2)["error"]
    assert here.say("status", "r1")["state"] == "absent"


@pytest.mark.parametrize("run", ["../x", "", ".", "a/b", "-x"])
def test_run_id_cannot_leave_the_folder(here: Worker, run: str) -> None:
    done = subprocess.run(
        here.command("start"),
        env=here.environment,
        input=json.dumps({"run": run, "argv": ["true"]}).encode(),
        capture_output=True,
    )
    assert done.returncode == 1
    assert b"no run id" in done.stderr
    assert not (here.home / ".slicetower").exists()


def test_concurrent_starts_launch_once(here: Worker) -> None:
    body = json.dumps({"run": "r1", "shell": "echo launched >> ~/launches; sleep 600"}).encode()
    starts = [here.popen("start") for _ in range(8)]
    for started in starts:
        assert started.stdin is not None
        started.stdin.write(body)
    for started in starts:
        assert started.stdin is not None
        started.stdin.close()
        started.stdin = None
    answers = [json.loads(started.communicate()[0]) for started in starts]
    assert sum(bool(answer.get("started")) for answer in answers) == 1
    assert sum(bool(answer.get("already")) for answer in answers) == 7
    assert {answer["state"] for answer in answers} == {"running"}
    assert len({answer["pid"] for answer in answers}) == 1
    assert until(lambda: (here.home / "launches").exists())
    assert (here.home / "launches").read_text() == "launched\n"


def test_what_ended_between_a_look_at_its_file_and_one_at_its_processes_is_not_called_lost(
    here: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is slow: while it reads that the run starts, or runs, the run goes on to its end."""
    for run, until_state in (("r1", "running"), ("r2", "exited")):
        here.start(run, "exit 0")
        ended = here.ended(run)
        status = here.folder(run) / "status.json"
        last = status.read_bytes()
        before = {**ended, "state": "starting" if until_state == "running" else "running", "supervisor": 0, "pid": 0}
        before.update(launching=True, starter=0, ticks=0, supervisor_ticks=0, start_ticks=0)
        status.write_text(json.dumps(before))
        monkeypatch.setenv("HOME", str(here.home))
        monkeypatch.setenv("SLICETOWER_BOOT_ID_FILE", str(here.boot_file))

        def slow(pid: object, ticks: object, status: Path = status, last: bytes = last) -> bool:
            status.write_bytes(last)
            return False

        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "lives", slow)
            assert supervisor.read_status(run)["state"] == "exited"


def test_start_again_after_the_end_tells_the_end(here: Worker) -> None:
    here.start("r1", "exit 3")
    here.ended("r1")
    again = here.start("r1", "echo again > ~/again")
    assert (again["already"], again["state"], again["exit_code"]) == (True, "exited", 3)
    assert not (here.home / "again").exists()


def test_start_answers_at_once_and_holds_nothing_of_the_connection(here: Worker) -> None:
    started = here.popen("start", stderr=subprocess.PIPE)
    out, _ = started.communicate(json.dumps({"run": "r1", "shell": "sleep 600"}).encode(), timeout=90)
    answer = json.loads(out)
    for pid in (answer["pid"], answer["supervisor"]):
        assert os.getsid(pid) != os.getsid(0)
        links = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
        assert not [link for link in links if link.startswith(("pipe:", "socket:", "/dev/pts", "/dev/tty"))]
    assert os.getsid(answer["pid"]) == answer["pid"] != os.getsid(answer["supervisor"])


def test_run_goes_on_when_the_session_of_its_start_is_killed(here: Worker) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", '"$@"; sleep 600', "sh", *here.command("start")],
        env=here.environment,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(json.dumps({"run": "r1", "shell": "until [ -e ~/gate ]; do sleep 0.01; done; exit 4"}).encode())
    shell.stdin.close()
    started = json.loads(shell.stdout.readline())
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    shell.stdout.close()
    assert alive(started["pid"])
    (here.home / "gate").touch()
    assert here.ended("r1")["exit_code"] == 4


def test_environment_values_are_stored_nowhere(here: Worker) -> None:
    here.start("r1", "test ${#TOKEN} = 6", environment={"TOKEN": "s3cret"})
    assert here.ended("r1")["exit_code"] == 0
    kept = [path.read_bytes() for path in here.folder("r1").iterdir()]
    assert not [data for data in kept if b"s3cret" in data]
    assert json.loads((here.folder("r1") / "request.json").read_text())["environment"] == ["TOKEN"]
    assert stat.S_IMODE(here.folder("r1").stat().st_mode) == 0o700


STUBBORN = """
trap '' TERM
sh -c 'trap "" TERM; echo $$ > ~/child; while :; do sleep 600; done' &
setsid sh -c 'trap "" TERM; echo $$ > ~/own_session; while :; do sleep 600; done' &
env -i HOME=$HOME setsid sh -c 'trap "" TERM; sh -c "trap \\"\\" TERM; echo \\$\\$ > ~/orphan; sleep 600; :" & ' &
while :; do sleep 600; done
"""


def test_stop_kills_grandchildren_that_ignore_term_and_changed_session_or_lost_their_mark(here: Worker) -> None:
    started = here.start("r1", STUBBORN)
    other = here.start("r2", "sleep 600")
    pids = [started["pid"], *(pid_in(here.home / name) for name in ("child", "own_session", "orphan"))]
    stopped = here.say("stop", "r1", "--grace", "0.2")
    assert (stopped["stopped"], stopped["survivors"]) == (True, [])
    assert not [pid for pid in pids if alive(pid)]
    assert (stopped["state"], stopped["signal"]) == ("exited", "KILL")
    assert alive(other["pid"])


def test_stop_lets_a_program_end_by_itself_within_the_grace(here: Worker) -> None:
    here.start("r1", "trap 'echo saved; exit 9' TERM; echo ready; while :; do sleep 0.01; done")
    until(lambda: here.output("r1") == b"ready\n")
    stopped = here.say("stop", "r1", "--grace", "15")
    assert (stopped["exit_code"], stopped["signal"], stopped["survivors"]) == (9, None, [])
    assert here.output("r1").endswith(b"saved\n")


def test_stop_works_without_the_supervisor(here: Worker) -> None:
    started = here.start("r1", STUBBORN)
    own_session = pid_in(here.home / "own_session")
    os.kill(started["supervisor"], signal.SIGKILL)
    until(lambda: not alive(started["supervisor"]))
    status = here.status("r1")
    assert (status["state"], status["supervised"]) == ("running", False)
    stopped = here.say("stop", "r1", "--grace", "0")
    assert (stopped["stopped"], stopped["state"]) == (True, "lost")
    assert not [pid for pid in (started["pid"], own_session) if alive(pid)]


def test_stop_of_one_worker_leaves_the_same_run_on_another(here: Worker, tmp_path: Path) -> None:
    with worker(tmp_path, "other") as there:
        here.start("r1", "sleep 600")
        neighbour = there.start("r1", "sleep 600")
        assert here.say("stop", "r1", "--grace", "5")["stopped"] is True
        assert alive(neighbour["pid"])
        assert there.status("r1")["state"] == "running"


def test_stop_after_the_end_clears_what_the_program_left(here: Worker) -> None:
    here.start("r1", "setsid sh -c 'echo $$ > ~/left; exec sleep 600' & sleep 600 & echo $! > ~/beside; exit 0")
    left = [pid_in(here.home / "left"), pid_in(here.home / "beside")]
    here.ended("r1")
    stopped = here.say("stop", "r1", "--grace", "5")
    assert (stopped["already_ended"], stopped["exit_code"], stopped["survivors"]) == (True, 0, [])
    assert not [pid for pid in left if alive(pid)]


def test_supervisor_that_cannot_be_told_the_grace_stops_all_the_same(here: Worker) -> None:
    """On a full disk the file that asks for a stop may not be made: the signal alone must do."""
    started = here.start("r1", "sh -c 'echo $$ > ~/child; sleep 600; :' & sleep 600")
    child = pid_in(here.home / "child")
    os.kill(started["supervisor"], signal.SIGUSR1)
    ended = here.ended("r1")
    assert (ended["stopped"], ended["signal"]) == (True, "TERM")
    assert not alive(child)


def test_stop_of_nothing_is_an_error(here: Worker) -> None:
    assert here.say("stop", "nothing", code=1)["error"] == "no such run"


def test_killed_program_and_supervisor_are_lost_not_running(here: Worker) -> None:
    started = here.start("r1", "sleep 600")
    os.kill(started["supervisor"], signal.SIGKILL)
    os.kill(started["pid"], signal.SIGKILL)
    lost = here.ended("r1")
    assert (lost["state"], lost["reason"]) == ("lost", "its process and its supervisor are gone")


def test_running_before_a_reboot_is_lost_after_it(here: Worker) -> None:
    here.start("r1", "sleep 600")
    here.start("r2", "exit 5")
    here.ended("r2")
    here.reboot("boot-2")
    lost = here.status("r1")
    assert (lost["state"], lost["reason"]) == ("lost", "the worker rebooted")
    assert here.status("r2")["exit_code"] == 5


def test_reused_pid_is_not_taken_for_the_program(here: Worker) -> None:
    started = here.start("r1", "sleep 600")
    for pid in (started["supervisor"], started["pid"]):
        os.kill(pid, signal.SIGKILL)
    here.ended("r1")
    path = here.folder("r1") / "status.json"
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": stranger.pid}))
        assert here.status("r1")["state"] == "lost"
        here.say("stop", "r1", "--grace", "0")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_time_limit_ends_the_whole_run(here: Worker) -> None:
    here.start("r1", "sh -c 'echo $$ > ~/child; sleep 600; :' & sleep 600", timeout_s=0.3)
    ended = here.ended("r1")
    assert (ended["timed_out"], ended["signal"], ended["error"]) == (True, "TERM", "timed out after 0.3 s")
    assert not alive(pid_in(here.home / "child"))


def test_start_waits_for_a_path(here: Worker) -> None:
    started = here.start("r1", "echo go", wait_for="setup/done")
    assert started["state"] == "starting"
    assert here.status("r1")["state"] == "starting"
    assert here.output("r1") == b""
    (here.home / "setup").mkdir()
    (here.home / "setup" / "done").touch()
    assert here.ended("r1")["exit_code"] == 0
    assert here.output("r1") == b"go\n"


def test_stop_ends_a_start_that_waits(here: Worker) -> None:
    here.start("r1", "echo go > ~/went", wait_for="never")
    stopped = here.say("stop", "r1", "--grace", "5")
    assert (stopped["stopped"], stopped["state"], stopped["exit_code"]) == (True, "exited", None)
    assert "before the program was started" in stopped["error"]
    (here.home / "never").touch()
    assert not (here.home / "went").exists()


def test_list_and_prune_touch_only_what_has_ended(here: Worker) -> None:
    for run in ("r1", "r2"):
        here.start(run, "true")
        here.ended(run)
    here.start("r3", "sleep 600")
    done = subprocess.run(here.command("list"), env=here.environment, capture_output=True, check=True)
    assert [json.loads(line)["run"] for line in done.stdout.splitlines()] == ["r1", "r2", "r3"]
    assert here.say("prune", "--older-than", "3600")["pruned"] == []
    assert here.say("prune", "--keep", "1")["pruned"] == ["r1"]
    assert here.say("prune")["pruned"] == ["r2"]
    assert here.status("r3")["state"] == "running"


def test_wall_clock_is_not_what_limits_are_measured_by(here: Worker) -> None:
    """A run that began in the far future by its records, as after a clock set back, still ends by its limit."""
    started = here.start("r1", "sleep 600", timeout_s=0.3)
    path = here.folder("r1") / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "started_at": time.time() + 1e9}))
    assert started["state"] == "running"
    assert here.ended("r1")["timed_out"] is True


LEADERLESS = """
import ctypes, os, threading, time
def work():
    open(os.path.expanduser("~/child"), "w").write(str(os.getpid()))
    time.sleep(600)
threading.Thread(target=work).start()
while not os.path.exists(os.path.expanduser("~/child")): time.sleep(0.01)
exit_of_this_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
ctypes.CDLL(None).syscall(exit_of_this_thread, 0)
"""
"""Its first thread ends and another goes on: what any program of many threads is for a moment when it is killed."""


def first_thread_has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"


def test_a_program_whose_first_thread_has_ended_runs_on_and_its_stop_is_told_with_its_signal(here: Worker) -> None:
    here.start("r1", argv=["python3", "-c", LEADERLESS])
    pid = pid_in(here.home / "child")
    until(lambda: first_thread_has_ended(pid), "the end of the first thread")
    assert here.status("r1")["state"] == "running"
    stopped = here.say("stop", "r1", "--grace", "20")
    assert (stopped["stopped"], stopped["state"], stopped["signal"]) == (True, "exited", "TERM")


def test_a_program_whose_first_thread_has_ended_is_stopped_without_its_supervisor(here: Worker) -> None:
    supervisor = here.start("r1", argv=["python3", "-c", LEADERLESS])["supervisor"]
    pid = pid_in(here.home / "child")
    until(lambda: first_thread_has_ended(pid), "the end of the first thread")
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not alive(supervisor), "the end of the supervisor")
    assert here.status("r1")["state"] == "running"
    assert here.say("stop", "r1", "--grace", "20")["survivors"] == []
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the program")


@pytest.mark.parametrize("held", ["supervise", "launch"])
def test_a_stop_while_it_is_being_started_starts_nothing_afterwards(here: Worker, held: str) -> None:
    """The starter, or the supervisor, is held where a loaded machine may hold it."""
    file = here.home / "held.py"
    go = here.home / "go"
    waiting = here.home / "waiting"
    text = PROGRAM.read_text("utf-8").replace("LAUNCH_LIMIT_S = 10.0", "LAUNCH_LIMIT_S = 0.2")
    place = {
        "supervise": '    detach(run_folder(request["run"]), {output, answer})\n',
        "launch": "    error = supervisor.launch(argv, output)\n",
    }[held]
    assert text.count(place) == 1
    hold = f"    open({str(waiting)!r}, 'w').close()\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    file.write_text(text.replace(place, hold + place))
    body = json.dumps({"run": "r1", "shell": "echo $$ > ~/went; sleep 600"}).encode()
    starter = subprocess.Popen([here.interpreter, "-S", file, "start"], env=here.environment, stdin=subprocess.PIPE)
    assert starter.stdin is not None
    starter.stdin.write(body)
    starter.stdin.close()
    until(waiting.exists, "the place where it is held")
    stop = subprocess.Popen(
        [here.interpreter, "-S", file, "stop", "r1", "--grace", "20"], env=here.environment, stdout=subprocess.PIPE
    )
    until((here.folder("r1") / "stop").exists, "the wish to stop")
    go.touch()
    told = json.loads(stop.communicate(timeout=BOUND_S)[0])
    assert (told["stopped"], told["state"], told["survivors"]) == (True, "exited", [])
    starter.wait(BOUND_S)
    ended = here.ended("r1")
    assert ended["stopped"]
    if (here.home / "went").exists():
        assert ended["signal"] == "TERM"
    else:
        assert ended["error"] == "stopped before the program was started"
    assert not [pid for pid in here.pids() if pid != os.getpid()]
