"""The sharding benchmark against a plain timing loop of the same model, mesh and sizes, in turns, in one process.

Budget: median of 10 interleaved pairs at least 0.97 of the plain loop's corrected TFLOP/s; saying a
JSON line per step costs less than 1 % of a step. CPU devices: a comparison of two loops, no statement about any TPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

PAIRS = 10
STEPS = 9
"""Of each loop in a pair, one of ours after one of theirs: what else the machine does falls on both."""
WARM_UP = 3
SAID = 5000
"""Lines that are said to learn what one costs."""
SIZES = ["-d", "512", "-b", "256", "-n", "4", "--ici_fsdp_parallelism", "2", "--dtype", "float32"]


def plain_loop(jax: Any, arguments: Any, mesh: Any) -> Any:
    """The step as upstream's page describes it: a jitted step with constraints, fed the same inputs again and again."""
    numpy, spec = jax.numpy, jax.sharding.PartitionSpec
    rows = jax.sharding.NamedSharding(mesh, spec(("data", "fsdp"), "tensor"))
    matrices = jax.sharding.NamedSharding(mesh, spec("tensor", "fsdp"))
    d, dtype = arguments.embedding_dimension, getattr(numpy, arguments.dtype)
    keys = jax.random.split(jax.random.key(3), 2 * arguments.num_layers)
    weights = [jax.device_put(jax.random.normal(key, (4 * d, d), dtype) / d**0.5, matrices) for key in keys]
    value = jax.random.normal(jax.random.key(4), (arguments.batch_size * mesh.devices.size, d), dtype)
    value = jax.device_put(value, rows)

    def forward(layers: Any, x: Any) -> Any:
        for place in range(0, len(layers), 2):
            x = jax.lax.with_sharding_constraint(jax.nn.sigmoid(x @ layers[place].T), rows)
            x = jax.lax.with_sharding_constraint(jax.nn.sigmoid(x @ layers[place + 1]), rows)
        return x.sum()

    def step(layers: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(forward)(layers, x)
        return loss, [layer - 1e-4 * gradient for layer, gradient in zip(layers, gradients, strict=True)]

    compiled = jax.jit(step)
    return lambda: jax.block_until_ready(compiled(weights, value))


def child(pairs: int, steps: int, sizes: list[str]) -> None:
    """Both loops, step by step in turns, on one mesh and the same cores; one JSON line."""
    from jobs.programs import sharding_flags, shardings
    from jobs.programs.process import Limits, Watchdog, join, place, say

    parser = argparse.ArgumentParser()
    sharding_flags.add_arguments(parser)
    arguments = parser.parse_args(sizes)
    where = place(os.environ)
    watchdog = Watchdog()
    jax = join(where, watchdog, Limits())
    watchdog.enter("measuring", 0)
    mesh = shardings.device_mesh(jax, sharding_flags.mesh_of(arguments), where)
    plain = plain_loop(jax, arguments, mesh)
    benchmark = shardings.Benchmark(jax, arguments, mesh)
    data = benchmark.make_data()
    compiled = jax.jit(benchmark.step).lower(*data).compile()

    def ours() -> Any:
        return jax.block_until_ready(compiled(*data))

    def line(number: int, seconds: float) -> None:
        say({"step": number, "step_time_s": seconds, "tflops_per_device": 1.0, **shardings._memory(jax)})

    for _ in range(WARM_UP):
        plain()
        ours()
    walls, processors, all_steps = [], [], []
    for pair in range(pairs):
        wall: dict[Any, list[float]] = {plain: [], ours: []}
        processor: dict[Any, list[float]] = {plain: [], ours: []}
        for number in range(steps):
            # Each goes first in half of the turns, so that what the other leaves in the caches weighs on both.
            for action in (plain, ours) if (pair + number) % 2 else (ours, plain):
                used, before = time.process_time(), time.perf_counter()
                action()
                seconds = time.perf_counter() - before
                wall[action].append(seconds)
                processor[action].append(time.process_time() - used)
                if action is ours:
                    line(pair * steps + number, seconds)
        walls.append(statistics.median(wall[plain]) / statistics.median(wall[ours]))
        processors.append(statistics.median(processor[plain]) / statistics.median(processor[ours]))
        all_steps += wall[ours]
    before = time.perf_counter()
    for number in range(SAID):
        line(number, 0.123456)
    saying = (time.perf_counter() - before) / SAID
    step = statistics.median(all_steps)
    say(
        {
            "result": {
                "pairs": pairs,
                "steps": steps,
                "step_s": step,
                "wall": spread(walls),
                "processor": spread(processors),
                "saying_s": saying,
                "saying_share": saying / step,
            }
        }
    )


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles of the pairs' ratios."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return {"median": middle, "low": low, "high": high, "least": min(values), "most": max(values)}


def measure(pairs: int = PAIRS, steps: int = STEPS, sizes: list[str] | None = None) -> dict[str, Any]:
    """Runs `child` with two CPU devices, kept on the same two cores where the system lets us choose."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    command = [sys.executable, "-m", "tests.benchmarks.shardings", "--child"]
    command += ["--pairs", str(pairs), "--steps", str(steps), "--sizes", " ".join(sizes or SIZES)]
    if hasattr(os, "sched_getaffinity") and shutil.which("taskset"):
        cores = sorted(os.sched_getaffinity(0))[-2:]
        command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=1800)
    result: dict[str, Any] = json.loads(shown.stdout.splitlines()[-1])["result"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each loop in a pair")
    parser.add_argument("--sizes", default=" ".join(SIZES), help="flags of the benchmark")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.pairs, arguments.steps, arguments.sizes.split())
        return
    found = measure(arguments.pairs, arguments.steps, arguments.sizes.split())
    print(f"shardings against a plain loop, {found['pairs']} pairs of {found['steps']} steps each in turns,")
    print(f"{found['step_s']:.3f} s a step; throughput of ours over theirs, median (quartiles; all) of the pairs:")
    for name, words in (("wall", "by wall time"), ("processor", "by CPU time")):
        each = found[name]
        print(
            f"  {words:<13} {each['median']:.3f} ({each['low']:.3f} to {each['high']:.3f};"
            f" {each['least']:.3f} to {each['most']:.3f}); bar: 0.97"
        )
    print(f"  saying a step {found['saying_s'] * 1e6:.0f} us, {found['saying_share']:.4%} of it; bar: 1 %")


if __name__ == "__main__":
    main()
