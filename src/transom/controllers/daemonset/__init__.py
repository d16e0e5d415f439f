"""DaemonSets: one pod on every matching node.

`placement` decides which nodes match, `template` builds the pod for a node, `revisions` keeps
earlier templates, and `controller` does the rest.
"""

from transom.controllers.daemonset.controller import DaemonSets

__all__ = ["DaemonSets"]
