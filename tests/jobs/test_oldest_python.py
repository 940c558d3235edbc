"""What is shipped to workers runs on their python3, which may be 3.8: syntax, library and what is evaluated at run time.

An interpreter of that age is not at hand everywhere: what is known to be newer is looked for in the text.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.supervised import BOUND_S, until, worker

PROGRAMS = Path(__file__).parents[2] / "jobs" / "programs"
SHIPPED = ("supervisor", "boot", "check", "outside", "free")
SIBLINGS = {"check": {"outside"}, "free": {"check"}}
OLDEST = (3, 8)

NEWER_NAMES = frozenset(
    {
        *(
            "cache",
            "removeprefix",
            "removesuffix",
            "bit_count",
            "is_relative_to",
            "hardlink_to",
            "walk_up",
            "unparse",
        ),
        *("file_digest", "pairwise", "batched", "lcm", "nextafter", "randbytes", "to_thread", "TaskGroup", "Runner"),
        *("ExceptionGroup", "BaseExceptionGroup", "add_note", "StrEnum", "BooleanOptionalAction", "aclosing"),
        *("pidfd_open", "pidfd_send_signal", "waitstatus_to_exitcode", "send_fds", "recv_fds", "unshare", "setns"),
        *("stdlib_module_names", "orig_argv", "override", "TypeAlias", "ParamSpec", "assert_never", "getencoding"),
    }
)
"""Attributes and names that came after 3.8, of the modules that such programs use."""
NEWER_ARGUMENTS = {
    "zip": {"strict"},
    "Popen": {"umask", "user", "group", "extra_groups", "pipesize", "process_group"},
    "run": {"umask", "user", "group", "extra_groups", "process_group"},
    "ArgumentParser": {"exit_on_error", "suggest_on_error", "color"},
    "glob": {"root_dir", "dir_fd", "include_hidden"},
    "bisect_left": {"key"},
    "bisect_right": {"key"},
    "shutdown": {"cancel_futures"},
    "dataclass": {"slots", "kw_only", "match_args"},
    "md5": {"usedforsecurity"},
    "sha256": {"usedforsecurity"},
    "rmtree": {"onexc", "dir_fd"},
    "open": set(),
}
NEWER_MODULES = frozenset({"tomllib", "zoneinfo", "graphlib"})
GENERICS = frozenset(
    {"dict", "list", "set", "frozenset", "tuple", "type", "Callable", "Iterator", "Iterable", "Popen"}
)


def tree_of(name: str) -> ast.Module:
    return ast.parse((PROGRAMS / f"{name}.py").read_text(), feature_version=OLDEST)


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but annotations, which `from __future__ import annotations` leaves alone."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield each
                yield from evaluated(each)


def too_new(tree: ast.Module) -> list[str]:
    found = []
    for node in evaluated(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute) and node.attr in NEWER_NAMES:
            found.append(f"{line}: .{node.attr}")
        elif isinstance(node, ast.Name) and node.id in NEWER_NAMES:
            found.append(f"{line}: {node.id}")
        elif isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            newer = NEWER_ARGUMENTS.get(called, set()) & {str(each.arg) for each in node.keywords}
            found += [f"{line}: {called}({name}=)" for name in newer]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in GENERICS:
            found.append(f"{line}: {node.value.id}[...] is evaluated")
    return found


def imported(tree: ast.Module) -> set[str]:
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return names | {str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_program_needs_nothing_newer_than_python_3_8(name: str) -> None:
    tree = tree_of(name)
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert [alias.name for node in future for alias in node.names] == ["annotations"]
    assert too_new(tree) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_program_stands_on_the_standard_library_and_its_siblings(name: str) -> None:
    own = imported(tree_of(name)) - SIBLINGS.get(name, set()) - {"jobs"}
    assert "jax" not in own
    assert own <= sys.stdlib_module_names
    assert not own & NEWER_MODULES
    assert "pkill" not in (PROGRAMS / f"{name}.py").read_text(), "processes are ended by their number"


@pytest.mark.parametrize(
    "text",
    [
        "'a'.removeprefix('b')",
        "x = dict[str, int]",
        "zip(a, b, strict=True)",
        "import functools\n@functools.cache\ndef f(): ...",
        "subprocess.Popen([], process_group=0)",
        "os.waitstatus_to_exitcode(1)",
    ],
)
def test_what_is_newer_is_found(text: str) -> None:
    assert too_new(ast.parse(text))


def test_annotations_may_say_what_they_like() -> None:
    assert too_new(ast.parse("def f(a: dict[str, int]) -> list[int]:\n    b: tuple[int, ...] = ()")) == []


def interpreters() -> list[str]:
    """Our own, and every other one from OLDEST on that is installed here, also below pyenv."""
    found = {}
    for minor in range(OLDEST[1], OLDEST[1] + 12):
        places = [
            shutil.which(f"python3.{minor}"),
            *sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")),
        ]
        found[minor] = next((str(place) for place in places if place is not None and works(str(place))), "")
    return [sys.executable, *(place for place in found.values() if place)]


def works(place: str) -> bool:
    """A name in the PATH may be a shim that leads nowhere."""
    return subprocess.run([place, "-c", ""], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("interpreter", interpreters())
def test_a_run_is_started_followed_stopped_and_looked_at_by_each_interpreter_that_is_here(
    tmp_path: Path, interpreter: str
) -> None:
    """Of a machine with none but our own this shows no more than the other tests do."""
    with worker(tmp_path, interpreter=interpreter) as here:
        assert here.start("r1", "echo one; echo two >&2; exit 3")["started"] is True
        ended = here.ended("r1")
        assert (ended["state"], ended["exit_code"]) == ("exited", 3)
        header, data = here.follow("r1", "--offset", "2")
        assert (header["offset"], data) == (2, b"e\ntwo\n")
        here.start("r2", "trap '' TERM; sleep 600 & wait; sleep 600")
        until(lambda: here.status("r2")["state"] == "running", "r2")
        assert here.say("stop", "r2", "--grace", "0.2")["survivors"] == []
        assert here.ended("r2")["signal"] == "KILL"
        here.start("r3", "sleep 600", timeout_s=0.2)
        assert here.ended("r3")["timed_out"] is True
        for program, code in (("check", 0), ("free", 0)):
            command = [interpreter, str(PROGRAMS / f"{program}.py"), "--root", str(tmp_path)]
            done = subprocess.run(command, capture_output=True, timeout=BOUND_S)
            assert done.returncode == code, done.stderr
            assert isinstance(json.loads(done.stdout), dict)
