"""Plans a benchmark: everything that is known to go wrong is refused before anything is sent, with what would be right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources

from backend.bench.model import COORDINATOR_PORT, CPU_SIZES, BenchPlan, BenchRequest, Survey
from backend.model import QueuedResource, QueuedResourceState
from backend.runs.bundles import Bundle, from_files
from backend.runs.model import RunRequest
from backend.targets import WorkerRef, workers_of
from jobs import accelerators
from jobs.accelerators import Accelerator
from jobs.meshes import advice
from jobs.roofline import largest_batch, memory_estimate, predict, problems

SHIPPED = (
    "jobs/__init__.py",
    "jobs/meshes.py",
    "jobs/programs/__init__.py",
    "jobs/programs/devices.py",
    "jobs/programs/process.py",
    "jobs/programs/sharding_flags.py",
    "jobs/programs/shardings.py",
)
"""The benchmark programs, as they lie in this release."""

ESTIMATE_MARGIN = 1.1
"""Above this share of HBM the estimate refuses, between it and 1 it warns: it was within 3 % of the compiler."""
CPU_FLOPS_PER_CORE = 5e10
"""Half of what one core of a server did with large f32 matmuls (research: jax, section 3)."""


@cache
def programs() -> Bundle:
    """The shipped programs as one archive, named by their content."""
    root = resources.files("jobs")
    files = {path: root.joinpath(*path.split("/")[1:]).read_bytes() for path in SHIPPED}
    return from_files(files, source="slicetower benchmark programs")


def accelerator_of(resource: QueuedResource) -> Accelerator | None:
    """By the type and topology that the API tells, of the request or of its first node that tells one."""
    for kind, topology in (
        (resource.accelerator_type, resource.topology),
        *((s.accelerator_type, s.topology) for s in resource.slices),
    ):
        found = accelerators.find(kind)
        if found is not None and topology and topology != found.topology:
            try:
                return accelerators.from_topology(found.generation.name, topology)
            except accelerators.UnknownAccelerator:
                return found
        if found is not None:
            return found
        if kind and topology:
            try:
                return accelerators.from_topology(kind, topology)
            except accelerators.UnknownAccelerator:
                continue
    return None


def platform_of(survey: Survey) -> str:
    """`cpu` when every worker that answered says so, `tpu` when none does, empty when nobody was asked.

    A mixture counts as `tpu`: the program refuses on the CPU ones, and says so.
    """
    told = [each for each in survey.values() if not each.error]
    if not told:
        return ""
    return "cpu" if all(each.is_cpu for each in told) else "tpu"


def plan_bench(
    resource: QueuedResource,
    request: BenchRequest,
    workers: Sequence[WorkerRef] | None = None,
    survey: Survey | None = None,
    *,
    target: str = "",
) -> BenchPlan:
    """What launching `request` on a queued resource would do.

    Args:
        workers: Whole slices of it; all of them when left out.
        survey: What the workers said (`BenchManager.survey`); without it fewer things can be refused beforehand.
        target: As the operator wrote it.
    """
    survey = survey or {}
    everybody = workers_of(resource)
    chosen = tuple(sorted(workers if workers is not None else everybody, key=lambda each: each.order))
    accelerator = accelerator_of(resource)
    platform = platform_of(survey)
    slice_numbers = sorted({worker.slice_index for worker in chosen})
    slices = len(slice_numbers) or resource.slice_count
    refusals = [*_state_refusals(resource), *_worker_refusals(resource, chosen, everybody, accelerator, platform)]
    warnings: list[str] = []
    refusals += (unfit := _mesh_refusals(resource, request, accelerator, slices))
    prediction = None
    if accelerator is not None and not refusals and platform != "cpu":
        prediction = predict(accelerator, request.mesh, request.model)
        if prediction.memory.total > accelerator.generation.hbm_bytes / accelerator.generation.devices_per_chip:
            said = _does_not_fit(request, accelerator, prediction.memory.total)
            if prediction.memory.total > ESTIMATE_MARGIN * accelerator.generation.hbm_bytes and not request.force:
                refusals.append(f"{said} --force launches it all the same.")
            else:
                warnings.append(said)
    port = _port(request, chosen, survey, platform)
    if port != request.port:
        warnings.append(f"Port {request.port} of {chosen[0].address} is taken, so {port} is used.")
    coordinator = f"{chosen[0].internal_ip}:{port}" if chosen else ""
    plan_refusals, plan_warnings = _survey_findings(request, chosen, survey, platform, port, sized=not unfit)
    refusals += plan_refusals
    warnings += plan_warnings
    return BenchPlan(
        request,
        target or resource.name,
        resource.project,
        resource.zone,
        resource.name,
        accelerator,
        slices,
        chosen,
        coordinator,
        platform,
        run_request(request, chosen, slices, accelerator, coordinator),
        tuple(refusals),
        tuple(warnings),
        tuple(advice(request.mesh)) if not refusals else (),
        prediction,
        survey,
    )


def run_request(
    request: BenchRequest,
    workers: Sequence[WorkerRef],
    slices: int,
    accelerator: Accelerator | None,
    coordinator: str,
) -> RunRequest:
    """The run that carries the benchmark: one process per worker, all at once, detached, each told its place."""
    numbers = {index: number for number, index in enumerate(sorted({worker.slice_index for worker in workers}))}
    devices = accelerator.devices if accelerator else request.mesh.ici.product
    own = {
        worker.address: {
            "SLICETOWER_COORDINATOR": coordinator,
            "SLICETOWER_PROCESS_ID": str(process),
            "SLICETOWER_NUM_PROCESSES": str(len(workers)),
            "SLICETOWER_SLICE_ID": str(numbers[worker.slice_index]),
            "SLICETOWER_NUM_SLICES": str(slices),
            "SLICETOWER_SLICE_DEVICES": str(devices),
        }
        for process, worker in enumerate(workers)
    }
    return RunRequest(
        argv=request.argv,
        detach=True,
        gang=True,
        environment=(("PYTHONUNBUFFERED", "1"), *request.environment),
        worker_environment=own,
        bundle=programs(),
        kind="bench",
        title=request.title or f"shardings {request.mesh.words()}",
    )


def suggested_sizes(survey: Survey) -> dict[str, int]:
    """Sizes for what the workers are: upstream's defaults, or small ones where all of them are CPUs."""
    return dict(CPU_SIZES) if platform_of(survey) == "cpu" else {}


