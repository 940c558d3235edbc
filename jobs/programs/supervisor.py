"""Keeps one program of a run alive on a worker, whatever becomes of the connection that started it.

Shipped to workers: standard library alone, Python 3.8 and newer. Used as `python3 supervisor.py VERB ...`:

    start                                reads a request, launches it once, answers at once
    status RUN...                        one JSON object per run
    follow RUN [--inode I] [--offset N]  a JSON header, then the output's raw bytes until the run has ended
    stop RUN [--grace S]                 TERM, then KILL, to everything that the run started; verified
    list ; prune [--keep N] [--older-than S]

Files, in ~/.slicetower/runs/RUN/ (0700): making the folder is the lock, so a run is launched at most once. `output`
takes stdout and stderr; the program writes it itself, so a death of the supervisor costs no byte. `status.json` is
replaced atomically, from a spare file whose blocks are allocated beforehand: it can be written on a full disk.

The supervisor is a subreaper (prctl(2)): what the program starts stays below it, in whatever session or group, and
can be found and stopped. Limits are kept on the monotonic clock. Values of environment variables are never stored.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import re
import select
import shutil
import signal
import sys
import time
from typing import Any, Dict  # noqa: UP035 (Python 3.8 evaluates the alias below)

RUN_VARIABLE = "SLICETOWER_RUN"
"""In the environment of everything that a run starts: its id."""
FOLDER_VARIABLE = "SLICETOWER_RUN_FOLDER"
"""Beside it, the run's folder: unlike the id, it is one worker's alone."""
BOOT_ID_VARIABLE = "SLICETOWER_BOOT_ID_FILE"
"""May name another file that holds the boot id (containers share their machine's)."""
STATUS_BYTES = 4096
"""A status is padded to this size, so that its replacement never needs more blocks."""
CHUNK = 256 * 1024
"""Bytes per read of the output."""
QUICK_POLL_S, SLOW_POLL_S = 0.02, 0.25
"""How often a follower looks for more, just after output and when it is quiet."""
WAIT_POLL_S = 0.2
"""How often a start looks for the path that it waits for."""
LAUNCH_LIMIT_S = 10.0
"""How long a second start waits for the first to write its status."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
KILL_LIMIT_S = 10.0
"""How long SIGKILL may take before a process counts as a survivor."""
DEFAULT_GRACE_S = 10.0
TRUNCATED = 75
"""Exit code of a follow whose file became shorter (EX_TEMPFAIL): follow again, the header will say `lost`."""
TORN_READS = 5
"""A status that was written in place, on a full disk, may be seen half written."""
OUTPUT_NAME = re.compile(r"output(?:\.(\d+))?$")
NOT_WRITTEN = "no status was written"
ENDED = ("exited", "lost", "absent")

Status = Dict[str, Any]  # noqa: UP006


def runs_folder() -> str:
    return os.path.join(os.path.expanduser("~"), ".slicetower", "runs")


def run_folder(run: str) -> str:
    if not re.match(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$", run):
        raise SystemExit(f"supervisor: {run!r} is no run id: letters, digits, '.', '_' and '-', at most 128")
    return os.path.join(runs_folder(), run)


def boot_id() -> str:
    with open(os.environ.get(BOOT_ID_VARIABLE) or "/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def say(message: Status) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


# --- processes


def look_up(pid: Any) -> tuple[int, int, int] | None:
    """(parent, session, start in ticks since boot) of a living process.

    One whose first thread has ended (Z) lives while others go on: of a program of many threads that is killed, the first
    may end well before the last, and until then nobody can be told how the program ended.
    """
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] != b"X" and (fields[0] != b"Z" or int(fields[17]) > 1):
            return int(fields[1]), int(fields[3]), int(fields[19])
    return None


def process_table() -> dict[int, tuple[int, int, int]]:
    """Living processes by their pid."""
    found = {int(name): look_up(name) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: facts for pid, facts in found.items() if facts is not None}


def start_ticks(pid: int) -> int:
    """When the process started, in ticks since boot; 0 if there is none. With the pid it is an identity."""
    facts = look_up(pid)
    return facts[2] if facts is not None else 0


def ticks_now() -> int:
    with open("/proc/uptime") as file:
        return int(float(file.read().split()[0]) * os.sysconf("SC_CLK_TCK"))


def lives(pid: Any, ticks: Any) -> bool:
    return bool(pid) and start_ticks(pid) == ticks != 0


def carries(pid: int, run: str) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{FOLDER_VARIABLE}={run_folder(run)}".encode() in file.read().split(b"\0")
    return False


def members(run: str, status: Status) -> list[int]:
    """Everything that a run started and that still lives, except its supervisor.

    By descent from the supervisor; by the run's mark in the environment; by the session of the program, whose number
    cannot belong to another session unless it was born after the program ended.
    """
    table = process_table()
    supervisor = status.get("supervisor") or 0
    if not lives(supervisor, status.get("supervisor_ticks")):
        supervisor = 0
    leader, last = status.get("pid") or 0, status.get("end_ticks") or 0
    mine: set[int] = {supervisor} if supervisor else set()
    if leader and (lives(leader, status.get("start_ticks")) or last):
        mine.update(
            pid for pid, (_, session, born) in table.items() if session == leader and (not last or born <= last)
        )
    mine.update(pid for pid in table if pid != os.getpid() and carries(pid, run))
    grown = True
    while grown:
        below = {pid for pid, (parent, _, _) in table.items() if parent in mine} - mine
        grown = bool(below)
        mine |= below
    return sorted(mine - {supervisor, os.getpid(), 0, 1})


def end_all(run: str, status: Status, grace_s: float, reap: Any = lambda: None) -> list[int]:
    """TERM to all members, after `grace_s` KILL, until none is found. Returns those that would not go."""
    start = time.monotonic()
    warned: set[int] = set()
    while True:
        reap()
        left = members(run, status)
        now = time.monotonic() - start
        if not left or now > grace_s + KILL_LIMIT_S:
            return left
        for pid in left:
            with contextlib.suppress(OSError):
                if now >= grace_s:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in warned:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)
        warned.update(left)
        time.sleep(0.02)


# --- status


class StatusFile:
    """The status of one run on disk; `note` keeps the last error of writing it."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "status.json")
        self.spare = os.path.join(folder, "status.spare")
        self.note = ""

    def allocate(self) -> None:
        """Make the spare with all its blocks. Raises OSError on a full disk."""
        descriptor = os.open(self.spare, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b" " * STATUS_BYTES)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write(self, status: Status) -> None:
        """Replace the status; on a full disk in the spare's blocks, else in place. Never raises."""
        data = json.dumps(dict(status, write_error=self.note) if self.note else status).encode()
        data = data.ljust(STATUS_BYTES - 1) + b"\n"
        for path, move in ((self.spare, True), (self.path, False)):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    if os.pwrite(descriptor, data, 0) != len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if move:
                    os.rename(self.spare, self.path)
                break
            except OSError as error:
                self.note = f"status: {error.strerror}"
        with contextlib.suppress(OSError):
            self.allocate()


def read_status(run: str) -> Status:
    """The run's status as it is now: what its file says, corrected by what lives.

    Who was alive when the file was written may have written another one before it was looked for: nothing is called lost
    before two looks have found the same.
    """
    status = look_at(run)
    while status["state"] == "lost":
        again = look_at(run)
        if again == status:
            break
        status = again
    return status


def look_at(run: str) -> Status:
    """One look."""
    folder = run_folder(run)
    for attempt in range(TORN_READS):
        try:
            with open(os.path.join(folder, "status.json"), "rb") as file:
                status: Status = json.loads(file.read())
            break
        except FileNotFoundError:
            made = os.path.isdir(folder)
            state, reason = ("lost", NOT_WRITTEN) if made else ("absent", "no such run")
            return {"run": run, "state": state, "reason": reason}
        except ValueError:
            if attempt == TORN_READS - 1:
                return {"run": run, "state": "lost", "reason": "its status cannot be read"}
            time.sleep(0.01)
    if status["state"] in ("starting", "running"):
        supervised = lives(status.get("supervisor"), status.get("supervisor_ticks"))
        if status["boot"] != boot_id():
            status.update(state="lost", reason="the worker rebooted")
        elif status["state"] == "running" and not supervised and not lives(status["pid"], status.get("start_ticks")):
            status.update(state="lost", reason="its process and its supervisor are gone")
        elif (
            status["state"] == "starting" and not supervised and not lives(status.get("starter"), status.get("ticks"))
        ):
            status.update(state="lost", reason="its supervisor is gone before it started the program")
        status["supervised"] = supervised
    return status


def settled_status(run: str) -> Status:
    """The status once it says more than that somebody has just made the folder."""
    deadline = time.monotonic() + LAUNCH_LIMIT_S
    while True:
        status = read_status(run)
        fresh = status.get("reason") == NOT_WRITTEN or (status.get("launching") and status["state"] == "starting")
        if not fresh or time.monotonic() > deadline:
            return status
        time.sleep(0.02)


# --- start


def start() -> int:
    try:
        request: Status = json.loads(sys.stdin.buffer.read())
        run = request["run"]
        argv = list(request.get("argv") or [])
        if not argv and request.get("shell"):
            argv = [next((path for path in ("/bin/bash", "/bin/sh") if os.path.exists(path)), "sh"), "-c"]
            argv.append(request["shell"])
    except (ValueError, KeyError, TypeError) as error:
        say({"error": f"the request is no JSON object with a run: {error}"})
        return 2
    if not argv:
        say({"run": run, "error": "the request has an empty command"})
        return 2
    folder = run_folder(run)
    os.makedirs(runs_folder(), mode=0o700, exist_ok=True)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        say(dict(settled_status(run), already=True))
        return 0
    except OSError as error:
        say({"run": run, "error": f"cannot start: {error.strerror}: {folder}"})
        return 1
    file = StatusFile(folder)
    status: Status = {
        "run": run,
        "state": "starting",
        "launching": True,
        "boot": boot_id(),
        "starter": os.getpid(),
        "ticks": start_ticks(os.getpid()),
        "created_at": time.time(),
    }
    try:
        file.allocate()
        output = os.open(os.path.join(folder, "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        status["inode"] = os.fstat(output).st_ino
        kept = {name: request.get(name) for name in ("run", "argv", "shell", "cwd", "timeout_s", "wait_for")}
        kept["environment"] = sorted(request.get("environment") or {})
        with open(os.path.join(folder, "request.json"), "w") as record:
            json.dump(kept, record)
        file.write(status)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        say({"run": run, "error": f"cannot start: {error.strerror}: {folder}"})
        return 1
    ours, theirs = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        say({"run": run, "error": f"cannot start: {error.strerror}"})
        return 1
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(ours)
            try:
                supervise(request, argv, status, file, output, theirs)
            except OSError as error:
                status.pop("launching", None)
                status.update(state="exited", exit_code=None, signal=None, ended_at=time.time(), error=f"{error}")
                file.write(status)
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        answer = pipe.read()
    if not answer:
        say(dict(read_status(run), error="the supervisor died at once"))
        return 1
    say(dict(json.loads(answer), started=True))
    return 0


def detach(folder: str, keep: set[int]) -> None:
    """Nothing of the connection stays open."""
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(os.path.join(folder, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, descriptor in enumerate((nothing, nothing, errors)):
        os.dup2(descriptor, target)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def become_subreaper() -> None:
    """Orphans of the program become ours. Without it (no ctypes), the mark and the session must do."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


class Supervisor:
    """Waits for one program and keeps its status."""

    def __init__(self, request: Status, status: Status, file: StatusFile) -> None:
        self.request = request
        self.status = status
        self.file = file
        self.run: str = request["run"]
        self.stop_path = os.path.join(run_folder(self.run), "stop")
        self.pid = 0
        self.signalled = False
        """A signal asked for a stop before the program was started."""
        self.result: int | None = None
        """Wait status of the program."""

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, result = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.result = result

    def stop_asked(self) -> float | None:
        """The grace in seconds, if a stop was asked for."""
        try:
            with open(self.stop_path) as file:
                return float(file.read() or DEFAULT_GRACE_S)
        except (OSError, ValueError):
            return None

    def wait_for_path(self, path: str, watched: set[int]) -> None:
        """Until the path exists, or a stop is asked for."""
        path = os.path.join(os.path.expanduser("~"), os.path.expanduser(path))
        while not os.path.exists(path):
            got = signal.sigtimedwait(watched, WAIT_POLL_S)
            self.signalled = got is not None and got.si_signo in STOP_SIGNALS
            if self.signalled or self.stop_asked() is not None:
                return

    def launch(self, argv: list[str], output: int) -> str:
        """Start the program. Returns the reason if it cannot be executed."""
        ours, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            run_program(self.request, argv, output, theirs)
        os.close(theirs)
        self.status.update(
            state="running", pid=self.pid, pgid=self.pid, start_ticks=start_ticks(self.pid), started_at=time.time()
        )
        with os.fdopen(ours, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def watch(self, watched: set[int]) -> None:
        """Until the program has ended by itself, by its limit or by a stop."""
        begun = time.monotonic()
        limit = self.request.get("timeout_s")
        while True:
            self.reap()
            if self.result is not None:
                return
            rest = None if limit is None else begun + limit - time.monotonic()
            if rest is not None and rest <= 0:
                self.status.update(timed_out=True, error=f"timed out after {limit} s")
                return self.end(DEFAULT_GRACE_S)
            grace = self.stop_asked()
            if grace is not None:
                self.status["stopped"] = True
                return self.end(grace)
            got = signal.sigwaitinfo(watched) if rest is None else signal.sigtimedwait(watched, rest)
            if got is not None and got.si_signo in STOP_SIGNALS:
                # Also without the file, which a full disk may have refused.
                self.status["stopped"] = True
                grace = self.stop_asked()
                return self.end(DEFAULT_GRACE_S if grace is None else grace)

    def end(self, grace_s: float) -> None:
        survivors = self.status["survivors"] = end_all(self.run, self.status, grace_s, self.reap)
        deadline = time.monotonic() + KILL_LIMIT_S
        self.reap()
        while self.result is None and not survivors and time.monotonic() < deadline:
            time.sleep(0.02)
            self.reap()

    def finish(self, begun: float) -> None:
        result = self.result
        status = self.status
        status.update(state="exited", ended_at=time.time(), end_ticks=ticks_now())
        status.update(duration_s=time.monotonic() - begun, exit_code=None, signal=None)
        if result is not None and os.WIFSIGNALED(result):
            number = os.WTERMSIG(result)
            status["signal"] = next((known.name[3:] for known in signal.Signals if known == number), str(number))
        elif result is not None:
            status["exit_code"] = os.WEXITSTATUS(result)
        self.file.write(status)


def run_program(request: Status, argv: list[str], output: int, errors: int) -> None:
    """In the child: become the program. Never returns."""
    code = 126
    try:
        os.setsid()
        environment = dict(os.environ)
        environment.update({name: str(value) for name, value in (request.get("environment") or {}).items()})
        environment.update({RUN_VARIABLE: request["run"], FOLDER_VARIABLE: run_folder(request["run"])})
        for target, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(descriptor, target)
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        home = os.path.expanduser("~")
        os.chdir(os.path.join(home, os.path.expanduser(request.get("cwd") or home)))
        os.execvpe(argv[0], argv, environment)
    except FileNotFoundError as error:
        code = 127
        os.write(errors, f"{error.filename}: {error.strerror}".encode())
    except (OSError, ValueError) as error:
        os.write(errors, f"{argv[0]}: {error}".encode())
    finally:
        os._exit(code)


def supervise(
    request: Status,
    argv: list[str],
    status: Status,
    file: StatusFile,
    output: int,
    answer: int,
) -> None:
    """The supervisor's life. Answers through the pipe `answer` as soon as the program runs, or waits."""
    detach(run_folder(request["run"]), {output, answer})
    os.set_inheritable(answer, False)
    become_subreaper()
    watched: set[int] = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    own = os.getpid()
    status.update(supervisor=own, supervisor_ticks=start_ticks(own), pid=own, pgid=own)
    supervisor = Supervisor(request, status, file)
    begun = time.monotonic()

    def report() -> None:
        status.pop("launching", None)
        file.write(status)
        with contextlib.suppress(OSError):
            os.write(answer, json.dumps(status).encode())
            os.close(answer)

    if request.get("wait_for"):
        report()
        supervisor.wait_for_path(request["wait_for"], watched)
    if supervisor.stop_asked() is not None or supervisor.signalled:
        status.update(stopped=True, error="stopped before the program was started", survivors=[])
        status.pop("launching", None)
        supervisor.finish(begun)
        return None if request.get("wait_for") else report()
    error = supervisor.launch(argv, output)
    if error:
        status["error"] = error
        with contextlib.suppress(OSError):
            os.write(output, f"{error}\n".encode())
    if request.get("wait_for"):
        file.write(status)
    else:
        report()
    os.close(output)
    supervisor.watch(watched)
    supervisor.finish(begun)


# --- follow


class Trail:
    """The output and what it was rotated to (`output.2`, `output.1`, `output`), as one run of bytes, oldest first."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: list[int] = []
        """Open descriptors; a file that is removed is still read to its end."""
        self.current = 0
        self.offset = 0
        """In the current file."""
        self.extend()

    def extend(self) -> None:
        """Open what was rotated in since."""
        names = [match for match in map(OUTPUT_NAME.match, os.listdir(self.folder)) if match]
        known = {os.fstat(descriptor).st_ino for descriptor in self.files}
        fresh: list[int] = []
        for match in sorted(names, key=lambda match: -int(match.group(1) or 0)):
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(os.path.join(self.folder, match.group()), os.O_RDONLY)
                if os.fstat(descriptor).st_ino in known:
                    os.close(descriptor)
                    for older in fresh:
                        os.close(older)
                    fresh = []
                else:
                    fresh.append(descriptor)
        self.files += fresh

    def size(self, place: int) -> int:
        return os.fstat(self.files[place]).st_size

    def find(self, inode: int | None, offset: int) -> Status:
        """Go to a byte counted from the start of the file `inode`, through rotations. Returns the header."""
        inodes = [os.fstat(descriptor).st_ino for descriptor in self.files]
        place = 0 if inode is None else inodes.index(inode) if inode in inodes else -1
        total = sum(self.size(number) for number in range(max(place, 0), len(inodes)))
        lost = place < 0 or offset > total
        if lost:
            place, offset, total = 0, 0, sum(map(self.size, range(len(inodes))))
        self.current, self.offset = place, offset
        while self.offset > self.size(self.current):
            self.offset -= self.size(self.current)
            self.current += 1
        return {"inode": inodes[place], "offset": offset, "size": total, "lost": lost}

    def read(self) -> bytes:
        """The next bytes, or empty at the present end. Raises EOFError if the file became shorter."""
        while True:
            newer = self.current + 1 < len(self.files) and self.size(self.current + 1) > 0
            data = os.pread(self.files[self.current], CHUNK, self.offset)
            if data:
                self.offset += len(data)
                return data
            if self.size(self.current) < self.offset:
                raise EOFError
            # Only when the next file has bytes: a program that still holds the old one goes on writing to it.
            if not newer:
                return b""
            self.current += 1
            self.offset = 0

    def rotated(self) -> bool:
        with contextlib.suppress(OSError):
            inode = os.stat(os.path.join(self.folder, "output")).st_ino
            return inode != os.fstat(self.files[-1]).st_ino
        return False


class Watch:
    """Whether a run has ended, asked often and cheaply."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.path = os.path.join(run_folder(run), "status.json")
        self.seen: tuple[int, int] | None = None
        self.next = 0.0

    def ended(self) -> bool:
        try:
            now = os.stat(self.path)
            seen = (now.st_ino, now.st_mtime_ns)
        except OSError:
            seen = (0, 0)
        if seen == self.seen and time.monotonic() < self.next:
            return False
        self.seen, self.next = seen, time.monotonic() + 1.0
        return read_status(self.run)["state"] in ENDED


def follow(run: str, inode: int | None, offset: int, tell: bool = False) -> int:
    try:
        trail = Trail(run_folder(run))
        if not trail.files:
            raise FileNotFoundError
    except FileNotFoundError:
        say({"run": run, "error": "no such run, or it has no output"})
        return 1
    watch = Watch(run)
    header = dict(trail.find(inode, offset), run=run, state=read_status(run)["state"])
    gone = select.poll()
    gone.register(1, 0)
    pause, ended = QUICK_POLL_S, False
    try:
        write_all(json.dumps(header).encode() + b"\n")
        while True:
            data = trail.read()
            if data:
                write_all(data)
                pause = QUICK_POLL_S
            elif trail.rotated():
                trail.extend()
            elif ended:
                if tell:
                    sys.stderr.write(json.dumps(read_status(run)) + "\n")
                return 0
            elif watch.ended():
                ended = True
            elif gone.poll(pause * 1000):
                return 0
            else:
                pause = min(pause * 2, SLOW_POLL_S)
    except EOFError:
        return TRUNCATED
    except BrokenPipeError:
        return 0


def write_all(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


# --- stop, list, prune


def stop(run: str, grace_s: float) -> int:
    status = settled_status(run)
    if status["state"] == "absent":
        say({"run": run, "stopped": False, "error": "no such run"})
        return 1
    already = status["state"] in ENDED
    supervisor: int = status.get("supervisor") or 0
    if status.get("supervised") or status["state"] == "starting" or status.get("reason") == NOT_WRITTEN:
        # Also before there is a supervisor: it looks for the wish before it starts the program, and after.
        with contextlib.suppress(OSError), open(os.path.join(run_folder(run), "stop"), "w") as file:
            file.write(str(grace_s))
        deadline = time.monotonic() + grace_s + KILL_LIMIT_S
        if supervisor:
            with contextlib.suppress(OSError):
                os.kill(supervisor, signal.SIGUSR1)
        while read_status(run)["state"] not in ENDED and time.monotonic() < deadline:
            time.sleep(0.02)
        status = read_status(run)
    survivors = end_all(run, status, 0.0 if status.get("stopped") else grace_s)
    if status["state"] not in ENDED and lives(supervisor, status.get("supervisor_ticks")):
        os.kill(supervisor, signal.SIGKILL)
    status = read_status(run)
    say(dict(status, stopped=not survivors, survivors=survivors, already_ended=already))
    return 1 if survivors else 0


def all_runs() -> list[str]:
    """Run ids, oldest first."""
    with contextlib.suppress(OSError):
        names = [entry for entry in os.scandir(runs_folder()) if entry.is_dir() and not entry.name.startswith(".")]
        return [entry.name for entry in sorted(names, key=lambda entry: (entry.stat().st_mtime, entry.name))]
    return []


def prune(keep: int, older_than_s: float) -> int:
    """Remove ended runs but the newest `keep`, if they ended longer ago than `older_than_s`."""
    ended = [status for status in map(read_status, all_runs()) if status["state"] in ENDED]
    ended.sort(key=lambda status: status.get("ended_at") or status.get("created_at") or 0.0)
    old = [
        status["run"]
        for status in ended[: max(len(ended) - keep, 0)]
        if time.time() - (status.get("ended_at") or status.get("created_at") or 0.0) >= older_than_s
    ]
    for run in old:
        shutil.rmtree(run_folder(run), ignore_errors=True)
    say({"pruned": old})
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="supervisor", description="Keeps programs alive on a worker.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("start")
    verbs.add_parser("list")
    for name in ("status", "follow", "stop"):
        verb = verbs.add_parser(name)
        verb.add_argument("run", nargs="+" if name == "status" else None)
        if name == "follow":
            verb.add_argument("--inode", type=int)
            verb.add_argument("--offset", type=int, default=0)
            verb.add_argument("--tell", action="store_true", help="the status on stderr, once all was sent")
        if name == "stop":
            verb.add_argument("--grace", type=float, default=DEFAULT_GRACE_S, help="seconds from TERM to KILL")
    verb = verbs.add_parser("prune")
    verb.add_argument("--keep", type=int, default=0)
    verb.add_argument("--older-than", type=float, default=0.0, help="seconds")
    arguments = parser.parse_args()
    if arguments.verb == "start":
        return start()
    if arguments.verb == "follow":
        return follow(arguments.run, arguments.inode, arguments.offset, arguments.tell)
    if arguments.verb == "stop":
        return stop(arguments.run, arguments.grace)
    if arguments.verb == "prune":
        return prune(arguments.keep, arguments.older_than)
    for run in arguments.run if arguments.verb == "status" else all_runs():
        say(read_status(run))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # Whoever asked has gone; what was started stays started.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
