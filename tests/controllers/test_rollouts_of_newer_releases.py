"""Pure parts of newer rollouts: DaemonSet surge, claim retention, the deletion cost of pods."""

from __future__ import annotations

from typing import Any

import pytest

from transom.controllers.daemonset.surge import plan_surge, surplus_pods
from transom.controllers.pods import deletion_rank
from transom.controllers.service_pods import pod_digest
from transom.controllers.statefulset.retention import with_owners
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object

NOW = 1_700_000_000.0


def daemon_pod(name: str, revision: str, ready: bool) -> Object:
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": rfc3339(NOW - 60),
    }
    return {
        "metadata": {"name": name, "labels": {"controller-revision-hash": revision}},
        "spec": {"nodeName": "n"},
        "status": {"conditions": [condition]},
    }


def test_surge_starts_new_pods_and_then_deletes_old_ones() -> None:
    nodes = {name: [daemon_pod(f"old-{name}", "1", True)] for name in ("a", "b", "c")}
    plan = plan_surge(nodes, "2", 0, NOW, 2)
    assert (plan.delete, plan.create) == ([], ["a", "b"])
    nodes["a"].append(daemon_pod("new-a", "2", True))
    nodes["b"].append(daemon_pod("new-b", "2", False))
    plan = plan_surge(nodes, "2", 0, NOW, 2)
    assert (plan.delete, plan.create) == (["old-a"], ["c"])


def test_an_old_pod_stays_while_it_is_ready_and_the_new_one_is_not() -> None:
    old, new = daemon_pod("old", "1", True), daemon_pod("new", "2", False)
    assert surplus_pods([old, new], "2", 0, NOW) == []
    assert surplus_pods([old, daemon_pod("new", "2", True)], "2", 0, NOW) == [old]
    assert surplus_pods([daemon_pod("old", "1", False), new], "2", 0, NOW) != []


@pytest.mark.parametrize(
    ("policy", "ordinal", "owner"),
    [
        ({}, 0, None),
        ({"whenDeleted": "Delete"}, 0, "StatefulSet"),
        ({"whenDeleted": "Delete", "whenScaled": "Delete"}, 1, "Pod"),
        ({"whenScaled": "Delete"}, 0, None),
        ({"whenScaled": "Delete"}, 1, "Pod"),
    ],
)
def test_claims_are_owned_as_the_policy_says(
    policy: dict[str, Any], ordinal: int, owner: str | None
) -> None:
    stateful_set = {
        "metadata": {"name": "db", "namespace": "n", "uid": "set"},
        "spec": {"replicas": 1, "persistentVolumeClaimRetentionPolicy": policy},
    }
    pod = {"metadata": {"name": f"db-{ordinal}", "namespace": "n", "uid": "pod"}}
    claim = {"metadata": {"name": "data", "namespace": "n", "uid": "claim"}}
    changed = with_owners(claim, stateful_set, pod)
    kinds = [r["kind"] for r in (changed or claim)["metadata"].get("ownerReferences", [])]
    assert kinds == ([owner] if owner else [])
    assert with_owners(changed or claim, stateful_set, pod) is None


def test_pods_with_a_lower_cost_go_first() -> None:
    def pod(cost: str) -> Object:
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
        return {"metadata": {"annotations": annotations}, "spec": {"nodeName": "n"}}

    assert deletion_rank(pod("-5"), by_cost=True) < deletion_rank(pod("3"), by_cost=True)
    assert deletion_rank(pod("-5")) == deletion_rank(pod("3"))
    assert deletion_rank(pod("1.5"), by_cost=True) == deletion_rank(pod("0"), by_cost=True)


def test_the_order_of_ports_is_a_hash() -> None:
    assert pod_digest("", fnv=True).hex() == "6c62272e07bb014262b821756295c58d"
    assert pod_digest("a", fnv=True).hex() == "d228cb696f1a8caf78912b704e4a8964"
