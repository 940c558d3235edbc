"""The benchmark form without a screen: its fields are upstream's flags and ours, read into one request."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from backend.cloud.gcloud_flags import parse_duration
from backend.outcomes import OperatorError
from backend.sanitize import plain
from jobs.meshes import Mesh
from jobs.programs.sharding_flags import DTYPES
from tui.numbers import whole_number
from tui.screens.form import FormLine

if TYPE_CHECKING:
    from backend.bench.model import BenchRequest

ON = "yes"
NUMBERS: tuple[tuple[str, str], ...] = (
    ("dcn_data_parallelism", "DCN data"),
    ("dcn_fsdp_parallelism", "DCN fsdp"),
    ("dcn_tensor_parallelism", "DCN tensor"),
    ("ici_data_parallelism", "ICI data"),
    ("ici_fsdp_parallelism", "ICI fsdp"),
    ("ici_tensor_parallelism", "ICI tensor"),
    ("batch_size", "batch per device"),
    ("embedding_dimension", "embedding dimension"),
    ("num_layers", "layers"),
    ("steps", "steps"),
    ("warmup", "warm-up steps"),
    ("port", "coordinator port"),
)
"""Field of BenchRequest -> label; upstream's flags have the same names."""
NUMBER_HINTS = {
    **dict.fromkeys([name for name, _ in NUMBERS[:3]], "between slices; the three multiply to the number of slices"),
    **dict.fromkeys([name for name, _ in NUMBERS[3:6]], "within a slice; the three multiply to its devices"),
    "batch_size": "rows a device works on in each step",
    "embedding_dimension": "D of the model; memory of its layers grows with its square",
    "num_layers": "of the model, one after another",
    "steps": "that are measured",
    "warmup": "steps before those, which do not count",
    "port": "of worker 0, where all processes join",
}
"""What a number means, shown while its field has the focus."""
AXES = tuple(name for name, _ in NUMBERS[:6])
SECONDS: tuple[tuple[str, str, str], ...] = (
    ("stuck_after", "ends after", "a step that takes so long"),
    ("compile_limit", "compile at most", "for the first step"),
    ("initialization_timeout", "join within", "all processes"),
    ("heartbeat_timeout", "dead after", "a process that is silent so long"),
)
"""Times of BenchRequest -> label, hint."""


def mesh_texts(mesh: Mesh) -> dict[str, str]:
    """The texts of the six axis fields."""
    values = (*mesh.dcn.sizes, *mesh.ici.sizes)
    return {name: str(value) for name, value in zip(AXES, values, strict=True)}


def further_lines(kept: Mapping[str, str]) -> Iterable[FormLine]:
    """What is rarely changed; an empty field is the default, which its hint tells."""
    from backend.bench.model import BenchRequest

    base = BenchRequest()
    text = kept.get
    yield FormLine("dtype", "dtype", value=text("dtype", ""), choices=DTYPES)
    yield FormLine("title", "title", value=text("title", ""), hint="a name for the record")
    yield FormLine("environment", "environment", value=text("environment", ""), hint="KEY=VALUE ...")
    yield FormLine("profiler_path", "profile into", value=text("profiler_path", ""), hint="none; a folder there")
    yield FormLine(
        "peak_tflops", "peak TFLOP/s", value=text("peak_tflops", ""), hint="the catalogue's, of one device"
    )
    yield FormLine(
        "no_communication_steps",
        "quiet steps",
        value=text("no_communication_steps", ""),
        hint=f"{base.no_communication_steps}; the same matmuls without communication",
    )
    for name, label, hint in SECONDS:
        yield FormLine(name, label, value=text(name, ""), hint=f"{getattr(base, name):g}s; {hint}")
    yield FormLine("force", "even if too large", value=text("force", ""), choices=("no", ON))
    yield FormLine(
        "preflight_python", "preflight's python", value=text("preflight_python", ""), hint="one here, with libtpu"
    )


def request_of(texts: Mapping[str, str]) -> BenchRequest:
    """What the form asks for.

    Raises:
        OperatorError: A field cannot be understood; it says which.
    """
    from backend.bench.model import BenchRequest

    told: dict[str, Any] = {}
    for name, label in NUMBERS:
        told[name] = _number(label, texts.get(name, ""))
    if texts.get("no_communication_steps", "").strip():
        told["no_communication_steps"] = _number("quiet steps", texts["no_communication_steps"])
    for name, label, _ in SECONDS:
        if text := texts.get(name, "").strip():
            try:
                told[name] = parse_duration(f"{text}s" if text.isdecimal() else text)
            except ValueError as error:
                raise OperatorError(f"{label}: {error}.") from error
    if text := texts.get("peak_tflops", "").strip():
        told["peak_tflops"] = _peak(text)
    return BenchRequest(
        **told,
        python=texts.get("python", "").strip() or "python3",
        dtype=texts.get("dtype") or DTYPES[0],
        title=texts.get("title", "").strip(),
        profiler_path=texts.get("profiler_path", "").strip(),
        environment=_environment(texts.get("environment", "")),
        force=texts.get("force") == ON,
    )


def _number(label: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        text = plain(text.strip())
        raise OperatorError(f"{label}: '{text}' is no whole number." if text else f"{label}: a number is missing.")
    return number


def _peak(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise OperatorError(f"peak TFLOP/s: '{plain(text)}' is no rate above 0.", "Write 197.")
    return value


def _environment(text: str) -> tuple[tuple[str, str], ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OperatorError(f"environment: it cannot be read: {error}.", "Close the quotes.") from error
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise OperatorError(f"environment: '{plain(word)}' is not KEY=VALUE.")
        found.append((name, value))
    return tuple(found)
