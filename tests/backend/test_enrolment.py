"""An operator whose key the nodes don't know: made, added to the metadata, refused with a reason; on a simulated Cloud TPU."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import asyncssh
import pytest

from backend.model import Slice
from backend.outcomes import OperatorError
from backend.ssh.connections import Unreachable
from backend.ssh.keys import create_key, load_identity
from backend.ssh.oslogin import profile_user
from backend.targets import WorkerRef, workers_of
from backend.tower import Tower
from tests.simulator import Simulator, SimulatorFactory, run_cli


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True, seed=11)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def new_key(tmp_path: Path) -> Path:
    path = tmp_path / "keys" / "id"
    create_key(path, "somebody@desk")
    return path


def public_line(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text().strip()


@asynccontextmanager
async def desk(
    sim: Simulator, key: Path | None, user: str, *, read_only: bool = False
) -> AsyncIterator[tuple[Tower, list[str]]]:
    """A tower whose key the simulated workers don't know, and what it announces."""
    context = sim.context
    context = replace(context, ssh=replace(context.ssh, key=key, user=user), read_only=read_only)
    async with Tower.open(context, watch=False) as tower:
        told: list[str] = []
        tower.announce = told.append
        await tower.refresh()
        yield tower, told


def first_slice(tower: Tower, name: str = "train-a") -> tuple[Slice, tuple[WorkerRef, ...]]:
    resource = tower.watch.fleet.find(name)[0]
    return resource.slices[0], tuple(each for each in workers_of(resource) if each.slice_index == 0)


async def metadata(tower: Tower, item: Slice) -> dict[str, str]:
    return await tower.client.node_metadata(item)


async def set_metadata(sim: Simulator, tower: Tower, item: Slice, values: Mapping[str, str]) -> None:
    """As another operator's tool would: over REST, the whole map."""
    place = f"{sim.rest}/v2/projects/{item.project}/locations/{item.zone}"
    url = f"{place}/nodes/{item.node_id}?updateMask=metadata"
    async with aiohttp.ClientSession() as session, session.patch(url, json={"metadata": dict(values)}) as answer:
        assert answer.status == 200, await answer.text()
        name = (await answer.json())["name"].rpartition("/")[2]
        ends_at = asyncio.get_running_loop().time() + 30
        while True:
            async with session.get(f"{place}/operations/{name}") as told:
                if (await told.json()).get("done"):
                    return
            assert asyncio.get_running_loop().time() < ends_at
            await asyncio.sleep(0.02)


async def test_a_refused_key_is_added_once_for_all_workers_beside_those_of_others(
    sim: Simulator, tmp_path: Path
) -> None:
    key = new_key(tmp_path)
    async with desk(sim, key, "ann") as (tower, told):
        item, workers = first_slice(tower)
        await tower.client.add_ssh_key(item, "bob", "ssh-ed25519 AAAAbob bob")
        before = await metadata(tower, item)
        await asyncio.gather(*(tower.pool.connection(worker) for worker in workers))
        after = await metadata(tower, item)
        assert after["ssh-keys"].splitlines() == [*before["ssh-keys"].splitlines(), f"ann:{public_line(key)}"]
        assert {**after, "ssh-keys": ""} == {**before, "ssh-keys": ""}
        assert len(told) == 1
        assert item.node_id in told[0]
        events = [event for event in tower.journal.events() if "was added to the metadata" in event.text]
        assert [event.subject for event in events] == ["train-a/0"]


async def test_a_read_only_context_adds_nothing_and_says_so(sim: Simulator, tmp_path: Path) -> None:
    async with desk(sim, new_key(tmp_path), "carl", read_only=True) as (tower, told):
        item, workers = first_slice(tower)
        before = await metadata(tower, item)
        with pytest.raises(Unreachable, match="read-only"):
            await tower.pool.connection(workers[0])
        assert await metadata(tower, item) == before
        assert not told


