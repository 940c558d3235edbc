"""The startup script of a production job: at every boot it starts the job anew, under the supervisor.

Filled in by backend/runs/startup_script.py and carried in the metadata of a queued resource, so that it runs after a create,
a reset, a repair or a recreate, without any console. Standard library alone, Python 3.8 and newer. Two roles:

    (none)   becomes the operator's user, puts the supervisor in place, starts the next boot's run, and ends
    job      runs below the supervisor: its output is the log. Unpacks the code, runs the setup, becomes the command

Each boot has a run of its own, RUN-b00001, RUN-b00002 ..., with its own folder, output and status: what an earlier boot
wrote is never appended to, whatever a power cut took from its end. A disk that was replaced begins at 1 again.
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import hashlib
import io
import json
import os
import pwd
import re
import resource
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zlib
from typing import Any, Dict  # noqa: UP035 (Python 3.8 evaluates the alias below)

Job = Dict[str, Any]  # noqa: UP006

JOB: Job = {}
BOOT_ID_VARIABLE = "SLICETOWER_BOOT_ID_FILE"
"""As in the supervisor: may name another file that holds the boot id."""
NO_HOMES = ("", "/", "/root")
"""systemd gives startup scripts no HOME; whoever runs them with one of its own means the job to live there."""
MORE_PATH = ("~/.local/bin", "/snap/bin")
"""Where pip --user and the image's gcloud put programs, which a startup script does not search."""
FETCH_PAUSE_S, FETCH_TIMEOUT_S, FETCH_LIMIT_S = 10.0, 600.0, 3600.0
"""Between tries to fetch the code, for one try, for all: the network and credentials of a young VM may take minutes."""
START_TIMEOUT_S = 120.0


def say(text: str) -> None:
    sys.stdout.write(f"[slicetower] {text}\n")
    sys.stdout.flush()


def below_home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), ".slicetower", *parts)


def boot_name(run: str, number: int) -> str:
    return f"{run}-b{number:05d}"


def boots(run: str) -> list[int]:
    """Numbers of the boots that this disk has seen, in order."""
    pattern = re.compile(re.escape(run) + r"-b(\d{5,})$")
    try:
        names = os.listdir(below_home("runs"))
    except FileNotFoundError:
        return []
    return sorted(int(match.group(1)) for match in map(pattern.match, names) if match)


