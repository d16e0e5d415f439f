"""What a node does when it runs short of memory, disk space or process ids: conditions, reclaiming, evictions."""

from transom.kubelet.eviction.manager import EvictionManager

__all__ = ["EvictionManager"]
