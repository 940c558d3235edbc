"""What the probe's facts mean, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from backend.tools.judge import Expected, Looked, judge
from backend.tools.model import Finding, Severity

HERE = ("a/0/0", "a/0/1", "a/1/0")


def facts(number: int = 0, **sections: Any) -> dict[str, Any]:
    """A worker of four chips that is well."""
    well: dict[str, Any] = {
        "hostname": f"host-{number}",
        "name": f"t1v-{number}",
        "devices": {"nodes": [], "count": 4, "holders": [], "processes_not_seen": 0},
        "lockfile": {"path": "/tmp/libtpu_lockfile", "exists": False, "owners": [], "stale": False},
        "versions": {"python": "3.11.7", "executable": "/usr/bin/python3", "jax": "0.10.2", "libtpu": "0.0.40"},
        "disks": [{"path": "/", "bytes": 100, "free_bytes": 50, "inodes": 100, "free_inodes": 50}],
        "memory": {"bytes": 100, "available_bytes": 80, "oom_kills": 0},
        "limits": {"nofile": [1 << 20, None], "memlock": [None, None]},
        "clock": {"time": 1000.5, "zone": "+0000"},
        "boot": {"id": f"boot-{number}", "uptime_s": 9000.0},
        "processes": {"python": 3, "own": []},
        "settings": {"jax_platforms": None, "empty": []},
        "multislice": {
            "environment": {},
            "metadata": {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": HERE[number][2]},
        },
        "startup": {"state": "inactive", "result": "success"},
        "packages": {"lock_holders": []},
        "coordinator": {"address": "10.0.0.1:8476", "reachable": False, "refused": True, "error": "refused"},
        "unreadable": {},
    }
    return {**well, **sections}


def findings(changed: dict[str, dict[str, Any]] | None = None, *, boot_id: str = "") -> list[Finding]:
    """Of three workers on two slices, some of them changed."""
    told = {address: facts(number, **(changed or {}).get(address, {})) for number, address in enumerate(HERE)}
    wanted = {address: Expected(4, 2, int(address[2]), boot_id) for address in HERE}
    return list(judge(Looked(told, wanted, dict.fromkeys(HERE, 1000.0), dict.fromkeys(HERE, 1001.0))))


def bad(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.severity is not Severity.OK]


def test_workers_that_are_well_give_no_complaint() -> None:
    found = findings()
    assert bad(found) == []
    assert {each.check for each in found} == {"devices", "versions", "coordinator"}


PROCESS = {"pid": 77, "command": "python train.py", "user": "op", "age_s": 60.0}
LATER = {"time": 1031.0, "zone": "+0000"}


@pytest.mark.parametrize(
    ("check", "severity", "section", "words"),
    [
        ("devices", "fail", {"devices": {"count": 3, "holders": []}}, "3 chips are found, and 4"),
        ("devices", "fail", {"devices": {"count": 0, "holders": []}}, "0 chips are found, and 4"),
        ("holders", "fail", {"devices": {"count": 4, "holders": [PROCESS]}}, "held by pid 77 of op, for 60 s"),
        (
            "holders",
            "warn",
            {"devices": {"count": 4, "holders": [], "processes_not_seen": 5}},
            "5 processes of others",
        ),
        (
            "lockfile",
            "fail",
            {"lockfile": {"path": "/l", "exists": True, "owners": [], "stale": True}},
            "left behind",
        ),
        ("lockfile", "warn", {"lockfile": {"path": "/l", "exists": True, "owners": [], "stale": False}}, "owner"),
        ("processes", "warn", {"processes": {"python": 1, "own": [PROCESS]}}, "python train.py"),
        ("memory", "warn", {"memory": {"bytes": 100, "available_bytes": 5, "oom_kills": 0}}, "RAM are available"),
        ("memory", "warn", {"memory": {"bytes": 100, "available_bytes": 50, "oom_kills": 2}}, "killed 2 processes"),
        ("clock", "warn", {"clock": LATER}, "at least 30 s ahead"),
        ("clock", "fail", {"clock": {**LATER, "time": 900.0}}, "at least 100 s behind"),
        ("limits", "warn", {"limits": {"nofile": [1024, 1024], "memlock": [None, None]}}, "1024 open files"),
        ("limits", "warn", {"limits": {"nofile": [None, None], "memlock": [65536, 65536]}}, "lock 64 KiB"),
        ("multislice", "fail", {"multislice": {"environment": {}, "metadata": {}}}, "no MEGASCALE variables"),
        (
            "multislice",
            "fail",
            {"multislice": {"environment": {}, "metadata": {"MEGASCALE_NUM_SLICES": "4"}}},
            "is 4, and the request has 2 slices",
        ),
        (
            "multislice",
            "warn",
            {"multislice": {"environment": {"MEGASCALE_X": "1"}, "metadata": {"MEGASCALE_NUM_SLICES": "2"}}},
            "MEGASCALE_X",
        ),
        ("coordinator", "warn", {"coordinator": {"address": "h:1", "reachable": True}}, "listens on h:1 already"),
        (
            "coordinator",
            "fail",
            {"coordinator": {"address": "h:1", "reachable": False, "refused": False, "error": "timed out"}},
            "can't be reached: timed out",
        ),
        ("startup", "warn", {"startup": {"state": "activating", "result": "success"}}, "still runs"),
        ("startup", "fail", {"startup": {"state": "failed", "result": "exit-code"}}, "failed: exit-code"),
        ("apt", "warn", {"packages": {"lock_holders": [PROCESS]}}, "apt is locked by pid 77"),
        ("boot", "warn", {"boot": {"id": "boot-1", "uptime_s": 30.0}}, "up for 30 s"),
        (
            "environment",
            "warn",
            {"settings": {"jax_platforms": None, "empty": ["HF_TOKEN"]}},
            "HF_TOKEN is set and empty",
        ),
        ("probe", "warn", {"memory": None, "unreadable": {"memory": "OSError: no"}}, "memory could not be read"),
    ],
)
def test_a_fault_of_one_worker_is_told_with_its_place(
    check: str, severity: str, section: dict[str, Any], words: str
) -> None:
    (found,) = bad(findings({"a/0/1": section}))
    assert (found.check, found.severity, found.workers) == (check, severity, ("a/0/1",))
    assert words in found.what


def numbered(address: str, number: str) -> dict[str, Any]:
    metadata = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": address[2], "WORKER_ID": number}
    return {"multislice": {"environment": {}, "metadata": metadata}}


def test_two_workers_of_a_slice_with_one_process_index_are_told() -> None:
    well = {"a/0/0": numbered("a/0/0", "0"), "a/0/1": numbered("a/0/1", "1"), "a/1/0": numbered("a/1/0", "0")}
    assert bad(findings(well)) == []
    (found,) = bad(findings({**well, "a/0/1": numbered("a/0/1", "0")}))
    assert (found.check, found.severity, found.workers) == ("process index", "fail", ("a/0/0", "a/0/1"))
    assert "2 workers of a/0 are worker 0" in found.what
    (moved,) = bad(findings({**well, "a/1/0": numbered("a/1/0", "7")}))
    assert (moved.check, moved.severity, moved.workers) == ("process index", "warn", ("a/1/0",))


@pytest.mark.parametrize(("free", "severity"), [(9, "warn"), (1, "fail")])
def test_a_full_disk_is_told_by_its_path(free: int, severity: str) -> None:
    disk = {"path": "/mnt/data", "bytes": 100, "free_bytes": free, "inodes": 0, "free_inodes": 0}
    (found,) = bad(findings({"a/1/0": {"disks": [disk]}}))
    assert (found.check, found.severity) == ("disk", severity)
    assert "/mnt/data is 9" in found.what


def test_the_worker_with_another_version_is_named_not_the_majority() -> None:
    versions = {**facts()["versions"], "jax": "0.9.0"}
    (found,) = bad(findings({"a/1/0": {"versions": versions}}))
    assert found.workers == ("a/1/0",)
    assert found.what == "jax is 0.9.0 here, and 0.10.2 on the other 2"


def test_one_fault_of_several_workers_is_one_finding() -> None:
    low = {"memory": {"bytes": 100, "available_bytes": 5, "oom_kills": 0}}
    (found,) = bad(findings(dict.fromkeys(HERE, low)))
    assert found.where == "a/0/0-1 a/1/0"


def test_cpu_workers_are_no_failure() -> None:
    cpu = {
        "devices": {"count": 0, "holders": []},
        "settings": {"jax_platforms": "cpu", "empty": []},
        "versions": {"python": "3.11.7", "executable": "p", "jax": "0.10.2"},
    }
    found = findings(dict.fromkeys(HERE, cpu))
    assert bad(found) == []
    assert next(each for each in found if each.check == "devices").what.startswith("CPU workers")


def test_two_workers_of_one_name_are_told() -> None:
    (found,) = bad(findings({"a/1/0": {"name": "t1v-0"}}))
    assert (found.check, found.workers) == ("names", ("a/0/0", "a/1/0"))


def test_a_boot_since_the_last_look_is_told() -> None:
    found = bad(findings(boot_id="boot-1"))
    assert [(each.check, each.workers) for each in found] == [("boot", ("a/0/0", "a/1/0"))]


def test_a_clock_within_the_time_of_its_own_exec_is_never_accused() -> None:
    assert bad(findings({"a/0/1": {"clock": {"time": 1001.0, "zone": ""}}})) == []


def test_long_execs_on_busy_workers_accuse_no_clock() -> None:
    """True clocks: eight slow workers read theirs late, a quick one at once."""
    times = {f"a/0/{n}": 1008.0 for n in range(8)} | {"a/0/8": 1000.2}
    sent = dict.fromkeys(times, 1000.0)
    received = {address: time + 0.3 for address, time in times.items()}

    def judged() -> tuple[Finding, ...]:
        told = {address: {"clock": {"time": time, "zone": ""}} for address, time in times.items()}
        return judge(Looked(told, {}, sent, received))

    assert judged() == ()
    times["a/0/8"] = 1050.2
    (found,) = judged()
    assert (found.check, found.workers) == ("clock", ("a/0/8",))


def test_the_worst_comes_first_and_silence_is_the_worst() -> None:
    told = {"a/0/0": facts(memory={"bytes": 100, "available_bytes": 1, "oom_kills": 0})}
    found = judge(Looked(told, {"a/0/0": Expected(4, 2)}), {"a/0/1": "a/0/1: no answer within 60 s."})
    assert [each.severity for each in found][:2] == [Severity.FAIL, Severity.WARN]
    assert (found[0].check, found[0].what) == ("reach", "no answer within 60 s.")


WAY = {"url": "https://pypi.org/simple/", "reachable": True, "status": 200, "error": ""}
BUCKET = {"bucket": "data", "readable": False, "account": True, "status": 403, "error": "no access"}
DOCKER = {"registry": "eu.pkg.example", "installed": True, "answers": True, "login": True, "error": ""}
CODE = {"path": "~/maxtext", "digest": "a" * 64, "files": 3, "bytes": 9, "error": ""}


@pytest.mark.parametrize(
    ("section", "check", "words", "cure"),
    [
        (
            {"ways": [{**WAY, "reachable": False, "status": None, "error": "timed out"}]},
            "reach out",
            "https://pypi.org/simple/ can't be reached: timed out",
            "Cloud NAT",
        ),
        ({"buckets": [BUCKET]}, "bucket", "by the worker's account (403): no access", "roles/storage.objectViewer"),
        ({"buckets": [{**BUCKET, "status": 404}]}, "bucket", "gs://data can't be read", "Look at its name"),
        ({"buckets": [{**BUCKET, "account": False}]}, "bucket", "a worker without an account", "--service-account"),
        ({"buckets": [{**BUCKET, "status": None}]}, "bucket", "gs://data can't be read", "--network"),
        ({"docker": [{**DOCKER, "installed": False}]}, "docker", "docker is not installed", "apt-get"),
        (
            {"docker": [{**DOCKER, "answers": False, "error": "no"}]},
            "docker",
            "docker does not answer: no",
            "usermod",
        ),
        ({"docker": [{**DOCKER, "login": False}]}, "docker", "no login for eu.pkg.example", "configure-docker"),
        (
            {"folders": [{**CODE, "error": "there is no such folder"}]},
            "code",
            "no digest: there is no such",
            "--sync",
        ),
    ],
)
def test_what_a_worker_does_not_reach_is_told_with_the_cure(
    section: dict[str, Any], check: str, words: str, cure: str
) -> None:
    (found,) = bad(findings({"a/0/1": section}))
    assert (found.check, found.severity, found.workers) == (check, "fail", ("a/0/1",))
    assert words in found.what
    assert cure in found.cure


def test_what_all_workers_reach_is_one_line_each() -> None:
    good = {"ways": [WAY], "buckets": [{**BUCKET, "readable": True}], "docker": [DOCKER], "folders": [CODE]}
    found = findings(dict.fromkeys(HERE, good))
    assert bad(found) == []
    told = {each.check: each for each in found}
    assert {"reach out", "bucket", "docker", "code"} <= set(told)
    assert all(told[name].workers == HERE for name in ("reach out", "bucket", "docker", "code"))


def test_the_worker_whose_code_differs_is_named_not_the_majority() -> None:
    same = {"folders": [CODE], "bundles": {"newest": "b" * 64, "count": 1}}
    other = {"folders": [{**CODE, "digest": "c" * 64}], "bundles": {"newest": "", "count": 0}}
    found = bad(findings({"a/0/0": same, "a/0/1": same, "a/1/0": other}))
    assert [(each.severity, each.workers) for each in found] == [("fail", ("a/1/0",)), ("warn", ("a/1/0",))]
    assert found[0].what == "the code in ~/maxtext is cccccccccccc here, and aaaaaaaaaaaa on the other 2"
    assert found[1].what == "the code that was shipped last is none here, and bbbbbbbbbbbb on the other 2"
