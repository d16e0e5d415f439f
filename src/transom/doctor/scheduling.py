"""Why a pod has no node. The scheduler's message names the first filter that rejects each node,
which may be misleading: a tainted node that the pod does not select either is reported by its
taint. So this module compares selectors and taints with the nodes itself, in the order in which a
user would.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from transom.doctor import repairs
from transom.doctor.findings import DoctorFinding, known_finding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    is_windows_node,
    key_of_object,
    name_of_object,
    place_of_object,
    status_condition,
    time_of,
)
from transom.doctor.storage import bound_volumes, unprovisioned
from transom.machinery import quantity
from transom.machinery.placement import (
    matches_expression,
    matches_node,
    matches_term,
    required_terms,
)
from transom.machinery.podresources import aggregate_containers, is_pod_level_resource
from transom.machinery.tolerations import untolerated_taints

_GATED: Final = 600.0  # seconds in which a controller should have removed the gates of a pod
_LATE: Final = 30.0
_WHY: Final = "It stays Pending until it can be scheduled."
_INSUFFICIENT: Final = re.compile(r"Insufficient (?!pods\b)([\w./-]+)")
_CONTROL_PLANE: Final = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
_OF_THE_MACHINE: Final = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "kubernetes.io/hostname",
    "node.kubernetes.io/windows-build",
)
_CORDONED: Final = "node.kubernetes.io/unschedulable"
_BROKEN: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
)
# Other scheduler messages -> cause and remedy. The order matters.
_REFUSALS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        r'persistentvolumeclaim "([^"]+)" not found',
        "the PersistentVolumeClaim {0} does not exist",
        "Create the claim {0} in namespace {namespace}, or correct its name in the pod.",
    ),
    (
        r'persistentvolumeclaim "([^"]+)" is being deleted',
        "the PersistentVolumeClaim {0} is being deleted",
        "Create the claim again once it is gone.",
    ),
    (
        r'resourceclaim(?:template)?\S* "([^"]+)" not found',
        "the ResourceClaim {0} does not exist",
        "Create the ResourceClaim (or its template) {0} in namespace {namespace}, or correct its name in the pod.",
    ),
    (
        r"cannot allocate all claims|allocation of devices",
        "no node has the devices that its ResourceClaims ask for",
        "Install the DRA driver of the DeviceClass, or change the devices in the ResourceClaim.",
    ),
    (
        r"unbound immediate PersistentVolumeClaims",
        "a PersistentVolumeClaim of the pod is not bound",
        "See the claims: kubectl describe pvc --namespace {namespace}",
    ),
    (
        r'storageclass\S* "([^"]+)" not found',
        "the StorageClass {0} of a claim does not exist",
        "Create the StorageClass {0}, or correct the claim.",
    ),
    (
        r"didn't find available persistent volumes to bind",
        "no PersistentVolume fits a claim of the pod",
        (
            "Create a PersistentVolume of the claim's size, access mode and class that the node "
            "can use."
        ),
    ),
    (
        r"bound to non-existent persistentvolume|non-existent PersistentVolume",
        "the PersistentVolume of a claim was deleted",
        "Create the claim again.",
    ),
    (
        r"volume node affinity conflict",
        "the volume of a claim can be used on other nodes only",
        "Let the pod select the nodes that the volume's nodeAffinity names.",
    ),
    (
        r"no available volume zone",
        "the volume of a claim is in another zone than the nodes",
        "Let the pod select nodes of the volume's zone.",
    ),
    (
        r"exceed max volume count",
        "the nodes have as many volumes attached as they can",
        "Add nodes, or remove pods with volumes.",
    ),
    (
        r"free ports",
        "its hostPort is in use on every node that it may run on",
        "Use another hostPort, a Service instead, or run at most one such pod on each node.",
    ),
    (
        r"Too many pods|Insufficient pods\b",
        "the nodes that it may run on have as many pods as they can",
        "Remove pods, or add nodes.",
    ),
    (
        r"ReadWriteOncePod access mode",
        "another pod uses its claim, whose access mode is ReadWriteOncePod",
        "Delete the other pod, or use a claim of another access mode.",
    ),
    (
        r"pod topology spread constraints",
        "its topology spread constraints cannot be met",
        (
            "Set whenUnsatisfiable: ScheduleAnyway, raise maxSkew, label the nodes with the "
            "topology key, or add nodes."
        ),
    ),
    (
        r"pod anti-affinity rules|existing pods anti-affinity",
        "pod anti-affinity keeps it from every node that it may run on",
        "Add nodes, or make the anti-affinity preferred instead of required.",
    ),
    (
        r"pod affinity",
        "its pod affinity matches no running pod on a node that it may run on",
        "Start the pods that it wants to be near, or correct the labels in podAffinity.",
    ),
)


def unscheduled(s: ClusterSnapshot, pod: Object) -> Iterator[DoctorFinding]:
    """Findings for a pod without a node."""
    where, spec = place_of_object("pod", pod), pod.get("spec") or {}
    scheduled = status_condition(pod, "PodScheduled")
    if gates := [str(gate.get("name", "")) for gate in spec.get("schedulingGates") or ()]:
        if s.now - time_of(pod["metadata"].get("creationTimestamp", "")) < _GATED:
            return
        yield DoctorFinding(
            "info",
            f"waits for its scheduling gates: {', '.join(gates)}",
            (where,),
            _WHY,
            "The controller that set the gates removes them; or remove spec.schedulingGates.",
        )
        return
    if scheduled.get("status") != "False":
        if s.now - time_of(pod["metadata"].get("creationTimestamp", "")) > _LATE:
            yield _undecided(s, pod, where)
        return
    text = str(scheduled.get("message", ""))
    cause, remedy, record = _cause(s, pod, text)
    what = f"cannot be scheduled: {cause}" if cause else "cannot be scheduled"
    why = f"{_WHY} The scheduler reports: {text}"
    more = f"transom explain-schedule {'/'.join(key_of_object(pod))}"
    ask = f"{remedy.rstrip('.')}. More: {more}"
    commands = _commands(s, pod)
    yield (
        known_finding(record, what, where, why=why, remedy=ask, commands=commands)
        if record
        else DoctorFinding("error", what, (where,), why, ask, commands=commands)
    )


def _commands(s: ClusterSnapshot, pod: Object) -> tuple[str, ...]:
    """What lets the pod run on a node that the cluster has: a label, a toleration, or lower requests."""
    spec = pod.get("spec") or {}
    selected = [node for node in s.nodes if matches_node(spec, name_of_object(node), _labels(node))]
    selector = spec.get("nodeSelector") or {}
    if not selected:
        settable = {
            k: v for k, v in selector.items() if k.removeprefix("beta.") not in _OF_THE_MACHINE
        }
        fixed = {k: v for k, v in selector.items() if k not in settable}
        among = [node for node in s.nodes if fixed.items() <= _labels(node).items()]
        return repairs.label_fitting_node(among, selector) if settable else ()
    free = [node for node in selected if not _untolerated(spec, node)]
    if not free:
        return _tolerations(s, pod, selected)
    never = {}
    for resource in ("cpu", "memory"):
        amounts = [str(_allocatable(node).get(resource, "0")) for node in free]
        most = max(amounts, key=lambda one: quantity.parse_quantity(one).milli_value())
        if requested_amount(spec, resource) > quantity.parse_quantity(most).milli_value():
            never[resource] = most
    return repairs.lower_requests(s, pod, never, list(never))


def _tolerations(s: ClusterSnapshot, pod: Object, nodes: Sequence[Object]) -> tuple[str, ...]:
    """Tolerates the taints of the first node that is not cordoned, broken or of the control plane."""
    spec = pod.get("spec") or {}
    for node in nodes:
        taints = _untolerated(spec, node)
        keys = {str(taint.get("key")) for taint in taints}
        if not keys & {*_BROKEN, _CORDONED, *_CONTROL_PLANE}:
            tolerations = [
                {
                    "key": str(taint["key"]),
                    "operator": "Equal" if taint.get("value") else "Exists",
                    **({"value": taint["value"]} if taint.get("value") else {}),
                    "effect": taint["effect"],
                }
                for taint in taints
            ]
            return repairs.tolerate(s, pod, tolerations)
    cordoned = [name_of_object(node) for node in nodes if node["spec"].get("unschedulable")]
    return (f"kubectl uncordon {' '.join(cordoned[:3])}",) if len(cordoned) == len(nodes) else ()


def _undecided(s: ClusterSnapshot, pod: Object, where: str) -> DoctorFinding:
    """A pod whose scheduler has not reported anything: it waits for a volume on the node that it has
    selected, or it does not run.
    """
    spec = pod.get("spec") or {}
    for claim, provisioner in unprovisioned(s, pod):
        return DoctorFinding(
            "error",
            f"cannot be scheduled: the provisioner {provisioner} did not create the volume of its "
            f"claim {claim}",
            (where,),
            _WHY,
            f"Install or start the provisioner {provisioner}, or use another StorageClass.",
        )
    called = spec.get("schedulerName", "default-scheduler")
    return DoctorFinding(
        "error",
        f"cannot be scheduled: no scheduler named {called} runs",
        (where,),
        _WHY,
        "Start that scheduler, or correct spec.schedulerName and create the pod again."
        if called != "default-scheduler"
        else "Check that the scheduler runs.",
    )


def _cause(s: ClusterSnapshot, pod: Object, text: str) -> tuple[str, str, str]:
    spec = pod.get("spec") or {}
    if "nodes" in s.unread:
        return text, "", ""
    if not s.nodes:
        return "the cluster has no nodes", "Add nodes.", ""
    selected = [node for node in s.nodes if matches_node(spec, name_of_object(node), _labels(node))]
    if not selected:
        return (*_no_match(s, spec), "")
    free = [node for node in selected if not _untolerated(spec, node)]
    if not free:
        workers = [
            node
            for node in selected
            if not any(t.get("key") in _CONTROL_PLANE for t in _taints(node))
        ]
        return (*_tainted(spec, workers or selected), "")
    short = [one.rstrip(".") for one in dict.fromkeys(_INSUFFICIENT.findall(text))]
    if short:
        return _insufficient(spec, free, short)
    unlabelled = (
        _missing_topology(spec, free) if "affinity" in text or "spread" in text else ("", "")
    )
    if unlabelled[0]:
        field, key = unlabelled
        return (
            f"{field} has the topologyKey {key}, and no node that it may run on has this label",
            f"Correct topologyKey (kubernetes.io/hostname, topology.kubernetes.io/zone), or label the nodes with {key}.",
            "",
        )
    if "volume node affinity conflict" in text or "no available volume zone" in text:
        placed = _volume_elsewhere(s, pod)
        if placed[0]:
            return placed
    for pattern, cause, remedy in _REFUSALS:
        found = re.search(pattern, text)
        if found is not None:
            values = {"namespace": key_of_object(pod)[0]}
            return (
                cause.format(*found.groups(), **values),
                remedy.format(*found.groups(), **values),
                "",
            )
    return text, "Change what the scheduler's message names.", ""


def _volume_elsewhere(s: ClusterSnapshot, pod: Object) -> tuple[str, str, str]:
    """A bound volume of the pod whose node affinity no selected node meets, and where it can be used."""
    spec = pod.get("spec") or {}
    for name, volume in bound_volumes(s, pod):
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
        terms = required.get("nodeSelectorTerms") or ()
        fitting = [
            node
            for node in s.nodes
            if any(matches_term(term, name_of_object(node), _labels(node)) for term in terms)
        ]
        if not terms or any(matches_node(spec, name_of_object(n), _labels(n)) for n in fitting):
            continue
        wanted = "; ".join(
            f"{e.get('key')} {e.get('operator')} {','.join(e.get('values') or ())}".rstrip()
            for term in terms
            for e in term.get("matchExpressions") or ()
        )
        if fitting:
            return (
                f"the volume {name} of a claim can be used on {_some([name_of_object(n) for n in fitting])} only, which "
                "the pod does not select",
                "Let the pod select these nodes, or use another claim.",
                "",
            )
        return (
            f"the volume {name} of a claim can be used only on nodes with {wanted}, and no node is like that",
            f"Add or label such a node; or delete the claim and the volume (kubectl delete persistentvolume {name}), and "
            "create the volume with another nodeAffinity.",
            "",
        )
    return "", "", ""


def _missing_topology(spec: Object, nodes: Sequence[Object]) -> tuple[str, str]:
    """The field and the topology key of a required pod affinity or a spread constraint that no node
    has as a label.
    """
    affinity = (spec.get("affinity") or {}).get("podAffinity") or {}
    keys = [
        ("its pod affinity", str(term.get("topologyKey", "")))
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    ] + [
        ("a topology spread constraint of it", str(constraint.get("topologyKey", "")))
        for constraint in spec.get("topologySpreadConstraints") or ()
        if constraint.get("whenUnsatisfiable") != "ScheduleAnyway"
    ]
    return next(
        ((field, key) for field, key in keys if not any(key in _labels(node) for node in nodes)),
        ("", ""),
    )


def _no_match(s: ClusterSnapshot, spec: Object) -> tuple[str, str]:
    """The requirements that no node meets."""
    selector = spec.get("nodeSelector") or {}
    missing = [
        f"{k}={v}"
        for k, v in selector.items()
        if not any(_labels(node).get(k) == v for node in s.nodes)
    ]
    if missing:
        label = missing[0]
        values = sorted(
            {
                _labels(node)[label.partition("=")[0]]
                for node in s.nodes
                if label.partition("=")[0] in _labels(node)
            }
        )
        have = f" (nodes have {label.partition('=')[0]}={', '.join(values[:5])})" if values else ""
        return (
            f"no node has the label {' or '.join(missing)} that its nodeSelector asks for{have}",
            f"Correct spec.nodeSelector, or {_give_label(label)}",
        )
    if selector and not any(selector.items() <= _labels(node).items() for node in s.nodes):
        both = ", ".join(f"{k}={v}" for k, v in selector.items())
        return (
            f"no node has all labels of its nodeSelector: {both}",
            "Correct spec.nodeSelector, or label a node.",
        )
    terms = required_terms(spec) or []
    wanted = [
        expression
        for term in terms
        for expression in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))
        if not any(
            matches_expression(expression, {**_labels(node), "metadata.name": name_of_object(node)})
            for node in s.nodes
        )
    ]
    if wanted:
        one = wanted[0]
        expression_text = (
            f"{one.get('key')} {one.get('operator')} {', '.join(one.get('values') or ())}".strip()
        )
        return (
            f"no node meets its required node affinity: {expression_text}",
            "Correct the node affinity, or label a node.",
        )
    return (
        "no node meets both its nodeSelector and its required node affinity",
        "Correct them, or label a node.",
    )


def _give_label(label: str) -> str:
    """How a node gets a label. A kubelet sets some from what its machine is."""
    key, _, value = label.partition("=")
    if key.removeprefix("beta.") in _OF_THE_MACHINE:
        return f"add a node that is {value}: its kubelet sets this label."
    return "label a node."


def _tainted(spec: Object, selected: Sequence[Object]) -> tuple[str, str]:
    """All nodes that the pod selects have taints it does not tolerate."""
    taints = [taint for node in selected for taint in _untolerated(spec, node)]
    cordoned = [name_of_object(node) for node in selected if node["spec"].get("unschedulable")]
    if len(cordoned) == len(selected):
        return (
            f"every node that it selects is cordoned: {_some(cordoned)}",
            f"kubectl uncordon {' '.join(cordoned[:3])}",
        )
    broken = [
        name_of_object(node)
        for node in selected
        if any(t.get("key") in _BROKEN for t in _untolerated(spec, node))
    ]
    others = [t for t in taints if t.get("key") not in (*_BROKEN, _CORDONED)]
    if broken and not others:
        return (
            (
                "every node that it selects is not Ready or has pressure: "
                f"{_some([*broken, *cordoned])}"
            ),
            "Repair these nodes: transom doctor reports what is wrong with them.",
        )
    counts = Counter((t.get("key", ""), t.get("value") or "", t.get("effect", "")) for t in others)
    (taint_key, value, effect), _ = counts.most_common(1)[0]
    shown = f"{taint_key}={value}:{effect}" if value else f"{taint_key}:{effect}"
    toleration = (
        f"{{key: {taint_key}, operator: {f'Equal, value: {value}' if value else 'Exists'}, "
        f"effect: {effect}}}"
    )
    return (
        f"it does not tolerate the taint {shown} of the nodes that it selects",
        f"Add the toleration {toleration}, or select other nodes.",
    )


def _insufficient(
    spec: Object, nodes: Sequence[Object], resources: Sequence[str]
) -> tuple[str, str, str]:
    """Resources that the nodes do not have enough of: first those that none of them can ever have."""
    most = {
        resource: max(
            (
                quantity.parse_quantity(str(_allocatable(node).get(resource, "0"))).milli_value()
                for node in nodes
            ),
            default=0,
        )
        for resource in resources
    }
    for resource in resources:
        if not most[resource] and resource not in ("cpu", "memory", "ephemeral-storage"):
            return _not_offered(resource, nodes)
    wanted = {resource: requested_amount(spec, resource) for resource in resources}
    never = [resource for resource in resources if wanted[resource] > most[resource] > 0]
    if never:
        requested = " and ".join(f"{_amount(one, wanted[one])} {one}" for one in never)
        largest = " and ".join(_amount(one, most[one]) for one in never)
        return (
            f"it requests {requested}, and the largest node that it may run on has {largest}",
            f"Lower its request for {' and '.join(never)}, or add a larger node.",
            "",
        )
    short = " or ".join(resources)
    return (
        f"the nodes that it may run on do not have enough free {short}",
        f"Lower its request for {short}, remove other pods, or add nodes.",
        "",
    )


def _not_offered(resource: str, nodes: Sequence[Object]) -> tuple[str, str, str]:
    if resource.startswith("hugepages-") and any(map(is_windows_node, nodes)):
        return (
            f"it requests {resource}, and Windows nodes have no huge pages",
            "Remove the request for huge pages, or send the pod to Linux nodes with huge pages.",
            "WIN-RES-005",
        )
    remedy = (
        "Configure huge pages on a node (vm.nr_hugepages) and restart its kubelet, or "
        "remove the request."
        if resource.startswith("hugepages-")
        else f"Install the device plugin that offers {resource}, or remove the request."
    )
    return f"no node that it may run on offers {resource}", remedy, ""


def requested_amount(spec: Object, resource: str) -> int:
    """The pod's request of a resource in thousandths, as the scheduler counts it."""
    amount = aggregate_containers(spec, "requests").get(resource)
    whole = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
    if whole is not None and is_pod_level_resource(resource):
        amount = quantity.parse_quantity(str(whole))
    overhead = quantity.parse_quantity(str((spec.get("overhead") or {}).get(resource, "0")))
    return (amount.milli_value() if amount is not None else 0) + overhead.milli_value()


def _amount(resource: str, milli: int) -> str:
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{milli / 1000 / (1 << 20):.0f}Mi"
    return f"{milli // 1000}" if milli % 1000 == 0 else f"{milli}m"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _labels(node: Object) -> dict[str, str]:
    return dict(node["metadata"].get("labels") or {})


def _taints(node: Object) -> list[Object]:
    taints = list(node["spec"].get("taints") or ())
    if node["spec"].get("unschedulable") and not any(t.get("key") == _CORDONED for t in taints):
        taints.append({"key": _CORDONED, "effect": "NoSchedule"})
    return taints


def _untolerated(spec: Object, node: Object) -> list[Object]:
    return untolerated_taints(spec.get("tolerations") or (), _taints(node))


def _allocatable(node: Object) -> Object:
    return (node.get("status") or {}).get("allocatable") or {}
