"""The verbs run, runs, logs, copy and shell, as an operator types them, against a simulated Cloud TPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment

BOUND_S = 120.0
FIELDS = [
    "target",
    "outcome",
    "exit_code",
    "signal",
    "started_at",
    "ended_at",
    "output_bytes",
    "output",
    "output_truncated",
    "output_path",
]


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    """train-a has 2 slices of 4 workers."""
    return simulators(seed=3)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def start(sim: Simulator, *arguments: str) -> subprocess.Popen[str]:
    """The same as `sim.cli`, left running."""
    return subprocess.Popen(
        [sys.executable, "-m", "tui.cli.main", "--context-file", str(sim.context_file), *arguments],
        cwd=ROOT,
        env=own_environment(sim.directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def holding(mark: str) -> list[int]:
    """Processes of this machine with `mark` among their arguments, but for slicetower's own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words and b"tui.cli.main" not in words:
                found.append(int(entry.name))
    return found


def wait_for(probe: Any, what: str) -> None:
    ends_at = time.monotonic() + BOUND_S
    while not probe():
        assert time.monotonic() < ends_at, f"waited {BOUND_S} s for {what}"
        time.sleep(0.02)


# -- run -----------------------------------------------------------------------------------------------------------------


def test_json_lines_have_the_documented_fields_one_object_a_worker_then_the_summary(sim: Simulator) -> None:
    done = sim.cli("run", "train-a", "--format", "json", "--", "sh", "-c", "echo $HOSTNAME")
    assert done.returncode == 0, done.stderr
    *workers, last = lines(done)
    assert sorted(item["target"] for item in workers) == [f"train-a/{s}/{w}" for s in (0, 1) for w in range(4)]
    for item in workers:
        assert list(item)[: len(FIELDS)] == FIELDS
        assert item["outcome"] == "ok"
        assert item["output"] == Path(item["output_path"]).read_text()
    assert last["summary"] == {"ok": 8}
    assert last["first_failure"] is None
    assert last["run"]


