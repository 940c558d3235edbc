"""The shell texts that workers run, as pure functions.

Every command starts as `ENTRY`, a constant that any login shell understands, and reads its script as one line from stdin:
no layer of quoting comes between the operator's words and the worker, and no value of a secret shows in a process list.
The script tells on stdout, in marked lines that are taken out of the output again, which process group it is.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

ENTRY = "exec /bin/sh -c 'IFS= read -r _st_x&&eval \"$_st_x\"'"
"""`read` takes bytes one by one from a pipe, so what follows the line stays for the script's own stdin."""

CONTROL = b"\x1eslicetower "
"""Begins a line of ours: RS, the word, a nonce, then words."""

MARK = "SLICETOWER_MARK"
"""Set for every command: finds its processes again, even those that left its session."""

BUNDLES = "$HOME/.slicetower/bundles"
BUNDLES_KEPT = 5
BUNDLES_KEPT_DAYS = 7
"""Older copies than the newest BUNDLES_KEPT go when they were not used for so long."""

STOP_POLL_S = 0.1
ORPHAN_GRACE_S = 5.0
"""Between TERM and KILL of a command whose connection has ended."""
KILL_WAIT_S = 3.0

_NEWLINE = "_st_n=$(printf '\\nx');_st_n=${_st_n%x};"


def quote(word: str) -> str:
    """One word for a POSIX shell, on one line whatever it holds. Needs the prelude of `line` where it holds newlines."""
    return '"$_st_n"'.join(shlex.quote(piece) if piece else "" for piece in word.split("\n")) or "''"


def line(script: str, *, words: Iterable[str] = ()) -> bytes:
    """A script as the one line that ENTRY reads.

    Args:
        script: Without newlines.
        words: What was quoted into it; decides whether newlines must be defined.
    """
    prelude = _NEWLINE if any("\n" in word for word in words) else ""
    return os.fsencode(prelude + script) + b"\n"


def control(nonce: str, *words: str) -> str:
    """Shell text that prints a control line; words are shell text themselves."""
    holes = " %s" * len(words)
    return f"printf '\\036slicetower {nonce}{holes}\\n' {' '.join(words)}"


def exports(environment: Mapping[str, str]) -> str:
    return "".join(f"export {name}={quote(value)};" for name, value in environment.items())


def command_text(argv: Sequence[str], *, shell: bool) -> str:
    """What is executed: the words literally, or one text for the login shell."""
    if shell:
        return f'exec "${{SHELL:-/bin/sh}}" -c {quote(" ".join(argv))}'
    return "exec " + " ".join(quote(word) for word in argv)


def shown(
    argv: Sequence[str], *, shell: bool, environment: Mapping[str, str], secrets: Sequence[str], folder: str = ""
) -> str:
    """The exact text of a command for people to read; values of secrets are `***`."""
    visible = "".join(f"export {name}={shlex.quote(value)}; " for name, value in environment.items())
    hidden = "".join(f"export {name}=***; " for name in secrets)
    place = f'cd "{folder}" && ' if folder else ""
    command = f'exec "${{SHELL:-/bin/sh}}" -c {shlex.quote(" ".join(argv))}' if shell else f"exec {shlex.join(argv)}"
    return storable(f"{visible}{hidden}{place}{command}")


