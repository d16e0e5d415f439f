"""The controllers that a new node and the first pod wait for: a cluster starts them first.
`manager.py` lists all others.
"""

from __future__ import annotations

from transom.controllers.base import Controller, ControllerContext
from transom.controllers.clusterrole_aggregation import ClusterRoleAggregation
from transom.controllers.nodeipam import NodeRanges
from transom.controllers.nodelifecycle import NodeLifecycle
from transom.controllers.root_ca import RootCaPublisher
from transom.controllers.runner import ControllerRow
from transom.controllers.serviceaccount import ServiceAccounts
from transom.controllers.serviceaccount_token import TokensController
from transom.controllers.ttl import NodeTtl


def _tokens(env: ControllerContext) -> Controller | None:
    return TokensController(env, env.settings.sign) if env.settings.sign is not None else None


def _root_ca(env: ControllerContext) -> Controller | None:
    return RootCaPublisher(env) if env.settings.root_ca else None


def _node_ranges(env: ControllerContext) -> Controller | None:
    return NodeRanges(env) if env.settings.pod_cidrs else None


# Nodes get their pod CIDR and lose their taints; pods get the default service account of their
# namespace, without which they are rejected.
EARLY_CONTROLLERS: tuple[ControllerRow, ...] = (
    ControllerRow("serviceaccount-token", "", _tokens),
    ControllerRow("serviceaccount", "service-account-controller", ServiceAccounts),
    ControllerRow("root-ca-cert-publisher", "root-ca-cert-publisher", _root_ca),
    ControllerRow("nodeipam", "node-controller", _node_ranges),
    ControllerRow("nodelifecycle", "node-controller", NodeLifecycle),
    ControllerRow("ttl", "ttl-controller", NodeTtl),
    ControllerRow(
        "clusterrole-aggregation", "clusterrole-aggregation-controller", ClusterRoleAggregation
    ),
)
