"""The status of a definition: its accepted names and its conditions. Pure functions from a
definition to a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transom.apiserver.core.definition_conditions import (
    APPROVED,
    ESTABLISHED,
    NAMES_ACCEPTED,
    NON_STRUCTURAL,
    find_definition_condition,
    is_condition_true,
    make_definition_condition,
    with_definition_condition,
    without_definition_condition,
)
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery.field import aggregate_text, invalid
from transom.machinery.objects import Object

# Needed only in clusters with definitions.
if TYPE_CHECKING:
    from transom.machinery.validation import apiextensions, structural
else:
    apiextensions = lazy_import("transom.machinery.validation.apiextensions")
    structural = lazy_import("transom.machinery.validation.structural")

_COMMUNITY = (".k8s.io", ".kubernetes.io")
_APPROVAL = {
    "invalid": ("False", "InvalidAnnotation"),
    "missing": ("False", "MissingAnnotation"),
    "approved": ("True", "ApprovedAnnotation"),
    "bypassed": ("False", "UnapprovedAnnotation"),
}


def _same(old: Object | None, new: Object) -> bool:
    return old is not None and all(old.get(k) == new[k] for k in ("status", "reason", "message"))


def reconcile_definition_status(
    crd: Object,
    others: Iterable[Object],
    now: str,
    structural: Callable[[Object], Object | None] | None = None,
) -> Object:
    """The definition with the correct status; the same object if it is up to date. `structural`
    replaces `structural_condition`.
    """
    crd = _named(crd, others, now)
    wanted = (structural or structural_condition)(crd)
    if wanted is None:
        if find_definition_condition(crd, NON_STRUCTURAL) is not None:
            crd = without_definition_condition(crd, NON_STRUCTURAL)
    elif not _same(find_definition_condition(crd, NON_STRUCTURAL), wanted):
        crd = with_definition_condition(crd, wanted, now)
    wanted = _approved(crd)
    if wanted is not None and not _same(find_definition_condition(crd, APPROVED), wanted):
        crd = with_definition_condition(crd, wanted, now)
    return crd


# ---- names ----


def _clean(names: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in names.items() if v}


def _named(crd: Object, others: Iterable[Object], now: str) -> Object:
    wanted = crd["spec"].get("names") or {}
    accepted = (crd.get("status") or {}).get("acceptedNames") or {}
    if _clean(wanted) != _clean(accepted):
        names, found = _accept(wanted, accepted, others)
        if _clean(names) != _clean(accepted) or not _same(
            find_definition_condition(crd, NAMES_ACCEPTED), found
        ):
            established = find_definition_condition(crd, ESTABLISHED) or make_definition_condition(
                ESTABLISHED, "False", "NotAccepted", "not all names are accepted"
            )
            crd = {**crd, "status": {**(crd.get("status") or {}), "acceptedNames": names}}
            crd = with_definition_condition(
                with_definition_condition(crd, found, now), established, now
            )
    if is_condition_true(crd, NAMES_ACCEPTED) and not is_condition_true(crd, ESTABLISHED):
        # No other component has to learn the names first, so installing takes no time.
        done = make_definition_condition(
            ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted"
        )
        crd = with_definition_condition(crd, done, now)
    return crd


def _accept(
    wanted: Mapping[str, Any], accepted: Mapping[str, Any], others: Iterable[Object]
) -> tuple[Object, Object]:
    """The names that a definition gets beside the others of its group, and the NamesAccepted
    condition.
    """
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        theirs = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {
            theirs.get("plural", ""),
            theirs.get("singular", ""),
            *(theirs.get("shortNames") or ()),
        }
        kinds |= {theirs.get("kind", ""), theirs.get("listKind", "")}
    # Names that a definition already has count as taken too: it keeps them, but not in another
    # role.
    resources |= {
        accepted.get("plural", ""),
        accepted.get("singular", ""),
        *(accepted.get("shortNames") or ()),
    }
    kinds |= {accepted.get("kind", ""), accepted.get("listKind", "")}
    names = dict(accepted)
    reason = message = ""
    for field, label, taken in (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        if field == "shortNames":
            mine = accepted.get(field) or ()
            clashes = [n for n in wanted.get(field) or () if n not in mine and n in taken]
        else:
            name = wanted.get(field, "")
            clashes = [name] if name != accepted.get(field, "") and name in taken else []
        if clashes:
            reason, message = (
                label,
                aggregate_text(f"{go_quote(n)} is already in use" for n in clashes),
            )
        else:
            _take(names, field, wanted.get(field))
    _take(names, "categories", wanted.get("categories"))
    if reason:
        return names, make_definition_condition(NAMES_ACCEPTED, "False", reason, message)
    return names, make_definition_condition(
        NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found"
    )


def _take(names: Object, field: str, value: Any) -> None:
    if value:
        names[field] = value
    else:
        names.pop(field, None)


# ---- schema and approval ----


def structural_condition(crd: Object) -> Object | None:
    """Why the schemas are not structural; None if they are."""
    spec = crd["spec"]
    problems = []
    if spec.get("preserveUnknownFields"):
        problems.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    for i, version in enumerate(spec.get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            continue
        if not structural.is_structural_possible(schema):
            return make_definition_condition(
                NON_STRUCTURAL,
                "Unknown",
                "StructuralError",
                (
                    f"failed to check validation schema for version {version['name']}: "
                    "OpenAPIV3Schema 'schema' is not supported"
                ),
            )
        problems += structural.validate_structural(
            schema, f"spec.versions[{i}].schema.openAPIV3Schema"
        )
    if not problems:
        return None
    return make_definition_condition(NON_STRUCTURAL, "True", "Violations", aggregate_text(problems))


def _approved(crd: Object) -> Object | None:
    """Groups of the Kubernetes community need an approval; others do not have this condition."""
    if not f".{crd['spec'].get('group', '')}".endswith(_COMMUNITY):
        return None
    state, words = apiextensions.approval(crd)
    status, reason = _APPROVAL[state]
    return make_definition_condition(APPROVED, status, reason, words)
