"""The options of a check and of a free, asked for in a form: what they look at beyond what they always do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.targets import fold
from backend.tools.check import COORDINATOR_PORT, NETWORK, Outside
from backend.tools.free import GRACE_S
from tui.actions import CHECK_FORM, FREE_FORM, bindings
from tui.numbers import whole_number
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, TargetForm
from tui.wording import count

ON = "yes"
LONGEST_GRACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a check looks at."""

    outside: Outside = field(default_factory=Outside)
    python: str = ""
    """Whose packages; empty: the one of setup, else python3."""
    port: int = COORDINATOR_PORT
    root: str = "/"

    @property
    def words(self) -> str:
        """What differs from an ordinary check; empty when nothing does."""
        outside = self.outside
        parts = [*outside.ways, *outside.buckets]
        parts += [f"docker {name}" for name in outside.registries] + [f"equal {name}" for name in outside.folders]
        parts += [f"python {self.python}"] if self.python else []
        parts += [f"port {self.port}"] if self.port != COORDINATOR_PORT else []
        parts += [f"root {self.root}"] if self.root != "/" else []
        return ", ".join(parts)

    @property
    def arguments(self) -> dict[str, Any]:
        """For `check`."""
        return {"outside": self.outside, "python": self.python, "port": self.port, "root": self.root}


@dataclass(frozen=True, slots=True)
class FreeOptions:
    """How holders are looked for and stopped."""

    grace_s: float = GRACE_S
    """From TERM to KILL."""
    python: str = ""
    root: str = "/"

    @property
    def arguments(self) -> dict[str, Any]:
        """For `free`."""
        return {"grace_s": self.grace_s, "python": self.python, "root": self.root}


def words_of(texts: Mapping[str, str], name: str, wrong: dict[str, str]) -> tuple[str, ...]:
    """The words of one field; a mistake is put beside it."""
    try:
        words = tuple(shlex.split(texts.get(name, "")))
    except ValueError as error:
        wrong[name] = f"It cannot be read: {error}. Close the quotes."
        return ()
    bad = next((word for word in words if word.startswith("-") or not word.strip()), None)
    if bad is not None:
        wrong[name] = f"'{plain(bad)}' names nothing that could be looked at."
    return words


def read_check(texts: Mapping[str, str]) -> tuple[CheckOptions, dict[str, str]]:
    """What the form asks for, and each mistake by field."""
    wrong: dict[str, str] = {}
    ways = words_of(texts, "reach", wrong)
    strange = next((way for way in ways if not way.startswith(("https://", "http://"))), None)
    if strange is not None:
        wrong.setdefault("reach", f"'{plain(strange)}' is no URL. Write it with https://.")
    port, text = COORDINATOR_PORT, texts.get("port", "").strip()
    if text:
        port = whole_number(text, most=65535) or 0
        if not port:
            wrong["port"] = f"'{plain(text)}' is no port. Write 1 to 65535."
    outside = Outside(
        (*(NETWORK if texts.get("network") == ON else ()), *ways),
        words_of(texts, "buckets", wrong),
        words_of(texts, "registries", wrong),
        words_of(texts, "folders", wrong),
    )
    return CheckOptions(outside, texts.get("python", "").strip(), port, texts.get("root", "").strip() or "/"), wrong


def write_check(options: CheckOptions) -> dict[str, str]:
    """The fields that ask for the same."""
    outside = options.outside
    network = set(NETWORK) <= set(outside.ways)
    return {
        "network": ON if network else "",
        "reach": shlex.join(way for way in outside.ways if not network or way not in NETWORK),
        "buckets": shlex.join(outside.buckets),
        "registries": shlex.join(outside.registries),
        "folders": shlex.join(outside.folders),
        "python": options.python,
        "port": str(options.port) if options.port != COORDINATOR_PORT else "",
        "root": options.root if options.root != "/" else "",
    }


def read_free(texts: Mapping[str, str]) -> tuple[FreeOptions, dict[str, str]]:
    """What the form asks for, and each mistake by field."""
    from backend.cloud.gcloud_flags import parse_duration

    wrong: dict[str, str] = {}
    grace, text = GRACE_S, texts.get("grace", "").strip()
    if text:
        try:
            grace = parse_duration(f"{text}s" if text.isdecimal() else text)
        except ValueError as error:
            wrong["grace"] = f"{error}."
        if grace > LONGEST_GRACE_S:
            wrong["grace"] = "Longer than an hour is not waited for."
    return FreeOptions(grace, texts.get("python", "").strip(), texts.get("root", "").strip() or "/"), wrong