@pytest.mark.parametrize(
    ("options", "command", "code", "outcome"),
    [
        ([], ["true"], 0, "ok"),
        ([], ["sh", "-c", "exit 3"], 1, "failed"),
        ([], ["sh", "-c", "kill -9 $$"], 1, "signalled"),
        (["--timeout", "0.3"], ["sleep", "600"], 124, "timed_out"),
        ([], ["no-such-program"], 1, "failed"),
        (["--detach"], ["true"], 0, None),
    ],
)
def test_the_exit_code_tells_what_happened(
    sim: Simulator, options: list[str], command: list[str], code: int, outcome: str | None
) -> None:
    done = sim.cli("run", "train-a/0/0", *options, "--format", "json", "--", *command)
    assert done.returncode == code, done.stderr
    if outcome is not None:
        assert lines(done)[0]["outcome"] == outcome


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train-a"], "empty"),
        (["train-a", "--"], "empty"),
        (["tran-a", "--", "true"], "train-a"),
        (["train-a/9", "--", "true"], "slice"),
        (["train-a", "--batch-size", "0", "--", "true"], "batch"),
        (["train-a", "--batch-size", "2", "--gang", "--", "true"], "8 workers"),
        (["train-a", "--env", "NOT_SET_ANYWHERE", "--", "true"], "NOT_SET_ANYWHERE"),
        (["train-a", "--sync", "/no/such/folder", "--", "true"], "/no/such/folder"),
        (["train-a", "--", "--flag"], "dash"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_before_anything_is_sent(
    sim: Simulator, arguments: list[str], says: str
) -> None:
    before = sim.cli("runs", "list", "--format", "json").stdout
    done = sim.cli("run", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert sim.cli("runs", "list", "--format", "json").stdout == before


def test_words_are_literal_and_never_read_on_this_machine(sim: Simulator, tmp_path: Path) -> None:
    words = ["$HOME", "a  b", ";", "'", '"', "*", "\\", f"$(touch {tmp_path}/x)", f"`touch {tmp_path}/x`", "\u00e9"]
    done = sim.cli("run", "train-a/0/0", "--format", "json", "--", "printf", "%s|", *words)
    assert lines(done)[0]["output"] == "".join(f"{word}|" for word in words)
    assert not list(tmp_path.iterdir())


def test_output_is_grouped_and_passes_the_gate(sim: Simulator) -> None:
    done = sim.cli("run", "train-a", "--", "printf", "\\033]52;c;aGk=\\007red\\033[31m\\n\\xff\\n")
    assert done.returncode == 0
    assert "train-a/0-1/0-3 (8) ok" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.count("red") == 1


def test_what_differs_is_shown_and_the_first_failure_with_its_last_lines(sim: Simulator) -> None:
    """Worker 2 fails first, the others of its slice after it."""
    text = "seq 1 9; case $HOSTNAME in *-w-2) echo cause; exit 7;; *-w-1) echo odd;; *-w-3) sleep 1; exit 8;; esac"
    done = sim.cli("run", "train-a/0", "--shell", "--", text)
    assert done.returncode == 1
    odd = done.stdout.partition("--- train-a/0/1 (1) ok ---")[2].partition("---")[0]
    assert "    differs from train-a/0/0 (-) in:\n" in odd
    assert "    +odd\n" in odd
    assert "    -9\n" not in odd
    assert "first in time: train-a/0/2 failed (7)\n    | 8\n    | 9\n    | cause\n" in done.stderr
    shown = sim.cli("runs", "show", "last").stdout
    assert "first     train-a/0/2 failed (7)\n          | 8\n          | 9\n          | cause\n" in shown
    last = lines(sim.cli("run", "train-a/0", "--shell", "--format", "json", "--", text))[-1]
    assert (last["first_failure"]["target"], last["first_failure"]["last_lines"]) == (
        "train-a/0/2",
        ["8", "9", "cause"],
    )


def test_a_dry_run_says_everything_and_sends_nothing(sim: Simulator) -> None:
    before = sim.cli("runs", "list", "--format", "json").stdout
    done = sim.cli("run", "train-a", "--batch-size", "1,3", "--dry-run", "--format", "json", "--", "echo", "a b")
    (plan,) = lines(done)
    assert plan["batches"] == [1, 3, 3, 1]
    assert plan["remote_text"] == "exec echo 'a b'"
    assert sim.cli("runs", "list", "--format", "json").stdout == before
    refused = sim.cli("run", "train-a", "--batch-size", "1", "--gang", "--dry-run", "--", "true")
    assert refused.returncode == 2


def test_a_read_only_context_runs_nothing(sim: Simulator) -> None:
    done = sim.cli("--read-only", "run", "train-a", "--", "true")
    assert done.returncode == 2
    assert "read-only" in done.stderr


def test_batches_stop_after_a_failure_and_go_on_when_told(sim: Simulator) -> None:
    command = ["--format", "json", "--", "sh", "-c", "exit 5"]
    stopped = sim.cli("run", "train-a", "--batch-size", "3", *command)
    assert lines(stopped)[-1]["summary"] == {"failed": 3, "not_started": 5}
    assert stopped.returncode == 1
    went_on = sim.cli("run", "train-a", "--batch-size", "3", "--on-failure", "continue", *command)
    assert lines(went_on)[-1]["summary"] == {"failed": 8}
    assert lines(went_on)[-1]["first_failure"]["exit_code"] == 5


def test_ctrl_c_ends_the_remote_processes_and_confirms_it(sim: Simulator) -> None:
    mark = "601.25"
    process = start(sim, "run", "train-a", "--batch-size", "4", "--format", "json", "--", "sleep", mark)
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, err
    assert not holding(mark)
    assert "stopped, confirmed: train-a/0/0-3" in err
    assert json.loads(out.splitlines()[-1])["summary"] == {"signalled": 4, "not_started": 4}


def test_a_lost_connection_is_unknown_and_exits_3(simulators: SimulatorFactory) -> None:
    sim = simulators(fresh=True, seed=4)
    mark = "602.25"
    process = start(sim, "run", "train-a/0", "--format", "json", "--", "sleep", mark)
    wait_for(lambda: len(holding(mark)) == 4, "four remote processes")
    sim.inject("cut", "train-a/0/1")
    wait_for(lambda: _ended(sim, "unknown"), "the loss to be told")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_S)
    told = {item["target"]: item["outcome"] for item in map(json.loads, out.splitlines()) if "target" in item}
    assert told["train-a/0/1"] == "unknown"
    assert not holding(mark), "the one that was lost is found by its mark"
    assert process.returncode == 130, err
    sim.stop()


def _ended(sim: Simulator, outcome: str) -> bool:
    return any(outcome in item["summary"] for item in lines(sim.cli("runs", "list", "--format", "json")))


def test_code_is_shipped_and_setup_runs(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text("import sys; print('from the bundle', open('data').read())\n")
    done = sim.cli(
        "run", "train-a/1", "--sync", str(tmp_path), "--setup", "echo made > data", "--format", "json", "--",
        "python3", "say.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "from the bundle made" in lines(done)[0]["output"]
    assert "ships 1 file, 58 B (" in done.stderr, "the size report"


# -- runs and logs ----------------------------------------------------------------------------------------------------------


def detached(sim: Simulator, *command: str) -> str:
    done = sim.cli("run", "train-a/0", "--detach", "--format", "json", "--", *command)
    assert done.returncode == 0, done.stderr
    return str(lines(done)[-1]["run"])


def test_a_detached_run_is_listed_shown_followed_and_stopped(sim: Simulator) -> None:
    mark = "603.25"
    run = detached(sim, "sh", "-c", f"echo begun; sleep {mark}")
    (listed,) = [item for item in lines(sim.cli("runs", "list", "--format", "json")) if item["run"] == run]
    assert listed["state"] == "detached"
    shown = sim.cli("runs", "show", run)
    assert shown.stdout.count("running") == 4
    assert sim.cli("logs", run, "train-a/0/2").stdout == "begun\n"
    assert sim.cli("logs", run, "--grep", "^no").stdout == ""
    assert sorted(sim.cli("logs", run, "--merge").stdout.splitlines()) == [f"train-a/0/{w}: begun" for w in range(4)]
    stopped = sim.cli("runs", "stop", run, "--grace", "0.5")
    assert stopped.returncode == 0, stopped.stderr
    assert not holding(mark)
    *workers, summary = lines(sim.cli("runs", "show", run, "--format", "json"))
    assert {item["outcome"] for item in workers} == {"signalled"}
    assert summary["state"] == "ended"


def test_a_regular_expression_is_looked_for_in_the_logs_of_all_workers(sim: Simulator) -> None:
    text = "echo step 1; case $HOSTNAME in *w-[13]) echo step 2 loss nan;; *) echo step 2 loss 0.5;; esac"
    assert sim.cli("run", "train-a/0", "--shell", "--", text).returncode == 0
    found = sim.cli("logs", "last", "--grep", "step [0-9]+ loss n.n$").stdout.splitlines()
    assert found == [f"train-a/0/{worker}: step 2 loss nan" for worker in (1, 3)]
    refused = sim.cli("logs", "last", "--grep", "(")
    assert refused.returncode == 2
    assert "no regular expression" in refused.stderr


def test_following_ends_with_the_run_and_shows_each_line_once(sim: Simulator) -> None:
    run = detached(sim, "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done")
    done = sim.cli("logs", run, "train-a/0/1", "--follow")
    assert done.stdout.splitlines() == [f"line {number}" for number in range(1, 6)]
    again = sim.cli("logs", run, "train-a/0/1", "--follow")
    assert again.stdout == done.stdout


def test_retry_runs_only_where_it_did_not_end_well(sim: Simulator) -> None:
    command = "test -e ~/retried || { touch ~/retried; test $HOSTNAME = ${HOSTNAME%-w-2}; }"
    first = sim.cli("run", "train-a/1", "--format", "json", "--", "sh", "-c", command)
    assert lines(first)[-1]["summary"] == {"failed": 1, "ok": 3}
    again = sim.cli("runs", "retry", str(lines(first)[-1]["run"]), "--format", "json")
    assert [item.get("target") for item in lines(again)] == ["train-a/1/2", None]
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("verb", [["runs", "show"], ["runs", "stop"], ["runs", "retry"], ["logs"]])
def test_a_run_that_does_not_exist_is_said(sim: Simulator, verb: list[str]) -> None:
    done = sim.cli(*verb, "20000101-000000-none")
    assert done.returncode == 2
    assert "no run" in done.stderr


# -- copy and shell ----------------------------------------------------------------------------------------------------------


def test_files_go_both_ways(sim: Simulator, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "blank name.txt").write_text("hello")
    done = sim.cli("copy", str(folder), "train-a/0:", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert {item["outcome"] for item in lines(done)} == {"ok"}
    back = tmp_path / "back"
    assert sim.cli("copy", "train-a/0:code", str(back)).returncode == 0
    for worker in range(4):
        assert (back / f"train-a.0.{worker}" / "code" / "deep" / "blank name.txt").read_text() == "hello"
    one = sim.cli("copy", "train-a/0/1:code/deep/blank name.txt", str(tmp_path / "one.txt"))
    assert one.returncode == 0
    assert (tmp_path / "one.txt").read_text() == "hello"


@pytest.mark.parametrize(
    ("places", "code", "says"),
    [
        (["only-one"], 2, "destination"),
        (["train-a:x", "train-a:y"], 2, "local"),
        (["here", "there"], 2, "local"),
        (["/no/such/file", "train-a:"], 2, "/no/such/file"),
        (["train-a/0/0:no-such-file", "/tmp/never"], 1, "No such file"),
    ],
)
def test_copies_that_cannot_work_say_why(sim: Simulator, places: list[str], code: int, says: str) -> None:
    done = sim.cli("copy", *places)
    assert done.returncode == code
    assert says in done.stderr


def test_a_copy_into_tmp_is_where_commands_find_it(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("as it is\n")
    with tempfile.TemporaryDirectory(dir="/tmp") as there:
        done = sim.cli("copy", str(tmp_path / "note"), f"train-a/0/0:{there}/note")
        assert done.returncode == 0, done.stderr
        assert "as it is" in sim.cli("run", "train-a/0/0", "--", "cat", f"{there}/note").stdout
        back = sim.cli("copy", f"train-a/0/0:{there}/note", str(tmp_path / "back"))
        assert (back.returncode, (tmp_path / "back").read_text()) == (0, "as it is\n"), back.stderr


def test_a_shell_uses_the_verified_key_and_tells_the_commands_end(sim: Simulator) -> None:
    done = sim.cli("shell", "train-a/0/1", "--", "sh", "-c", 'echo "$HOSTNAME  $0"; exit 4')
    assert done.returncode == 4, done.stderr
    assert done.stdout.endswith("-w-1  sh\n")
    dry = sim.cli("shell", "train-a/0/1", "--dry-run", "--", "echo", "as it was printed").stdout
    assert "StrictHostKeyChecking=yes" in dry
    again = subprocess.run(dry, shell=True, capture_output=True, text=True, timeout=90)
    assert (again.stdout, again.returncode) == ("as it was printed\n", 0), again.stderr
    assert sim.cli("shell", "train-a").returncode == 2
