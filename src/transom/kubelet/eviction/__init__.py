"""Node-pressure eviction: conditions, reclaiming and evictions when memory, disk space or process
ids run short.
"""

from transom.kubelet.eviction.manager import EvictionManager

__all__ = ["EvictionManager"]
