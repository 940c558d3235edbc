"""The child process of a preflight: started, asked, and ended with everything that it began."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

COMPILE_LIMIT_S = 1800.0
"""For one compilation: 4 layers for 32 chips took 10 to 70 s on two cores."""
CANCEL_GRACE_S = 5.0
LINE_LIMIT_BYTES = 4 * 1024 * 1024
CURE = "Install it beside slicetower (`pip install 'slicetower[preflight]'`), or name a Python that has it with --python."


class PreflightError(Exception):
    """Why there is no answer; `cure` says what to do."""

    def __init__(self, what: str, cure: str = "") -> None:
        super().__init__(f"{what} {cure}".strip())
        self.what = what
        self.cure = cure


class Compiler:
    """One child process, which compiles for a topology as often as it is asked."""

    def __init__(self, words: Sequence[str], python: str) -> None:
        """
        Args:
            words: Flags of `jobs.programs.preflight`.
            python: An interpreter with jax and libtpu.
        """
        self._python = python
        self._words = ("-m", "jobs.programs.preflight", *words)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._errors = bytearray()
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """
        Raises:
            PreflightError: The interpreter can't be run.
        """
        root = str(Path(str(resources.files("jobs"))).parent)
        # Some libtpu write tpu_driver.* logs beside other temporary files whatever TPU_LOG_DIR says.
        self._folder = tempfile.TemporaryDirectory(prefix="slicetower-preflight-", ignore_cleanup_errors=True)
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": root, "TMPDIR": self._folder.name},
                start_new_session=True,
                limit=LINE_LIMIT_BYTES,
            )
        except OSError as error:
            self._folder.cleanup()
            raise PreflightError(f"{self._python} can't be run: {error.strerror}.", CURE) from error
        self._reading = asyncio.create_task(self._read_errors())

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(65536):
            self._errors.extend(data)
            del self._errors[:-65536]

    async def versions(self) -> dict[str, str]:
        """Of what decides the answer.

        Raises:
            PreflightError: jax or libtpu is missing, or the child failed.
        """
        message = await self._message(("versions",), lambda text: None)
        told = {str(name): str(value) for name, value in message.items()}
        missing = [name for name in ("jax", "libtpu") if not told.get(name)]
        if missing:
            raise PreflightError(f"The preflight needs {' and '.join(missing)}, which {self._python} lacks.", CURE)
        return told

    async def compile(self, size: int, progress: Callable[[str], None]) -> dict[str, Any]:
        """Its `compiled` message for a batch of `size` rows a device.

        Raises:
            PreflightError: It failed, or took longer than COMPILE_LIMIT_S.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{size}\n".encode())
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # its last words are still to be read
        return await self._message(("compiled",), progress)

    async def _message(self, wanted: tuple[str, ...], progress: Callable[[str], None]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(COMPILE_LIMIT_S):
                while line := await self._process.stdout.readline():
                    message = _json_of(line)
                    if "error" in message:
                        error = message["error"]
                        raise PreflightError(str(error.get("what", "")), str(error.get("cure", "")))
                    if "progress" in message:
                        progress(str(message["progress"]))
                    for name in wanted:
                        if isinstance(message.get(name), dict):
                            found: dict[str, Any] = message[name]
                            return found
                await self._process.wait()
        except TimeoutError:
            raise PreflightError(
                f"The compiler did not answer within {COMPILE_LIMIT_S:g} s.", "Compile a smaller model first."
            ) from None
        said = bytes(self._errors).decode("utf-8", "replace").strip().splitlines()
        raise PreflightError(
            f"The compiler's process ended with code {self._process.returncode}: {said[-1] if said else 'no word'}."
        )

    async def end(self) -> None:
        """Ends the child and all that it started, and removes its temporary files."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(CANCEL_GRACE_S):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if self._reading is not None:
            await self._reading
        if self._folder is not None:
            self._folder.cleanup()


def _json_of(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
