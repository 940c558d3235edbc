"""The client library's message classes, raw and late.

`google.cloud.tpu_v2alpha1` as a whole takes 0.4 s to import, for clients that we don't use: the RPCs are called through
stubs of our own (see channel.py). Only its `types` are loaded, in a quarter of that, and only when a call is made.
Everything here is a raw protobuf class: proto-plus wrappers cost 17 times as much to read.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from functools import cache
from types import ModuleType
from typing import Any

from backend.cloud.requests import ApiVersion

_LOADING = threading.Lock()
"""A console loads them in a thread while others may ask."""


@cache
def message(name: str, version: ApiVersion = "v2alpha1") -> Any:
    """The raw message class of that name, e.g. `ListNodesResponse`."""
    return getattr(_types(version), name).pb()


@cache
def enum_names(name: str, version: ApiVersion = "v2alpha1") -> dict[int, str]:
    """Number -> name of an enum such as `Node.State`."""
    owner: Any = _types(version)
    for part in name.split("."):
        owner = getattr(owner, part)
    return {int(item.value): item.name for item in owner}


@cache
def operations() -> Any:
    """The messages of google.longrunning."""
    return importlib.import_module("google.longrunning.operations_pb2")


@cache
def locations() -> Any:
    """The messages of google.cloud.location."""
    return importlib.import_module("google.cloud.location.locations_pb2")


@cache
def _types(version: ApiVersion) -> ModuleType:
    with _LOADING:
        return _load(version)


def _load(version: ApiVersion) -> ModuleType:
    package = f"google.cloud.tpu_{version}"
    module = f"{package}.types.cloud_tpu"
    if module in sys.modules or package in sys.modules:
        return importlib.import_module(module)
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return importlib.import_module(module)
    folder = spec.submodule_search_locations[0]
    # Empty stand-ins for the packages, so that only the file with the messages runs; whoever imports the
    # library afterwards gets the real packages, with these same message classes.
    stand_ins = {package: folder, f"{package}.types": f"{folder}/types"}
    for name, path in stand_ins.items():
        stand_in = ModuleType(name)
        stand_in.__path__ = [path]
        sys.modules[name] = stand_in
    try:
        return importlib.import_module(module)
    finally:
        for name in stand_ins:
            del sys.modules[name]
