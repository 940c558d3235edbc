"""Machines listed by address, driven over a real sshd; mistakes in the list are told with their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.context import load_context
from backend.inventory import LISTED, ZONE
from backend.model import Fleet
from backend.outcomes import OperatorError
from backend.targets import select
from tests.simulator import run_cli
from tests.sshd import Sshd, StartSshd, start_sshd, write_key

__all__ = ["start_sshd"]


def context_file(folder: Path, text: str, *, name: str = "context.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def lab(first: Sshd, second: Sshd, *, host_key: str) -> str:
    return f"""\
name = "lab-context"
[[inventory]]
name = "lab"
user = "{first.user}"
key = "{first.key}"
port = {first.port}
accelerator_type = "tpu7x-16"
slices = [["{first.address}"], ["localhost:{second.port}"]]
[inventory.host_keys]
"{first.address}" = "{host_key}"
"""


@pytest.fixture
def pair(start_sshd: StartSshd) -> tuple[Sshd, Sshd]:
    """Two machines that accept the first one's key."""
    first, second = start_sshd(), start_sshd()
    (second.directory / "authorized_keys").write_text((first.directory / "authorized_keys").read_text())
    return first, second


def test_a_listed_cluster_without_any_cloud_is_shown_and_driven(tmp_path: Path, pair: tuple[Sshd, Sshd]) -> None:
    first, second = pair
    file = context_file(tmp_path, lab(first, second, host_key=first.host_key))
    done = run_cli(
        "--context-file", str(file), "run", "lab", "--format=json", "--", "sh", "-c", "echo $HOME", home=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    outputs = {line["target"]: line["output"].strip() for line in lines if "target" in line}
    assert outputs == {"lab/0/0": str(first.home), "lab/1/0": str(second.home)}
    assert lines[-1]["summary"] == {"ok": 2}
    one = run_cli("--context-file", str(file), "run", "lab/1", "--format=json", "--", "true", home=tmp_path)
    assert json.loads(one.stdout.splitlines()[0])["target"] == "lab/1/0"
    shown = run_cli("--context-file", str(file), "fleet", "--once", "--format=json", home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["node_id"], row["zone"], row["state"], row["accelerator_type"]) for row in rows] == [
        ("lab-0", ZONE, LISTED, "tpu7x-16"),
        ("lab-1", ZONE, LISTED, "tpu7x-16"),
    ]


def test_a_listed_host_key_is_checked_and_a_missing_one_is_trusted_and_said(
    tmp_path: Path, pair: tuple[Sshd, Sshd]
) -> None:
    first, second = pair
    other = write_key(tmp_path / "another")
    file = context_file(tmp_path, lab(first, second, host_key=other))
    done = run_cli("--context-file", str(file), "run", "lab", "--format=json", "--", "true", home=tmp_path)
    assert done.returncode == 3
    outcomes = {
        line["target"]: line["outcome"] for line in map(json.loads, done.stdout.splitlines()) if "target" in line
    }
    assert outcomes == {"lab/0/0": "unreachable", "lab/1/0": "ok"}
    assert first.programs() == []
    from backend.journal import Journal

    journal = Journal.open(tmp_path / ".state" / "slicetower" / "journal.db")
    told = [event.text for event in journal.events() if "trusted on first use" in event.text]
    journal.close()
    assert len(told) == 1
    assert told[0].startswith("The inventory has no host key for lab/1/0: ssh-ed25519 SHA256:")


def test_a_detached_run_is_followed_on_listed_machines(tmp_path: Path, pair: tuple[Sshd, Sshd]) -> None:
    first, second = pair
    file = context_file(tmp_path, lab(first, second, host_key=first.host_key))
    at = ("--context-file", str(file))
    assert run_cli(*at, "run", "lab", "--detach", "--", "echo", "hello", home=tmp_path).returncode == 0
    done = run_cli(*at, "logs", "last", "--follow", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["lab/0/0: hello", "lab/1/0: hello"]


def test_an_inventory_in_a_file_of_its_own_stands_beside_a_cloud(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    context_file(tmp_path / "lists", '[[inventory]]\nname = "lab"\nworkers = ["h1:2222", "[::1]:2223"]\nkey = "id"\n',
                 name="lab.toml")  # fmt: skip
    file = context_file(tmp_path, 'project = "p"\nzones = ["us-west4-a"]\ninventory = "lists/lab.toml"\n')
    context = load_context(file=file)
    (item,) = context.inventory.facts(context.project)
    assert (item.node_id, item.queued_resource, [worker.internal_ip for worker in item.workers]) == (
        "lab",
        "",
        ["h1", "::1"],
    )
    (listed,) = context.inventory.slices
    assert [(worker.port, worker.key) for worker in listed.workers] == [
        (2222, tmp_path / "lists" / "id"),
        (2223, tmp_path / "lists" / "id"),
    ]
    assert context.places == (("p", "us-west4-a"),)


def test_slices_of_an_entry_are_one_name_and_each_has_its_own(tmp_path: Path) -> None:
    file = context_file(tmp_path, '[[inventory]]\nname = "lab"\nslices = [["a", "b"], ["c", "d"]]\n')
    fleet = Fleet(standalone=load_context(file=file).inventory.facts(""), loaded=True)
    assert [each.address for each in select(fleet, ["lab"])] == ["lab/0/0", "lab/0/1", "lab/1/0", "lab/1/1"]
    assert [each.external_ip for each in select(fleet, ["lab/*/0"])] == ["a", "c"]
    assert [each.address for each in select(fleet, ["lab-1"])] == ["lab/1/0", "lab/1/1"]
    assert len(select(fleet, ["lab*"])) == 4


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ('[[inventory]]\nworkers = ["a"]\n', ":1:", "no name"),
        ('[[inventory]]\nname = "Lab 1"\nworkers = ["a"]\n', ":2:", "Lab 1"),
        ('[[inventory]]\nname = "a"\n', ":1:", "no workers"),
        ('[[inventory]]\nname = "a"\nworkers = ["x"]\nslices = [["y"]]\n', ":3:", "both"),
        ('[[inventory]]\nname = "a"\nslices = [["x"], []]\n', ":3:", "none of them empty"),
        ('[[inventory]]\nname = "a"\nworkers = ["x", "x"]\n', ":3:", "twice"),
        ('[[inventory]]\nname = "a"\nworkers = ["x y"]\n', "", "no address"),
        ('[[inventory]]\nname = "a"\nworkers = ["x"]\ncolour = "red"\n', ":4:", "no such key"),
        ('[[inventory]]\nname = "a"\nworkers = ["x"]\n[inventory.host_keys]\ny = "ssh-ed25519 AAAA"\n', "", "no worker 'y'"),
        ('[[inventory]]\nname = "a"\nworkers = ["x"]\n[inventory.host_keys]\nx = "AAAA"\n', ":5:", "no host key"),
        ('[[inventory]]\nname = "a"\nworkers = ["x"]\n[[inventory]]\nname = "a"\nworkers = ["z"]\n', "", "twice"),
        ('inventory = "nowhere.toml"\n', "", "nowhere.toml"),
        ('zones = ["z"]\n[[inventory]]\nname = "a"\nworkers = ["x"]\n', "", "project"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_list_is_told_with_its_place_and_cure(
    tmp_path: Path, text: str, place: str, what: str
) -> None:
    file = context_file(tmp_path, text)
    with pytest.raises(OperatorError) as caught:
        load_context(file=file)
    told = f"{caught.value.what} {caught.value.cure}"
    assert what in told
    assert place in told
    assert caught.value.cure
