"""Deployments: roll out a change of the pod template over ReplicaSets, and roll back.

`controller` decides when to sync a Deployment, `rollout` is one sync with all its writes; `sets`,
`sizes` and `status` are pure functions without a client.
"""

from transom.controllers.deployment.controller import Deployments

__all__ = ["Deployments"]