def _state_refusals(resource: QueuedResource) -> list[str]:
    if resource.state != QueuedResourceState.ACTIVE:
        return [f"{resource.name} is {resource.state}: a benchmark needs it ACTIVE, with all workers there."]
    bad = [each for each in resource.slices if not each.ready]
    missing = resource.slice_count - len(resource.slices)
    said = []
    if missing > 0:
        said.append(f"{missing} of the {resource.slice_count} slices of {resource.name} are not there yet.")
    if bad:
        state = bad[0].state if bad[0].state != "READY" else bad[0].health or "without endpoints"
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        said.append(
            f"Slice {bad[0].index} of {resource.name} is {state}{more}: every slice has to be READY and healthy."
        )
    return said


def _worker_refusals(
    resource: QueuedResource,
    chosen: Sequence[WorkerRef],
    everybody: Sequence[WorkerRef],
    accelerator: Accelerator | None,
    platform: str,
) -> list[str]:
    if not everybody:
        return []
    if not chosen:
        return [f"No worker of {resource.name} is selected."]
    strangers = sorted({worker.queued_resource for worker in chosen} - {resource.name})
    if strangers:
        return [f"A benchmark runs on one queued resource: {', '.join(strangers)} and {resource.name} are several."]
    said = []
    picked = Counter(worker.slice_index for worker in chosen)
    whole = Counter(worker.slice_index for worker in everybody)
    for index, count in sorted(picked.items()):
        if count != whole[index]:
            said.append(
                f"Slice {index} has {whole[index]} workers and {count} are selected: every process of a slice waits for"
                f" the others, so take whole slices ({resource.name}/{index})."
            )
    if not said and len(picked) < len(whole) and platform != "cpu":
        said.append(
            f"{len(picked)} of the {len(whole)} slices are selected: the TPU runtime of a Multislice waits for all of"
            f" them, so take all ({resource.name})."
        )
    if not said and len(set(whole.values())) > 1:
        said.append(
            f"The slices of {resource.name} have different numbers of workers: {dict(sorted(whole.items()))}."
        )
    lost = [worker.address for worker in chosen if not worker.internal_ip]
    if lost:
        said.append(f"{lost[0]} has no internal address, which the others need to find it.")
    return said


def _mesh_refusals(
    resource: QueuedResource, request: BenchRequest, accelerator: Accelerator | None, slices: int
) -> list[str]:
    if accelerator is None:
        kind = resource.accelerator_type or "of no type"
        return [f"{resource.name} is {kind}, which is not in the catalogue: its chips per slice are not known."]
    said = problems(accelerator, slices, request.mesh, request.model)
    for name, value, least in (("steps", request.steps, 1), ("warmup", request.warmup, 0)):
        if value < least:
            said.append(f"--{name} is {value}: it has to be {least} or more.")
    if not 1 <= request.port <= 65535:
        said.append(f"--port is {request.port}: it has to be 1 to 65535.")
    return said


