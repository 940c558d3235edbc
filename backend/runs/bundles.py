"""Code shipping: what git would ship of a folder, as one verified archive named by its content.

On a worker a bundle lies in `~/.slicetower/bundles/DIGEST/`, with `DIGEST.ok` beside it when it arrived whole. The digest is
that of the uncompressed archive, so equal content is shipped once, whoever packed it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backend.outcomes import OperatorError
from backend.sanitize import plain

BUNDLE_LIMIT_BYTES = 64 * 1024 * 1024
"""Uncompressed. Every worker gets a copy through the operator's own uplink: data belongs in a bucket."""

LARGEST_SHOWN = 5
GIT_TIMEOUT_S = 60.0
COMPRESS_LEVEL = 6

UNTRACKED_FOLDERS = frozenset(
    {".git", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache"}
)
"""Never shipped from a folder that git does not know."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle; `path` is relative, with forward slashes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A packed folder, ready to ship."""

    digest: str
    """Hexadecimal sha256 of the uncompressed archive."""
    source: str
    """The folder that it was packed from, or a name."""
    files: tuple[BundleFile, ...]
    archive: bytes = field(repr=False, compare=False)
    """gzip of a tar."""

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(item.size for item in self.files)

    @property
    def report(self) -> str:
        """`12 files, 34 KiB (9 KiB compressed)`."""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"{files}, {readable(self.size)} ({readable(len(self.archive))} compressed)"


def readable(size: int) -> str:
    """Bytes in words, in powers of 1024."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def from_files(files: Mapping[str, bytes], *, source: str) -> Bundle:
    """A bundle of texts in memory, as a bench ships its programs.

    Args:
        files: Content by relative path.
        source: What to call it.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            _add(archive, path, files[path], executable=False)
    return _finish(buffer.getvalue(), source, [BundleFile(path, len(files[path])) for path in sorted(files)])


def from_directory(
    folder: Path, *, limit: int = BUNDLE_LIMIT_BYTES, progress: Callable[[int, int], None] = lambda done, total: None
) -> Bundle:
    """Packs what git would ship of a folder (tracked, and untracked unless ignored), or all of a folder without git.

    Blocks: call it from a thread where a loop runs.

    Args:
        folder: What is packed.
        limit: Bytes, uncompressed.
        progress: Gets the bytes that are packed and those that there are, before each file, and 0 of 0 while they are
            looked for; what it raises breaks the packing off.

    Raises:
        OperatorError: No folder, nothing in it, over the limit (with the largest files), a link that leaves it, a file
            that can't be read.
    """
    if not folder.is_dir():
        raise OperatorError(
            f"--sync: there is no folder {plain(str(folder))}.", "Give the folder that holds the code."
        )
    root = folder.resolve()
    listed = _listed_by_git(root)
    paths = _walked(root, progress) if listed is None else listed
    kept = [path for path in paths if stat.S_ISLNK(mode := _mode(root / path)) or stat.S_ISREG(mode)]
    if not kept:
        raise OperatorError(
            f"--sync: {plain(str(folder))} holds no files that git would ship.", "Look at .gitignore."
        )
    sizes = [BundleFile(path, (root / path).lstat().st_size) for path in kept]
    total = sum(item.size for item in sizes)
    if total > limit:
        largest = sorted(sizes, key=lambda item: -item.size)[:LARGEST_SHOWN]
        named = ", ".join(f"{plain(item.path)} ({readable(item.size)})" for item in largest)
        raise OperatorError(
            f"--sync: {plain(str(folder))} holds {readable(total)}, over the limit of {readable(limit)}. Largest: {named}.",
            "Ignore them in .gitignore, or keep data in a bucket.",
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        done = 0
        for item in sizes:
            progress(done, total)
            _add_file(archive, root, item.path)
            done += item.size
        progress(total, total)
    return _finish(buffer.getvalue(), str(folder), sizes)


def _finish(tar: bytes, source: str, files: list[BundleFile]) -> Bundle:
    packed = gzip.compress(tar, COMPRESS_LEVEL, mtime=0)
    return Bundle(hashlib.sha256(tar).hexdigest(), source, tuple(files), packed)


def _mode(path: Path) -> int:
    """0 for what is listed and gone, as a file deleted but not yet committed is."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _listed_by_git(root: Path) -> list[str] | None:
    """None when the folder is not git's, or git is not there."""
    command = [
        "git",
        "-C",
        str(root),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_TIMEOUT_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return sorted(os.fsdecode(name) for name in done.stdout.split(b"\0") if name)


def _walked(root: Path, progress: Callable[[int, int], None]) -> list[str]:
    found: list[str] = []
    for current, folders, files in os.walk(root):
        progress(0, 0)
        folders[:] = [name for name in folders if name not in UNTRACKED_FOLDERS]
        here = Path(current).relative_to(root)
        linked = [name for name in folders if (Path(current) / name).is_symlink()]
        found.extend((here / name).as_posix() for name in [*files, *linked])
    return sorted(found)


def _add(archive: tarfile.TarFile, path: str, content: bytes, *, executable: bool) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    entry.mode = 0o755 if executable else 0o644
    archive.addfile(entry, io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, root: Path, path: str) -> None:
    full = root / path
    try:
        if full.is_symlink():
            target = os.readlink(full)
            inside = Path(os.path.normpath(full.parent / target))
            if os.path.isabs(target) or not inside.is_relative_to(root):
                raise OperatorError(
                    f"--sync: {plain(path)} is a link to {plain(target)}, outside the folder.",
                    "Copy the file into the folder, or ignore the link.",
                )
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            archive.addfile(entry)
            return
        _add(archive, path, full.read_bytes(), executable=bool(full.stat().st_mode & stat.S_IXUSR))
    except OSError as error:
        raise OperatorError(
            f"--sync: {plain(path)} can't be read: {error.strerror}.", "Mend its permissions, or ignore it."
        ) from error
