"""The table as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tui.parity.answers import Answer, Column, Field, Key, Reason, Word
from tests.tui.parity.reverse import Alone
from tui.actions import BY_ID, key_names

HEAD = """# The command line and the console

Each verb and option, and where the console has it: a key, a field of a form, a column to filter by (`/COLUMN=value`), a word
after `:`, or one of a few reasons why it needs none. Made from `tests/tui/parity`, which a test holds to the truth both ways: a
new option or action without its other half fails it.
"""


def told(answer: Answer) -> str:
    """One answer in words."""
    if isinstance(answer, Key):
        action = BY_ID[answer.action]
        keys = (
            f"`{key_names(action.keys)}`" if action.keys else f"`:{action.words[0]}`" if action.words else "palette"
        )
        return f"{keys} {action.title}" + (f": {answer.how}" if answer.how else "")
    if isinstance(answer, Field):
        return f"{answer.form}: `{answer.name}`"
    if isinstance(answer, Word):
        return f"`:{answer.word} {answer.argument}`".replace(" `", "`").replace("|", "\\|")
    if isinstance(answer, Column):
        return f"{answer.screen}: `/{answer.column}=`"
    return f"*{answer.name.lower()}*"


def page(verbs: Mapping[str, Mapping[str, Answer]], actions: Mapping[str, str | Alone]) -> str:
    """The whole page."""
    lines = [HEAD, "| reason | in full |", "|---|---|"]
    lines += [f"| *{reason.name.lower()}* | {reason.value} |" for reason in Reason]
    for path, answers in verbs.items():
        verb = path if path == "slicetower" else f"slicetower {path}"
        own = answers.get("")
        lines += ["", f"## `{verb}`" + (f" · {told(own)}" if own is not None else "")]
        rest = {option: answer for option, answer in answers.items() if option}
        if rest:
            lines += ["", "| option | in the console |", "|---|---|"]
            lines += [f"| `{option}` | {told(answer)} |" for option, answer in rest.items()]
    lines += ["", "## What the console has besides", "", "| key | what | verb, or why none |", "|---|---|---|"]
    for name, answer in actions.items():
        action = BY_ID[name]
        keys = key_names(action.keys) if action.keys else f":{action.words[0]}" if action.words else "palette"
        why = (
            answer.value
            if isinstance(answer, Alone)
            else f"`slicetower {answer}`".replace("slicetower slice", "slice")
        )
        lines.append(f"| `{keys}` | {action.title} | {why} |".replace("`|`", "`\\|`"))
    return "\n".join(lines) + "\n"
