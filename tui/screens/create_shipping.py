"""The job of a create form while the form is open: its code packed in the background, the job planned, and sent."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from backend.cloud.errors import CloudError
from backend.cloud.requests import CreateRequest, Problem
from backend.cloud.validation import problems
from backend.outcomes import OperatorError
from backend.runs.bundles import Bundle
from tui.console import Console
from tui.screens.create_job import BUNDLE, COMMAND, ENVIRONMENT, SYNC, planned, read_job, with_code
from tui.screens.packing import Packing, of_folder
from tui.screens.working import work

if TYPE_CHECKING:
    from backend.runs.production import ProductionJob


class JobShipping:
    """What the form says about a job, judged as it is typed."""

    def __init__(self, console: Console, pack: Callable[[Packing], object], load: Callable[[], object]) -> None:
        """
        Args:
            console: Whose tower knows the run.
            pack: Begins a packing in the background, instead of the one before, and judges the form when it is done.
            load: Begins `load`, and judges the form when it is done.
        """
        self._console = console
        self._pack = pack
        self._load = load
        self._loaded: bool | None = None
        self._packing: Packing | None = None
        self._run_id = ""
        self.job: ProductionJob | None = None

    @property
    def user(self) -> str:
        """Who it runs as."""
        from backend.ssh.routes import login_name

        return login_name(self._console.context.ssh.user)

    async def load(self) -> None:
        """The modules that a job needs: importing them takes longer than a key may."""
        for name in ("backend.runs.production", "backend.ssh.routes", "backend.runs.manager"):
            await asyncio.to_thread(importlib.import_module, name)
        self._loaded = True

    def judge(self, create: CreateRequest, texts: Mapping[str, str]) -> tuple[list[Problem], list[Problem]]:
        """(mistakes, what should be thought over); `job` is what would be sent."""
        self.job = None
        run, found = read_job(texts)
        folder = texts.get(SYNC, "").strip() if run is not None else ""
        notes: list[Problem] = []
        bundle = self._code(folder, found, notes)
        if run is None:
            return found, []
        if run.environment:
            names = ", ".join(name for name, _ in run.environment)
            what = f"Everybody who may describe the request can read the value of {names}."
            notes.append(Problem(ENVIRONMENT, what, "A secret belongs into Secret Manager, read on the worker."))
        if self._loaded is None:
            self._loaded = False
            self._load()
        if found or not self._loaded or (folder and bundle is None) or not create.accelerator_type:
            return found, notes
        job, problem = planned(
            create,
            with_code(run, bundle),
            user=self.user,
            folder=texts.get(BUNDLE, "").strip(),
            run_id=self._known_id(),
        )
        if problem is not None:
            return [problem], notes
        assert job is not None
        self.job = job
        before = {str(each) for each in problems(create)}
        found = [Problem(COMMAND, each.what, each.cure) for each in problems(job.create) if str(each) not in before]
        notes += [Problem(COMMAND, text) for text in job.warnings if "can read the values of" not in text]
        return found, notes

    def _known_id(self) -> str:
        """One id as long as the form is not sent, so that what is shown is what is sent."""
        if not self._run_id:
            import secrets
            import time

            from backend.runs.store import new_run_id

            self._run_id = new_run_id(secrets.randbelow(1 << 20), now=time.time())
        return self._run_id

    def _code(self, folder: str, found: list[Problem], notes: list[Problem]) -> Bundle | None:
        """The packed folder, once it is."""
        before, self._packing = self._packing, of_folder(self._packing, folder)
        if self._packing is None:
            return None
        if self._packing is not before:
            self._pack(self._packing)
        packed = self._packing.found
        if isinstance(packed, OperatorError):
            found.append(Problem(SYNC, packed.what.removeprefix("--sync: "), packed.cure))
        elif packed is None:
            notes.append(Problem(SYNC, self._packing.words))
        else:
            notes.append(Problem(SYNC, f"ships {packed.report}"))
        return packed if isinstance(packed, Bundle) else None

    @property
    def waits(self) -> str:
        """What must be done before the form can be sent."""
        if self._packing is not None and self._packing.found is None:
            return self._packing.words
        return "the job is being planned …" if self._loaded is False else ""

    async def settled(self, create: CreateRequest, texts: Mapping[str, str]) -> bool:
        """Packs the folder as it is now, since it may have been edited, and plans the job anew; False: broken off.

        Raises:
            OperatorError: It cannot be packed or planned any more.
        """
        run, _ = read_job(texts)
        if run is None:
            return True
        folder = texts.get(SYNC, "").strip()
        if not self._loaded:
            await self.load()
        if folder:
            packing = Packing(folder)
            if await work(self._console, "Pack the folder", packing.pack(), lambda: packing.words) is None:
                return False
            self._packing = packing
        found, _ = self.judge(create, texts)
        if found:
            raise OperatorError(found[0].what, found[0].cure)
        return True

    def again(self, create: CreateRequest, texts: Mapping[str, str]) -> ProductionJob | None:
        """The same job for another request, under a run of its own; None where the form has none.

        Raises:
            OperatorError: It cannot be planned for that request.
        """
        run, _ = read_job(texts)
        if run is None or self.job is None:
            return None
        bundle = self._packing.found if self._packing is not None else None
        code = with_code(run, bundle if isinstance(bundle, Bundle) else None)
        job, problem = planned(create, code, user=self.user, folder=texts.get(BUNDLE, "").strip(), run_id="")
        if problem is not None:
            raise OperatorError(problem.what, problem.cure)
        return job

    async def begin(self, jobs: Sequence[ProductionJob]) -> bool:
        """Uploads the code and keeps the runs, before their requests are sent; False: broken off.

        Raises:
            OperatorError: The code could not be put into its bucket.
        """
        from backend.runs.production import begin, upload

        tower = self._console.require_tower()
        for url in dict.fromkeys(job.bundle_url for job in jobs if job.bundle_url):
            bundle = next(job.bundle for job in jobs if job.bundle_url == url)
            assert bundle is not None
            size = partial(str, bundle.report)
            if await work(self._console, f"Put the code to {url}", _true(upload(bundle, url)), size) is None:
                return False
        for job in jobs:
            begin(job, tower.runs, tower.context.name)
        return True

    def refused(self, job: ProductionJob, error: CloudError) -> None:
        """Its request was not made; another try is another run."""
        from backend.runs.production import refused

        refused(job, self._console.require_tower().runs, error)
        self._run_id = ""

    def follow(self, jobs: Sequence[ProductionJob]) -> None:
        """Their logs are followed from now on."""
        runs = self._console.require_tower().runs
        for job in jobs:
            runs.attach(job.run_id)


async def _true(doing: Awaitable[None]) -> bool:
    await doing
    return True
