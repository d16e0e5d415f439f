"""Takes the bootstrap roles and bindings of releases 1.21 to 1.37 from the test data of
Kubernetes' public source and writes `machinery/releases/bootstrap_policy.txt`.

  python -m tools.bootstrap_policy GIT_DIRECTORY_OF_KUBERNETES
"""

from __future__ import annotations

import sys
from typing import Any

import yaml
from tools.release_facts import MINORS, OUT, Source, exact_blocks

_DATA = "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata"
_FILES = (
    "cluster-roles",
    "controller-roles",
    "cluster-role-bindings",
    "controller-role-bindings",
    "namespace-roles",
    "namespace-role-bindings",
)
_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def rule_line(rule: dict[str, Any]) -> str:
    """`verbs;groups;resources;names;urls`, values separated by spaces, `core` is the empty group."""
    parts = [" ".join(value or "core" for value in rule.get(name) or ()) for name in _FIELDS]
    return ";".join(parts)


def lines_of(obj: dict[str, Any]) -> list[str]:
    if "roleRef" in obj:
        subjects = []
        for subject in obj.get("subjects") or ():
            if subject["kind"] == "ServiceAccount":
                assert subject["namespace"] == "kube-system", subject
            subjects.append(f"{subject['kind']}:{subject['name']}")
        return [f"-> {obj['roleRef']['name']};{' '.join(subjects)}"]
    lines = [rule_line(rule) for rule in obj.get("rules") or ()]
    assert len(set(lines)) == len(lines), obj["metadata"]
    for selector in (obj.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        lines += [f"+ {label}" for label in selector["matchLabels"]]
    labels = obj["metadata"].get("labels") or {}
    return [*(f"# {k}" for k in labels if "aggregate-to" in k), *lines]


def read_policy(source: Source, ref: str) -> dict[str, list[str]]:
    found = {}
    for name in _FILES:
        for obj in yaml.safe_load(source.read(ref, f"{_DATA}/{name}.yaml"))["items"]:
            meta = obj["metadata"]
            key = f"{obj['kind']} {meta.get('namespace', '')}/{meta['name']}"
            found[key] = lines_of(obj)
    return found


def main() -> int:
    source = Source(sys.argv[1])
    by_minor = {minor: read_policy(source, _ref(source, minor)) for minor in MINORS}
    out = []
    for key in sorted({key for found in by_minor.values() for key in found}):
        having = {minor: found[key] for minor, found in by_minor.items() if key in found}
        for head, *lines in exact_blocks(key, having):
            out += ["", head, *(f" {line}" for line in lines)]
    head = (
        "# Written by tools/bootstrap_policy.py: roles with `verbs;groups;resources;names;urls`,\n"
        "# `# LABEL`, `+ LABEL` of aggregated roles; bindings with `-> role;subjects`.\n"
    )
    (OUT / "bootstrap_policy.txt").write_text(head + "\n".join(out[1:]) + "\n")
    return 0


def _ref(source: Source, minor: int) -> str:
    ref = source.ref(minor)
    return ref if source.read(ref, f"{_DATA}/cluster-roles.yaml") else "HEAD"


if __name__ == "__main__":
    sys.exit(main())
