"""`setup`: one venv with the asked Python and packages on every worker, verified equal.

It runs as a detached run, so that it outlives its connection and has logs. Its text is one POSIX script; a venv is named by
the hash of what was asked for, so that doing it again is a look, and what a running job uses is never changed below it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backend.outcomes import OperatorError, Outcome
from backend.runs.live import Run
from backend.runs.model import RunPlan, RunRequest
from backend.sanitize import plain
from backend.targets import WorkerRef, fold

if TYPE_CHECKING:
    from backend.tower import Tower

MAXTEXT_SOURCE = "https://github.com/AI-Hypercomputer/maxtext.git"
LIBTPU_LINKS = "https://storage.googleapis.com/jax-releases/libtpu_releases.html"
"""Where jax[tpu] finds libtpu in releases that are not on PyPI (JAX's installation page)."""
APT_WAIT_S = 900
"""First boot's unattended upgrades hold apt's locks for minutes (field notes, section 1e, 96)."""
APT_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
VENVS_KEPT = 3

PYTHON_PLACE = "~/.slicetower/venv/bin/python"

PROGRESS = re.compile(rb"^setup: (?!has )")
"""Lines of the log that tell how far it is."""
_HAS = re.compile(rb"^setup: has (.+?)\r?$", re.MULTILINE)
_TITLE = re.compile(r"setup [0-9a-f]{16}: ")
_PYTHON = re.compile(r"[0-9]+\.[0-9]+")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]*")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """What is asked for."""

    python: str = "python3"
    """A program, a path, or a version such as 3.12."""
    packages: tuple[str, ...] = ()
    """For pip; empty: jax[tpu], or jax where JAX_PLATFORMS=cpu is set."""
    jax: str = ""
    """The version of jax, where no packages are named; empty: the newest."""
    pip_options: tuple[str, ...] = ()
    maxtext: str = ""
    """A branch, tag or commit; empty: no MaxText."""
    maxtext_source: str = MAXTEXT_SOURCE
    apt_wait_s: int = APT_WAIT_S
    root: str = ""
    """Prefix of the paths of apt's locks."""

    @property
    def program(self) -> str:
        return f"python{self.python}" if _PYTHON.fullmatch(self.python) else self.python

    def problems(self) -> list[str]:
        """Sentences about what can't be done; empty when all is well."""
        found = []
        if not self.python.strip() or self.python.startswith("-"):
            found.append(f"'{plain(self.python)}' is no Python. Write --python 3.12, or a path.")
        for package in self.packages:
            if not package.strip() or package.startswith("-"):
                found.append(f"'{plain(package)}' is no package. Options of pip stand in --pip-option=OPTION.")
        for option in self.pip_options:
            if not option.startswith("-"):
                found.append(f"'{plain(option)}' is no option of pip. Write --pip-option=--find-links=DIR.")
        if self.jax and not _VERSION.fullmatch(self.jax):
            found.append(f"'{plain(self.jax)}' is no version of jax. Write --jax 0.10.2.")
        if self.maxtext and not _REF.fullmatch(self.maxtext):
            found.append(f"'{plain(self.maxtext)}' is no branch, tag or commit.")
        if not 0 <= self.apt_wait_s <= 86_400:
            found.append(f"A wait of {self.apt_wait_s} s for apt is not kept. Give 0 to 86400.")
        return found

    @property
    def digest(self) -> str:
        """Names the content: the same wish is the same venv."""
        parts = [self.program, self.jax, *self.packages, "", *self.pip_options, "", self.maxtext, self.maxtext_source]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def script(request: SetupRequest) -> str:
    """The exact text that /bin/sh runs on every worker."""
    given = " ".join(shlex.quote(word) for word in request.packages)
    if given:
        choose = f"set -- {given}"
    else:
        version = f"=={request.jax}" if request.jax else ""
        tpu = f"set -- 'jax[tpu]{version}' -f {LIBTPU_LINKS}"
        choose = f'if [ "${{JAX_PLATFORMS:-}}" = cpu ]; then set -- jax{version}; else {tpu}; fi'
    options = "".join(f" {shlex.quote(word)}" for word in request.pip_options)
    locks = " ".join(shlex.quote(request.root.rstrip("/") + path) for path in APT_LOCKS)
    return _SCRIPT.format(
        python=shlex.quote(request.program),
        digest=request.digest,
        choose=choose,
        options=options,
        locks=locks,
        apt_wait=request.apt_wait_s,
        kept=VENVS_KEPT,
        maxtext=_maxtext(request) if request.maxtext else ":",
    )


