"""Which volume a claim gets. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.client.events import object_reference
from transom.machinery import quantity, selectors
from transom.machinery.objects import Object, with_metadata
from transom.machinery.quantity import Quantity
from transom.machinery.selectors import LabelSelector

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
STORAGE_PROVISIONER_GA = "volume.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_CLASS = "volume.beta.kubernetes.io/storage-class"


def volume_annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def volume_phase(obj: Object) -> str:
    return (obj.get("status") or {}).get("phase") or ""


def storage_class_of(obj: Object) -> str:
    """The storage class of a claim or a volume; the deprecated annotation takes precedence over the
    field.
    """
    notes = volume_annotations(obj)
    return notes[_CLASS] if _CLASS in notes else obj["spec"].get("storageClassName") or ""


def requested_storage_of_claim(claim: Object) -> Quantity:
    return quantity.parse_quantity(
        ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
    )


def volume_capacity(volume: Object) -> Quantity:
    return quantity.parse_quantity((volume["spec"].get("capacity") or {}).get("storage", "0"))


def claim_ref(volume: Object) -> Object | None:
    return volume["spec"].get("claimRef") or None


def claim_key(volume: Object) -> str:
    ref = claim_ref(volume) or {}
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}"


def is_bound_to(volume: Object, claim: Object) -> bool:
    """Whether the volume is bound to the claim, or reserved for a claim of this name."""
    ref, meta = claim_ref(volume), claim["metadata"]
    if ref is None or ref.get("name") != meta["name"] or ref.get("namespace") != meta["namespace"]:
        return False
    return ref.get("uid") in (None, "", meta["uid"])


def modes_differ(claim: Object, volume: Object) -> bool:
    default = "Filesystem"
    return (claim["spec"].get("volumeMode") or default) != (
        volume["spec"].get("volumeMode") or default
    )


def access_modes_fit(claim: Object, volume: Object) -> bool:
    return set(claim["spec"].get("accessModes") or ()) <= set(
        volume["spec"].get("accessModes") or ()
    )


def volume_mismatch(volume: Object, claim: Object) -> str:
    """Why a volume that the claim names cannot be used, or ""."""
    if "deletionTimestamp" in volume["metadata"]:
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if volume_capacity(volume) < requested_storage_of_claim(claim):
        return "requested PV is too small"
    if storage_class_of(volume) != storage_class_of(claim):
        return "storageClassName does not match"
    if modes_differ(claim, volume):
        return "incompatible volumeMode"
    if not access_modes_fit(claim, volume):
        return "incompatible accessMode"
    return ""


def best_match(claim: Object, volumes: Iterable[Object], delayed: bool) -> Object | None:
    """The volume that is already reserved for the claim, otherwise the smallest match among those
    with the fewest access modes. With `delayed` binding the scheduler chooses, so only the former
    counts.
    """
    groups: dict[tuple[str, ...], list[Object]] = {}
    for volume in volumes:
        if access_modes_fit(claim, volume):
            groups.setdefault(
                tuple(sorted(set(volume["spec"].get("accessModes") or ()))), []
            ).append(volume)
    chosen = selectors.owner_selector(claim) if claim["spec"].get("selector") else None
    for modes in sorted(groups, key=lambda modes: (len(modes), modes)):
        found = _best(claim, groups[modes], delayed, chosen)
        if found is not None:
            return found
    return None


def _best(
    claim: Object, volumes: Sequence[Object], delayed: bool, chosen: LabelSelector | None
) -> Object | None:
    wanted, wanted_class = requested_storage_of_claim(claim), storage_class_of(claim)
    best: tuple[Quantity, Object] | None = None
    for volume in sorted(volumes, key=lambda volume: str(volume["metadata"]["name"])):
        bound = is_bound_to(volume, claim)
        size = volume_capacity(volume)
        if (
            (claim_ref(volume) is not None and not bound)
            or size < wanted
            or modes_differ(claim, volume)
        ):
            continue
        if "deletionTimestamp" in volume["metadata"]:
            continue
        if bound:
            return volume
        if (
            delayed
            or volume_phase(volume) != "Available"
            or storage_class_of(volume) != wanted_class
        ):
            continue
        if chosen is not None and not chosen.matches(volume["metadata"].get("labels") or {}):
            continue
        if best is None or size < best[0]:
            best = size, volume
    return best[1] if best is not None else None


def bound_volume(volume: Object, claim: Object) -> Object | None:
    """The volume with a claimRef to the claim; None if it has it already."""
    ref, meta = claim_ref(volume) or {}, claim["metadata"]
    out = volume
    if any(ref.get(field) != meta[field] for field in ("name", "namespace", "uid")):
        out = {**volume, "spec": {**volume["spec"], "claimRef": object_reference(claim)}}
    if not is_bound_to(volume, claim) and BOUND_BY_CONTROLLER not in volume_annotations(volume):
        out = with_metadata(
            out, annotations={**volume_annotations(volume), BOUND_BY_CONTROLLER: "yes"}
        )
    return None if out is volume else out


def bound_claim(claim: Object, volume: Object) -> Object | None:
    """The claim bound to this volume; None if it already is."""
    notes, out = dict(volume_annotations(claim)), claim
    name = volume["metadata"]["name"]
    if claim["spec"].get("volumeName") != name:
        out = {**claim, "spec": {**claim["spec"], "volumeName": name}}
        notes.setdefault(BOUND_BY_CONTROLLER, "yes")
    notes.setdefault(BIND_COMPLETED, "yes")
    return (
        None
        if out is claim and notes == volume_annotations(claim)
        else with_metadata(out, annotations=notes)
    )


def claim_status(claim: Object, wanted: str, volume: Object | None) -> Object | None:
    """The status of a claim in a phase, with the properties of its volume; None if it has that
    status already.
    """
    status = claim.get("status") or {}
    out = {**status, "phase": wanted}
    if volume is None:
        out.pop("accessModes", None)
        out.pop("capacity", None)
    else:
        out["accessModes"] = volume["spec"].get("accessModes") or []
        # Only once: the file system may be smaller than its device.
        if status.get("phase") != wanted:
            known = (status.get("capacity") or {}).get("storage")
            if known is None or quantity.parse_quantity(known) != volume_capacity(volume):
                out["capacity"] = volume["spec"]["capacity"]
    return None if out == status else out


def unbound_volume(volume: Object) -> Object:
    """The volume available again, or still reserved if it was pre-bound."""
    notes, spec = dict(volume_annotations(volume)), dict(volume["spec"])
    if BOUND_BY_CONTROLLER in notes:
        del notes[BOUND_BY_CONTROLLER], spec["claimRef"]
    else:
        spec["claimRef"] = {k: v for k, v in spec["claimRef"].items() if k != "uid"}
    return with_metadata({**volume, "spec": spec}, annotations=notes or None)