def boot_id() -> str:
    with open(os.environ.get(BOOT_ID_VARIABLE) or "/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def become(user: str) -> None:
    """The operator's own user, made if the guest agent has not made it yet; a script with a HOME of its own stays."""
    if os.getuid() != 0 or os.environ.get("HOME", "") not in NO_HOMES:
        return
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", user], check=False)
        account = pwd.getpwnam(user)
    os.initgroups(user, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    os.environ.update(HOME=account.pw_dir, USER=user, LOGNAME=user, SHELL=account.pw_shell or "/bin/bash")
    os.chdir(account.pw_dir)


def put(name: str, content: bytes) -> str:
    """A file in ~/.slicetower/bin, replaced atomically."""
    folder = below_home("bin")
    os.makedirs(folder, 0o700, exist_ok=True)
    path = os.path.join(folder, name)
    fresh = f"{path}.{os.getpid()}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(fresh, path)
    return path


def start(job: Job, own_text: bytes) -> int:
    """Starts this boot's run unless it was started, or the operator stopped the job."""
    run = job["run"]
    os.umask(0o077)
    os.makedirs(below_home("runs"), 0o700, exist_ok=True)
    with open(below_home(f"{run}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        seen = boots(run)
        if seen:
            newest = below_home("runs", boot_name(run, seen[-1]))
            if os.path.exists(os.path.join(newest, "stop")):
                say(f"run {run} was stopped by its operator: not started")
                return 0
            try:
                with open(os.path.join(newest, "status.json"), "rb") as file:
                    if json.loads(file.read()).get("boot") == boot_id():
                        say(f"run {run} was started at this boot already")
                        return 0
            except (FileNotFoundError, ValueError):
                pass
        return launch(job, own_text, (seen[-1] if seen else 0) + 1)


def launch(job: Job, own_text: bytes, number: int) -> int:
    text = zlib.decompress(base64.b64decode(job["supervisor"]))
    if hashlib.sha256(text).hexdigest() != job["supervisor_digest"]:
        say("the supervisor arrived damaged: not started")
        return 1
    supervisor = put(f"supervisor-{job['supervisor_digest'][:16]}.py", text)
    program = put(f"job-{job['run']}.py", own_text)
    name = boot_name(job["run"], number)
    own = {"SLICETOWER_JOB": job["run"], "SLICETOWER_BOOT": str(number), "SLICETOWER_MARK": name}
    request = {
        "run": name,
        "argv": [sys.executable, "-I", "-S", program, "job"],
        "environment": dict(job["environment"], PATH=search_path(), **own),
        "cwd": None,
        "timeout_s": job["timeout_s"],
        "wait_for": None,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", supervisor, "start"],
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    say(f"{name}: {done.stdout.decode(errors='replace').strip()}")
    return done.returncode


def search_path() -> str:
    found = [place for place in os.environ.get("PATH", "/usr/bin:/bin").split(":") if place]
    more = [os.path.expanduser(place) for place in MORE_PATH]
    return ":".join(found + [place for place in more if place not in found])


def run_job(job: Job) -> int:
    """Below the supervisor: the code, the setup, the command."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    host = os.environ.get("HOSTNAME") or socket.gethostname()
    say(f"boot {os.environ.get('SLICETOWER_BOOT', '?')} of run {job['run']} on {host} at {at}")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        os.chdir(unpack(job) if job["bundle"] else os.path.expanduser("~"))
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        say(f"the code is not there: {error}")
        return 1
    shell = os.environ.get("SHELL") or "/bin/sh"
    if job["setup"]:
        code = subprocess.call([shell, "-c", job["setup"]])
        if code:
            say(f"setup ended with {code}: the command is not started")
            return code if 0 < code < 256 else 1
    argv = [shell, "-c", " ".join(job["argv"])] if job["shell"] else job["argv"]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        say(f"{argv[0]}: {error.strerror}")
    return 127


def unpack(job: Job) -> str:
    """The folder of the code, which is named by its content and verified before anything is unpacked."""
    digest = job["bundle"]["digest"]
    place = below_home("bundles", digest)
    if os.path.isdir(place) and os.path.exists(f"{place}.ok"):
        return place
    os.makedirs(below_home("bundles"), 0o700, exist_ok=True)
    packed = base64.b64decode(job["bundle"]["data"]) if job["bundle"]["data"] else fetch(job["bundle"]["url"])
    archive = gzip.decompress(packed)
    if hashlib.sha256(archive).hexdigest() != digest:
        raise ValueError(f"it arrived damaged, its sha256 is not {digest}")
    work = below_home("bundles", f".new-{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as entries:
        entries.extractall(work)
    shutil.rmtree(place, ignore_errors=True)
    os.rename(work, place)
    with open(f"{place}.ok", "w"):
        pass
    return place


def fetch(url: str) -> bytes:
    """From a bucket, with the credentials of the VM's service account. Raises OSError when it can't be had."""
    target = below_home("bundles", f".fetch-{os.getpid()}")
    deadline = time.monotonic() + FETCH_LIMIT_S
    while True:
        try:
            done = subprocess.run(
                ["gcloud", "storage", "cp", url, target],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
            why = done.stderr.decode(errors="replace").strip()[-400:]
            if done.returncode == 0:
                with open(target, "rb") as file:
                    content = file.read()
                os.unlink(target)
                return content
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if time.monotonic() > deadline:
            raise OSError(f"{url} could not be fetched within {FETCH_LIMIT_S:.0f} s: {why}")
        say(f"{url} could not be fetched, trying again: {why}")
        time.sleep(FETCH_PAUSE_S)


def main() -> int:
    if sys.argv[1:] == ["job"]:
        return run_job(JOB)
    with open(os.path.abspath(__file__), "rb") as file:
        own_text = file.read()
    become(JOB["user"])
    return start(JOB, own_text)


if __name__ == "__main__":
    sys.exit(main())
