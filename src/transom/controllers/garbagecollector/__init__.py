"""Deletes what nobody owns any more.

`graph.py` keeps who owns whom and says what is to be looked at; `monitors.py` watches every resource that the server
has, custom ones included; `collector.py` looks at things with the server's own eyes, then deletes or orphans them.
"""

from transom.controllers.garbagecollector.collector import GarbageCollector

__all__ = ["GarbageCollector"]