Options = TypeVar("Options")


class OptionsForm(TargetForm, Generic[Options]):
    """Whom, and with which options; what was asked for is handed to the screen below."""

    crumb = "options"

    def __init__(
        self, targets: Sequence[str], options: Options, take: Callable[[tuple[str, ...], Options], None]
    ) -> None:
        """
        Args:
            targets: Whom.
            options: To begin with.
            take: Called with what was asked for.
        """
        super().__init__(targets)
        self._options = options
        self._take = take

    def read(self, texts: Mapping[str, str]) -> tuple[Options, dict[str, str]]:
        """What the form asks for, and each mistake by field."""
        raise NotImplementedError

    def words(self, options: Options) -> list[str]:
        """What will be done, in sentences."""
        raise NotImplementedError

    def judge(self, texts: Mapping[str, str]) -> Judged:
        options, wrong = self.read(texts)
        try:
            workers = self.workers_of(texts)
        except OperatorError as error:
            wrong["targets"] = str(error)
        if wrong:
            return Judged([next(iter(wrong.values()))], wrong)
        where = fold(each.address for each in workers)
        return Judged([f"{count(len(workers), 'worker')}: {where}", *self.words(options)])

    def do_submit(self) -> None:
        self.require_right("Nothing was looked at.")
        texts = self.texts()
        self.console.pop_screen()
        self._take(tuple(texts["targets"].split()), self.read(texts)[0])


class CheckFormScreen(OptionsForm[CheckOptions]):
    """What a check shall look at as well."""

    SCOPE = CHECK_FORM
    BINDINGS: ClassVar = bindings(CHECK_FORM)
    first_field = "network"

    def fields(self) -> Iterable[FormLine]:
        kept = write_check(self._options)
        yield self.targets_line()
        yield FormLine("network", "the internet", value=kept["network"], choices=("no", ON))
        for name, label, hint in (
            ("reach", "reach URLs", "https://my-mirror/simple/ ..."),
            ("buckets", "buckets", "gs://NAME ...: can its objects be listed"),
            ("registries", "docker login to", "us-docker.pkg.dev ..."),
            ("folders", "equal folders", "code ...: is it the same everywhere"),
            ("python", "python", "whose packages; that of setup, else python3"),
            ("port", "coordinator's port", str(COORDINATOR_PORT)),
            ("root", "root there", "/; where /dev, /tmp and /var are looked for"),
        ):
            yield FormLine(name, label, value=kept[name], hint=hint)

    def read(self, texts: Mapping[str, str]) -> tuple[CheckOptions, dict[str, str]]:
        return read_check(texts)

    def words(self, options: CheckOptions) -> list[str]:
        also = options.words or "nothing beyond what every check looks at"
        return [f"also: {also}", "", "It only looks. ctrl+r looks."]


class FreeFormScreen(OptionsForm[FreeOptions]):
    """How long holders get to end by themselves, and where they are looked for."""

    SCOPE = FREE_FORM
    BINDINGS: ClassVar = bindings(FREE_FORM)
    first_field = "grace"

    def fields(self) -> Iterable[FormLine]:
        options = self._options
        yield self.targets_line()
        grace = f"{options.grace_s:g}s" if options.grace_s != GRACE_S else ""
        yield FormLine("grace", "from TERM to KILL", value=grace, hint=f"{GRACE_S:g}s; such as 2m for a checkpoint")
        yield FormLine("python", "python", value=options.python, hint="that runs the search there; python3")
        root = options.root if options.root != "/" else ""
        yield FormLine("root", "root there", value=root, hint="/; where /dev and /tmp are looked for")

    def read(self, texts: Mapping[str, str]) -> tuple[FreeOptions, dict[str, str]]:
        return read_free(texts)

    def words(self, options: FreeOptions) -> list[str]:
        return [
            f"Holders that are stopped get TERM, and KILL {options.grace_s:g} s later.",
            "",
            "ctrl+r looks who holds the chips; nobody is stopped before it was asked for there.",
        ]
