"""The preflight answers what the compiler answers, finds the largest batch in few compilations, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.accelerators import parse
from jobs.batch_search import ROW_STEP, SEARCH_COMPILES, BatchSearch
from jobs.compiler import PreflightError
from jobs.hlo import Sent
from jobs.meshes import Axes, Mesh, default_mesh
from jobs.preflight import (
    Compilation,
    PreflightReport,
    PreflightRequest,
    preflight,
    read_compilation,
    report_of,
)
from jobs.roofline import Model

LIBTPU_PYTHON = os.environ.get("SLICETOWER_PREFLIGHT_PYTHON") or (
    sys.executable if importlib.util.find_spec("libtpu") else ""
)
V5E = parse("v5litepod-16")
DOCUMENT = PreflightRequest(V5E, 2, default_mesh(16, 2), Model())
TINY = PreflightRequest(parse("v5litepod-4"), 2, default_mesh(4, 2), Model(512, 2, 512))

REFUSED = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO"
    " temporaries (26.13G) exceeds available HBM (15.75G). HLO module: jit_step."
)
OLDER = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 27.50G of 15.75G hbm. Exceeded hbm capacity."


@pytest.mark.parametrize(("why", "needed"), [(REFUSED, 26.13), (OLDER, 27.5)])
def test_a_refusal_of_the_compiler_is_read_with_its_numbers(why: str, needed: float) -> None:
    compiled = read_compilation({"batch_size": 262144, "fits": False, "why": why, "compile_s": 1.0})
    assert compiled.memory_bytes == pytest.approx(needed * 2**30)
    assert compiled.capacity_bytes == pytest.approx(15.75 * 2**30)
    report = report_of(DOCUMENT, compiled, {})
    assert not report.fits
    assert report.bound == ""


def test_times_and_bound_come_from_what_was_compiled() -> None:
    sent = (Sent("DCN", "all-reduce", 2, 1, 3.125e9), Sent("ICI", "all-gather", 16, 1, 9e9))
    compiled = Compilation(131072, True, 13e9, flops=1.0, hbm_traffic_bytes=819e8, sent=sent)
    report = report_of(DOCUMENT, compiled, {"jax": "1"})
    assert report.dcn_s == pytest.approx(1.0)
    assert report.ici_s == pytest.approx(0.1), "two axes of half an axis each"
    assert report.hbm_s == pytest.approx(0.1)
    assert report.compute_s == pytest.approx(0.5136, rel=0.001)
    assert report.bound == "DCN"
    assert report.step_time_s == pytest.approx(1.0)
    assert PreflightReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@given(st.integers(1, 400_000), st.integers(1, 400_000), st.integers(1, 400_000))
def test_the_search_ends_soon_and_what_it_finds_fits(limit: int, first: int, guess: int) -> None:
    """A compiler whose memory grows by the row and ends at `limit` rows."""
    searching = BatchSearch(0, guess)
    size: int | None = first
    while size is not None:
        searching.told(size, fits=size <= limit, memory_bytes=size * 10.0 + 7, capacity_bytes=limit * 10.0 + 7)
        assert searching.compiles <= SEARCH_COMPILES + 2
        size = searching.next()
    assert searching.fitting <= limit


@given(st.integers(2_000, 400_000), st.floats(0.9, 1.1))
def test_with_a_fair_guess_the_search_is_precise(limit: int, error: float) -> None:
    searching = BatchSearch(0, int(limit * error))
    size: int | None = limit // 2
    while size is not None:
        searching.told(size, fits=size <= limit, memory_bytes=size * 10.0 + 7, capacity_bytes=limit * 10.0 + 7)
        size = searching.next()
    assert limit - max(limit * 0.1, ROW_STEP) <= searching.fitting <= limit


@given(st.integers(2_000, 400_000), st.floats(0.5, 0.99))
def test_nothing_far_too_large_is_compiled_once_two_sizes_tell_the_slope(limit: int, share: float) -> None:
    searching = BatchSearch(0, int(limit * share))
    size: int | None = limit // 3
    while size is not None:
        assert size <= limit * 1.03 + ROW_STEP, "a batch of twice the memory compiles for minutes and says little"
        searching.told(size, fits=size <= limit, memory_bytes=size * 10.0 + 7, capacity_bytes=limit * 10.0 + 7)
        size = searching.next()
    assert limit - max(limit * 0.03, ROW_STEP) <= searching.fitting <= limit


def test_equal_inputs_have_equal_keys_and_versions_change_them() -> None:
    same = PreflightRequest(parse("v5litepod-16"), 2, default_mesh(16, 2), Model())
    assert same.key({"jax": "1", "libtpu": "2"}) == DOCUMENT.key({"libtpu": "2", "jax": "1"})
    assert same.key({"jax": "1"}) != DOCUMENT.key({"jax": "2"})
    assert DOCUMENT.key({}) != PreflightRequest(V5E, 2, Mesh(Axes(16), Axes(2)), Model()).key({})


def test_topologies_are_named_as_libtpu_names_them() -> None:
    assert DOCUMENT.topology == "v5e:4x4"
    assert PreflightRequest(parse("tpu7x-8"), 1, default_mesh(8, 1), Model()).topology == "tpu7x:2x2x1"
    with pytest.raises(PreflightError, match="does not compile for v3-8"):
        _ = PreflightRequest(parse("v3-8"), 1, default_mesh(8, 1), Model()).topology


def interpreter(folder: Path, body: str) -> str:
    """An executable that stands for the child's Python."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o700)
    return str(file)


