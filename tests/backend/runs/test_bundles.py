"""Code shipping: what is packed, what is refused, and that equal content has one name."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from backend.runs import bundles
from backend.runs.bundles import Bundle


def names(bundle: Bundle) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.archive))) as archive:
        return archive.getnames()


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_what_git_would_ship_is_packed_and_nothing_else(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("tracked.py", "untracked.py", "ignored.log", "gone.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("*.log\n")
    git(tmp_path, "add", "tracked.py", "gone.py", ".gitignore")
    git(tmp_path, "commit", "-qm", "x")
    (tmp_path / "gone.py").unlink()
    bundle = bundles.from_directory(tmp_path)
    assert names(bundle) == [".gitignore", "tracked.py", "untracked.py"]


def test_a_folder_without_git_is_packed_without_caches(tmp_path: Path) -> None:
    for name in ("a.py", "deep/b.py", "__pycache__/a.pyc", ".venv/x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert names(bundles.from_directory(tmp_path)) == ["a.py", "deep/b.py"]


def test_equal_content_has_one_digest_whoever_packed_it_and_when(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
        (folder / "a.py").write_text("x = 1\n")
    os.utime(second / "a.py", (1, 1))
    assert bundles.from_directory(first).digest == bundles.from_directory(second).digest
    (second / "a.py").chmod(0o755)
    assert bundles.from_directory(first).digest != bundles.from_directory(second).digest


def test_the_digest_is_that_of_the_uncompressed_archive(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    bundle = bundles.from_directory(tmp_path)
    assert hashlib.sha256(gzip.decompress(bundle.archive)).hexdigest() == bundle.digest
    assert bundle.size == 6


def test_over_the_limit_is_refused_with_the_largest_files(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text("x")
    (tmp_path / "big.bin").write_bytes(b"x" * 5000)
    with pytest.raises(OperatorError) as caught:
        bundles.from_directory(tmp_path, limit=1000)
    assert caught.value.what.index("big.bin") < caught.value.what.index("small.py")


def test_a_link_that_leaves_the_folder_is_refused_and_one_inside_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "same.py").symlink_to("a.py")
    assert names(bundles.from_directory(tmp_path)) == ["a.py", "same.py"]
    (tmp_path / "out").symlink_to("/etc/hostname")
    with pytest.raises(OperatorError, match="outside"):
        bundles.from_directory(tmp_path)


def test_no_folder_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no folder"):
        bundles.from_directory(tmp_path / "missing")
    with pytest.raises(OperatorError, match="no files"):
        bundles.from_directory(tmp_path)


def test_names_of_any_kind_survive(tmp_path: Path) -> None:
    odd = ["blank name.py", "quote'\".py", "neu\nline.py", "\u00e9\u202e.py", os.fsdecode(b"bad\xff.py")]
    for name in odd:
        (tmp_path / name).write_text("x")
    assert sorted(names(bundles.from_directory(tmp_path))) == sorted(odd)
