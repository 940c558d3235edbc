"""The tools, from any screen that knows whom they are for: the application's part of opening them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from backend.outcomes import OperatorError
from tui.actions import BY_ID, refusal
from tui.console import Console
from tui.screens.base import ConsoleScreen

if TYPE_CHECKING:
    from tui.forwards import Forwards
    from tui.policies import Policies

MENU = ("check", "free", "setup", "forward", "copy-files", "keep")
"""The actions of the menu, in this order."""


class Toolbox(Console):
    """A part of the application."""

    @property
    def forwards(self) -> Forwards:
        """The forwards of the context that is open; a new context begins without any."""
        found = self.__dict__.get("_forwards")
        if found is None:
            from tui.forwards import Forwards

            found = Forwards(
                lambda work: self.run_worker(work, group="forwards", name="forward a port", exit_on_error=False)
            )
            self.__dict__["_forwards"] = found
        return cast("Forwards", found)

    def drop_forwards(self) -> None:
        """Closes all of them: their context is being left."""
        if self.__dict__.pop("_forwards", None) is not None:
            self.workers.cancel_group(self, "forwards")

    @property
    def policies(self) -> Policies:
        """What is kept and raced for in the context that is open.

        Raises:
            OperatorError: None is open.
        """
        found = self.__dict__.get("_policies")
        if found is None:
            from tui.policies import Policies

            found = self.__dict__["_policies"] = Policies(self, self.require_tower())
        return cast("Policies", found)

    def carried_out(self) -> tuple[list[str], list[int]]:
        """(names of the requests that this console keeps, numbers of the races that it runs)."""
        found: Policies | None = self.__dict__.get("_policies")
        return (found.kept_here, found.raced_here) if found is not None else ([], [])

    async def drop_policies(self) -> None:
        """Lets go of all of them: their context is being left."""
        found = self.__dict__.pop("_policies", None)
        if found is not None:
            await found.close()

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Saved target groups; none while the context is not open."""
        tower = self.tower
        return tower.groups if tower is not None else {}

    def completions(self) -> tuple[str, ...]:
        """Everything that may stand where a target does: names, addresses, groups."""
        try:
            groups = tuple(f"@{name}" for name in self.groups())
        except OperatorError:
            # Told where a group is used.
            groups = ()
        return (*self.target_names(), *groups)

    def context_names(self) -> tuple[str, ...]:
        """Contexts of the configuration; none while it has mistakes, which are told when one is opened."""
        from backend.context import config_names

        try:
            return config_names()
        except OperatorError:
            return ()

    def targets(self) -> list[str]:
        """Whom a tool is for that was asked for here.

        Raises:
            OperatorError: Nothing is chosen.
        """
        screen = self.screen
        found = screen.targets_here() if isinstance(screen, ConsoleScreen) else []
        if not found:
            raise OperatorError("Nothing is under the cursor.", "Name whom: :check train-a.")
        return found

    # What the keys do

    async def do_tools(self) -> None:
        """Asks which."""
        from tui.screens.confirm import Pick

        screen = self.screen
        assert isinstance(screen, ConsoleScreen)
        self.targets()
        actions = [BY_ID[name] for name in MENU if screen.SCOPE in BY_ID[name].scopes]
        allowed = [action for action in actions if not refusal(action, read_only=self.read_only)]
        keymap = self.settings.keymap
        picks = [(action.id, action.title) for action in allowed]
        # The letters are the keys that work without this menu.
        keys = [keymap.shown(action) for action in allowed]
        chosen = await self.push_screen_wait(Pick(f"Tools for {' '.join(self.targets())}", picks, keys))
        if chosen:
            screen.perform(BY_ID[chosen])

    def do_check(self) -> None:
        self.open_check(self.targets())

    def do_ask_ssh(self) -> None:
        self.open_answers(self.targets())

    def do_free(self) -> None:
        self.open_free(self.targets())

    def do_setup(self) -> None:
        self.open_setup(self.targets())

    def do_copy_files(self) -> None:
        self.open_copy(self.targets())

    async def do_forward(self) -> None:
        await self.ask_forward(self.targets()[0])

    def do_keep(self) -> None:
        """Asks how often the cursor's request may be made again."""
        from tui.screens.fleet import FleetScreen
        from tui.screens.policy_forms import KeepFormScreen

        screen = self.screen
        assert isinstance(screen, FleetScreen)
        item = screen.current_request()
        if self.policies.keeps_here(item.key):
            raise OperatorError(
                f"{item.name} is kept by this console already.", "9 shows what is left of its budgets."
            )
        self.push_screen(KeepFormScreen(item))

    def do_go_policies(self) -> None:
        self.show_policies()

    def show_policies(self) -> None:
        from tui.screens.policies import PoliciesScreen

        self.go(PoliciesScreen())

    # Opening

    def open_check(self, targets: Sequence[str]) -> None:
        from tui.screens.check import CheckScreen

        self.push_screen(CheckScreen(targets))

    def open_answers(self, targets: Sequence[str]) -> None:
        from tui.screens.answers import AnswersScreen

        self.push_screen(AnswersScreen(targets))

    def open_free(self, targets: Sequence[str]) -> None:
        from tui.screens.free import FreeScreen

        self.push_screen(FreeScreen(targets))

    def open_setup(self, targets: Sequence[str]) -> None:
        from tui.screens.setup import SetupFormScreen

        self.push_screen(SetupFormScreen(targets))

    def open_copy(self, targets: Sequence[str]) -> None:
        from tui.screens.copies import CopyFormScreen

        self.push_screen(CopyFormScreen(targets))

    async def ask_forward(self, target: str) -> None:
        """Asks for the port, and opens it."""
        from backend.tools.forward import Ports
        from tui.screens.confirm import Ask

        lines = (
            "6006 for TensorBoard, 9012 for the profiler; 6006:7000 for another one here, 6006:0 for any free one.",
        )
        ask = Ask(f"Forward which port of {self._one_worker(target)}?", lines, hint="6006", check=Ports.parse)
        text = await self.push_screen_wait(ask)
        if text:
            self.open_forward(target, text)

    def _one_worker(self, target: str) -> str:
        """The first worker that a target names.

        Raises:
            OperatorError: It names nobody.
        """
        from backend.targets import select

        found = select(self.fleet, [target], self.groups())
        if not found:
            raise OperatorError(f"{target} has no workers now.", "They come when a request becomes ACTIVE.")
        return found[0].address

    def open_forward(self, target: str, ports: str) -> None:
        """Opens a forward, and shows the list.

        Raises:
            OperatorError: It is no port, or nobody is called so.
        """
        from backend.tools.forward import Ports
        from tui.screens.forwards import ForwardsScreen

        wanted = Ports.parse(ports)
        worker = self.worker_at(self._one_worker(target))
        assert worker is not None
        item = self.forwards.open(self.require_tower().pool, worker, wanted)
        if not isinstance(self.screen, ForwardsScreen):
            self.push_screen(ForwardsScreen())
        screen = self.screen
        if isinstance(screen, ForwardsScreen) and screen.is_mounted:
            screen.tick()
            screen.table.move_to(item.id)

    def do_go_forwards(self) -> None:
        from tui.screens.forwards import ForwardsScreen

        self.go(ForwardsScreen())
