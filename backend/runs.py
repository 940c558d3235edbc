"""Runs: planned, launched, followed, stopped, and found again after a restart."""

from __future__ import annotations

from backend.run_model import RunPlan, RunRecord, RunRequest, RunState, StopReport

__all__ = ["RunPlan", "RunRecord", "RunRequest", "RunState", "StopReport"]
