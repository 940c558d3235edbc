"""The TPU generations: what a chip of each can do.

Sources: peaks, HBM, ICI and DCN from the pages v2 to tpu7x below
https://docs.cloud.google.com/tpu/docs and from jax-ml/scaling-book (`tpus.md`); runtime versions and zones from the
pages `runtimes` and `regions-zones` there; type enums from `google.cloud.tpu_v2alpha1.AcceleratorConfig.Type`.
v2 and v3 have no published DCN figure: their `dcn_bytes_per_s_per_chip` is 0, "not known".
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Generation:
    """One TPU generation, per chip. Rates are FLOP/s in units of 1e12 and bytes/s in units of 1."""

    name: str
    """The field's name: `v5e`."""
    type_prefix: str
    """The API's: `v5litepod`."""
    counts: str
    """What the number of the type string counts: `chips` or `cores`."""
    cores_per_chip: int
    devices_per_chip: int
    """JAX devices a chip (v2, v3 and 7x: 2; v4 and v5p run as a megacore: 1)."""
    peak_bf16_tflops: float
    hbm_gib: float
    """Nominal."""
    usable_hbm_gib: float
    """What a program can have, as libtpu's compiler tells it; the nominal figure where it is not known."""
    hbm_bytes_per_s: float
    ici_bytes_per_s_per_axis: float
    """Both directions of one axis of the torus together."""
    ici_axes: int
    dcn_bytes_per_s_per_chip: float
    """0 where no figure is published."""
    maximum_chips: int
    """Of one slice that can be asked for."""
    runtime_versions: tuple[str, ...]
    """Recommended first."""
    zones: tuple[str, ...]
    """Zones that are documented to offer it; at run time `acceleratorTypes` is the authority."""
    type_enum: str
    """`AcceleratorConfig.Type` of the API; empty where the API does not serve it."""
    served: bool = True
    """False: not served by the Cloud TPU API (7x exists on Compute Engine and GKE)."""
    multislice: bool = True

    @property
    def hbm_bytes(self) -> float:
        """Usable HBM of a chip in bytes."""
        return self.usable_hbm_gib * 2**30

    @property
    def peak_bf16_flops(self) -> float:
        """FLOP/s of a chip."""
        return self.peak_bf16_tflops * 1e12

    @property
    def peak_bf16_tflops_per_device(self) -> float:
        """Of one JAX device, which is what a program measures."""
        return self.peak_bf16_tflops / self.devices_per_chip

    def runtime_fits(self, version: str) -> bool | None:
        """Whether a runtime version is made for this generation; None when that cannot be told from its name."""
        if version in self.runtime_versions:
            return True
        bases = [known for known in _ALL_RUNTIMES if version == known or version.startswith(f"{known}-")]
        if bases:
            return max(bases, key=len) in self.runtime_versions
        return False if version.startswith("v2-alpha-tpu") else None


_UBUNTU = ("tpu-ubuntu2204-base", "tpu-vm-base", "tpu-vm-v4-base")