def _does_not_fit(request: BenchRequest, accelerator: Accelerator, needed: float) -> str:
    have = accelerator.generation.hbm_bytes / accelerator.generation.devices_per_chip
    rows = largest_batch(accelerator, request.mesh, request.model)
    cure = (
        f"--batch_size {rows} would" if rows else "no batch would: split the weights over more ways of fsdp or tensor"
    )
    return (
        f"About {needed / 1e9:.1f} GB per device are needed and a device of {accelerator.name} has {have / 1e9:.1f} GB"
        f" (estimated; `slicetower preflight` compiles it): {cure}{' fit' if rows else ''}."
    )


def _port(request: BenchRequest, workers: Sequence[WorkerRef], survey: Survey, platform: str) -> int:
    """The asked one; between CPU workers, where no firewall rule names the default, a free one when that is taken."""
    first = survey.get(workers[0].address) if workers else None
    if first is not None and platform == "cpu" and request.port == COORDINATOR_PORT and first.port == "taken":
        return first.free_port or request.port
    return request.port


def _survey_findings(
    request: BenchRequest, workers: Sequence[WorkerRef], survey: Survey, platform: str, port: int, *, sized: bool
) -> tuple[list[str], list[str]]:
    """Refusals and warnings. `sized`: the mesh and the sizes are some, so that what they need can be told."""
    refusals: list[str] = []
    warnings: list[str] = []
    told = {worker.address: survey[worker.address] for worker in workers if worker.address in survey}
    silent = [(address, each.error) for address, each in told.items() if each.error]
    if silent:
        more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        refusals.append(f"{silent[0][0]}{more} can't be asked: {silent[0][1]}")
    good = {address: each for address, each in told.items() if not each.error}
    if not good:
        return refusals, warnings
    without = [address for address, each in good.items() if not each.jax]
    if without:
        some = f"{without[0]} and {len(without) - 1} more have" if len(without) > 1 else f"{without[0]} has"
        refusals.append(
            f"{some} no jax for {request.python}: `slicetower setup {workers[0].queued_resource}` installs it."
        )
    for name in ("jax", "jaxlib", "libtpu"):
        versions = Counter(value for each in good.values() if (value := str(getattr(each, name))))
        if len(versions) > 1:
            listed = ", ".join(f"{version} on {count}" for version, count in versions.most_common())
            refusals.append(
                f"{name} differs between workers ({listed}): processes of different versions wait for ever."
            )
    if (
        workers
        and (first := good.get(workers[0].address)) is not None
        and first.port == "taken"
        and port == request.port
    ):
        refusals.append(
            f"Port {request.port} of {workers[0].address} is taken by another program: stop it"
            f" (`slicetower free {workers[0].address}`), or take another with --port."
        )
    mixed = [address for address, each in good.items() if each.is_cpu]
    if platform == "tpu" and mixed:
        refusals.append(
            f"JAX_PLATFORMS=cpu is set on {mixed[0]} ({len(mixed)} of {len(good)} workers), not on the others."
        )
    if platform == "cpu" and sized:
        refusals += _cpu_refusals(request, good)
    return refusals, warnings


def _cpu_refusals(request: BenchRequest, survey: Survey) -> list[str]:
    said = []
    nameless = sorted({each.machine_name for each in survey.values() if not each.machine_address})
    if nameless:
        said.append(
            f"The name '{nameless[0]}' of that machine has no address, and JAX's CPU collectives need it:"
            f" add the line '127.0.0.1 {nameless[0]}' to its /etc/hosts."
        )
    together = Counter(each.machine for each in survey.values())
    devices = request.mesh.devices / max(1, len(survey))
    each_device = memory_estimate(request.mesh, request.model).total
    for machine, count in together.items():
        one = next(each for each in survey.values() if each.machine == machine)
        needed = each_device * devices * count
        if one.memory_available and needed > one.memory_available and not request.force:
            small = " ".join(f"--{name} {size}" for name, size in CPU_SIZES.items())
            said.append(
                f"These sizes need about {needed / 1e9:.0f} GB on a machine that {count} of the workers share, and it has"
                f" {one.memory_available / 1e9:.0f} GB: use smaller ones, such as {small}."
            )
            break
        seconds = request.model.flops_per_device * devices * count / (one.cpus * CPU_FLOPS_PER_CORE)
        if seconds > request.stuck_after and not request.force:
            small = " ".join(f"--{name} {size}" for name, size in CPU_SIZES.items())
            said.append(
                f"A step would take about {seconds:.0f} s on {one.cpus} CPU cores, longer than --stuck_after"
                f" {request.stuck_after:g}: use smaller sizes, such as {small}."
            )
            break
    return said
