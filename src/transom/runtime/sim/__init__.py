"""A container runtime that runs nothing: containers live, log, listen and die as real ones would."""

from transom.runtime.sim.engine import SimRuntime

__all__ = ["SimRuntime"]
