"""The tools from the console, by keys: check, free, setup, forward, copy, on real workers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from backend.context import Context
from backend.runs.model import RunState
from backend.targets import WorkerRef
from backend.tools.setup import is_setup
from backend.tools.ship import Answer
from tests.backend.tools.wheels import make_wheel
from tests.backend.tools.world import HOLD, fake_python, home_of
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.completion import complete_path
from tui.forwards import CLOSED, OPEN, REFUSED
from tui.screens.check import CheckScreen
from tui.screens.confirm import Ask, Pick, Question, TypedConfirmation
from tui.screens.copies import CopiesScreen, CopyFormScreen
from tui.screens.forwards import ForwardsScreen
from tui.screens.free import FreeScreen, rows
from tui.screens.run import RunScreen
from tui.screens.run_form import RunFormScreen, read_form, write_form
from tui.screens.setup import SetupFormScreen, SetupScreen
from tui.screens.tool_options import FreeOptions
from tui.screens.workers import WorkersScreen
from tui.widgets.table_filter import cell_text


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


@pytest.fixture
def context(simulator: Simulator) -> Context:
    return simulator.context


def hold(node: Path) -> subprocess.Popen[bytes]:
    """A process that has a device open."""
    return subprocess.Popen([sys.executable, "-c", HOLD, str(node)], stdout=subprocess.PIPE)


async def at_train_a(driven: Console) -> None:
    await driven.shows("train-a", "8/8")
    driven.app.show_request("train-a")
    await driven.until(lambda: [item.name for item in driven.app.root().chosen()] == ["train-a"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [SMALL, MEDIUM], ids=["80x24", "120x40"])
async def test_the_menu_of_tools_leads_to_a_check_that_puts_the_odd_worker_first(
    context: Context, simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    fake = home_of(simulator, "train-a/1/2") / ".slicetower" / "venv"
    if not fake.exists():
        fake_python(home_of(simulator, "train-a/1/2"), "0.9.9")
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        await at_train_a(driven)
        await driven.press("T")
        await driven.until(lambda: isinstance(driven.app.screen, Pick))
        await driven.shows("i  check", "F  free", "e  setup", "f  forward", "m  copy files")
        await driven.press("i")
        await driven.until(lambda: isinstance(driven.app.screen, CheckScreen))
        text = await driven.shows("8 workers", "✗ fail", "versions", "train-a/1/2", "coordinator")
        assert text.index("✗ fail") < text.index("✓ ok")
        await driven.shows("train-a/1/2: jax is 0.9.9 here", "e makes one environment on all")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, WorkersScreen))
        await driven.press("escape")
        await driven.press("e")
        await driven.until(lambda: isinstance(driven.app.screen, SetupFormScreen))
        await driven.shows("train-a", "8 workers")


async def test_a_check_that_names_nobody_says_so_and_can_be_tried_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("check train-x")
        await driven.shows("No queued resource is called 'train-x'", "train-a", "again.")
        await driven.press("escape")
        await driven.command("check big-c")
        await driven.shows("'big-c' has no workers: it is WAITING")


async def test_a_look_goes_on_with_words_and_is_cancelled_by_key(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(tower: object, workers: tuple[object, ...], *, told: object, **_more: object) -> None:
        told(workers[3], "waits for ssh")  # type: ignore[operator]
        await asyncio.Event().wait()

    monkeypatch.setattr("backend.tools.check.check", never)
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("check train-a")
        await driven.shows("train-a/0/3: waits for ssh", "Z cancel")
        await driven.press("Z")
        await driven.shows("check: cancelled", "Cancelled.")
        screen = driven.app.screen
        assert isinstance(screen, CheckScreen)
        assert not screen.is_working


async def test_a_holder_is_shown_stopped_only_when_typed_and_seen_gone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    for name in ("dev", "tmp", "var"):
        (root / name).mkdir(parents=True)
    node = root / "dev" / "accel0"
    node.write_bytes(bytes(4096))
    monkeypatch.setattr(FreeScreen, "options", FreeOptions(root=str(root)))
    holder = hold(node)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
            await driven.shows("train-a", "8/8")
            await driven.command("free train-a/0/0")
            await driven.shows("0 of 1 worker free", "held by 1 process; S stops them", str(holder.pid))
            await driven.press("S")
            await driven.until(lambda: isinstance(driven.app.screen, TypedConfirmation))
            await driven.write("train-a")
            await driven.press("enter")
            await driven.shows("nothing was sent")
            assert holder.poll() is None
            await driven.write("/0/0")
            await driven.press("enter")
            await driven.until(lambda: isinstance(driven.app.screen, FreeScreen))
            await driven.shows("1 of 1 worker free", "ended")
            assert holder.wait(10) is not None
            await driven.press("S")
            await driven.until(lambda: "nothing to stop" in driven.toasts())
    finally:
        if holder.poll() is None:
            holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


async def test_a_read_only_console_sees_holders_and_stops_nobody(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        driven.app.read_only = True
        await driven.shows("train-a", "8/8")
        await driven.command("free train-a/0/0")
        await driven.until(lambda: isinstance(driven.app.screen, FreeScreen))
        await driven.press("S")
        await driven.until(lambda: "read-only" in driven.toasts())
        await driven.press("escape")
        await driven.command("setup train-a")
        await driven.until(lambda: driven.toasts().count("read-only") > 1)
        assert not isinstance(driven.app.screen, SetupFormScreen)


async def test_a_setup_tells_its_progress_and_that_all_are_equal_and_is_known_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    make_wheel(index, "jax", "0.0.1")
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("setup train-a/0/0-1")
        await driven.until(lambda: isinstance(driven.app.screen, SetupFormScreen))
        form = driven.app.screen
        assert isinstance(form, SetupFormScreen)
        form.line("jax").value = "no version"
        await driven.shows("'no version' is no version of jax")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was sent" in driven.toasts())
        form.line("jax").value = ""
        form.line("python").value = sys.executable
        form.line("pip_options").value = f"--no-index --find-links={index}"
        await driven.shows("2 workers, all at once", "each worker runs exactly")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, SetupScreen))
        screen = driven.app.screen
        assert isinstance(screen, SetupScreen)
        await driven.until(lambda: "makes a venv" in driven.text or "installs jax" in driven.text, "its progress")
        await driven.until(lambda: screen.run_.state is RunState.ENDED, "the end of the setup")
        await driven.shows("equal on 2 workers: jax==0.0.1, python==")
        assert is_setup(screen.run_.request)
        await driven.press("escape", "4")
        await driven.shows("setup ")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, SetupScreen))


async def test_a_port_is_forwarded_listed_copied_and_closed(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"tensorboard")
        await writer.drain()
        writer.close()

    async with AsyncExitStack() as stack:
        driven = await stack.enter_async_context(console(context, tmp_path, monkeypatch, size=MEDIUM))
        await driven.until(lambda: driven.app.worker_at("train-a/0/0"))
        worker = driven.app.worker_at("train-a/0/0")
        assert worker is not None
        # The loopback of a simulated worker is its own address.
        server = await stack.enter_async_context(await asyncio.start_server(answer, worker.internal_ip, 0))
        port = server.sockets[0].getsockname()[1]
        taken = stack.enter_context(socket.socket())
        taken.bind(("127.0.0.1", port))
        taken.listen()
        await driven.press("0")
        await driven.shows("No port is forwarded")
        await driven.press("1")
        await at_train_a(driven)
        await driven.press("f")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.shows("train-a/0/0?")
        await driven.write("x")
        await driven.press("enter")
        await driven.shows("'x' is no port")
        await driven.press("backspace")
        await driven.write(f"{port}:0")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, ForwardsScreen))
        await driven.shows("http://127.0.0.1:", "open", str(port))
        (item,) = driven.app.forwards.items
        reader, writer = await asyncio.open_connection("127.0.0.1", int(item.local.rpartition(":")[2]))
        assert await reader.read() == b"tensorboard"
        writer.close()
        await driven.press("y")
        assert driven.app.clipboard == f"http://{item.local}"
        await driven.command(f"forward train-a/0/1 {port}")
        await driven.shows("refused", "can't be used")
        assert [each.state for each in driven.app.forwards.items] == [OPEN, REFUSED]
        driven.app.go()
        await driven.press("q")
        await driven.shows("1 forward will be closed: port")
        await driven.press("escape")
        await driven.press("0")
        await driven.until(lambda: isinstance(driven.app.screen, ForwardsScreen))
        await driven.press("home", "X")
        await driven.until(lambda: item.state == CLOSED)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(item.local.rpartition(":")[2]))
        await driven.press("enter")
        await driven.until(lambda: driven.app.forwards.items[-1].state == OPEN, "opened anew")


def test_a_lockfile_without_a_holder_is_told_with_its_owner_or_as_nobodys() -> None:
    lock: dict[str, Any] = {"path": "/tmp/libtpu_lockfile", "exists": True, "removed": False, "owners": []}
    facts: dict[str, Any] = {
        "free": False,
        "holders": [],
        "terminated": [],
        "killed": [],
        "refused": [],
        "lockfile": lock,
        "would_remove_lockfile": False,
    }
    worker = WorkerRef("p", "z", "train-a", 0, 0, "train-a-0", "1")
    (unseen,) = rows([Answer(worker, facts)])
    assert [cell_text(cell) for cell in unseen.cells[1:]] == [
        "locked",
        "",
        "",
        "/tmp/libtpu_lockfile is there, and whose it is cannot be seen from this user",
    ]
    owner = {"pid": 77, "user": "other", "command": "python3 warm.py"}
    (owned,) = rows([Answer(worker, {**facts, "lockfile": {**lock, "owners": [owner]}})])
    assert [cell_text(cell) for cell in owned.cells[1:4]] == ["locked", "77", "other"]
    assert "no chip" in cell_text(owned.cells[4])
    assert "python3 warm.py" in cell_text(owned.cells[4])
    (free,) = rows([Answer(worker, {**facts, "free": True, "lockfile": {**lock, "exists": False}})])
    assert [cell_text(cell) for cell in free.cells[1:]] == ["free", "", "", "nobody holds them"]


async def test_a_forward_to_nothing_says_so_until_something_listens_there(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.forwards.ASK_AGAIN_S", 0.1)
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.until(lambda: driven.app.worker_at("train-a/0/0"))
        worker = driven.app.worker_at("train-a/0/0")
        assert worker is not None
        with socket.socket() as server:
            server.bind((worker.internal_ip, 0))
            port = server.getsockname()[1]
            await driven.command(f"forward train-a/0/0 {port}:0")
            await driven.until(lambda: isinstance(driven.app.screen, ForwardsScreen))
            await driven.shows("open", f"Nothing listens on port {port} there yet")
            server.listen()
            await driven.until(lambda: "Nothing listens" not in driven.text, "an answer")
            assert driven.app.forwards.items[0].state == OPEN


async def test_files_go_to_all_workers_and_come_back_apart(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "notes.txt"
    source.write_text("from here")
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await at_train_a(driven)
        await driven.press("m")
        await driven.until(lambda: isinstance(driven.app.screen, CopyFormScreen))
        form = driven.app.screen
        assert isinstance(form, CopyFormScreen)
        form.line("sources").value = str(tmp_path / "nothing")
        await driven.shows("There is no file")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was copied" in driven.toasts())
        form.line("sources").value = str(source)
        form.line("destination").value = "~/copied.txt"
        await driven.shows("8 workers", "ctrl+r copies")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, CopiesScreen))
        await driven.shows("8 ok")
        await driven.press("escape")
        await driven.command("copy train-a/1/0-1")
        await driven.until(lambda: isinstance(driven.app.screen, CopyFormScreen))
        form = driven.app.screen
        assert isinstance(form, CopyFormScreen)
        form.line("direction").value = "from workers"
        form.line("sources").value = "~/copied.txt ~/none.txt"
        form.line("destination").value = str(tmp_path / "back")
        await driven.shows("a folder of its own")
        await driven.press("ctrl+r")
        await driven.shows("2 failed", "none.txt")
        await driven.press("escape")
        await driven.command("copy train-a/1/0-1")
        await driven.until(lambda: isinstance(driven.app.screen, CopyFormScreen))
        form = driven.app.screen
        assert isinstance(form, CopyFormScreen)
        form.line("direction").value = "from workers"
        form.line("sources").value = "~/copied.txt"
        form.line("destination").value = str(tmp_path / "back")
        await driven.shows("a folder of its own")
        await driven.press("ctrl+r")
        await driven.shows("2 ok")
    for worker in (0, 1):
        assert (tmp_path / "back" / f"train-a.1.{worker}" / "copied.txt").read_text() == "from here"


def test_a_path_is_completed_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "data-set").mkdir()
    (tmp_path / "dog").write_text("")
    assert complete_path(f"x {tmp_path}/da") == f"x {tmp_path}/data-set/"
    assert complete_path(f"{tmp_path}/do") == f"{tmp_path}/dog"
    assert complete_path(f"{tmp_path}/nope") is None
    assert complete_path(f"{tmp_path}/") is None


async def test_retry_keeps_the_policies_of_the_run(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("run train-a/0 -- echo $HOSTNAME | grep -q nobody")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
        form = driven.app.screen
        assert isinstance(form, RunFormScreen)
        for name, value in (("shell", "yes"), ("on_failure", "continue"), ("timeout", "90s"), ("environment", "A=b")):
            form.line(name).value = value
        await driven.shows("4 workers, all at once")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        first = driven.app.screen
        assert isinstance(first, RunScreen)
        await driven.until(lambda: first.run_.state is RunState.ENDED)
        await driven.press("R")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
        again = driven.app.screen
        assert isinstance(again, RunFormScreen)
        await driven.until(lambda: again.plan is not None)
        request, wrong = read_form(again.texts())
        assert wrong == {}
        assert (request.argv, request.shell, request.environment) == (
            ("echo $HOSTNAME | grep -q nobody",),
            True,
            (("A", "b"),),
        )
        assert (request.timeout_s, request.on_failure) == (90.0, "continue")
        assert write_form(request) == write_form(first.run_.request)


@pytest.mark.parametrize("detached", [False, True], ids=["attached", "detached"])
async def test_only_a_run_with_a_supervisor_offers_detaching(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detached: bool
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("run train-a/0 -- sleep 300")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
        form = driven.app.screen
        assert isinstance(form, RunFormScreen)
        form.line("detach").value = "yes" if detached else "no"
        await driven.until(lambda: form.plan is not None and form.plan.request.detach == detached)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows("4 running")
        assert ("& detach" in driven.text) == detached
        await driven.press("S")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("Stop it there")
        assert ("Detach" in driven.text) == detached
        await driven.press("1")
        await driven.shows("4 signalled")
