"""What a request asked for, as the texts of another create form: its job too, with the folder that its code came from."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from backend.cloud.requests import RUN_KEY, CreateRequest
from tui.screens.create_form import write

if TYPE_CHECKING:
    from tui.console import Console


async def again(console: Console, request: CreateRequest) -> tuple[dict[str, str], str]:
    """(the texts, a note on what they cannot repeat)."""
    run_id = dict(request.metadata).get(RUN_KEY, "")
    if not run_id:
        return write(request), ""
    await asyncio.to_thread(importlib.import_module, "backend.runs.manager")
    from tui.screens.create_job import write_job

    runs = console.require_tower().runs
    return write_job(request, runs.store.get(run_id).bundle_source if runs.knows(run_id) else "")
