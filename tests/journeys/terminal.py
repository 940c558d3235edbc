"""A real terminal for tests: tmux on its own socket and size, driven by keys, waited on by what the screen says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

POLL_S = 0.1


class ScreenTimeout(AssertionError):
    """The screen never showed what was waited for; carries what it showed instead."""


class Terminal:
    """One tmux server with one window.

    Args:
        directory: A temporary folder; nothing of the user's tmux is touched or read.
        argv: What runs in it; its exit ends the terminal, unless `keep` is set.
        size: (columns, rows).
        environment: Added to a small clean environment.
    """

    def __init__(
        self,
        directory: Path,
        argv: Sequence[str],
        *,
        size: tuple[int, int] = (80, 24),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if shutil.which("tmux") is None:
            raise RuntimeError("tmux is missing: apt-get install tmux (the journeys run in a real terminal)")
        self.size = size
        # Not in `directory`: the path of a socket may have 107 bytes, and pytest's folders are deep.
        self._socket_dir = Path(tempfile.mkdtemp(prefix="st-"))
        self._socket = self._socket_dir / "s"
        self._exit_file = directory / "exit-status"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "TERM": "tmux-256color",
            "COLORTERM": "truecolor",
            **(environment or {}),
        }
        command = f"{shlex.join(argv)}; echo $? > {shlex.quote(str(self._exit_file))}"
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-s", "journey", "-x", str(size[0]), "-y", str(size[1]),
            *(part for name, value in self._environment.items() for part in ("-e", f"{name}={value}")),
            "sh", "-c", command,
        )  # fmt: skip
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._tmux("set-option", "-sg", "escape-time", "0")

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env=self._environment,
        )
        if done.returncode:
            raise RuntimeError(f"tmux {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return done.stdout

    def screen(self) -> str:
        """What the terminal shows now, as text."""
        return self._tmux("capture-pane", "-p", "-t", "journey")

    def screen_with_colour(self) -> str:
        """The same with SGR sequences, for pictures."""
        return self._tmux("capture-pane", "-p", "-e", "-N", "-t", "journey")

    def press(self, *keys: str) -> None:
        """Presses keys by tmux's names (`Enter`, `Escape`, `C-p`, `j`)."""
        self._tmux("send-keys", "-t", "journey", *keys)

    def type(self, text: str) -> None:
        """Types text literally."""
        self._tmux("send-keys", "-t", "journey", "-l", text)

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the terminal, as dragging its corner does."""
        self.size = (columns, rows)
        self._tmux("resize-window", "-t", "journey", "-x", str(columns), "-y", str(rows))

    def wait_for(self, pattern: str, timeout_s: float = 90.0) -> re.Match[str]:
        """Waits until the screen matches a regular expression.

        Raises:
            ScreenTimeout: It never did; the last screen is in the message.
        """
        compiled = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        while True:
            screen = self.screen()
            match = compiled.search(screen)
            if match is not None:
                return match
            if time.monotonic() > deadline:
                raise ScreenTimeout(f"waited {timeout_s:.0f} s for {pattern!r}; the screen shows:\n{screen}")
            time.sleep(POLL_S)

    def wait_until_gone(self, pattern: str, timeout_s: float = 30.0) -> None:
        """Waits until the screen no longer matches."""
        compiled = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        while compiled.search(screen := self.screen()) is not None:
            if time.monotonic() > deadline:
                raise ScreenTimeout(f"waited {timeout_s:.0f} s for {pattern!r} to go; the screen shows:\n{screen}")
            time.sleep(POLL_S)

    def process_id(self) -> int:
        """The pid of the shell that runs the command."""
        return int(self._tmux("display-message", "-p", "-t", "journey", "#{pane_pid}").strip())

    def wait_for_exit(self, timeout_s: float = 30.0) -> int:
        """Waits for the command to end and gives its exit status."""
        deadline = time.monotonic() + timeout_s
        while not self._exit_file.exists() or not self._exit_file.read_text().strip():
            if time.monotonic() > deadline:
                raise ScreenTimeout(
                    f"the command did not end in {timeout_s:.0f} s; the screen shows:\n{self.screen()}"
                )
            time.sleep(POLL_S)
        return int(self._exit_file.read_text())

    def picture(self, path: Path, title: str = "slicetower") -> None:
        """Saves the screen as an SVG."""
        from rich.console import Console
        from rich.text import Text

        console = Console(record=True, width=self.size[0], file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
        console.print(Text.from_ansi(self.screen_with_colour().rstrip("\n")), end="")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without Rich's fonts from the net: a picture asks nobody for anything.
        svg = re.sub(r"@font-face\s*{[^}]*}\s*", "", console.export_svg(title=title))
        path.write_text(svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas"))

    def close(self) -> None:
        """Ends the tmux server that this terminal started, and with it what runs in it."""
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"],
            capture_output=True,
            timeout=90,
            check=False,
            env=self._environment,
        )
        shutil.rmtree(self._socket_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
