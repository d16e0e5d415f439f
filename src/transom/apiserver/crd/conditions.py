"""The status of a definition: which names it got, and the conditions that say so. Pure: a definition in, a status out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transom.machinery.field import aggregate_text, go_quote, invalid
from transom.machinery.objects import Object

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"
NON_STRUCTURAL, APPROVED = "NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant"
_COMMUNITY = (".k8s.io", ".kubernetes.io")
_APPROVAL = {
    "invalid": ("False", "InvalidAnnotation"),
    "missing": ("False", "MissingAnnotation"),
    "approved": ("True", "ApprovedAnnotation"),
    "bypassed": ("False", "UnapprovedAnnotation"),
}


def find(crd: Object, kind: str) -> Object | None:
    return next((c for c in (crd.get("status") or {}).get("conditions") or () if c.get("type") == kind), None)


def is_true(crd: Object, kind: str) -> bool:
    found = find(crd, kind)
    return found is not None and found.get("status") == "True"


def condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def with_condition(crd: Object, new: Object, now: str) -> Object:
    """The definition with one condition set; its time changes with its status only."""
    status = dict(crd.get("status") or {})
    conditions = list(status.get("conditions") or ())
    for i, old in enumerate(conditions):
        if old.get("type") == new["type"]:
            since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
            conditions[i] = {**new, "lastTransitionTime": since or now}
            break
    else:
        conditions.append({**new, "lastTransitionTime": now})
    return {**crd, "status": {**status, "conditions": conditions}}


def without_condition(crd: Object, kind: str) -> Object:
    status = crd.get("status") or {}
    kept = [c for c in status.get("conditions") or () if c.get("type") != kind]
    return {**crd, "status": {**status, "conditions": kept}}


def _same(old: Object | None, new: Object) -> bool:
    return old is not None and all(old.get(k) == new[k] for k in ("status", "reason", "message"))


def reconcile(crd: Object, others: Iterable[Object], now: str) -> Object:
    """The definition with the status it should have; the very same one when it has it already."""
    crd = _named(crd, others, now)
    wanted = _structural(crd)
    if wanted is None:
        if find(crd, NON_STRUCTURAL) is not None:
            crd = without_condition(crd, NON_STRUCTURAL)
    elif not _same(find(crd, NON_STRUCTURAL), wanted):
        crd = with_condition(crd, wanted, now)
    wanted = _approved(crd)
    if wanted is not None and not _same(find(crd, APPROVED), wanted):
        crd = with_condition(crd, wanted, now)
    return crd


# ---- names -----------------------------------------------------------------------------------------------------------


def _clean(names: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in names.items() if v}


def _named(crd: Object, others: Iterable[Object], now: str) -> Object:
    wanted = crd["spec"].get("names") or {}
    accepted = (crd.get("status") or {}).get("acceptedNames") or {}
    if _clean(wanted) != _clean(accepted):
        names, found = _accept(wanted, accepted, others)
        if _clean(names) != _clean(accepted) or not _same(find(crd, NAMES_ACCEPTED), found):
            established = find(crd, ESTABLISHED) or condition(
                ESTABLISHED, "False", "NotAccepted", "not all names are accepted"
            )
            crd = {**crd, "status": {**(crd.get("status") or {}), "acceptedNames": names}}
            crd = with_condition(with_condition(crd, found, now), established, now)
    if is_true(crd, NAMES_ACCEPTED) and not is_true(crd, ESTABLISHED):
        # Nobody else has to learn of the names first, so the state of installing takes no time here.
        done = condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")
        crd = with_condition(crd, done, now)
    return crd


def _accept(wanted: Mapping[str, Any], accepted: Mapping[str, Any], others: Iterable[Object]) -> tuple[Object, Object]:
    """The names a definition gets beside the others of its group, and the condition that tells of conflicts."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        theirs = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {theirs.get("plural", ""), theirs.get("singular", ""), *(theirs.get("shortNames") or ())}
        kinds |= {theirs.get("kind", ""), theirs.get("listKind", "")}
    # What a definition already has counts as taken too: it keeps it, but not under another heading.
    resources |= {accepted.get("plural", ""), accepted.get("singular", ""), *(accepted.get("shortNames") or ())}
    kinds |= {accepted.get("kind", ""), accepted.get("listKind", "")}
    names = dict(accepted)
    reason = message = ""
    for field, label, taken in (
        ("plural", "PluralConflict", resources), ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources), ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        if field == "shortNames":
            mine = accepted.get(field) or ()
            clashes = [n for n in wanted.get(field) or () if n not in mine and n in taken]
        else:
            name = wanted.get(field, "")
            clashes = [name] if name != accepted.get(field, "") and name in taken else []
        if clashes:
            reason, message = label, aggregate_text(f"{go_quote(n)} is already in use" for n in clashes)
        else:
            _take(names, field, wanted.get(field))
    _take(names, "categories", wanted.get("categories"))
    if reason:
        return names, condition(NAMES_ACCEPTED, "False", reason, message)
    return names, condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")


def _take(names: Object, field: str, value: Any) -> None:
    if value:
        names[field] = value
    else:
        names.pop(field, None)


# ---- schema and approval ---------------------------------------------------------------------------------------------


def _structural(crd: Object) -> Object | None:
    """What keeps the schemas from being structural; None when nothing does."""
    from transom.machinery.validation.structural import is_structural_possible, validate_structural

    spec = crd["spec"]
    problems = []
    if spec.get("preserveUnknownFields"):
        problems.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    for i, version in enumerate(spec.get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            continue
        if not is_structural_possible(schema):
            return condition(
                NON_STRUCTURAL, "Unknown", "StructuralError",
                f"failed to check validation schema for version {version['name']}: OpenAPIV3Schema 'schema' is not supported",
            )
        problems += validate_structural(schema, f"spec.versions[{i}].schema.openAPIV3Schema")
    if not problems:
        return None
    return condition(NON_STRUCTURAL, "True", "Violations", aggregate_text(problems))


def _approved(crd: Object) -> Object | None:
    """Groups of the Kubernetes community need an approval; others have no such condition."""
    if not f".{crd['spec'].get('group', '')}".endswith(_COMMUNITY):
        return None
    from transom.machinery.validation.apiextensions import approval

    state, words = approval(crd)
    status, reason = _APPROVAL[state]
    return condition(APPROVED, status, reason, words)
