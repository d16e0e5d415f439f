"""DaemonSets: one pod on every node that should have one.

`placement` decides which nodes those are, `template` makes the pod for a node, `revisions` keeps earlier templates, and
`controller` does the rest.
"""

from transom.controllers.daemonset.controller import DaemonSets

__all__ = ["DaemonSets"]