def storable(text: str) -> str:
    """Bytes of an argument that are no UTF-8 as `\\xff`: what is shown and kept must be text."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def run(argv: Sequence[str], *, shell: bool, environment: Mapping[str, str], nonce: str, folder: str = "") -> bytes:
    """Starts a command after telling `go PID PGID SID`; the command's stdin is at its end.

    With MARK in `environment` the command ends with its connection: our end of stdin stays open for as long as somebody
    is there (see `_watch`).

    `/proc/self/stat` read by a builtin is the shell's own; exec then keeps pid, group and session.
    """
    enter = f'cd "{folder}"||exit 126;' if folder else ""
    watch = _watch(environment[MARK]) if MARK in environment else ""
    script = (
        "{ read -r _st_a _st_b _st_c _st_d _st_g _st_s _st_z </proc/self/stat;} 2>/dev/null||_st_g=$$;"
        f"{enter}{watch}{exports(environment)}{control(nonce, 'go', '$$', '$_st_g', '${_st_s:-0}')};"
        f"{command_text(argv, shell=shell)}"
    )
    return line(script, words=(*argv, *environment.values()))


def _watch(mark: str) -> str:
    """Ends the command when its connection ends before it does: stdin then comes to its end while the command lives.

    What a command that has ended left behind is left alone. The watcher is nobody's child, so that no command waits for it.
    """
    return (
        "exec 3<&0 </dev/null;((exec >/dev/null 2>&1;trap '' HUP;read -r _st_x <&3;"
        "IFS= read -r _st_t </proc/$$/stat||exit;case ${_st_t##*) } in Z*)exit;;esac;"
        f"{_killer(mark, 0, ORPHAN_GRACE_S)})&);exec 3<&-;"
    )


def _killer(mark: str, session: int, grace_s: float) -> str:
    """TERM, then KILL, to a session (0: none) and to every process that carries `mark`; defines `_st_l`, which lists them."""
    of_session = (
        "for _st_f in /proc/[0-9]*/stat;do { IFS= read -r _st_t <$_st_f;} 2>/dev/null||continue;"
        "_st_p=${_st_f#/proc/};_st_p=${_st_p%/stat};set -- ${_st_t##*) };"
        f'if [ "$1" != Z ]&&[ "$4" = {session} ];then echo $_st_p;fi;done;'
    )
    return (
        f"_st_l(){{ {of_session if session else ''}"
        f"for _st_f in $(grep -ls {MARK}={mark} /proc/[0-9]*/environ);do "
        "_st_p=${_st_f#/proc/};echo ${_st_p%/environ};done;};"
        '_st_k(){ _st_i=0;while :;do _st_v=$(_st_l);if [ -z "$_st_v" ]||[ $_st_i -ge $2 ];then break;fi;'
        "if [ $_st_i = 0 ]||[ $1 = KILL ];then kill -$1 $_st_v 2>/dev/null;fi;"
        f"_st_i=$((_st_i+1));sleep {STOP_POLL_S};done;}};"
        f"_st_k TERM {round(grace_s / STOP_POLL_S)};_st_k KILL {round(KILL_WAIT_S / STOP_POLL_S)}"
    )


def stop(mark: str, session: int, *, grace_s: float, nonce: str) -> bytes:
    """TERM, then KILL, to a session and to every process that carries `mark`.

    Tells `left PID...` at the end, or `blind` where there is no /proc to look into.

    Args:
        mark: Value of MARK.
        session: Session id, or 0 to go by the mark alone, as when the connection was lost and numbers may be reused.
        grace_s: Between TERM and KILL.
        nonce: For the control line.
    """
    blind = f"if [ ! -r /proc/self/stat ];then {control(nonce, 'blind')};exit 0;fi;"
    left = control(nonce, "left", "\"$(_st_l|sort -un|tr '\\n' ' ')\"")
    return line(f"{blind}{_killer(mark, session, grace_s)};{left}")


def ship(digest: str, size: int, nonce: str) -> bytes:
    """Tells `have` when the bundle is there, else `need`, reads `size` bytes of gzip, and tells `shipped` or `bad REASON`.

    The archive is checked against its digest before anything is unpacked, and appears under its name only when whole.
    """
    place = f"{BUNDLES}/{digest}"
    script = (
        f'umask 077;mkdir -p "{BUNDLES}"||{{ {control(nonce, "bad", "folder")};exit 1;}};'
        f'if [ -e "{place}.ok" ]&&[ -d "{place}" ];then touch "{place}.ok";{control(nonce, "have")};exit 0;fi;'
        f'{control(nonce, "need")};_st_w="{BUNDLES}/.new-$$";rm -rf "$_st_w";mkdir "$_st_w";'
        f'head -c {size}|gzip -dc >"$_st_w/tar";_st_h=$(sha256sum <"$_st_w/tar");'
        f'if [ "${{_st_h%% *}}" != {digest} ];then rm -rf "$_st_w";{control(nonce, "bad", "digest")};exit 1;fi;'
        'mkdir "$_st_w/code"&&tar -xf "$_st_w/tar" -C "$_st_w/code"'
        f'||{{ rm -rf "$_st_w";{control(nonce, "bad", "unpack")};exit 1;}};'
        f'rm -rf "{place}";mv "$_st_w/code" "{place}"&&touch "{place}.ok";rm -rf "$_st_w";{control(nonce, "shipped")};'
        f'cd "{BUNDLES}"&&for _st_o in $(ls -t *.ok|tail -n +{BUNDLES_KEPT + 1});do '
        f'if [ -n "$(find "$_st_o" -mtime +{BUNDLES_KEPT_DAYS})" ];then '
        '_st_o=${_st_o%.ok};rm -rf "$_st_o" "$_st_o.ok" "$_st_o".setup-*;fi;done'
    )
    return line(script)


def setup(command: str, digest: str, key: str, nonce: str, environment: Mapping[str, str]) -> bytes:
    """Runs a setup command unless it succeeded for this bundle, text and boot: tells `ready`, or `go` and then runs it.

    It ends with its connection, as a command does: our end of stdin stays open for as long as somebody is there.

    Args:
        command: Shell text.
        digest: The bundle's, or empty to run in the home directory.
        key: Identifies the command's text.
        nonce: For control lines.
        environment: Its variables, MARK among them.
    """
    folder = f"{BUNDLES}/{digest}" if digest else "$HOME"
    name = f"{digest or 'home'}.setup-{key}"
    watch = _watch(environment[MARK]) if MARK in environment else ""
    script = (
        "umask 077;read -r _st_b </proc/sys/kernel/random/boot_id;"
        f'mkdir -p "{BUNDLES}";_st_r="{BUNDLES}/{name}-$_st_b";'
        f'if [ -e "$_st_r" ];then {control(nonce, "ready")};exit 0;fi;cd "{folder}"||exit 126;'
        "{ read -r _st_a _st_b _st_c _st_d _st_g _st_s _st_z </proc/self/stat;} 2>/dev/null||_st_g=$$;"
        f"{watch}{exports(environment)}{control(nonce, 'go', '$$', '$_st_g', '${_st_s:-0}')};"
        f'"${{SHELL:-/bin/sh}}" -c {quote(command)}&&: >"$_st_r"'
    )
    return line(script, words=(command, *environment.values()))


RECEIVER = """\
import hashlib, os, sys, zlib
path, digest, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
packed = b""
while len(packed) < size:
    part = os.read(0, size - len(packed))
    if not part:
        sys.exit("slicetower: the supervisor did not arrive whole")
    packed += part
