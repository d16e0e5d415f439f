"""Sizes, shares, revisions and conditions of Deployments, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from transom.controllers.deployment import sets, sizes, status
from transom.machinery.objects import Object


def deployment(
    replicas: int, surge: int | str = 0, unavailable: int | str = 0, **spec: Any
) -> Object:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {
        "metadata": {"name": "d", "generation": 1},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            **spec,
        },
    }


def replica_set(name: str, replicas: int, created: str = "", **notes: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": created,
            "annotations": {
                f"deployment.kubernetes.io/{k.replace('_', '-')}": str(v) for k, v in notes.items()
            },
        },
        "spec": {"replicas": replicas},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (3, "25%", "25%", (1, 0)),
        (10, "25%", "25%", (3, 2)),
        (2, "0%", "1%", (0, 1)),
        (1, "1%", "25%", (1, 0)),
        (4, 1, 1, (1, 1)),
        (1, 0, "0%", (0, 1)),
        (100, "150%", "100%", (150, 100)),
        (0, "25%", "25%", (0, 1)),
    ],
)
def test_limits(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    assert sizes.fenceposts(deployment(replicas, surge, unavailable)) == expected


def test_nothing_is_unavailable_of_nothing() -> None:
    assert sizes.max_unavailable(deployment(0, 0, 1)) == 0
    assert sizes.max_unavailable(deployment(2, 0, 5)) == 2
    assert sizes.max_surge({"spec": {"replicas": 1, "strategy": {"type": "Recreate"}}}) == 0


@pytest.mark.parametrize(
    ("size", "most", "wanted", "surge", "to_add", "added", "expected"),
    [
        (8, 13, 15, 3, 5, 0, 3),
        (5, 13, 15, 3, 5, 3, 2),
        (5, 13, 15, 3, 5, 5, 0),
        (8, 13, 5, 3, -5, 0, -3),
        (8, 13, 0, 3, -13, 0, -8),
        (0, 13, 15, 3, 5, 0, 0),
    ],
)
def test_shares(
    size: int, most: int, wanted: int, surge: int, to_add: int, added: int, expected: int
) -> None:
    one = replica_set("a", size, max_replicas=most)
    assert sizes.proportion(one, deployment(wanted, surge), to_add, added) == expected


@pytest.mark.parametrize(
    ("wanted", "surge", "others", "current", "expected"),
    [
        (10, 2, 10, 0, 2),
        (10, 2, 12, 0, 0),
        (10, 2, 0, 4, 10),
        (10, 0, 10, 0, 0),
        (10, 2, 14, 3, 3),
    ],
)
def test_size_of_the_new_set(
    wanted: int, surge: int, others: int, current: int, expected: int
) -> None:
    new = replica_set("new", current)
    assert (
        sizes.new_set_replicas(deployment(wanted, surge), [replica_set("old", others), new], new)
        == expected
    )


def test_order_by_size_and_age() -> None:
    found = [
        replica_set("b", 3, "1"),
        replica_set("a", 3, "1"),
        replica_set("c", 3, "0"),
        replica_set("d", 5, "2"),
    ]
    assert [s["metadata"]["name"] for s in sets.by_size_older(found)] == ["d", "c", "a", "b"]
    assert [s["metadata"]["name"] for s in sets.by_size_newer(found)] == ["d", "b", "a", "c"]


def test_revisions() -> None:
    found = [
        replica_set("a", 0, revision=1),
        replica_set("b", 0, revision=4),
        replica_set("c", 0, revision="x"),
    ]
    assert (sets.max_revision(found), sets.last_revision(found)) == (4, 1)
    assert sets.last_revision(found[:1]) == 0


def test_history_of_revisions_is_kept_short() -> None:
    owner = {"metadata": {"annotations": {"team": "a", sets.REVISION: "7"}}}
    before = {sets.REVISION: "1234", sets.REVISION_HISTORY: ",".join(["1000"] * 400)}
    after = sets.new_set_annotations(owner, before, 1235)
    assert after["team"] == "a" and after[sets.REVISION] == "1235"
    history = after[sets.REVISION_HISTORY]
    assert len(history) <= 2000 and history.endswith(",1000,1234")
    # never back
    assert sets.new_set_annotations(owner, {sets.REVISION: "9"}, 8)[sets.REVISION] == "9"
    assert sets.new_set_annotations(owner, {sets.REVISION: "mine"}, 8) == {sets.REVISION: "mine"}


def test_templates_are_compared_without_their_hash() -> None:
    a = {
        "metadata": {"creationTimestamp": None, "labels": {"app": "x"}},
        "spec": {"containers": []},
    }
    b = {
        "metadata": {"creationTimestamp": None, "labels": {"app": "x", "pod-template-hash": "h"}},
        "spec": {"containers": []},
    }
    assert sets.same_template(a, b)
    assert not sets.same_template(
        a, {**b, "metadata": {"labels": {"app": "y", "pod-template-hash": "h"}}}
    )


def test_a_condition_keeps_its_transition_time_while_its_status_stays() -> None:
    found: Object = {}
    status.set_deployment_condition(
        found, status.make_deployment_condition("Progressing", "True", "A", "m", 0)
    )
    status.set_deployment_condition(
        found, status.make_deployment_condition("Available", "True", "X", "m", 0)
    )
    status.set_deployment_condition(
        found, status.make_deployment_condition("Progressing", "True", "A", "other", 10)
    )
    assert found["conditions"][0]["message"] == "m"  # same status and reason: untouched
    status.set_deployment_condition(
        found, status.make_deployment_condition("Progressing", "True", "B", "m", 10)
    )
    assert [c["type"] for c in found["conditions"]] == ["Available", "Progressing"]
    assert found["conditions"][1]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert found["conditions"][1]["lastUpdateTime"] == "1970-01-01T00:00:10Z"
