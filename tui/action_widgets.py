"""Keys that widgets bind themselves, told to the registry: same ids, so that help, clashes and the keymap know them."""

from __future__ import annotations

from tui.action_model import LOGS, RUN, RUN_GROUPS, TABLES, Action, Group

_T = TABLES | {RUN}
_L = frozenset({LOGS})
_R = frozenset({RUN_GROUPS})


def _key(id_: str, keys: str, title: str, text: str, scopes: frozenset[str], hint: int = 0) -> Action:
    return Action(id_, tuple(keys.split(",")), title, text, scopes, Group.MOVE, hint, by_widget=True, widget_id=id_)


WIDGET_ACTIONS: tuple[Action, ...] = (
    _key("table.down", "j,down", "down", "The next row.", _T),
    _key("table.up", "k,up", "up", "The row above.", _T),
    _key("table.half-page-down", "ctrl+d", "half page down", "Half a page down.", _T),
    _key("table.half-page-up", "ctrl+u", "half page up", "Half a page up.", _T),
    _key("table.page-down", "pagedown", "page down", "A page down.", _T),
    _key("table.page-up", "pageup", "page up", "A page up.", _T),
    _key("table.top", "home", "first row", "The first row.", _T),
    _key("table.bottom", "G,end", "last row", "The last row.", _T),
    _key("table.left", "left", "left", "Columns to the left.", _T),
    _key("table.right", "right", "right", "Columns to the right.", _T),
    _key("table.mark", "space", "mark", "Mark the row, or take the mark away.", _T, hint=22),
    _key("table.range", "v", "mark range", "Mark from here to where it is pressed again.", _T),
    _key("table.mark-all", "asterisk", "mark all", "Mark all rows that the filter shows.", _T),
    _key("table.reverse", "O", "reverse", "Turn the order round.", _T),
    _key("groups.down", "j,down", "next group", "The next group of workers that ended alike.", _R),
    _key("groups.up", "k,up", "previous group", "The group above.", _R),
    _key("groups.half-page-down", "ctrl+d", "half page down", "Half a page down in the groups.", _R),
    _key("groups.half-page-up", "ctrl+u", "half page up", "Half a page up in the groups.", _R),
    _key("groups.top", "g,home", "first group", "The first group.", _R),
    _key("groups.bottom", "G,end", "last group", "The last group.", _R),
    _key("groups.left", "left", "left", "The groups to the left.", _R),
    _key("groups.right", "right", "right", "The groups to the right.", _R),
    _key("groups.toggle", "enter,space", "fold", "Open or close what the group printed.", _R),
    _key("groups.log", "l", "log", "The log of the group's first worker.", _R),
    _key("log.down", "j,down", "down", "The next line; the view ceases to follow.", _L),
    _key("log.up", "k,up", "up", "The line above; the view ceases to follow.", _L),
    _key("log.half-page-down", "ctrl+d", "half page down", "Half a page down.", _L),
    _key("log.half-page-up", "ctrl+u", "half page up", "Half a page up.", _L),
    _key("log.page-down", "pagedown", "page down", "A page down.", _L),
    _key("log.page-up", "pageup", "page up", "A page up.", _L),
    _key("log.start", "g,home", "first line", "The first line.", _L),
    _key("log.end", "G,end", "last line", "The last line, and follow.", _L),
    _key("log.left", "left", "left", "To the left.", _L),
    _key("log.right", "right", "right", "To the right.", _L),
    _key("log.follow", "f", "follow", "Follow the end, or hold still.", _L, hint=6),
    _key("log.next-match", "n", "next match", "The next match of the search.", _L, hint=9),
    _key("log.previous-match", "N", "previous match", "The match before.", _L),
    _key("log.next-error", "e", "next error", "The next line that reports an error.", _L, hint=7),
    _key("log.previous-error", "E", "previous error", "The error before.", _L),
    _key("log.next-warning", "w", "next warning", "The next warning.", _L, hint=8),
    _key("log.previous-warning", "W", "previous warning", "The warning before.", _L),
    _key("log.mark", "m", "mark line", "Mark the line; copying takes the marked ones.", _L),
    _key("log.next-mark", "u", "next mark", "The next marked line.", _L),
    _key("log.previous-mark", "U", "previous mark", "The mark before.", _L),
    _key("log.wrap", "z", "wrap", "Wrap long lines, or not.", _L, hint=10),
)

WIDGET_DEFAULTS = {"table.top": "home"}
"""Where the console wants another key than the widget has by itself: `g` is the gcloud equivalent on tables."""
