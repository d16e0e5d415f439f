"""Probes of containers: when they are due (`manager.py`, `worker.py`) and what each kind of handler does."""

from transom.kubelet.prober.manager import ProbeManager

__all__ = ["ProbeManager"]
