"""Signatures: each real log leads to its cause, and the culprit is whom the survivors name, not who shouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.diagnosis.signatures import Signature, blamed_tasks, catalogue, cause, match_line, may_match, scan

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


@pytest.mark.parametrize(
    ("line", "identifier", "said"),
    [
        (
            b"The TPU is already in use by process with pid 4711. Not attempting to load libtpu.so",
            "tpu-in-use",
            "pid 4711",
        ),
        (b"open(/dev/vfio/2): Device or resource busy", "device-busy", "/dev/vfio/2"),
        (b"Couldn't open iommu group", "device-busy", "?"),
        (b"ABORTED: The TPU is already in use: /tmp/libtpu_lockfile exists", "lockfile", "lock file"),
        (b"An NVIDIA GPU may be present; Falling back to cpu.", "cpu-fallback", "runs on the CPU"),
        (
            b"jaxlib version 0.4.31 is newer than and incompatible with jax version 0.4.30",
            "version-skew",
            "do not belong",
        ),
        (b"Ran out of memory in memory space hbm. Used 17.20G of 15.75G hbm. Exceeded", "hbm", "17.20G of 15.75G"),
        (b"ModuleNotFoundError: No module named 'jax'", "jax-missing", "'jax'"),
        (b"UNKNOWN: Failed to start RPC server", "coordinator-port", "taken"),
        (b"Expected 4 worker addresses, got 1", "not-all-hosts", "Only some"),
        (b"OSError: [Errno 28] No space left on device", "disk-full", "full"),
        (b"step 12 loss: nan", "nan", "diverged"),
        (
            b"RPC: /tensorflow.CoordinationService/RegisterTask DEADLINE_EXCEEDED RegisterTask",
            "coordinator-unreachable",
            "worker 0",
        ),
        (b"Failed to open /x/libtpu.so: cannot open shared object file", "libtpu-missing", "missing"),
    ],
)
def test_each_phrase_leads_to_its_meaning(line: bytes, identifier: str, said: str) -> None:
    finding = match_line(line)
    assert finding is not None
    assert finding.id == identifier
    assert said in finding.meaning
    assert finding.cure


def test_honest_lines_match_nothing() -> None:
    for name in (
        "maxtext_classic.log",
        "maxtext_absl_prefixed.log",
        "levanter_tqdm_loggable.log",
        "tqdm_carriage_return.log",
    ):
        assert scan((LOGS / name).read_bytes()) == (), name


def test_the_survivors_name_the_dead_task() -> None:
    assert blamed_tasks((LOGS / "jax_peer_lost_rank0.err").read_bytes()) == (2,)


def test_a_barrier_names_all_that_were_missing() -> None:
    assert blamed_tasks((LOGS / "jax_barrier_timeout_old.log").read_bytes()) == (1, 2, 3, 4, 5, 6, 7)


def test_numbers_elsewhere_blame_nobody() -> None:
    assert blamed_tasks(b"step 5\nloss 3\n[Gloo] Rank 7 is connected to 31 peer ranks\n") == ()
    assert blamed_tasks((LOGS / "jax_never_came.err").read_bytes()) == ()


def test_a_symptom_never_hides_a_cause() -> None:
    findings = scan(
        (LOGS / "jax_peer_lost_rank0.err").read_bytes() + b"\nopen(/dev/vfio/0): Device or resource busy\n"
    )
    assert findings[0].id == "device-busy"
    found = cause(findings)
    assert found is not None
    assert found.id == "device-busy"


def test_survivors_alone_are_a_symptom() -> None:
    found = cause(scan((LOGS / "jax_peer_lost_rank0.err").read_bytes()))
    assert found is not None
    assert found.symptom


def test_boot_and_hang_logs_are_explained() -> None:
    boot = {finding.id for finding in scan((LOGS / "boot_apt_lock.log").read_bytes())}
    assert {
        "apt-lock",
        "registry-unreachable",
        "externally-managed",
        "disk-full",
        "registry-denied",
        "libpython",
    } <= boot
    hang = scan((LOGS / "megascale_hang.log").read_bytes())
    assert any("demo-slice1-w3" in finding.meaning for finding in hang)


@pytest.mark.parametrize("signature", catalogue(), ids=lambda each: each.id)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_line_that_matches_is_passed_over_for_want_of_a_hint(signature: Signature, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(signature.pattern))
    assert any(hint in line for hint in signature.hints)
    assert may_match(line)


def test_what_a_line_says_is_shown_safely() -> None:
    finding = match_line(b"No matching distribution found for \x1b]52;c;QUJD\x07evil")
    assert finding is not None
    assert "\x1b" not in finding.meaning + finding.line


def test_the_data_is_whole() -> None:
    identifiers = [signature.id for signature in catalogue()]
    assert len(identifiers) == len(set(identifiers))
    for signature in catalogue():
        assert signature.meaning.endswith((".", "}"))
        assert signature.cure.endswith(".")
