"""Probes of containers: their schedule (`manager.py`, `worker.py`) and the probe handlers."""

from transom.kubelet.prober.manager import ProbeManager

__all__ = ["ProbeManager"]
