"""docs/transcripts.md shows every verb, and says what the program says."""

from __future__ import annotations

import shlex

from tests.simulator import SimulatorFactory
from tests.transcripts import recording
from tui.cli.main import VERBS
from tui.cli.qr import VERBS as QR_VERBS

COMPARED = 25
"""So many from the start: those after them take minutes, or tell more of the machine than of the program."""


def test_every_verb_has_a_transcript() -> None:
    shown = [shlex.split(command) for command, _, _ in recording.read()]
    assert set(VERBS) <= {words[0] for words in shown}
    assert set(QR_VERBS) <= {words[1] for words in shown if words[0] == "qr"}


def test_every_command_was_recorded_once_and_in_order() -> None:
    assert [command for command, _, _ in recording.read()] == [command for _, command in recording.commands()]


def test_the_program_says_what_the_document_shows(simulators: SimulatorFactory) -> None:
    simulator = simulators(fresh=True, seed=recording.SEED)
    said = recording.record(simulator, recording.commands()[:COMPARED])
    for now, (command, code, text) in zip(said, recording.read(), strict=False):
        assert (now.command, now.code) == (command, code)
        assert recording.comparable(now.text) == recording.comparable(text), command
