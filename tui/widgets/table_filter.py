"""The filter line of a table: `READY !spot`, `state=FAILED,SUSPENDED chips>=64`, `! ^train`.

Terms are separated by spaces and must all hold; quotes keep spaces and `=` together. A bare term is a regex over the cells
of a row (`^` and `$` are a cell's ends; case counts only if the term has a capital). `!` before a term inverts it, a
lone `!` at the beginning inverts the whole line.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Sequence

from tui.widgets.rows import Cell, Column, Row

Predicate = Callable[[Row], bool]

_TERM = re.compile(r'(!?)"([^"]*)"|(\S+)')
_COMPARISON = re.compile(r"([A-Za-z][\w./-]*?)(!=|>=|<=|=|~|>|<)(.*)")
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z%]*)")
_UNITS = {"": 1, "%": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_ORDER: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


class FilterError(ValueError):
    """Why a filter can't be used, as a sentence."""


def cell_text(cell: Cell | str) -> str:
    """The words of a cell, without its glyph."""
    return cell if isinstance(cell, str) else cell.text


def parse_filter(text: str, columns: Sequence[Column]) -> Predicate | None:
    """What a row must meet; None for an empty filter.

    Raises:
        FilterError: A term is no regex, or names no column.
    """
    stripped = text.strip()
    whole_inverted = stripped.startswith("! ") or stripped == "!"
    if whole_inverted:
        stripped = stripped[1:].strip()
    terms = [_term(match, columns) for match in _TERM.finditer(stripped)]
    if not terms:
        return None
    # What looks at one cell comes first: a pattern over the whole row is asked only of rows that pass.
    tests = [test for test, looks_everywhere in sorted(terms, key=lambda term: term[1])]
    every = _all_of(tests)
    return _inverted(every) if whole_inverted else every


def _all_of(tests: Sequence[Predicate]) -> Predicate:
    """All tests in one, without a generator for each of thousands of rows."""
    first, *rest = tests
    if not rest:
        return first
    second = _all_of(rest)
    return lambda row: first(row) and second(row)


def _term(match: re.Match[str], columns: Sequence[Column]) -> tuple[Predicate, bool]:
    """The test of one term, and whether it looks at every cell."""
    quoted_inverted, quoted, bare = match.groups()
    if bare is None:
        test = _regex(quoted)
        return (_inverted(test) if quoted_inverted else test), True
    inverted = bare.startswith("!") and len(bare) > 1
    if inverted:
        bare = bare[1:]
    comparison = _COMPARISON.fullmatch(bare)
    test = _compare(comparison, columns) if comparison else _regex(bare)
    return (_inverted(test) if inverted else test), comparison is None


def _inverted(test: Predicate) -> Predicate:
    return lambda row: not test(row)


def compile_smart(pattern: str) -> re.Pattern[str]:
    """A regex that minds case only if it has a capital letter.

    Raises:
        FilterError: It is none.
    """
    flags = re.MULTILINE if any(char.isupper() for char in re.sub(r"\\.", "", pattern)) else re.MULTILINE | re.I
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise FilterError(f"'{pattern}' is no regular expression: {error}") from error


def _regex(pattern: str) -> Predicate:
    search = compile_smart(pattern).search
    return lambda row: (
        search("\n".join([cell if isinstance(cell, str) else cell.text for cell in row.cells])) is not None
    )


def _compare(match: re.Match[str], columns: Sequence[Column]) -> Predicate:
    name, sign, value = match.groups()
    wanted = name.casefold()
    names = [(column.id.casefold(), column.title.casefold().replace(" ", "-")) for column in columns]
    index = next((index for index, own in enumerate(names) if wanted in own), -1)
    if index < 0:
        known = ", ".join(column.id for column in columns)
        raise FilterError(f"there is no column '{name}': use {known}, or quote the term: \"{match[0]}\"")
    if sign == "~":
        search = compile_smart(value).search
        return lambda row: search(cell_text(row.cells[index])) is not None
    if sign in ("=", "!="):
        patterns = [part.casefold() for part in value.split(",")]
        same = _equals(index, patterns)
        return _inverted(same) if sign == "!=" else same
    number = _number(value)
    if number is None:
        raise FilterError(f"'{value}' is no number to compare '{name}' with")
    compare = _ORDER[sign]

    def ordered(row: Row) -> bool:
        own = _cell_number(row.cells[index])
        return own is not None and compare(own, number)

    return ordered


def _equals(index: int, patterns: list[str]) -> Predicate:
    if not any("*" in pattern for pattern in patterns):
        exact = frozenset(patterns)
        return lambda row: cell_text(row.cells[index]).casefold() in exact
    return lambda row: any(fnmatch.fnmatchcase(cell_text(row.cells[index]).casefold(), each) for each in patterns)


def _number(text: str) -> float | None:
    """`64`, `1.5k`, `10m` (seconds)."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS:
        return None
    return float(match[1]) * _UNITS[match[2]]


def _cell_number(cell: Cell | str) -> float | None:
    """What a cell counts: its sort value if that is a number, else the first number in its text."""
    if isinstance(cell, Cell) and isinstance(cell.sort, int | float):
        return float(cell.sort)
    match = _NUMBER.search(cell_text(cell))
    return float(match[1]) if match else None
