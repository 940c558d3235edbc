"""What a preflight found, in words: for the verb and for the screen."""

from __future__ import annotations

from jobs.preflight import PreflightReport, PreflightRequest
from jobs.roofline import Prediction


def facts(request: PreflightRequest, report: PreflightReport) -> list[tuple[str, str]]:
    """(name, words) of everything but the bytes by operation."""
    compiled = report.compilation
    told = [
        (
            "compiled for",
            f"{request.slices} x {request.accelerator.name} ({request.topology}), {request.mesh.words()}",
        ),
        ("with", ", ".join(f"{name} {value}" for name, value in report.versions.items())),
        ("took", "nothing: answered from the cache" if report.cached else f"{compiled.compile_s:.0f} s"),
        ("fits", "yes" if report.fits else "no"),
        ("memory", memory_words(compiled.memory_bytes, report.capacity_bytes)),
    ]
    if report.largest_batch is not None:
        told.append(("largest batch", f"{report.largest_batch} rows a device"))
    if report.fits:
        told += [
            ("bound by", report.bound),
            (
                "predicted",
                f"{report.step_time_s:.4g} s a step at least, {report.tflops_per_device:.4g} TFLOP/s a device at most",
            ),
            (
                "seconds",
                f"compute {report.compute_s:.4g}, HBM {report.hbm_s:.4g}, ICI {report.ici_s:.4g}, DCN {report.dcn_s:.4g}",
            ),
            ("FLOP count", f"the compiler's is {report.compiler_ratio:.3f} x ours"),
        ]
    return told


def memory_words(used: float, capacity: float) -> str:
    """`13.66 GB, 12.72 of 15.75 GiB a device`: the chip's memory is known in GiB, models are reckoned in GB."""
    if used < 2**27:
        return f"{used / 2**20:.3g} MiB of {capacity / 2**30:.2f} GiB a device"
    return f"{used / 1e9:.2f} GB, {used / 2**30:.2f} of {capacity / 2**30:.2f} GiB a device"


def refusal(report: PreflightReport) -> str:
    """Why it does not fit, with the numbers; empty when it does."""
    if report.fits:
        return ""
    used, capacity = report.compilation.memory_bytes, report.capacity_bytes
    needed = f"{used / 2**30:.2f} GiB" if used else "more"
    hint = f" The largest batch is {report.largest_batch}." if report.largest_batch else ""
    return f"it does not fit: {needed} of temporaries are needed, a device has {capacity / 2**30:.2f}.{hint}"


def prediction_words(prediction: Prediction) -> list[str]:
    """The estimate and what it rests on."""
    memory = prediction.memory.total / 2**30
    return [
        f"predicted {prediction.tflops_per_device:.4g} TFLOP/s a device, {prediction.step_time_s:.3g} s a step,"
        f" bound by {prediction.bound}",
        f"{memory:.3g} GiB of HBM a device" + ("" if prediction.fits else ": does not fit"),
        *(f"assumed: {text}" for text in prediction.assumptions),
    ]