async def test_a_key_that_somebody_took_away_is_not_added_again(sim: Simulator, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with desk(sim, key, "dora") as (tower, _):
        item, workers = first_slice(tower)
        await tower.pool.connection(workers[0])
        kept = await metadata(tower, item)
        lines = [line for line in kept["ssh-keys"].splitlines() if not line.startswith("dora:")]
        assert len(lines) < len(kept["ssh-keys"].splitlines())
        await set_metadata(sim, tower, item, {**kept, "ssh-keys": "\n".join(lines)})
    async with desk(sim, key, "dora") as (tower, told):
        item, workers = first_slice(tower)
        with pytest.raises(Unreachable, match="taken it away"):
            await tower.pool.connection(workers[0])
        assert "dora:" not in (await metadata(tower, item))["ssh-keys"]
        assert not told


async def test_a_key_that_the_metadata_holds_already_is_left_alone(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key(tmp_path)
    async with desk(sim, key, "emil") as (tower, told):
        _, workers = first_slice(tower)
        pushed: list[str] = []

        async def holds(_item: Slice) -> dict[str, str]:
            return {"ssh-keys": f"bob:ssh-rsa B bob\nemil:{' '.join(public_line(key).split()[:2])} another comment"}

        async def push(_item: Slice, user: str, _key: str) -> bool:
            pushed.append(user)
            return True

        monkeypatch.setattr(tower.client, "node_metadata", holds)
        monkeypatch.setattr(tower.client, "add_ssh_key", push)
        with pytest.raises(Unreachable, match="holds the key for emil already"):
            await tower.pool.connection(workers[0])
        assert not pushed
        assert not told


async def test_a_cloud_that_refuses_the_metadata_is_the_reason_that_is_told(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(sim, new_key(tmp_path), "fred") as (tower, _):
        _, workers = first_slice(tower)

        async def refuse(_item: Slice, _user: str, _key: str) -> bool:
            raise OperatorError("You may not update this node.", "Ask for roles/tpu.admin.")

        monkeypatch.setattr(tower.client, "add_ssh_key", refuse)
        with pytest.raises(Unreachable, match="may not update") as caught:
            await tower.pool.connection(workers[0])
        assert "roles/tpu.admin" in caught.value.cure


# -- OS Login ------------------------------------------------------------------------------------------------------------


def gcloud_that_prints(tmp_path: Path, text: str, account: str = "") -> None:
    """A gcloud on the PATH that knows the operator's profile, and perhaps the account, and answers nothing else."""
    program = tmp_path / "bin" / "gcloud"
    program.parent.mkdir()
    known = f"'config get account') echo '{account}';;" if account else ""
    program.write_text(
        "#!/bin/sh\ncase \"$*\" in\n'compute os-login describe-profile '*) cat <<'E'\n"
        f"{text}\nE\n;;\n{known}\n*) exit 9;;\nesac\n"
    )
    program.chmod(0o755)


async def post(sim: Simulator, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.post(f"{sim.rest}/{path}", json=dict(body)) as answer:
        assert answer.status == 200, await answer.text()
        return dict(await answer.json())


async def set_project_metadata(sim: Simulator, values: Mapping[str, str]) -> None:
    """As `gcloud compute project-info add-metadata` would; all of it."""
    items = [{"key": key, "value": value} for key, value in values.items()]
    await post(sim, f"compute/v1/projects/{sim.context.project}/setCommonInstanceMetadata", {"items": items})


@asynccontextmanager
async def os_login_node(sim: Simulator, key: Path, user: str) -> AsyncIterator[tuple[Tower, list[str], WorkerRef]]:
    """A node with OS Login, whose metadata holds the key in vain."""
    async with desk(sim, key, user) as (tower, told):
        item, workers = first_slice(tower)
        before = await metadata(tower, item)
        given = {**before, "enable-oslogin": "TRUE", "ssh-keys": f"{user or 'me'}:{public_line(key)}"}
        await set_metadata(sim, tower, item, given)
        try:
            yield tower, told, workers[0]
            assert await metadata(tower, item) == given, "with OS Login the metadata is left alone"
        finally:
            await set_metadata(sim, tower, item, before)


async def test_with_os_login_the_profiles_user_logs_in(sim: Simulator, tmp_path: Path) -> None:
    """Whose account it is is not known here, so that the key can't be added; somebody has added it before."""
    accounts = [{"username": "sa_1"}, {"username": "gina_example_com", "primary": True}]
    gcloud_that_prints(tmp_path, json.dumps({"posixAccounts": accounts}))
    key = new_key(tmp_path)
    await post(sim, "v1/users/gina@example.com:importSshPublicKey", {"key": public_line(key)})
    async with os_login_node(sim, key, "") as (tower, told, worker):
        await tower.pool.connection(worker)
        assert any("logging in as gina_example_com" in text for text in told)
        assert (await tower.pool.route(worker)).user == "gina_example_com"


async def test_with_os_login_the_key_is_added_to_the_profile_once_for_all_workers(
    sim: Simulator, tmp_path: Path
) -> None:
    gcloud_that_prints(tmp_path, "no profile", account="hana@example.com")
    key = new_key(tmp_path)
    async with os_login_node(sim, key, "") as (tower, told, _):
        _, workers = first_slice(tower)
        await asyncio.gather(*(tower.pool.connection(worker) for worker in workers))
        added = [text for text in told if "was added to the OS Login profile of hana@example.com" in text]
        assert len(added) == 1
        assert {(await tower.pool.route(worker)).user for worker in workers} == {"hana_example_com"}
        events = [event.text for event in tower.journal.events() if "OS Login profile" in event.text]
        assert events == added


async def test_a_project_with_os_login_is_as_a_node_with_it(sim: Simulator, tmp_path: Path) -> None:
    gcloud_that_prints(tmp_path, "no profile", account="ina@example.com")
    await set_project_metadata(sim, {"enable-oslogin": "TRUE"})
    try:
        async with desk(sim, new_key(tmp_path), "") as (tower, told):
            item, workers = first_slice(tower)
            before = await metadata(tower, item)
            await tower.pool.connection(workers[0])
            assert any("profile of ina@example.com" in text for text in told)
            assert await metadata(tower, item) == before
    finally:
        await set_project_metadata(sim, {})


async def test_a_read_only_operator_adds_nothing_to_the_profile(sim: Simulator, tmp_path: Path) -> None:
    gcloud_that_prints(tmp_path, "no profile", account="joan@example.com")
    await set_project_metadata(sim, {"enable-oslogin": "TRUE"})
    try:
        async with desk(sim, new_key(tmp_path), "", read_only=True) as (tower, told):
            _, workers = first_slice(tower)
            with pytest.raises(Unreachable, match="uses OS Login"):
                await tower.pool.connection(workers[0])
            assert not told
        profile = f"{sim.rest}/v1/users/joan@example.com/loginProfile"
        async with aiohttp.ClientSession() as session, session.get(profile) as answer:
            assert (await answer.json())["sshPublicKeys"] == {}
    finally:
        await set_project_metadata(sim, {})


async def test_a_service_that_refuses_the_key_is_the_reason_that_is_told(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcloud_that_prints(tmp_path, "no profile", account="karl@example.com")
    async with os_login_node(sim, new_key(tmp_path), "") as (tower, _, worker):

        async def refuse(_project: str, _account: str, _key: str) -> dict[str, Any]:
            raise OperatorError("The OS Login API is switched off.")

        monkeypatch.setattr(tower.client, "import_login_key", refuse)
        with pytest.raises(Unreachable, match="The OS Login API is switched off"):
            await tower.pool.connection(worker)


async def test_a_key_of_the_projects_metadata_lets_in_without_touching_the_node_unless_it_blocks_them(
    sim: Simulator, tmp_path: Path
) -> None:
    key = new_key(tmp_path)
    await set_project_metadata(sim, {"ssh-keys": f"lena:{public_line(key)}"})
    try:
        async with desk(sim, key, "lena") as (tower, told):
            item, workers = first_slice(tower)
            before = await metadata(tower, item)
            await tower.pool.connection(workers[0])
            assert (await metadata(tower, item), told) == (before, [])
        async with desk(sim, key, "lena") as (tower, told):
            await set_metadata(sim, tower, item, {**before, "block-project-ssh-keys": "TRUE"})
            await tower.pool.connection(workers[0])
            assert f"lena:{public_line(key)}" in (await metadata(tower, item))["ssh-keys"]
            assert len(told) == 1
            await set_metadata(sim, tower, item, before)
    finally:
        await set_project_metadata(sim, {})


async def test_a_key_that_the_project_holds_already_is_not_added_to_the_node(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has not heard of it yet."""
    key = new_key(tmp_path)
    async with desk(sim, key, "mona") as (tower, told):
        item, workers = first_slice(tower)
        before = await metadata(tower, item)

        async def common(_project: str) -> dict[str, str]:
            return {"ssh-keys": f"bob:ssh-rsa B bob\nmona:{public_line(key)}"}

        monkeypatch.setattr(tower.client, "project_metadata", common)
        with pytest.raises(Unreachable, match="holds the key for mona already"):
            await tower.pool.connection(workers[0])
        assert (await metadata(tower, item), told) == (before, [])


async def test_a_context_without_those_services_asks_nobody(sim: Simulator, tmp_path: Path) -> None:
    context = replace(sim.context, compute_endpoint="", oslogin_endpoint="")
    async with Tower.open(context, watch=False) as tower:
        assert await tower.client.project_metadata("p") is None
        assert await tower.client.import_login_key("p", "a@b", "ssh-ed25519 A") is None


async def test_with_os_login_a_user_of_the_context_wins(sim: Simulator, tmp_path: Path) -> None:
    gcloud_that_prints(tmp_path, '{"posixAccounts": [{"username": "gina_example_com"}]}')
    async with os_login_node(sim, new_key(tmp_path), "henry") as (tower, told, worker):
        with pytest.raises(Unreachable, match="uses OS Login") as caught:
            await tower.pool.connection(worker)
        assert "henry" in caught.value.what
        assert not told


@pytest.mark.parametrize("profile", [None, "no JSON", '{"posixAccounts": []}'])
async def test_with_os_login_a_user_that_nobody_tells_is_said(
    sim: Simulator, tmp_path: Path, profile: str | None
) -> None:
    if profile is not None:
        gcloud_that_prints(tmp_path, profile)
    async with os_login_node(sim, new_key(tmp_path), "") as (tower, told, worker):
        with pytest.raises(Unreachable, match="can't be known") as caught:
            await tower.pool.connection(worker)
        assert "user =" in caught.value.cure
        assert not told


@pytest.mark.parametrize(
    ("profile", "user"),
    [
        ({"posixAccounts": [{"username": "a"}, {"username": "b", "primary": True}]}, "b"),
        ({"posixAccounts": [{"username": "a"}]}, "a"),
        ({"posixAccounts": []}, ""),
        ({"posixAccounts": "x"}, ""),
        ([], ""),
        ({"posixAccounts": [{"username": 7}]}, ""),
    ],
)
def test_the_user_of_a_profile_is_its_primary_account(profile: Any, user: str) -> None:
    assert profile_user(profile) == user


# -- a key that is made ----------------------------------------------------------------------------------------------------


def test_a_first_run_makes_a_key_adds_it_and_says_both(sim: Simulator, tmp_path: Path) -> None:
    text = sim.context_file.read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("key =", "user ="))]
    file = tmp_path / "context.toml"
    file.write_text("\n".join(lines).replace("[ssh]", '[ssh]\nuser = "newcomer"') + "\n")
    arguments = ["--context-file", str(file), "run", "train-a/1", "--", "echo", "in"]
    done = run_cli(*arguments, home=tmp_path)
    assert done.returncode == 0, done.stderr
    key = tmp_path / ".ssh" / "google_compute_engine"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert public_line(key).startswith("ssh-ed25519 ")
    assert f"{key} was made" in done.stderr
    assert done.stderr.count("was added to the metadata") == 1
    again = run_cli(*arguments, home=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "was made" not in again.stderr
    assert "was added" not in again.stderr
    assert sorted(key.parent.iterdir()) == [key, key.with_name(key.name + ".pub")]


def test_a_read_only_operator_without_a_key_gets_none(sim: Simulator, tmp_path: Path) -> None:
    text = sim.context_file.read_text()
    file = tmp_path / "context.toml"
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("key =")) + "\n")
    done = run_cli("--context-file", str(file), "--read-only", "check", "train-a/0/0", home=tmp_path)
    assert "no ssh key" in done.stderr + done.stdout
    assert not (tmp_path / ".ssh").exists()


async def test_many_who_need_a_key_at_once_make_one(tmp_path: Path) -> None:
    made: list[str] = []
    found = await asyncio.gather(*(load_identity(None, None, made.append) for _ in range(8)))
    assert len({each.public_key for each in found}) == 1
    assert len(made) == 1
    assert [path.name for path in sorted((tmp_path / ".ssh").iterdir())] == [
        "google_compute_engine",
        "google_compute_engine.pub",
    ]


async def test_a_public_key_without_its_private_one_is_not_overwritten(tmp_path: Path) -> None:
    public = tmp_path / ".ssh" / "google_compute_engine.pub"
    public.parent.mkdir()
    public.write_text("ssh-ed25519 AAAA on-a-token\n")
    with pytest.raises(OperatorError, match="not its private key"):
        await load_identity(None, None, lambda _text: None)
    assert public.read_text() == "ssh-ed25519 AAAA on-a-token\n"


async def test_an_agents_only_key_can_be_added_and_one_of_several_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(2)]
    held = keys[:1]

    class Agent:
        async def get_keys(self) -> list[asyncssh.SSHKeyPair]:
            return list(asyncssh.load_keypairs(held))

        def close(self) -> None: ...

    async def connect(_path: str) -> Agent:
        return Agent()

    monkeypatch.setenv("SSH_AUTH_SOCK", os.devnull)
    monkeypatch.setattr(asyncssh, "connect_agent", connect)
    one = await load_identity(None, None, lambda _text: None)
    assert one.public_key.split() == keys[0].export_public_key("openssh").decode().split()
    held.append(keys[1])
    assert (await load_identity(None, None, lambda _text: None)).public_key == ""
    assert not (tmp_path / ".ssh").exists(), "an agent with a key is enough"