_SCRIPT = """\
set -eu
umask 077
say() {{ printf 'setup: %s\\n' "$*"; }}
fail() {{ say "failed: $*"; exit 1; }}
root="$HOME/.slicetower"
venv="$root/venvs/{digest}"
mkdir -p "$root/venvs"
if command -v flock >/dev/null 2>&1; then
  exec 9>"$root/setup.lock"
  flock -n 9 || {{ say "waits for another setup"; flock -w 3600 9 || fail "another setup goes on for an hour"; }}
fi
apt_locked() {{
  for lock in {locks}; do
    inode=$(stat -c %i "$lock" 2>/dev/null) || continue
    if grep -q ":$inode " /proc/locks 2>/dev/null; then return 0; fi
  done
  return 1
}}
wait_for_apt() {{
  waited=0
  while apt_locked; do
    if [ "$waited" -ge {apt_wait} ]; then fail "apt is still locked after $waited s; see 'slicetower check'"; fi
    if [ $((waited % 30)) = 0 ]; then say "waits for apt, $waited s"; fi
    sleep 1
    waited=$((waited + 1))
  done
}}
if [ -e "$venv/.ready" ]; then
  say "is there already"
else
  wait_for_apt
  python={python}
  command -v "$python" >/dev/null 2>&1 || fail "there is no $python here, but $(ls /usr/bin /usr/local/bin 2>/dev/null \
| grep -E '^python3[.0-9]*$' | sort -u | tr '\\n' ' ')"
  rm -rf "$venv"
  say "makes a venv with $("$python" --version 2>&1)"
  if ! "$python" -m venv "$venv"; then
    package="$(basename "$python")-venv"
    say "installs $package"
    sudo -n apt-get -o DPkg::Lock::Timeout={apt_wait} install -y "$package" </dev/null \
|| fail "no venv can be made: install $package"
    rm -rf "$venv"
    "$python" -m venv "$venv" || fail "no venv can be made"
  fi
  {choose}
  say "installs $*"
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input{options} "$@" || fail "pip; its words are above"
  {maxtext}
  "$venv/bin/python" -m pip freeze --disable-pip-version-check >"$venv/.packages.new" || fail "pip freeze"
  sort "$venv/.packages.new" >"$venv/.packages"
  "$venv/bin/python" -c 'import platform; print("python==" + platform.python_version())' >>"$venv/.packages"
  : >"$venv/.ready"
fi
touch "$venv"
if [ -d "$root/venv" ] && [ ! -L "$root/venv" ]; then mv "$root/venv" "$root/venv.old-$$"; fi
ln -sfn "venvs/{digest}" "$root/venv.new"
mv -T "$root/venv.new" "$root/venv"
(ls -td "$root"/venvs/*/ | tail -n +{kept_next} | while IFS= read -r old; do
  if printf '%s' "$old" | grep -lsFf - /proc/[0-9]*/maps /proc/[0-9]*/cmdline >/dev/null; then continue; fi
  rm -rf "$old"
  say "removed $old"
done) || :
while IFS= read -r line; do say "has $line"; done <"$venv/.packages"
if [ -e "$venv/.maxtext" ]; then say "maxtext trains with $(cat "$venv/.maxtext")"; fi
say "ready: $root/venv/bin/python"
""".replace("{kept_next}", str(VENVS_KEPT + 1))


