"""Deployments: rolling a change of the pod template out over ReplicaSets, and back.

`controller` knows when to look at which Deployment, `rollout` is one look with all the writes it leads to; `sets`, `sizes`
and `status` are the arithmetic behind it and know no client.
"""

from transom.controllers.deployment.controller import Deployments

__all__ = ["Deployments"]
