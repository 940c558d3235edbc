"""The sharding benchmark: layers of two matrices, split over data, fsdp and tensor axes inside slices and over them.

Model, axes and flag names are those of MaxText's `shardings.py` (https://github.com/AI-Hypercomputer/maxtext), written anew:
each of N layers is x -> sigmoid(x W1^T) -> sigmoid(. W2) with (4D, D) matrices, the loss is the sum, a step is
forward, backward and W - 0.0001 g. What is added: a JSON line per step while it runs, medians and spreads, the
corrected FLOP count beside upstream's, the time without communication, memory in use, and limits on everything that can hang.

Shipped to workers: standard library, jax (0.4.35 and later) and its siblings alone, Python 3.10 and later.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from jobs.meshes import Mesh, mesh_problems, size_problems
from jobs.programs.process import (
    EXIT_ARGUMENTS,
    EXIT_INTERRUPTED,
    Limits,
    Place,
    ProgramError,
    Watchdog,
    about,
    barrier,
    fail,
    finish,
    join,
    leave,
    place,
    say,
    slices_of,
)
from jobs.programs.sharding_flags import (
    AXES,
    FEED_FORWARD,
    add_arguments,
    claimed_flops,
    corrected_flops,
    mesh_of,
)

LEARNING_RATE = 1e-4


def check(arguments: argparse.Namespace, where: Place) -> None:
    """Refuses what can't run, before jax is imported.

    Raises:
        ProgramError: With one sentence per problem.
    """
    mesh = mesh_of(arguments)
    devices = where.slice_devices or mesh.ici.product
    problems = mesh_problems(mesh.ici, mesh.dcn, devices, where.slices)
    if not problems:
        problems = size_problems(mesh, arguments.embedding_dimension, arguments.batch_size, arguments.num_layers)
    problems += [
        f"--{name} is below {least}."
        for name, least in (("steps", 1), ("warmup", 0))
        if vars(arguments)[name] < least
    ]
    if problems:
        raise ProgramError("arguments", " ".join(problems), code=EXIT_ARGUMENTS)


def device_mesh(jax: Any, mesh: Mesh, where: Place) -> Any:
    """The devices in mesh order (data, fsdp, tensor), DCN outside ICI on each axis.

    Raises:
        ProgramError: The devices are not what the axes ask for.
    """
    devices = list(jax.devices())
    slice_of = slices_of(devices, where)
    slices = sorted(set(slice_of.values()))
    problems = mesh_problems(mesh.ici, mesh.dcn, len(devices) // len(slices), len(slices))
    if problems:
        raise ProgramError("arguments", " ".join(problems), code=EXIT_ARGUMENTS)
    return arrange(jax, devices, mesh, slice_of)


def arrange(jax: Any, devices: list[Any], mesh: Mesh, slice_of: dict[Any, int]) -> Any:
    """Devices as a jax Mesh: near ones on the inner axes, as the topology of the slices allows."""
    import numpy
    from jax.experimental import mesh_utils

    if devices[0].platform == "tpu":
        if len(set(slice_of.values())) > 1:

            def make(**options: Any) -> Any:
                return mesh_utils.create_hybrid_device_mesh(mesh.ici.sizes, mesh.dcn.sizes, devices, **options)

        else:

            def make(**options: Any) -> Any:
                return mesh_utils.create_device_mesh(mesh.ici.sizes, devices, **options)

        try:
            array = make()
        except (NotImplementedError, ValueError):
            # An axis that is smaller than a side of the torus.
            array = make(allow_split_physical_axes=True)
    else:
        ordered = sorted(devices, key=lambda each: (slice_of[each], each.process_index, each.id))
        flat = numpy.empty(len(ordered), dtype=object)
        flat[:] = ordered
        split = flat.reshape(*mesh.dcn.sizes, *mesh.ici.sizes)
        array = split.transpose(0, 3, 1, 4, 2, 5).reshape(*mesh.total.sizes)
    return jax.sharding.Mesh(array, AXES)


class Benchmark:
    """The compiled step and its data on this process's devices."""

    def __init__(self, jax: Any, arguments: argparse.Namespace, mesh: Any) -> None:
        self.jax = jax
        self.arguments = arguments
        self.mesh = mesh
        spec = jax.sharding.PartitionSpec
        self.rows = self._sharding(spec(("data", "fsdp"), "tensor"))
        self.matrices = self._sharding(spec("tensor", "fsdp"))
        self.every = spec(AXES)
        self.dtype = getattr(jax.numpy, arguments.dtype)
        self.total_rows = arguments.batch_size * mesh.devices.size

    def _sharding(self, spec: Any) -> Any:
        return self.jax.sharding.NamedSharding(self.mesh, spec)

    def make_data(self) -> tuple[Any, Any]:
        """Weights (a pair of matrices per layer) and input rows, made where they live."""
        jax, d = self.jax, self.arguments.embedding_dimension
        shape = (FEED_FORWARD * d, d)

        def weights() -> Any:
            keys = jax.random.split(jax.random.key(0), 2 * self.arguments.num_layers)
            made = [jax.random.normal(key, shape, self.dtype) / d**0.5 for key in keys]
            return tuple(zip(made[::2], made[1::2]))  # noqa: B905 - halves of one list

        def rows() -> Any:
            return jax.random.normal(jax.random.key(1), (self.total_rows, d), self.dtype)

        return jax.jit(weights, out_shardings=self.matrices)(), jax.jit(rows, out_shardings=self.rows)()

    def shapes(self) -> tuple[Any, Any]:
        """What `make_data` would make, without making it: for compiling alone."""
        jax, d = self.jax, self.arguments.embedding_dimension
        matrix = jax.ShapeDtypeStruct((FEED_FORWARD * d, d), self.dtype, sharding=self.matrices)
        rows = jax.ShapeDtypeStruct((self.total_rows, d), self.dtype, sharding=self.rows)
        return tuple((matrix, matrix) for _ in range(self.arguments.num_layers)), rows

    def step(self, weights: Any, rows: Any) -> Any:
        """Loss and updated weights."""
        jax = self.jax
        loss, gradients = jax.value_and_grad(lambda each: self._forward(each, rows, self._constrain))(weights)
        return loss, jax.tree_util.tree_map(lambda w, g: w - LEARNING_RATE * g, weights, gradients)

    def _constrain(self, value: Any) -> Any:
        return self.jax.lax.with_sharding_constraint(value, self.rows)

    def _forward(self, weights: Any, rows: Any, constrain: Callable[[Any], Any]) -> Any:
        sigmoid = self.jax.nn.sigmoid
        value = rows
        for widen, narrow in weights:
            value = constrain(sigmoid(value @ widen.T))
            value = constrain(sigmoid(value @ narrow))
        return value.sum(dtype=self.jax.numpy.float32)

    def without_communication(self) -> tuple[Callable[..., Any], tuple[Any, Any]]:
        """The same local matmuls with nothing between devices: one layer's gathered weights, used in every layer."""
        jax, spec = self.jax, self.jax.sharding.PartitionSpec
        tensor = self.mesh.shape["tensor"]
        d, layers, count = self.arguments.embedding_dimension, self.arguments.num_layers, self.mesh.devices.size
        shard: Any = getattr(jax, "shard_map", None)
        if shard is None:
            from jax.experimental.shard_map import shard_map as shard

        def local(pair: Any, rows: Any) -> Any:
            whole = jax.numpy.tile(rows, (1, tensor))
            return jax.grad(lambda each: self._forward((each,) * layers, whole, lambda value: value))(pair)

        row_spec = self.rows.spec
        run = shard(local, mesh=self.mesh, in_specs=(spec(AXES), row_spec), out_specs=spec(AXES))
        made = jax.jit(
            lambda: (
                jax.random.normal(jax.random.key(2), (count * FEED_FORWARD * d // tensor, d), self.dtype) / d**0.5
            ),
            out_shardings=self._sharding(spec(AXES)),
        )
        return run, (made(), made())


def run(arguments: argparse.Namespace, where: Place, watchdog: Watchdog, limits: Limits) -> None:
    """Everything from joining to the summary."""
    jax = join(where, watchdog, limits)
    mesh = mesh_of(arguments)
    say({"device": {**about(jax, where), "mesh": mesh.code()}})
    benchmark = Benchmark(jax, arguments, device_mesh(jax, mesh, where))
    watchdog.enter("making the data", arguments.compile_limit)
    weights, rows = benchmark.make_data()
    watchdog.enter("compiling", arguments.compile_limit)
    started = time.perf_counter()
    compiled = jax.jit(benchmark.step).lower(weights, rows).compile()
    claimed, corrected = claimed_flops(arguments), corrected_flops(arguments)
    counted = _compiler_flops(compiled)
    facts = {
        "compile_s": round(time.perf_counter() - started, 3),
        "flops_per_device": corrected,
        "claimed_flops_per_device": claimed,
        "compiler_flops_per_device": counted,
        "compiler_ratio": round(counted / corrected, 4) if counted else None,
    }
    say({"compiled": facts})
    alone, alone_data = _prepare_alone(jax, benchmark, rows, watchdog, arguments)
    together = jax.jit(lambda value: value.sum())
    pulse = jax.jit(
        lambda: jax.numpy.ones(benchmark.mesh.devices.size), out_shardings=benchmark._sharding(benchmark.every)
    )()
    watchdog.enter("waiting for all processes to have compiled", arguments.compile_limit)
    barrier(jax, "slicetower_compiled", arguments.compile_limit)
    jax.block_until_ready(together(pulse))

    def timed(action: Callable[..., Any], *data: Any) -> float:
        before = time.perf_counter()
        jax.block_until_ready(action(*data))
        return time.perf_counter() - before

    for number in range(arguments.warmup):
        watchdog.enter(f"warm-up step {number}", max(arguments.stuck_after, 0))
        seconds = timed(compiled, weights, rows)
        say({"step": number, "warmup": True, "step_time_s": seconds, "tflops_per_device": corrected / seconds / 1e12})
    if arguments.profiler_path:
        jax.profiler.start_trace(arguments.profiler_path)
    steps: list[float] = []
    apart: list[float] = []
    for number in range(arguments.steps):
        watchdog.enter(f"step {arguments.warmup + number}", max(arguments.stuck_after, 0))
        seconds = timed(compiled, weights, rows)
        steps.append(seconds)
        say(
            {
                "step": arguments.warmup + number,
                "step_time_s": seconds,
                "tflops_per_device": corrected / seconds / 1e12,
                "claimed_tflops_per_device": claimed / seconds / 1e12,
                **_memory(jax),
            }
        )
        if alone is not None and _is_due(number, arguments.steps, arguments.no_communication_steps):
            apart.append(timed(alone, *alone_data))
            # Without this the next step would wait for the slowest of these, and count it as its own.
            jax.block_until_ready(together(pulse))
    if arguments.profiler_path:
        jax.profiler.stop_trace()
    _report(jax, arguments, steps, apart, facts)


def _is_due(number: int, steps: int, wanted: int) -> bool:
    """Spread `wanted` runs evenly over the steps."""
    return wanted > 0 and (number + 1) * wanted // steps > number * wanted // steps


def _prepare_alone(
    jax: Any, benchmark: Benchmark, rows: Any, watchdog: Watchdog, arguments: argparse.Namespace
) -> tuple[Any, tuple[Any, Any]]:
    if arguments.no_communication_steps < 1 or benchmark.mesh.devices.size == 1:
        return None, (None, None)
    watchdog.enter("compiling without communication", arguments.compile_limit)
    try:
        action, pair = benchmark.without_communication()
        compiled = jax.jit(action).lower(pair, rows).compile()
        jax.block_until_ready(compiled(pair, rows))
    except jax.errors.JaxRuntimeError as error:
        # It keeps activations whole over the tensor axis, so it can run out of memory where the real step fits.
        say({"notice": {"what": f"no measurement without communication: {str(error)[:500]}"}})
        return None, (None, None)
    return compiled, (pair, rows)


def _compiler_flops(compiled: Any) -> float | None:
    """The compiler's own count per device, a check on ours; None where it has none."""
    analysis = compiled.cost_analysis()
    if isinstance(analysis, (list, tuple)):
        analysis = analysis[0] if analysis else None
    value = analysis.get("flops") if analysis else None
    return float(value) if value and value > 0 else None


def _memory(jax: Any) -> dict[str, int]:
    """HBM in use on the fullest device of this process; empty where the runtime doesn't tell."""
    told = [stats for device in jax.local_devices() if (stats := device.memory_stats())]
    if not told:
        return {}
    named = (
        ("hbm_in_use_bytes", "bytes_in_use"),
        ("hbm_peak_bytes", "peak_bytes_in_use"),
        ("hbm_limit_bytes", "bytes_limit"),
    )
    return {name: max(stats[key] for stats in told) for name, key in named if all(key in stats for stats in told)}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the nearest ranks of sorted values."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _report(
    jax: Any, arguments: argparse.Namespace, steps: list[float], apart: list[float], facts: dict[str, Any]
) -> None:
    ordered = sorted(steps)
    median = percentile(ordered, 0.5)
    corrected, claimed = facts["flops_per_device"], facts["claimed_flops_per_device"]
    summary = {
        "process": jax.process_index(),
        "steps": len(steps),
        "warmup": arguments.warmup,
        "step_time_s": median,
        "step_time_p10_s": percentile(ordered, 0.1),
        "step_time_p90_s": percentile(ordered, 0.9),
        "tflops_per_device": corrected / median / 1e12,
        "claimed_tflops_per_device": claimed / median / 1e12,
        **facts,
        **_memory(jax),
    }
    if apart:
        alone = percentile(sorted(apart), 0.5)
        summary["no_communication_step_time_s"] = alone
        summary["exposed_communication"] = 1 - alone / median
    say({"summary": summary})
    mean = sum(steps) / len(steps)
    print(f"average time: {mean}, timings (seconds) {steps}")
    print(f"time is {mean} seconds, TFLOP is {claimed / 1e12}, TFLOP/s is {claimed / mean / 1e12}", flush=True)
    finishing = Limits()
    barrier(jax, "slicetower_done", finishing.shutdown_s)


def main(argv: Sequence[str] | None = None) -> None:
    """Never returns normally: it leaves with the others, or fails at once."""
    parser = argparse.ArgumentParser(prog="shardings", description=__doc__.partition("\n")[0])
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    limits = Limits(arguments.initialization_timeout, arguments.heartbeat_timeout)
    watchdog = Watchdog()
    try:
        where = place(os.environ)
        check(arguments, where)
        run(arguments, where, watchdog, limits)
        import jax

        finish(jax, watchdog, limits)
    except KeyboardInterrupt:
        leave(EXIT_INTERRUPTED)
    except Exception as error:
        fail(error)


if __name__ == "__main__":
    main()
