"""Every action of the console. What is not here does not exist on screen."""

from __future__ import annotations

from tui.action_console import CONSOLE_ACTIONS
from tui.action_history import HISTORY_ACTIONS
from tui.action_model import Action
from tui.action_policies import POLICY_ACTIONS
from tui.action_requests import REQUEST_ACTIONS
from tui.action_runs import RUN_ACTIONS
from tui.action_tools import TOOL_ACTIONS
from tui.action_widgets import WIDGET_ACTIONS

ACTIONS: tuple[Action, ...] = (
    *REQUEST_ACTIONS,
    *TOOL_ACTIONS,
    *POLICY_ACTIONS,
    *RUN_ACTIONS,
    *HISTORY_ACTIONS,
    *WIDGET_ACTIONS,
    *CONSOLE_ACTIONS,
)