VERSIONS = """echo '{"versions":{"jax":"1","libtpu":"2"}}'"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("""echo '{"versions":{"jax":"1","libtpu":""}}'; cat""", "needs libtpu, which"),
        (f"{VERSIONS}; echo broken >&2; exit 3", "ended with code 3: broken"),
        (f"""{VERSIONS}; echo '{{"error":{{"what":"no topology","cure":"x"}}}}'; cat""", "no topology"),
        ("exit 0", "ended with code 0: no word"),
    ],
)
async def test_a_child_that_fails_is_told_in_a_sentence(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(PreflightError, match=words):
        await preflight(TINY, python=interpreter(tmp_path, body))


async def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="can't be run"):
        await preflight(TINY, python=str(tmp_path / "nowhere"))


async def test_answers_are_kept_and_damaged_ones_are_asked_again(tmp_path: Path) -> None:
    compiled = {"batch_size": 512, "fits": False, "why": REFUSED, "compile_s": 1.0}
    log = tmp_path / "asked"
    body = f"""{VERSIONS}; while read size; do echo "$size" >> {log}; echo '{json.dumps({"compiled": compiled})}'; done"""
    python, cache = interpreter(tmp_path, body), tmp_path / "cache"
    first = await preflight(TINY, python=python, cache=cache)
    second = await preflight(TINY, python=python, cache=cache)
    assert (first.cached, second.cached) == (False, True)
    assert second.compilation == first.compilation
    assert log.read_text() == "512\n"
    (file,) = cache.iterdir()
    file.write_text('{"compilation": 1}')
    assert not (await preflight(TINY, python=python, cache=cache)).cached


async def test_temporary_files_of_the_compiler_go_with_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    body = f'{VERSIONS}; echo "$TMPDIR" > {place}; touch "$TMPDIR/tpu_driver.INFO"; ls "$TMPDIR" >> {place}; exit 3'
    with pytest.raises(PreflightError, match="ended with code 3"):
        await preflight(TINY, python=interpreter(tmp_path, body))
    folder, file = place.read_text().splitlines()
    assert file == "tpu_driver.INFO"
    assert not await asyncio.to_thread(Path(folder).exists)


async def test_a_cancelled_preflight_leaves_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    python = interpreter(tmp_path, f"{VERSIONS}; sleep 600 & echo $! > {pid_file}; wait")
    task = asyncio.create_task(preflight(TINY, python=python))
    async with asyncio.timeout(90):
        while not await asyncio.to_thread(written, pid_file):
            await asyncio.wait({task}, timeout=0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(6000):
        if not alive(int(written(pid_file))):
            break
        await asyncio.sleep(0.01)
    assert not alive(int(written(pid_file)))


def written(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.heavy
@pytest.mark.skipif(not LIBTPU_PYTHON, reason="not run: no libtpu here (extra `preflight`)")
class TestWithLibtpu:
    """Real compilations; minutes on two cores."""

    async def test_the_documents_sizes_fit_two_v5e_slices(self, tmp_path: Path) -> None:
        report = await preflight(DOCUMENT, python=LIBTPU_PYTHON, cache=tmp_path)
        assert report.fits
        assert report.compilation.memory_bytes == pytest.approx(13.7e9, rel=0.02)
        assert report.compilation.unread == ()
        assert report.compiler_ratio == pytest.approx(1, abs=0.02)
        assert report.compilation.bytes_over("DCN") == pytest.approx(4 * 2 * 2048 * 8192 * 2 / 16, rel=0.01)
        assert report.bound == "compute"

    async def test_twice_the_batch_is_refused_with_the_numbers(self) -> None:
        request = PreflightRequest(V5E, 2, DOCUMENT.mesh, Model(batch_per_device=262144))
        report = await preflight(request, python=LIBTPU_PYTHON)
        assert not report.fits
        assert report.compilation.memory_bytes > report.capacity_bytes == pytest.approx(15.75 * 2**30)

    async def test_a_v4_chip_counts_whole_though_its_topology_lists_half_chips(self) -> None:
        v4 = parse("v4-16")
        request = PreflightRequest(v4, 1, default_mesh(v4.chips, 1), Model(batch_per_device=400_000))
        report = await preflight(request, python=LIBTPU_PYTHON)
        assert not report.fits, "as many devices as chips, or the child would have refused the mesh"
        assert report.capacity_bytes == pytest.approx(30.75 * 2**30)
        assert report.compilation.memory_bytes > report.capacity_bytes

    @pytest.mark.parametrize(
        ("kind", "slices", "mesh"),
        [
            ("v4-32", 2, default_mesh(16, 2)),
            ("v5p-32", 2, Mesh(Axes(1, 8, 2), Axes(1, 2, 1))),
            ("v6e-16", 4, Mesh(Axes(2, 4, 2), Axes(2, 2, 1))),
            ("v5litepod-8", 1, default_mesh(8, 1)),
        ],
    )
    async def test_every_generation_compiles(self, kind: str, slices: int, mesh: Mesh) -> None:
        report = await preflight(
            PreflightRequest(parse(kind), slices, mesh, Model(512, 2, 512)), python=LIBTPU_PYTHON
        )
        assert report.fits
        assert report.compilation.unread == ()
        assert (report.compilation.bytes_over("DCN") > 0) == (slices > 1)
        assert report.compilation.bytes_over("ICI") > 0

    async def test_the_largest_batch_is_found(self) -> None:
        report = await preflight(TINY, search=True, python=LIBTPU_PYTHON)
        assert report.largest_batch is not None
        assert report.largest_batch > 100_000
