"""The operator's OS Login profile and account, as gcloud and the services tell them."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from typing import Any

GCLOUD_TIMEOUT_S = 30.0
PROFILE_COMMAND = "gcloud compute os-login describe-profile"

_TRUE = frozenset({"true", "1", "y", "yes"})


def is_on(value: str) -> bool:
    """What the guest environment takes for yes, in any case."""
    return value.strip().lower() in _TRUE


async def _gcloud(*arguments: str) -> str:
    """What gcloud prints; empty when it is not there, fails, or does not answer."""
    program = shutil.which("gcloud")
    if program is None:
        return ""
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return ""
    try:
        async with asyncio.timeout(GCLOUD_TIMEOUT_S):
            out, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return out.decode("utf-8", "replace") if process.returncode == 0 else ""


async def gcloud_account() -> str:
    """The account that gcloud works as; empty when nobody can tell."""
    account = (await _gcloud("config", "get", "account")).strip()
    return account if "@" in account and not account.split()[1:] else ""


async def os_login_user(project: str) -> str:
    """The user name of the operator's OS Login profile, as gcloud tells it; empty when nobody can tell."""
    told = await _gcloud("compute", "os-login", "describe-profile", f"--project={project}", "--format=json")
    try:
        return profile_user(json.loads(told))
    except ValueError:
        return ""


def profile_user(profile: Any) -> str:
    """The primary POSIX account of a login profile (google.cloud.oslogin.v1.LoginProfile as JSON)."""
    accounts = profile.get("posixAccounts") if isinstance(profile, dict) else None
    accounts = [each for each in accounts if isinstance(each, dict)] if isinstance(accounts, list) else []
    best = next((each for each in accounts if each.get("primary")), accounts[0] if accounts else {})
    name = best.get("username", "")
    return name if isinstance(name, str) else ""
