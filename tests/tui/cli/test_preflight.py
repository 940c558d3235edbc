"""`slicetower preflight` refuses what no compiler need be asked, and says how to get one."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.outcomes import ExitCode, OperatorError
from tui.cli.main import main

TYPE = ("--accelerator-type", "v5litepod-16")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--accelerator-type", "v5e-16"], "Did you mean v5litepod-16"),
        ([*TYPE, "-if", "4"], "multiply to 4, but a v5litepod-16 slice has 16 chips"),
        ([*TYPE, "-if", "16", "-d", "1000"], "use a multiple of 16"),
        (["--accelerator-type", "v3-8", "-if", "8"], "does not compile for v3-8"),
    ],
)
def test_what_cannot_be_compiled_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        main(["preflight", *arguments])
    assert caught.value.exit_code == ExitCode.USAGE


def test_without_libtpu_a_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\necho '{"versions":{"jax":"0.10.2","libtpu":""}}'\n""")
    python.chmod(0o700)
    with pytest.raises(OperatorError, match="needs libtpu") as caught:
        main(["preflight", *TYPE, "-if", "16", "--no-cache", "--python", str(python)])
    assert "slicetower[preflight]" in caught.value.cure
