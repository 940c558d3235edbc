from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from backend.context import Context, config_names, gcloud_context, is_loopback, load_context
from backend.notifications import NotificationSettings, load_notifications
from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths

GOOD = """
name = "demo"
label = "simulated"
project = "demo-project"
zones = ["us-west4-a", "us-east5-a"]
endpoint = "127.0.0.1:41001"
rest_endpoint = "http://127.0.0.1:41002"
transport = "insecure"
credentials = "none"
[ssh]
port = 41003
user = "operator"
key = "id_ed25519"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("CLOUDSDK_") or name == "GOOGLE_CLOUD_PROJECT":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


def config(home: Path, text: str) -> Path:
    return write(home / "config" / "slicetower" / "config.toml", text)


def test_a_context_file_gives_every_field_and_its_key_stands_beside_it(tmp_path: Path) -> None:
    context = load_context(file=write(tmp_path / "context.toml", GOOD))
    assert (context.name, context.label, context.project) == ("demo", "simulated", "demo-project")
    assert context.places == (("demo-project", "us-west4-a"), ("demo-project", "us-east5-a"))
    assert (context.endpoint, context.rest_endpoint) == ("127.0.0.1:41001", "http://127.0.0.1:41002")
    assert (context.transport, context.credentials) == ("insecure", "none")
    assert (context.ssh.port, context.ssh.user, context.ssh.key) == (41003, "operator", tmp_path / "id_ed25519")
    assert not context.read_only


def test_a_context_may_switch_off_that_workers_are_asked_for_ssh(tmp_path: Path) -> None:
    assert load_context(file=write(tmp_path / "context.toml", GOOD)).ssh.roll_call
    assert not load_context(file=write(tmp_path / "context.toml", f"{GOOD}roll_call = false\n")).ssh.roll_call
    with pytest.raises(OperatorError, match="roll_call"):
        load_context(file=write(tmp_path / "context.toml", f'{GOOD}roll_call = "sometimes"\n'))


def test_read_only_of_the_caller_wins(tmp_path: Path) -> None:
    assert load_context(file=write(tmp_path / "c.toml", GOOD), read_only=True).read_only


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('project = "demo-project"', "project = 3", 4, "project: must be a text"),
        ('project = "demo-project"', "", 0, "project is missing"),
        ('zones = ["us-west4-a", "us-east5-a"]', 'zones = "us-west4-a"', 5, "zones: must be a list"),
        ('zones = ["us-west4-a", "us-east5-a"]', "zones = []", 5, "no zone is named"),
        ('label = "simulated"', 'lable = "simulated"', 3, "lable: there is no such key"),
        ("port = 41003", "port = 70000", 11, "ssh.port: is 70000"),
        ("port = 41003", "port = true", 11, "must be a whole number"),
        ('user = "operator"', 'route = "carrier-pigeon"', 12, "'carrier-pigeon' is not known"),
        ('user = "operator"', 'route = "jump"', 12, "no jump host is given"),
        ('endpoint = "127.0.0.1:41001"', 'endpoint = "192.0.2.1:443"', 6, "'192.0.2.1:443' is not on this machine"),
        ("http://127.0.0.1:41002", "http://192.0.2.1", 7, "is not on this machine"),
        ('credentials = "none"', 'credentials = "adc"', 9, "never sent over an insecure transport"),
        ('transport = "insecure"', 'transport = "tls"', 7, "is not https"),
        ('name = "demo"', 'name = "demo', 2, ""),
    ],
)
def test_each_mistake_names_file_line_key_and_cure(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    file = write(tmp_path / "c.toml", GOOD.replace(old, new, 1))
    with pytest.raises(OperatorError) as caught:
        load_context(file=file)
    assert caught.value.what.startswith(f"{file}:{line}:" if line else str(file))
    assert words in caught.value.what
    assert caught.value.cure
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_misspelt_key_names_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        load_context(file=write(tmp_path / "c.toml", GOOD.replace("zones", "zone")))
    assert "zones" in caught.value.cure


def test_the_default_context_of_the_configuration_is_taken(home: Path) -> None:
    config(
        home,
        'default_context = "b"\n[contexts.a]\nproject="p-a"\nzones=["z-a"]\n'
        '[contexts.b]\nproject="p-b"\nzones=["z-b"]\n[contexts.b.ssh]\nkey="k"\n[prices]\nv5e = 1.2\n',
    )
    context = load_context()
    assert (context.name, context.project) == ("b", "p-b")
    assert context.ssh.key == home / "config" / "slicetower" / "k"
    assert context.price("v5e") == 1.2
    assert context.price("v4") is None
    assert config_names() == ("a", "b")
    assert load_context("a").project == "p-a"


def test_an_unknown_context_names_the_near_ones(home: Path) -> None:
    config(home, '[contexts.production]\nproject="p"\nzones=["z"]\n')
    with pytest.raises(OperatorError) as caught:
        load_context("prodution")
    assert "production" in caught.value.cure
    config(home, 'default_context = "x"\n')
    with pytest.raises(OperatorError, match="there is no context 'x'"):
        load_context()


def test_several_projects_are_several_places(home: Path) -> None:
    config(
        home,
        '[contexts.a]\nproject="p"\nzones=["z1"]\n[[contexts.a.also]]\nproject="q"\nzones=["z1", "z2"]\n',
    )
    assert load_context().places == (("p", "z1"), ("q", "z1"), ("q", "z2"))


def gcloud(home: Path, name: str, text: str) -> None:
    folder = home / ".config" / "gcloud"
    write(folder / "active_config", name)
    write(folder / "configurations" / f"config_{name}", text)


def test_without_a_configuration_gclouds_active_one_serves(home: Path) -> None:
    gcloud(home, "work", "[core]\nproject = pr\naccount = a@example.invalid\n[compute]\nzone = us-west4-a\n")
    context = load_context()
    assert (context.name, context.project, context.zones) == ("gcloud-work", "pr", ("us-west4-a",))
    assert (context.endpoint, context.transport, context.credentials) == ("tpu.googleapis.com", "tls", "adc")


def test_gclouds_own_variables_win_over_its_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcloud(home, "work", "[core]\nproject = pr\n[compute]\nzone = us-west4-a\n")
    write(home / "other" / "configurations" / "config_play", "[core]\nproject = from-play\n")
    environment = {
        "CLOUDSDK_CONFIG": str(home / "other"),
        "CLOUDSDK_ACTIVE_CONFIG_NAME": "play",
        "CLOUDSDK_COMPUTE_ZONE": "us-east5-a",
    }
    context = gcloud_context(environment)
    assert (context.project, context.zones) == ("from-play", ("us-east5-a",))


@pytest.mark.parametrize(
    ("text", "cure"),
    [("", "gcloud config set project"), ("[core]\nproject = pr\n", "gcloud config set compute/zone")],
)
def test_an_incomplete_gcloud_configuration_names_the_curing_command(home: Path, text: str, cure: str) -> None:
    gcloud(home, "work", text)
    with pytest.raises(OperatorError) as caught:
        load_context()
    assert cure in caught.value.cure


def test_an_empty_machine_is_pointed_to_the_demo(home: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        load_context()
    assert "slicetower demo" in caught.value.cure


def test_folders_are_private(home: Path) -> None:
    found = paths()
    for folder in (found.state_dir, found.runs_dir):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert found.journal == home / "state" / "slicetower" / "journal.db"
    assert found.config == home / "config" / "slicetower" / "config.toml"


@pytest.mark.parametrize(
    ("endpoint", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.8.7", True),
        ("localhost:80", True),
        ("[::1]:80", True),
        ("http://127.0.0.1:8/x", True),
        ("127.0.0.1.example.com:80", False),
        ("localhost.example.com", False),
        ("0.0.0.0:1", False),
        ("tpu.googleapis.com", False),
        ("http://user@192.0.2.1", False),
    ],
)
def test_only_this_machine_is_loopback(endpoint: str, loopback: bool) -> None:
    assert is_loopback(endpoint) is loopback


def test_a_context_holds_no_secret() -> None:
    assert "secret" not in " ".join(Context.__dataclass_fields__)


def test_the_documented_configuration_is_one_that_loads(home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    config(home, page.split("```toml\n")[1].split("```")[0])
    context = load_context()
    assert (context.name, context.project, len(context.places)) == ("research", "my-project", 3)
    assert load_notifications() == NotificationSettings()
    assert context.price("v5e") == 1.2
