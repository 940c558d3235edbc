"""What a preflight found, in words: for the verb and for the screen."""

from __future__ import annotations

from jobs.preflight import PreflightReport, PreflightRequest


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
        ("memory", f"{compiled.memory_bytes / 1e9:.2f} of {report.capacity_bytes / 1e9:.2f} GB a device"),
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


def refusal(report: PreflightReport) -> str:
    """Why it does not fit, with the numbers; empty when it does."""
    if report.fits:
        return ""
    needed = f"{report.compilation.memory_bytes / 1e9:.1f} GB" if report.compilation.memory_bytes else "more"
    hint = f" The largest batch is {report.largest_batch}." if report.largest_batch else ""
    return f"it does not fit: {needed} of temporaries are needed, a device has {report.capacity_bytes / 1e9:.1f} GB.{hint}"
