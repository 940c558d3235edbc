"""Is this machine ready? Each finding says ok, warn or fail, and how to cure it."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

from backend.context import Context
from backend.outcomes import OperatorError
from backend.paths import paths

OK, WARN, FAIL = "ok", "warn", "fail"

REACH_TIMEOUT_S = 20.0
FILES_WANTED = 4096
"""Open files for a thousand connections with their logs and some room."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked thing."""

    check: str
    verdict: str
    what: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the program draws on."""

    environment: Mapping[str, str]
    encoding: str
    is_terminal: bool

    @classmethod
    def of(cls, stream: TextIO | None) -> Self:
        """Of a stream, such as stdout; None where there is none."""
        if stream is None:
            return cls(os.environ, "", False)
        return cls(os.environ, stream.encoding or "", stream.isatty())


async def examine(
    load: Callable[[], Context], terminal: Terminal, *, offline: bool = False
) -> AsyncIterator[Finding]:
    """Every check, in the order in which a failure of one explains the next; what blocks is done in a thread.

    Args:
        load: Reads the context; raises OperatorError for a mistake in it.
        terminal: What is drawn on.
        offline: The cloud is not called.
    """
    context: Context | None = None
    try:
        context = await asyncio.to_thread(load)
        zones = " ".join(context.zones)
        yield Finding("configuration", OK, f"{context.name}: {context.project}, {zones} (from {context.source}).")
    except OperatorError as error:
        yield Finding("configuration", FAIL, error.what, error.cure)
    yield await asyncio.to_thread(_own_files)
    if context is not None:
        if offline:
            yield Finding("endpoint", WARN, "not checked (--offline).")
        else:
            for each in await _reach(context):
                yield each
            for each in await _logins(context):
                yield each
        yield await asyncio.to_thread(_ssh_key, context)
        yield _ssh_user(context, shutil.which("gcloud") is not None)
    yield _open_files()
    for each in _terminal(terminal.environment, terminal.encoding, terminal.is_terminal):
        yield each
    yield await asyncio.to_thread(_own_name, socket.gethostname(), _resolve)
    yield _gcloud()


def _own_files() -> Finding:
    from backend.journal import Journal

    try:
        own = paths()
        Journal.open(own.journal).close()
        return Finding("journal", OK, f"{own.journal} can be read and written.")
    except OperatorError as error:
        return Finding("journal", FAIL, error.what, error.cure)


async def _reach(context: Context) -> list[Finding]:
    """Credentials and endpoint, by one small list call per place."""
    from backend.cloud.client import CloudClient
    from backend.cloud.error_texts import ErrorKind
    from backend.cloud.errors import CloudError

    client = CloudClient(context)
    findings = []
    try:
        for project, zone in context.places:
            try:
                async with asyncio.timeout(REACH_TIMEOUT_S):
                    found = await client.list_queued_resources(project, zone)
                text = f"{context.endpoint} answers: {len(found)} queued resources in {project}, {zone}."
                findings.append(Finding("endpoint", OK, text))
            except TimeoutError:
                text = f"{context.endpoint} gave no answer within {REACH_TIMEOUT_S:.0f} s."
                findings.append(Finding("endpoint", FAIL, text, "Check network, proxy and firewall."))
            except CloudError as error:
                check = "credentials" if error.kind is ErrorKind.CREDENTIALS else "endpoint"
                findings.append(Finding(check, FAIL, f"{zone}: {error.what}", error.cure))
            except OperatorError as error:
                return [Finding("credentials", FAIL, error.what, error.cure)]
    finally:
        await client.close()
    if context.credentials == "none":
        findings.insert(0, Finding("credentials", OK, "none are asked for by this context."))
    elif any(each.verdict == OK for each in findings):
        findings.insert(0, Finding("credentials", OK, "application-default credentials are accepted."))
    return findings


async def _logins(context: Context) -> list[Finding]:
    """What the project's own metadata says about logins, where it is served."""
    from backend.cloud.client import CloudClient
    from backend.ssh.oslogin import gcloud_account, is_on

    client = CloudClient(context)
    try:
        async with asyncio.timeout(REACH_TIMEOUT_S):
            metadata = await client.project_metadata(context.project) if context.project else None
            if metadata is None:
                return []
            if not is_on(metadata.get("enable-oslogin", "")):
                keys = sum(bool(line.strip()) for line in metadata.get("ssh-keys", "").splitlines())
                return [Finding("os login", OK, f"{context.project} does not use it; {keys} keys in its metadata.")]
            account = await client.account() or await gcloud_account()
    except (OperatorError, TimeoutError) as error:
        why = error.what if isinstance(error, OperatorError) else "no answer in time."
        return [Finding("os login", WARN, f"whether {context.project} uses it is not known: {why}")]
    finally:
        await client.close()
    if account:
        text = f"{context.project} uses it: a key that is refused is added to the profile of {account}."
        return [Finding("os login", OK, text)]
    cure = "Run `gcloud auth login`, or `gcloud compute os-login ssh-keys add --key-file=KEY.pub` yourself."
    return [Finding("os login", WARN, f"{context.project} uses it, and whose profile is yours is not known.", cure)]