text = zlib.decompress(packed)
if hashlib.sha256(text).hexdigest() != digest:
    sys.exit("slicetower: the supervisor arrived damaged")
os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
new = "%s.%d" % (path, os.getpid())
with open(new, "wb") as file:
    file.write(text)
os.replace(new, path)
"""
"""Takes the supervisor from stdin, verifies it, and puts it under its name only when it is whole."""

PYTHON = "python3 -I -S"
"""The supervisor needs neither site nor the operator's PYTHON* variables: it starts sooner, and can't be led astray by
them. What it starts has the whole environment."""


def supervise(packed: bytes, digest: str, verb: Sequence[str], nonce: str, request: str = "") -> bytes:
    """The script for one verb of the supervisor, and after it the packed program, which is read only where it is missing.

    Tells `go` when the program is there; all output after it is the supervisor's. Without `go`, nothing was started.

    Args:
        packed: zlib of the program's text.
        digest: Hexadecimal sha256 of the text.
        verb: The verb and its arguments.
        nonce: For the control line.
        request: What the verb reads from its stdin.
    """
    path = f"$HOME/.slicetower/bin/supervisor-{digest[:16]}.py"
    words = [RECEIVER, request, *verb]
    become = f'{PYTHON} "$_st_p" {" ".join(quote(word) for word in verb)}'
    script = (
        f'_st_p="{path}";[ -s "$_st_p" ]||{PYTHON} -c {quote(RECEIVER)} "$_st_p" {digest} {len(packed)}||exit;'
        f"{control(nonce, 'go')};"
        + (f"printf %s {quote(request)}|{become}" if request else f"exec {become} </dev/null")
    )
    return line(script, words=words) + packed