def _maxtext(request: SetupRequest) -> str:
    """Clones MaxText and looks for what it needs and where it trains: both have moved between its releases."""
    options = "".join(f" {shlex.quote(word)}" for word in request.pip_options)
    pip = f'"$venv/bin/python" -m pip install --disable-pip-version-check --no-input{options}'
    return f"""\
code="$venv/maxtext"
  source={shlex.quote(request.maxtext_source)}
  ref={shlex.quote(request.maxtext)}
  say "clones MaxText at $ref"
  git clone --quiet --no-checkout -- "$source" "$code" || fail "MaxText can't be cloned from $source"
  git -C "$code" -c advice.detachedHead=false checkout --quiet "$ref" || fail "MaxText has no $ref"
  say "MaxText is at $(git -C "$code" rev-parse HEAD)"
  if [ -e "$code/pyproject.toml" ]; then
    extra=
    if grep -Eq '^ *"?tpu"? *=' "$code/pyproject.toml" && [ "${{JAX_PLATFORMS:-}}" != cpu ]; then extra='[tpu]'; fi
    {pip} -e "$code$extra" || fail "MaxText can't be installed; pip's words are above"
  else
    needs=$(find "$code" -name requirements.txt -not -path '*/.git/*' | sort | head -n 1)
    if [ -n "$needs" ]; then
      {pip} -r "$needs" || fail "MaxText's requirements can't be installed; pip's words are above"
    fi
  fi
  train=$(cd "$code" && find . -name train.py -not -path './.git/*' | grep -i maxtext/ | awk '{{ print length, $0 }}' \
| sort -n | head -n 1 | cut -d' ' -f2-)
  [ -n "$train" ] || fail "MaxText at $ref has no train.py"
  printf '%s\\n' "$root/venv/maxtext/${{train#./}}" >"$venv/.maxtext"
"""


def plan(tower: Tower, request: SetupRequest, workers: Sequence[WorkerRef]) -> RunPlan:
    """What would be done.

    Raises:
        OperatorError: Something asked for can't be.
    """
    problems = request.problems()
    if problems:
        raise OperatorError(problems[0], " ".join(problems[1:]))
    run = RunRequest(
        argv=("/bin/sh", "-c", script(request)),
        detach=True,
        on_failure="continue",
        title=f"setup {request.digest}: {' '.join(request.packages) or 'jax'} for {request.program}",
    )
    return tower.runs.plan(run, workers)


def is_setup(request: RunRequest) -> bool:
    """Whether a run is one of these, by its title and its shell."""
    return request.argv[:2] == ("/bin/sh", "-c") and _TITLE.match(request.title) is not None


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether all workers have the same."""

    packages: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By address: `jax==0.10.2`, `python==3.11.7` ..."""
    missing: tuple[str, ...] = ()
    """Addresses that did not get ready."""
    differences: tuple[str, ...] = ()
    """Sentences, safe to show."""

    @property
    def equal(self) -> bool:
        return not self.missing and not self.differences

    @property
    def common(self) -> tuple[str, ...]:
        """What every worker that got ready has, in order."""
        sets = list(self.packages.values())
        return tuple(sorted(frozenset.intersection(*sets))) if sets else ()


def verify(run: Run) -> Verification:
    """Compares what the workers of an ended setup told at its end."""
    told: dict[str, frozenset[str]] = {}
    for index, result in enumerate(run.results):
        if result.outcome is Outcome.OK:
            found = _HAS.findall(run.log_path(index).read_bytes())
            told[result.worker.address] = frozenset(plain(each) for each in found)
    return compare(told, [result.worker.address for result in run.results])


def compare(told: Mapping[str, frozenset[str]], workers: Sequence[str]) -> Verification:
    """Names the workers that differ from the most.

    Args:
        told: By address, what a ready worker has.
        workers: All addresses.
    """
    groups: dict[frozenset[str], list[str]] = {}
    for address, packages in told.items():
        groups.setdefault(packages, []).append(address)
    differences = []
    if len(groups) > 1:
        most = max(groups, key=lambda each: len(groups[each]))
        for packages, addresses in groups.items():
            if packages != most:
                more = ", ".join(sorted(packages - most)) or "nothing more"
                less = ", ".join(sorted(most - packages)) or "nothing"
                differences.append(f"{fold(addresses)} has {more}, where the others have {less}")
    missing = tuple(address for address in workers if address not in told)
    return Verification(told, missing, tuple(differences))
