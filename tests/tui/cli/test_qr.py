"""`slicetower qr` and `operations` as an operator types them, against the simulator."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest

from backend.cloud.gcloud_parser import from_gcloud
from backend.outcomes import ExitCode
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.cli.qr_world import GOOD, QUOTA, Run, sent


def test_the_json_lines_of_list_have_the_documented_fields(run: Run, default: Simulator) -> None:
    done = run(default, "qr", "list", "--format", "json")
    assert done.code == ExitCode.OK
    documented = [
        "name", "zone", "state", "accelerator_type", "slices", "chips", "workers", "workers_ready", "tier",
        "created_at", "state_since", "state_since_is_lower_bound", "note",
    ]  # fmt: skip
    by_name = {line["name"]: line for line in done.lines}
    for line in by_name.values():
        assert list(line)[: len(documented)] == documented
    ready = by_name["train-a"]
    assert (ready["state"], ready["slices"], ready["chips"], ready["workers"]) == ("ACTIVE", 2, 32, 8)
    assert (ready["workers_ready"], ready["tier"], ready["note"]) == (8, "spot", "ready by the cloud's word")
    assert ready["state_since_is_lower_bound"] is True
    assert by_name["big-c"]["note"] == "15 min passed: ask your account team"
    assert by_name["taken-e"]["note"] == "never comes back, holds quota"


def test_list_is_narrowed_by_zone_and_state(run: Run, default: Simulator) -> None:
    """Other tests ask for capacity of their own in this simulator: what is listed beside its standing fleet must match too."""
    standing = {"train-a", "big-c", "old-d", "taken-e"}
    zone = run(default, "qr", "list", "--zone=us-east5-a", "--format=json").lines
    assert {line["name"] for line in zone} & standing == {"big-c", "taken-e"}
    assert {line["zone"] for line in zone} == {"us-east5-a"}
    failed = run(default, "qr", "list", "--state=failed", "--format=json").lines
    assert {line["name"] for line in failed} & standing == {"old-d"}
    assert {line["state"] for line in failed} == {"FAILED"}
    table = run(default, "qr", "list", "--state=FAILED").out.splitlines()
    assert table[0].split()[:3] == ["NAME", "ZONE", "STATE"]
    assert {row.split()[0] for row in table[1:]} & standing == {"old-d"}
    assert {row.split()[2] for row in table[1:]} == {"FAILED"}


@pytest.mark.parametrize(
    ("arguments", "what", "cure"),
    [
        (("create", "x", "--node-count=2", "--accelerator-type=v2-8", "--runtime-version=tpu-vm-base", "--zone=us-central1-a"),
         "Multislice needs v4", "v5litepod-16"),
        (("create", "x", "--node-count=257", *GOOD), "257 slices", "256"),
        (("create", "x", *GOOD[1:], "--accelerator-type=v5litepod-17"), "v5litepod-17", "v5litepod-16"),
        (("create", "x", *GOOD[::2], "--runtime-version=v2-alpha-tpuv6e"), "does not fit", "v2-alpha-tpuv5-lite"),
        (("create", "x", *GOOD[:2]), "No zone", "us-west4-a, us-east5-a"),
        (("create", *GOOD), "needs an id", "train-a"),
        (("create", "x", *GOOD, "--spot", "--reserved"), "exclude", "Choose one"),
        (("create", "x", *GOOD, "--metadata-from-file=startup-script=/no/such.sh"), "/no/such.sh", "path"),
        (("create", "x", *GOOD, "--type=v4", "--topology=2x2x4"), "two ways", "one of the two"),
        (("create", "train-a", *GOOD), "train-a exists already", "qr recreate train-a"),
        (("create", "x", "--node-id=train-a-0", *GOOD), "train-a-0", "Choose another"),
        (("create", "--from-gcloud", "gcloud compute tpus queued-resources create ${QR} --spot"), "${QR}", "value"),
        (("create", "x", "--from-gcloud", "gcloud compute tpus queued-resources create x", *GOOD), "two sources", "only"),
        (("create", "x", *GOOD, "--async", "--wait"), "exclude", ""),
        (("delete", "trian-a", "--yes"), "no queued resource trian-a", "train-a"),
        (("delete", "train-a", "--force"), "needs a confirmation", "--yes"),
        (("delete", "train-a", "old-d", "--force"), "needs a confirmation", "--yes"),
        (("delete", "old-d"), "needs a confirmation", "--yes"),
        (("delete", "train-a", "--yes"), "train-a is ACTIVE", "--force"),
        (("delete", "old-d", "train-a", "--dry-run"), "train-a is ACTIVE", "--force"),
        (("reset", "train-a"), "needs a confirmation", "--yes"),
        (("recreate", "train-a"), "needs a confirmation", "--yes"),
        (("cleanup",), "needs a confirmation", "--yes"),
        (("wait", "nobody"), "no queued resource nobody", "big-c"),
        (("describe", "nobody"), "no queued resource nobody", ""),
        (("maintenance", "train-a", "--start", "--yes"), "cannot be started", "can_reschedule"),
        (("maintenance", "train-a", "--node", "zzz"), "no slice zzz", "train-a-0"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_bad_input_exits_2_with_one_sentence_and_its_cure_and_nothing_is_sent(
    run: Run, default: Simulator, arguments: tuple[str, ...], what: str, cure: str
) -> None:
    before = sent(run, default)
    done = run(default, "qr", *arguments)
    assert done.code == ExitCode.USAGE, done.err
    assert done.out == ""
    assert what in done.err
    assert cure in done.err
    assert sent(run, default) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "x", *GOOD),
        ("delete", "train-a", "--force", "--yes"),
        ("reset", "train-a", "--yes"),
        ("recreate", "train-a", "--yes"),
        ("cleanup", "--yes"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_read_only_refuses_every_change_and_a_dry_run_needs_none(
    run: Run, default: Simulator, arguments: tuple[str, ...]
) -> None:
    before = sent(run, default)
    done = run(default, "qr", *arguments, before=("--read-only",))
    assert done.code == ExitCode.USAGE
    assert "read-only" in done.err
    dry = run(default, "qr", *arguments, "--dry-run", "--format=json", before=("--read-only",))
    assert dry.code == ExitCode.OK, dry.err
    assert dry.lines
    assert all(line["dry_run"] is True for line in dry.lines)
    assert sent(run, default) == before


def test_a_dry_run_prints_the_request_and_commands_that_ask_for_the_same(run: Run, default: Simulator) -> None:
    flags = (*GOOD, "--node-count=2", "--spot", "--metadata=^;^startup-script=echo a,b;k=v", "--tags=a,b")
    done = run(default, "qr", "create", "x1", *flags, "--dry-run", "--format=json")
    (line,) = done.lines
    assert line["body"]["tpu"]["nodeSpec"][0]["multiNodeParams"] == {"nodeCount": 2}
    assert line["body_v2"]["tpu"]["nodeSpec"][0]["multisliceParams"] == {"nodeCount": 2}
    assert line["carrier"] == "grpc v2alpha1"
    request = from_gcloud(line["gcloud"])
    assert request.metadata == (("startup-script", "echo a,b"), ("k", "v"))
    assert request == from_gcloud(line["gcloud_alpha"])
    assert json.loads(shlex.split(line["curl"])[shlex.split(line["curl"]).index("-d") + 1]) == line["body"]
    flex = run(default, "qr", "create", "x1", *GOOD, "--provisioning-model=flex-start", "--dry-run", "--format=json")
    assert flex.lines[0]["carrier"] == "rest v2alpha1"
    assert flex.lines[0]["gcloud"] is None


def test_the_journey_create_wait_describe_reset_preempt_recreate_delete(
    run: Run, simulators: SimulatorFactory
) -> None:
    world = simulators(scenario="empty", fresh=True)
    made = run(world, "qr", "create", "pod", "--node-count=2", *GOOD, "--spot", "--format=json")
    assert made.code == ExitCode.OK, made.err
    assert [line["name"] for line in made.lines] == ["pod"]
    ready = run(world, "qr", "wait", "pod", "--timeout=120s", "--format=json")
    assert ready.code == ExitCode.OK, ready.err
    assert (ready.lines[0]["state"], ready.lines[0]["workers_ready"]) == ("ACTIVE", 8)
    assert "ACTIVE, ready: ssh answers on 8 workers" in ready.err
    full = run(world, "qr", "describe", "pod", "--format=json").lines[0]
    assert full["state"]["state"] == "ACTIVE"
    assert [each["node_id"] for each in full["slices"]] == ["pod-0", "pod-1"]
    assert full["timeline"][-1]["state"] == "ACTIVE"
    assert "--zone=us-west4-a" in full["equivalent"]["gcloud"]
    reset = run(world, "qr", "reset", "pod", "--yes", "--format=json")
    assert (reset.code, reset.lines[0]["done"]) == (ExitCode.OK, True)
    world.inject("preempt", "pod")
    dead = run(world, "qr", "wait", "pod", "--state=SUSPENDED", "--timeout=120s", "--format=json")
    assert (dead.code, dead.lines[0]["note"]) == (ExitCode.OK, "never comes back, holds quota")
    hopeless = run(world, "qr", "wait", "pod", "--timeout=120s")
    assert hopeless.code == ExitCode.CLOUD
    assert "qr recreate pod" in hopeless.err
    again = run(world, "qr", "recreate", "pod", "--yes", "--wait", "--format=json")
    assert again.code == ExitCode.OK, again.err
    assert again.lines[0]["workers_ready"] == 8
    assert again.lines[0]["created_at"] != made.lines[0]["created_at"]
    refused = run(world, "qr", "delete", "pod", "--yes", "--format=json")
    assert (refused.code, refused.out) == (ExitCode.USAGE, "")
    assert "--force" in refused.err
    deleted = run(world, "qr", "delete", "pod", "--yes", "--force", "--format=json")
    assert deleted.code == ExitCode.OK, deleted.err
    assert deleted.lines == [{"name": "pod", "zone": "us-west4-a", "deleted": True, "accepted": True, "error": None}]
    assert run(world, "qr", "list", "--format=json").out == ""
    verbs = [line["verb"] for line in run(world, "operations", "list", "--format=json").lines]
    assert sorted(verbs) == ["create", "create", "delete", "delete", "reset"]


def test_create_async_gives_the_operation_that_can_be_described(run: Run, empty: Simulator) -> None:
    made = run(empty, "qr", "create", "later", *GOOD, "--async", "--format=json")
    assert made.code == ExitCode.OK, made.err
    operation = made.lines[0]["operation"]
    shown = run(empty, "operations", "describe", operation, "--format=json").lines[0]
    assert (shown["verb"], shown["target"].rsplit("/", 1)[1]) == ("create", "later")
    near = run(empty, "operations", "describe", "operation-none")
    assert near.code == ExitCode.USAGE
    assert shown["name"] in near.err
    assert run(empty, "qr", "delete", "later", "--force", "--yes").code == ExitCode.OK


@pytest.mark.parametrize("form", ["gcloud", "toml", "json"])
def test_a_request_from_a_file_is_the_same_request(run: Run, default: Simulator, tmp_path: Path, form: str) -> None:
    text = {
        "gcloud": "gcloud compute tpus queued-resources create from-file --node-count=2 --spot \\\n"
        "  --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --zone=us-west4-a --tags=a,b\n",
        "toml": 'name = "from-file"\nnode-count = 2\ntier = "spot"\naccelerator-type = "v5litepod-16"\n'
        'runtime-version = "v2-alpha-tpuv5-lite"\nzone = "us-west4-a"\ntags = ["a", "b"]\n',
        "json": json.dumps(
            {
                "spot": {},
                "tpu": {
                    "node_spec": [
                        {
                            "node": {
                                "accelerator_type": "v5litepod-16",
                                "runtime_version": "v2-alpha-tpuv5-lite",
                                "network_config": {"enable_external_ips": True},
                                "tags": ["a", "b"],
                            },
                            "multi_node_params": {"node_count": 2},
                        }
                    ]
                },
            }
        ),
    }[form]
    file = tmp_path / "request"
    file.write_text(text)
    arguments = ("create", *(("from-file", "--zone=us-west4-a") if form == "json" else ()), "--from-file", str(file))
    from_file = run(default, "qr", *arguments, "--dry-run", "--format=json")
    assert from_file.code == ExitCode.OK, from_file.err
    by_flags = run(default, "qr", "create", "from-file", "--node-count=2", "--spot", "--tags=a,b", *GOOD, "--dry-run",
                   "--format=json")  # fmt: skip
    assert from_file.lines[0]["body"] == by_flags.lines[0]["body"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nmae = 'x'\n", "'nmae'"),
        ("node-count = 'two'\n", "node_count"),
        ("tier = 'cheap'\n", "tier"),
        ("tags = 'a'\n", "tags"),
        ("{broken", "JSON"),
        ("= = =", "neither JSON, nor TOML"),
    ],
)
def test_a_mistake_in_a_file_is_named(run: Run, default: Simulator, tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "request"
    file.write_text(text)
    done = run(default, "qr", "create", "x", "--from-file", str(file))
    assert done.code == ExitCode.USAGE
    assert named in done.err


def test_a_public_key_goes_into_the_metadata_and_a_private_one_never(
    run: Run, default: Simulator, tmp_path: Path
) -> None:
    public, private = tmp_path / "key.pub", tmp_path / "key"
    public.write_text("ssh-ed25519 AAAA me\n")
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    flags = ("qr", "create", "x", *GOOD, "--ssh-user=op", "--dry-run", "--format=json", "--ssh-key")
    done = run(default, *flags, str(public))
    assert done.lines[0]["body"]["tpu"]["nodeSpec"][0]["node"]["metadata"] == {"ssh-keys": "op:ssh-ed25519 AAAA me"}
    refused = run(default, *flags, str(private))
    assert refused.code == ExitCode.USAGE
    assert "no public key" in refused.err
    assert "BEGIN" not in refused.err + refused.out


def test_the_name_typed_on_a_terminal_confirms_and_another_text_does_not(
    run: Run, empty: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert run(empty, "qr", "create", "typed", *GOOD).code == ExitCode.OK
    monkeypatch.setattr("sys.stdin", Terminal("type\n"))
    left = run(empty, "qr", "delete", "typed", "--force")
    assert left.code == ExitCode.USAGE
    assert "Nothing was done" in left.err
    assert run(empty, "qr", "describe", "typed").code == ExitCode.OK
    monkeypatch.setattr("sys.stdin", Terminal("typed\n"))
    gone = run(empty, "qr", "delete", "typed", "--force")
    assert gone.code == ExitCode.OK, gone.err
    assert "16 chips" in gone.err
    assert run(empty, "qr", "describe", "typed").code == ExitCode.USAGE


def test_a_wait_that_takes_too_long_exits_124(run: Run, default: Simulator) -> None:
    done = run(default, "qr", "wait", "big-c", "--timeout=1s")
    assert done.code == ExitCode.TIMED_OUT
    assert "WAITING_FOR_RESOURCES" in done.err


def test_a_create_that_was_cancelled_in_time_ends_with_that_word(run: Run, simulators: SimulatorFactory) -> None:
    world = simulators(scenario="empty", fresh=True)
    world.inject("slow", "operations", "100000", "--queued", "--for", "1000000")
    made = run(world, "qr", "create", "late", *GOOD, "--async", "--format=json")
    assert made.code == ExitCode.OK, made.err
    name = made.lines[0]["operation"].rpartition("/")[2]
    cancelled = run(world, "operations", "cancel", name, "--yes")
    assert cancelled.code == ExitCode.OK, cancelled.err
    told = run(world, "operations", "describe", name, "--format=json").lines[0]
    assert (told["done"], told["error"]["code"]) == (True, 1)
    assert run(world, "qr", "list", "--format=json").out == ""
    again = run(world, "qr", "create", "late", *GOOD, "--async")
    assert again.code == ExitCode.OK, again.err


def test_what_the_cloud_refuses_exits_4_with_its_words(run: Run, simulators: SimulatorFactory) -> None:
    world = simulators(fresh=True)
    world.inject("error", "CreateQueuedResource", "RESOURCE_EXHAUSTED", QUOTA)
    done = run(world, "qr", "create", "x", *GOOD)
    assert done.code == ExitCode.CLOUD
    assert "the quota TPUV5sLitepodPerProjectPerZoneForTPUAPI is used up (limit 8 in us-west4-a)" in done.err
    assert "qr cleanup" in done.err
    assert f"RESOURCE_EXHAUSTED: {QUOTA}" in done.err
    world.inject("clear")
    later = run(world, "qr", "create", "y", "--accelerator-type=v5litepod-64", *GOOD[1:])
    assert "the last limit told was 8 (by an error of" in later.err
    world.inject("error", "List*", "PERMISSION_DENIED", "no")
    unknown = run(world, "qr", "list")
    assert unknown.code == ExitCode.CLOUD
    assert unknown.out == ""
    assert "No queued resources" not in unknown.err


def test_escape_sequences_in_the_services_words_reach_no_terminal(run: Run, simulators: SimulatorFactory) -> None:
    world = simulators(scenario="empty", fresh=True)
    world.inject("error", "CreateQueuedResource", "INVALID_ARGUMENT", "bad \x1b]0;owned\x07 \x1b[31mred \u202e end")
    done = run(world, "qr", "create", "x", *GOOD)
    assert done.code == ExitCode.CLOUD
    assert "end" in done.err
    assert not set(done.err) & {"\x1b", "\x07", "\u202e"}


def test_cancelling_an_operation_is_confirmed_and_dry_runs(
    run: Run, default: Simulator, simulators: SimulatorFactory
) -> None:
    world = simulators(scenario="empty", fresh=True)
    world.inject("slow", "operations", "100000")
    made = run(world, "qr", "create", "slowly", *GOOD, "--async", "--format=json").lines[0]
    name = made["operation"].rsplit("/", 1)[1]
    assert run(world, "operations", "cancel", name).code == ExitCode.USAGE
    dry = run(world, "operations", "cancel", name, "--dry-run", "--format=json").lines[0]
    assert f"{name}:cancel" in dry["curl"]
    assert run(world, "operations", "list", "--running", "--format=json").lines[0]["cancel_requested"] is False
    done = run(world, "operations", "cancel", name, "--yes", "--format=json")
    assert done.code == ExitCode.OK, done.err
    assert done.lines[0]["cancel_requested"] or done.lines[0]["done"]


def test_what_a_create_would_hold_is_said_before_it_is_sent(run: Run, default: Simulator) -> None:
    done = run(default, "qr", "create", "over", "--node-count=200", *GOOD, "--spot")
    assert "v5e spot in us-west4-a: " in done.err
    assert "3200 more asked for; " in done.err


def test_a_reservation_that_the_zone_does_not_list_is_warned_of_with_near_names(run: Run, default: Simulator) -> None:
    done = run(
        default, "qr", "create", "booked", *GOOD[:2], "--zone=us-east5-a", "--reserved", "--reservation=team-v5"
    )
    assert "us-east5-a lists no reservation team-v5. Did you mean team-v5p?" in done.err


def test_what_a_refused_recreate_deleted_is_printed_and_can_be_asked_for_again(
    run: Run, simulators: SimulatorFactory
) -> None:
    own = simulators(fresh=True)
    own.inject("error", "CreateQueuedResource", "INVALID_ARGUMENT", "bad")
    refused = run(own, "qr", "recreate", "old-d", "--yes")
    assert refused.code == ExitCode.CLOUD
    assert "--from-recreate old-d" in refused.err
    (command,) = [line for line in refused.err.splitlines() if "queued-resources create old-d" in line]
    own.inject("clear")
    assert run(own, "qr", "list", "--format=json", "--state=failed").lines == []
    shown = run(own, "qr", "create", "--from-recreate=old-d", "--dry-run", "--format=json")
    by_hand = from_gcloud(command.partition(": ")[2], project="demo-project", zone="us-west4-a")
    assert from_gcloud(shown.lines[0]["gcloud_alpha"], project="demo-project", zone="us-west4-a") == by_hand
    made = run(own, "qr", "create", "--from-recreate=old-d", "--async")
    assert made.code == ExitCode.OK, made.err
    unknown = run(own, "qr", "create", "--from-recreate=nobody")
    assert unknown.code == ExitCode.USAGE
    assert "There are old-d." in unknown.err
