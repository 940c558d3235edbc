"""Fixtures for every room."""

from __future__ import annotations

from tests.simulator import simulators

__all__ = ["simulators"]
