"""Deletes objects whose owners no longer exist.

`graph.py` tracks owner references and reports what to check; `monitors.py` watches every resource
of the server, including custom ones; `collector.py` reads the current state from the server, then
deletes or orphans objects.
"""

from transom.controllers.garbagecollector.collector import GarbageCollector

__all__ = ["GarbageCollector"]
