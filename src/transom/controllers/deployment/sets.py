"""The ReplicaSets of a Deployment: the new one, revisions and their annotations. Pure functions.

Objects from informers are shared; functions that "set" something return a new dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from transom.machinery.objects import Object

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO = "deprecated.deployment.rollback.to"
# Annotations that a Deployment and its ReplicaSets do not share.
_OWN = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
        ROLLBACK_TO,
    )
)
_LONGEST_HISTORY = 2000
_INT32, _INT64 = 1 << 31, 1 << 63


# ---- sizes as they are ----


def spec_replicas(obj: Object) -> int:
    return obj["spec"].get("replicas", 0)


def total_replicas(sets: Iterable[Object]) -> int:
    return sum(spec_replicas(s) for s in sets)


def total_status(sets: Iterable[Object], field: str) -> int:
    return sum((s.get("status") or {}).get(field, 0) for s in sets)


def active_sets(sets: Iterable[Object]) -> list[Object]:
    """Those that have or want pods."""
    return [s for s in sets if spec_replicas(s) > 0]


def sorted_by_age(replica_set: Object) -> tuple[str, str]:
    """Oldest first; ties are broken by name."""
    meta = replica_set["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]


def sorted_by_revision(replica_set: Object) -> tuple[int, str, str]:
    """The oldest revision first; then as by age."""
    return revision(replica_set) or 0, *sorted_by_age(replica_set)


def by_size_older(sets: Iterable[Object]) -> list[Object]:
    return sorted(sorted(sets, key=sorted_by_age), key=lambda s: -spec_replicas(s))


def by_size_newer(sets: Iterable[Object]) -> list[Object]:
    return sorted(sorted(sets, key=sorted_by_age, reverse=True), key=lambda s: -spec_replicas(s))


# ---- the new ReplicaSet ----


def _without_hash(template: Object) -> Object:
    meta = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (meta.pop("labels", None) or {}).items() if k != HASH_LABEL}
    return {**template, "metadata": {**{k: v for k, v in meta.items() if v}, "labels": labels}}


def same_template(a: Object, b: Object) -> bool:
    """Whether the templates are equal, ignoring the hash label."""
    return a.get("spec") == b.get("spec") and _without_hash(a) == _without_hash(b)


class TemplateComparison:
    """Compares templates like `same_template`, each pair once: large ones take long, and a sync
    compares them several times.
    """

    def __init__(self) -> None:
        # By identity; holding the templates prevents the reuse of their ids.
        self._known: dict[tuple[int, int], tuple[Object, Object, bool]] = {}

    def __call__(self, a: Object, b: Object) -> bool:
        key = id(a), id(b)
        if key not in self._known:
            self._known[key] = a, b, same_template(a, b)
        return self._known[key][2]


def template_without_hash(obj: Object) -> Object:
    return obj["spec"].get("template") or {}


def find_new(
    deployment: Object,
    sets: Iterable[Object],
    same: Callable[[Object, Object], bool] = same_template,
) -> Object | None:
    """The oldest ReplicaSet with the Deployment's template."""
    template = template_without_hash(deployment)
    return next(
        (s for s in sorted(sets, key=sorted_by_age) if same(template_without_hash(s), template)),
        None,
    )


def find_old(
    deployment: Object,
    sets: Sequence[Object],
    same: Callable[[Object, Object], bool] = same_template,
) -> list[Object]:
    new = find_new(deployment, sets, same)
    return [s for s in sets if new is None or s["metadata"]["uid"] != new["metadata"]["uid"]]


def active_or_latest(new: Object | None, old: Iterable[Object]) -> Object | None:
    """The only one with pods; the newest if none has any."""
    ordered = sorted(old, key=sorted_by_age, reverse=True)
    everything = [*ordered, new] if new is not None else ordered
    if not everything:
        return None
    with_pods = active_sets(everything)
    if not with_pods:
        return new if new is not None else ordered[0]
    return with_pods[0] if len(with_pods) == 1 else None


# ---- annotations ----


def annotations_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def parse_annotation_number(text: str, bound: int = _INT64) -> int | None:
    """Parses a decimal number of this many bits as Go does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        return None
    number = int(text)
    return number if -bound <= number < bound else None


def annotated_number(replica_set: Object, name: str) -> int | None:
    text = annotations_of(replica_set).get(name)
    return None if text is None else parse_annotation_number(text, _INT32)


def revision(obj: Object) -> int | None:
    """0 if there is none, None if it is not a number."""
    text = annotations_of(obj).get(REVISION)
    return 0 if text is None else parse_annotation_number(text)


def max_revision(sets: Iterable[Object]) -> int:
    return max((revision(s) or 0 for s in sets), default=0)


def last_revision(sets: Iterable[Object]) -> int:
    """The second newest revision; 0 if there is none."""
    newest = second = 0
    for replica_set in sets:
        number = revision(replica_set)
        if number is None:
            continue
        if number >= newest:
            second, newest = newest, number
        elif number > second:
            second = number
    return second


def size_annotations(desired: int, most: int) -> dict[str, str]:
    return {DESIRED_REPLICAS: str(desired), MAX_REPLICAS: str(most)}


def copied_annotations(source: Object) -> dict[str, str]:
    """The annotations that a Deployment passes to its ReplicaSets, and restores in a rollback."""
    return {k: v for k, v in annotations_of(source).items() if k not in _OWN}


def own_annotations(deployment: Object) -> dict[str, str]:
    return {k: v for k, v in annotations_of(deployment).items() if k in _OWN}


def new_set_annotations(deployment: Object, before: dict[str, str], number: int) -> dict[str, str]:
    """The annotations of the new ReplicaSet at revision `number`. Its previous revision is added to
    its history, because this is a rollback.
    """
    old_text = before.get(REVISION, "")
    old = parse_annotation_number(old_text) if old_text else 0
    if old is None:
        return before  # an invalid value is not ours to change
    after = {**before, **copied_annotations(deployment)}
    if old >= number:
        return after
    after[REVISION] = str(number)
    if REVISION in before:
        history = [text for text in before.get(REVISION_HISTORY, "").split(",") if text]
        history.append(old_text)
        while len(history) > 1 and len(",".join(history)) > _LONGEST_HISTORY:
            del history[0]
        after[REVISION_HISTORY] = ",".join(history)
    return after
