"""The bootstrap policy of releases from 1.21 on."""

from __future__ import annotations

import pytest

from transom.machinery.releases import RELEASES, TABLES_SINCE, Release, parse_release
from transom.machinery.releases.bootstrap import node_rules, policy_objects

NEWER = [release for text in RELEASES if (release := parse_release(text)) >= TABLES_SINCE]


@pytest.mark.parametrize("release", NEWER, ids=str)
def test_bindings_refer_to_roles_of_the_policy(release: Release) -> None:
    found = policy_objects(release)
    roles = {(o.namespace, o.name) for o in found if o.kind in ("Role", "ClusterRole")}
    bindings = [o for o in found if o.role]
    assert bindings
    assert all((o.namespace, o.role) in roles for o in bindings)


def test_rules_come_and_go_with_releases() -> None:
    slices = {"verbs": ["deletecollection"], "apiGroups": ["resource.k8s.io"]}
    slices["resources"] = ["resourceslices"]
    assert slices in node_rules(Release(1, 36))
    assert slices not in node_rules(Release(1, 33))
