"""StatefulSets: pods with a name, a place in the order and storage of their own.

`identity` says what belongs to an ordinal, `controller` when to look at which set, `update` does one look.
"""

from transom.controllers.statefulset.controller import StatefulSets

__all__ = ["StatefulSets"]
