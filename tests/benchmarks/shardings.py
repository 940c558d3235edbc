"""The sharding benchmark against a plain timing loop of the same model, mesh and sizes, in turns, in one process.

Budget (design.md, section 7): median of 10 interleaved pairs at least 0.97 of the plain loop's corrected TFLOP/s; saying a
JSON line per step costs less than 1 % of a step. CPU devices: a comparison of two loops, no statement about any TPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

PAIRS = 10
STEPS = 5
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


def child(pairs: int) -> None:
    """Both loops, in turns; one JSON line."""
    from jobs.programs import sharding_flags, shardings
    from jobs.programs.process import Limits, Watchdog, join, place, say

    parser = argparse.ArgumentParser()
    sharding_flags.add_arguments(parser)
    arguments = parser.parse_args(SIZES)
    where = place(os.environ)
    watchdog = Watchdog()
    jax = join(where, watchdog, Limits())
    watchdog.enter("measuring", 0)
    mesh = shardings.device_mesh(jax, sharding_flags.mesh_of(arguments), where)
    plain = plain_loop(jax, arguments, mesh)
    ours = shardings.Benchmark(jax, arguments, mesh)
    data = ours.make_data()
    compiled = jax.jit(ours.step).lower(*data).compile()
    plain()
    jax.block_until_ready(compiled(*data))
    ratios, saying, seconds_of_steps = [], [], []
    for pair in range(pairs):
        started = time.perf_counter()
        for _ in range(STEPS):
            plain()
        theirs = (time.perf_counter() - started) / STEPS
        own = []
        for number in range(STEPS):
            before = time.perf_counter()
            jax.block_until_ready(compiled(*data))
            own.append(time.perf_counter() - before)
            before = time.perf_counter()
            say(
                {
                    "step": pair * STEPS + number,
                    "step_time_s": own[-1],
                    "tflops_per_device": 1.0,
                    **shardings._memory(jax),
                }
            )
            saying.append(time.perf_counter() - before)
        ratios.append(theirs / statistics.mean(own))
        seconds_of_steps += own
    say(
        {
            "result": {
                "pairs": pairs,
                "ratio_median": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
                "step_s": statistics.median(seconds_of_steps),
                "saying_share": statistics.median(saying) / statistics.median(seconds_of_steps),
            }
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.pairs)
        return
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    command = [sys.executable, "-m", "tests.benchmarks.shardings", "--child", "--pairs", str(arguments.pairs)]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
    result = json.loads(shown.stdout.splitlines()[-1])["result"]
    print(f"shardings against a plain loop, {result['pairs']} pairs in turns, {result['step_s']:.3f} s a step:")
    print(
        f"  ratio {result['ratio_median']:.3f} (from {result['ratio_low']:.3f} to {result['ratio_high']:.3f}; bar: 0.97);"
        f" saying a step takes {result['saying_share']:.3%} of it (bar: 1 %)"
    )


if __name__ == "__main__":
    main()
