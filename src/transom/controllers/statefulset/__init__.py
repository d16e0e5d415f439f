"""StatefulSets: pods with a stable name, ordinal and storage.

`identity` defines what belongs to an ordinal, `controller` decides when to sync a set, `update`
performs one sync.
"""

from transom.controllers.statefulset.controller import StatefulSets

__all__ = ["StatefulSets"]