def _ssh_key(context: Context) -> Finding:
    key = context.ssh.key or Path("~/.ssh/google_compute_engine").expanduser()
    if not key.exists():
        if context.ssh.key is None and os.environ.get("SSH_AUTH_SOCK"):
            return Finding("ssh key", OK, f"{key} does not exist; an SSH agent is there.")
        verdict = FAIL if context.ssh.key is not None else WARN
        cure = "Correct ssh.key in the context."
        if context.ssh.key is None:
            cure = "It is made when it is first needed, and added to a node's metadata when one refuses it."
            if context.read_only:
                cure = "It is not made in a read-only context; make one with `gcloud compute ssh` or ssh-keygen."
        return Finding("ssh key", verdict, f"{key} does not exist.", cure)
    if not os.access(key, os.R_OK):
        return Finding("ssh key", FAIL, f"{key} can't be read.", f"Run `chmod 600 {key}` as its owner.")
    if key.stat().st_mode & 0o077:
        return Finding("ssh key", WARN, f"{key} can be read by others.", f"Run `chmod 600 {key}`.")
    return Finding("ssh key", OK, f"{key}.")


def _ssh_user(context: Context, has_gcloud: bool) -> Finding:
    """Whom workers are asked to let in. Whether a node uses OS Login stands in its metadata, or in its project's."""
    from backend.ssh.routes import login_name

    user = login_name(context.ssh.user)
    if context.ssh.user:
        return Finding(
            "ssh user", OK, f"{user}, as the context says; it must be your profile's where OS Login is on."
        )
    if has_gcloud:
        return Finding("ssh user", OK, f"{user}; on nodes with OS Login your profile's, which gcloud is asked for.")
    text = f"{user}; your OS Login user can't be asked for without gcloud."
    return Finding("ssh user", OK, text, "Only where OS Login is on: set user = in the [ssh] of the context.")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_WANTED:
        text = f"at most {hard} files may be open: too few for {FILES_WANTED // 4} workers at once."
        return Finding("open files", WARN, text, "Raise the hard limit (`ulimit -Hn`, or limits.conf).")
    shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return Finding("open files", OK, f"{soft} now, raised up to {shown} when needed.")


def _terminal(environment: Mapping[str, str], encoding: str, is_terminal: bool) -> Iterator[Finding]:
    if encoding.lower().replace("-", "") == "utf8":
        yield Finding("terminal text", OK, "UTF-8.")
    else:
        cure = "Set LC_ALL=C.UTF-8, or use the ASCII option of the console."
        yield Finding("terminal text", WARN, f"'{encoding or 'unknown'}' can't show the glyphs.", cure)
    term = environment.get("TERM", "")
    if not is_terminal:
        yield Finding("terminal colours", OK, "stdout is not a terminal: plain text.")
    elif "NO_COLOR" in environment:
        yield Finding("terminal colours", OK, "none, as NO_COLOR asks.")
    elif term in ("", "dumb"):
        yield Finding("terminal colours", FAIL, f"TERM is '{term}': no console.", "Set TERM=xterm-256color.")
    elif environment.get("COLORTERM") in ("truecolor", "24bit"):
        yield Finding("terminal colours", OK, f"16 million ({term}).")
    else:
        cure = "If the terminal can do more, set COLORTERM=truecolor."
        yield Finding("terminal colours", OK if "256" in term else WARN, f"{term}.", cure)


def _resolve(name: str) -> list[str]:
    return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)})


def _own_name(name: str, resolve: Callable[[str], list[str]]) -> Finding:
    """Several JAX processes on this machine (the simulated workers) find each other by its host name."""
    cure = f"Add '127.0.0.1 {name}' to /etc/hosts; only simulated benchmarks need it."
    try:
        found = resolve(name)
    except OSError as error:
        return Finding("own host name", WARN, f"'{name}' does not resolve: {error.strerror or error}.", cure)
    if found and all(address.startswith("127.") or address == "::1" for address in found):
        return Finding("own host name", OK, f"'{name}' is {', '.join(found)}.")
    return Finding("own host name", WARN, f"'{name}' is {', '.join(found)}, not this machine's loopback.", cure)


def _gcloud() -> Finding:
    found = shutil.which("gcloud")
    if found:
        return Finding("gcloud", OK, f"{found}.")
    return Finding("gcloud", WARN, "gcloud is not installed.", "Only IAP tunnels and signing in need it.")