V2 = Generation(
    "v2",
    "v2",
    counts="cores",
    cores_per_chip=2,
    devices_per_chip=2,
    peak_bf16_tflops=45,
    hbm_gib=16,
    usable_hbm_gib=16,
    hbm_bytes_per_s=700e9,
    ici_bytes_per_s_per_axis=1.24e11,  # 496 Gbit/s a link and direction (Cloud TPU v2 page)
    ici_axes=2,
    dcn_bytes_per_s_per_chip=0,
    maximum_chips=256,
    runtime_versions=_UBUNTU[:2],
    zones=("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f", "europe-west4-a", "asia-east1-c"),
    type_enum="V2",
    multislice=False,
)
V3 = replace(
    V2,
    name="v3",
    type_prefix="v3",
    peak_bf16_tflops=123,
    hbm_gib=32,
    usable_hbm_gib=32,
    hbm_bytes_per_s=900e9,
    ici_bytes_per_s_per_axis=2e11,
    maximum_chips=1024,
    zones=("us-central1-a", "us-central1-b", "europe-west4-a"),
    type_enum="V3",
)
V4 = Generation(
    "v4",
    "v4",
    counts="cores",
    cores_per_chip=2,
    devices_per_chip=1,
    peak_bf16_tflops=275,
    hbm_gib=32,
    usable_hbm_gib=30.75,
    hbm_bytes_per_s=1200e9,
    ici_bytes_per_s_per_axis=9e10,
    ici_axes=3,
    dcn_bytes_per_s_per_chip=6.25e9,
    maximum_chips=4096,
    runtime_versions=_UBUNTU,
    zones=("us-central2-b",),
    type_enum="V4",
)
V5E = Generation(
    "v5e",
    "v5litepod",
    counts="chips",
    cores_per_chip=1,
    devices_per_chip=1,
    peak_bf16_tflops=197,
    hbm_gib=16,
    usable_hbm_gib=15.75,
    hbm_bytes_per_s=819e9,
    ici_bytes_per_s_per_axis=9e10,
    ici_axes=2,
    dcn_bytes_per_s_per_chip=3.125e9,
    maximum_chips=256,
    runtime_versions=("v2-alpha-tpuv5-lite",),
    zones=(
        "us-central1-a",
        "us-south1-a",
        "us-west1-c",
        "us-west4-a",
        "us-west4-b",
        "us-east1-c",
        "us-east5-a",
        "europe-west4-a",
        "europe-west4-b",
    ),
    type_enum="V5LITE_POD",
)
V5P = Generation(
    "v5p",
    "v5p",
    counts="cores",
    cores_per_chip=2,
    devices_per_chip=1,
    peak_bf16_tflops=459,
    hbm_gib=95,
    usable_hbm_gib=95.73,
    hbm_bytes_per_s=2765e9,
    ici_bytes_per_s_per_axis=1.8e11,
    ici_axes=3,
    dcn_bytes_per_s_per_chip=6.25e9,
    maximum_chips=6144,
    runtime_versions=("v2-alpha-tpuv5",),
    zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
    type_enum="V5P",
)
V6E = Generation(
    "v6e",
    "v6e",
    counts="chips",
    cores_per_chip=1,
    devices_per_chip=1,
    peak_bf16_tflops=918,
    hbm_gib=32,
    usable_hbm_gib=31.25,
    hbm_bytes_per_s=1638e9,
    ici_bytes_per_s_per_axis=1.8e11,
    ici_axes=2,
    dcn_bytes_per_s_per_chip=12.5e9,
    maximum_chips=256,
    runtime_versions=("v2-alpha-tpuv6e",),
    zones=(
        "us-central1-b",
        "us-central1-ai1",
        "us-east1-d",
        "us-east5-a",
        "us-east5-b",
        "us-south1-ai1b",
        "europe-west4-a",
    ),
    type_enum="V6E",
)
V7X = Generation(
    "7x",
    "tpu7x",
    counts="cores",
    cores_per_chip=2,
    devices_per_chip=2,
    peak_bf16_tflops=2307,
    hbm_gib=192,
    usable_hbm_gib=189.48,
    hbm_bytes_per_s=7380e9,
    ici_bytes_per_s_per_axis=1.8e11,  # inferred: 1200 GB/s a chip, as v5p
    ici_axes=3,
    dcn_bytes_per_s_per_chip=12.5e9,
    maximum_chips=9216,
    runtime_versions=(),
    zones=("us-central1-c", "us-central1-ai1a"),
    type_enum="",
    served=False,
)
GENERATIONS: tuple[Generation, ...] = (V2, V3, V4, V5E, V5P, V6E, V7X)
GREATEST_PEAK_TFLOPS = max(generation.peak_bf16_tflops_per_device for generation in GENERATIONS)
"""Of one device of any generation: what is above it was measured on none."""

_ALL_RUNTIMES = frozenset(version for generation in GENERATIONS for version in generation.runtime_versions)
