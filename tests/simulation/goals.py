"""The expected final state: every object is as requested, and nothing remains of what was deleted.

Each function gives the complaints about one kind of thing; none means that all is well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from transom.apiserver.server import ApiServer
from transom.kit.clock import Clock
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import from_object

from .kubelets import WINDOWS_TAINT, Machine, cpu_of, milli
from .script import BULK
from .watchdog import is_healthy, is_ready, usage

_ENDED = ("Succeeded", "Failed")


class State:
    """All objects as they are now."""

    def __init__(self, api: ApiServer, clock: Clock, machines: Sequence[Machine]) -> None:
        self.now = clock.time()
        self.machines = machines
        self.kinds: dict[str, list[Object]] = {}
        for kind in api.resources.kinds():
            resource = api.resources.storage(kind.group, kind.plural)
            if resource is not None and kind.stored:
                self.kinds[kind.kind] = api.storage.objects(resource)
        self.pods = self.kinds["Pod"]
        self.owned: dict[str, list[Object]] = defaultdict(list)  # by the uid of their controller
        for found in self.kinds.values():
            for obj in found:
                ref = controller_of(obj)
                if ref is not None:
                    self.owned[ref["uid"]].append(obj)

    def pods_of(self, owner: Object) -> list[Object]:
        return [
            p for p in self.owned[owner["metadata"]["uid"]] if "containers" in p.get("spec", {})
        ]

    def full(self, owner: Object) -> bool:
        """Whether the quota of the owner's namespace has no room for another of its pods."""
        namespace = owner["metadata"]["namespace"]
        cpu = cpu_of(owner["spec"]["template"])
        used = usage((p for p in self.pods if p["metadata"]["namespace"] == namespace), self.now)
        for quota in self.kinds["ResourceQuota"]:
            if quota["metadata"]["namespace"] == namespace:
                hard = quota["spec"]["hard"]
                if used["pods"] + 1000 > milli(hard["pods"]):
                    return True
                if used["requests.cpu"] + cpu > milli(hard["requests.cpu"]):
                    return True
        return False

    def has_room(self, pod: Object) -> bool:
        """Whether a node could take the pod, if those that matter less made way."""
        os, rank = pod["spec"]["nodeSelector"]["kubernetes.io/os"], pod["spec"].get("priority", 0)
        for machine in self.machines:
            if machine.windows == (os == "windows"):
                kept = (
                    p
                    for p in _active(self.pods)
                    if p["spec"].get("nodeName") == machine.name
                    and p["spec"].get("priority", 0) >= rank
                )
                if sum(map(cpu_of, kept)) + cpu_of(pod) <= machine.cpu * 1000:
                    return True
        return False


def _name(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]


def complaints(api: ApiServer, clock: Clock, machines: Sequence[Machine]) -> list[str]:
    state = State(api, clock, machines)
    return [text for check in _CHECKS for text in check(state)]


# ---- nothing is left over ----


def _orphans(state: State) -> Iterator[str]:
    uids = {obj["metadata"].get("uid") for found in state.kinds.values() for obj in found}
    namespaces = {n["metadata"]["name"] for n in state.kinds["Namespace"]}
    for kind, found in state.kinds.items():
        for obj in found:
            meta = obj["metadata"]
            if meta.get("namespace") and meta["namespace"] not in namespaces:
                yield f"{kind} {_name(obj)} is in a namespace that does not exist"
            if "deletionTimestamp" in meta:
                yield (
                    f"{kind} {_name(obj)} is being deleted, and waits for "
                    f"{meta.get('finalizers') or 'its kubelet'}"
                )
            for ref in meta.get("ownerReferences") or ():
                if ref["uid"] not in uids:
                    yield (
                        f"{kind} {_name(obj)} is owned by the {ref['kind']} {ref['name']}, which "
                        "is gone"
                    )


def _containers(state: State) -> Iterator[str]:
    """Machines run just what the API says."""
    there = {p["metadata"]["uid"]: p for p in state.pods}
    for machine in state.machines:
        for uid, container in machine.running.items():
            pod = there.get(uid)
            if pod is None or pod["spec"].get("nodeName") != machine.name:
                yield f"{machine.name} still runs {container.key}"


def _nodes(state: State) -> Iterator[str]:
    for node in state.kinds["Node"]:
        if not is_ready(node):
            yield f"node {_name(node)} is not ready"
        taints = [t for t in node["spec"].get("taints") or () if t["key"] != WINDOWS_TAINT["key"]]
        if taints:
            yield f"node {_name(node)} has the taints {taints}"
    ranges = Counter(node["spec"].get("podCIDR", "") for node in state.kinds["Node"])
    for given, count in ranges.items():
        if count > 1 or not given:
            yield f"{count} nodes have the range {given or 'of no node'}"


def _pods(state: State) -> Iterator[str]:
    for pod in state.pods:
        phase = (pod.get("status") or {}).get("phase")
        if phase in _ENDED or (phase == "Running" and is_ready(pod)):
            continue
        if (
            "nodeName" in pod["spec"]
            or pod["spec"].get("priorityClassName") != BULK
            or state.has_room(pod)
        ):
            yield (
                f"pod {_name(pod)} is {phase} on {pod['spec'].get('nodeName', 'no node')}, and "
                "not ready"
            )


# ---- workloads ----


def _differences(kind: str, obj: Object, wanted: dict[str, int]) -> Iterator[str]:
    status = obj.get("status") or {}
    if status.get("observedGeneration") != obj["metadata"].get("generation"):
        yield (
            f"{kind} {_name(obj)} is at generation {obj['metadata'].get('generation')}, its "
            "status is not"
        )
    for name, number in wanted.items():
        if status.get(name, 0) != number:
            yield f"{kind} {_name(obj)}: {name} is {status.get(name, 0)}, not {number}"


def _active(pods: Iterable[Object]) -> list[Object]:
    return [p for p in pods if (p.get("status") or {}).get("phase") not in _ENDED]


def _replica_sets(state: State) -> Iterator[str]:
    """And replication controllers, which are the same."""
    for replica_set in (*state.kinds["ReplicaSet"], *state.kinds["ReplicationController"]):
        active = _active(state.pods_of(replica_set))
        wanted, found = replica_set["spec"].get("replicas", 0), len(active)
        if found > wanted or (found < wanted and not state.full(replica_set)):
            yield f"replica set {_name(replica_set)} has {found} pods, not {wanted}"
        counts = {"replicas": found, "readyReplicas": sum(map(is_ready, active))}
        yield from _differences("replica set", replica_set, counts)


def _deployments(state: State) -> Iterator[str]:
    for deployment in state.kinds["Deployment"]:
        wanted = deployment["spec"].get("replicas", 0)
        sets = [
            s for s in state.owned[deployment["metadata"]["uid"]] if s["spec"].get("replicas", 0)
        ]
        if state.full(deployment):
            continue  # a rollout that needs room waits for it
        if len(sets) > 1:
            yield f"deployment {_name(deployment)} has pods in {', '.join(_name(s) for s in sets)}"
        images = {s["spec"]["template"]["spec"]["containers"][0]["image"] for s in sets}
        image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        if images - {image}:
            yield f"deployment {_name(deployment)} runs {images}, not {image}"
        names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        yield from _differences("deployment", deployment, dict.fromkeys(names, wanted))


def _stateful_sets(state: State) -> Iterator[str]:
    for stateful_set in state.kinds["StatefulSet"]:
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        wanted, found = spec.get("replicas", 0), state.pods_of(stateful_set)
        names = {p["metadata"]["name"] for p in found}
        ordinals = {f"{meta['name']}-{i}" for i in range(wanted)}
        if state.full(stateful_set):
            continue  # also for what it would take away, if something has to be made first
        if names != ordinals:
            yield f"stateful set {_name(stateful_set)} has {sorted(names)}, not {sorted(ordinals)}"
        partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get(
            "partition", 0
        )
        revision = (stateful_set.get("status") or {}).get("updateRevision")
        for pod in found:
            name = pod["metadata"]["name"]
            if int(name.rpartition("-")[2]) >= partition and (
                pod["metadata"]["labels"]["controller-revision-hash"] != revision
            ):
                yield f"pod {_name(pod)} is not of the revision {revision}"
        yield from _differences(
            "stateful set", stateful_set, {"replicas": wanted, "readyReplicas": wanted}
        )


def _daemon_sets(state: State) -> Iterator[str]:
    for daemon_set in state.kinds["DaemonSet"]:
        template = daemon_set["spec"]["template"]["spec"]
        os = (template.get("nodeSelector") or {}).get("kubernetes.io/os")
        tolerant = any(
            t.get("key") == WINDOWS_TAINT["key"] for t in template.get("tolerations") or ()
        )
        wanted = sorted(
            m.name
            for m in state.machines
            if os in (None, "windows" if m.windows else "linux") and (tolerant or not m.windows)
        )
        found = sorted(p["spec"].get("nodeName", "") for p in _active(state.pods_of(daemon_set)))
        if found != wanted:
            yield f"daemon set {_name(daemon_set)} is on {found}, not on {wanted}"
        names = (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        )
        yield from _differences("daemon set", daemon_set, dict.fromkeys(names, len(wanted)))


def _jobs(state: State) -> Iterator[str]:
    for job in state.kinds["Job"]:
        spec, status = job["spec"], job.get("status") or {}
        ended = [
            c["type"]
            for c in status.get("conditions") or ()
            if c["status"] == "True" and c["type"] != "Suspended"
        ]
        active = len(_active(state.pods_of(job)))
        if not ended:
            if not state.full(job):
                yield f"job {_name(job)} has not ended"
            continue
        if "ttlSecondsAfterFinished" in spec:
            yield f"job {_name(job)} has ended, and its time is over"
        if len(ended) > 1:
            yield f"job {_name(job)} is {' and '.join(ended)}"
        if active or (ended == ["Failed"] and status.get("active")):
            # One too many that is still at work when a job is complete stays in its status for
            # ever.
            yield (
                f"job {_name(job)} is {ended[0]}, with {active} pods, of which it knows "
                f"{status.get('active')}"
            )
        if ended == ["Complete"] and status.get("succeeded", 0) < spec["completions"]:
            yield (
                f"job {_name(job)} is complete with {status.get('succeeded')} of "
                f"{spec['completions']}"
            )
        if ended == ["Complete"] and spec.get("completionMode") == "Indexed":
            every = (
                f"0-{spec['completions'] - 1}"
                if spec["completions"] > 2
                else ",".join("01"[: spec["completions"]])
            )
            if status.get("completedIndexes") != every:
                yield (
                    f"job {_name(job)} is complete with the indexes "
                    f"{status.get('completedIndexes')}, not {every}"
                )
    for cron_job in state.kinds["CronJob"]:
        for ref in (cron_job.get("status") or {}).get("active") or ():
            job = next((j for j in state.kinds["Job"] if j["metadata"]["uid"] == ref["uid"]), None)
            if job is None or not state.full(job):
                yield f"cron job {_name(cron_job)} thinks that {ref['name']} is active"


# ---- counts and lists that others keep ----


def _budgets(state: State) -> Iterator[str]:
    for budget in state.kinds["PodDisruptionBudget"]:
        selector = from_object(budget["spec"].get("selector"))
        mine = [
            p
            for p in state.pods
            if p["metadata"]["namespace"] == budget["metadata"]["namespace"]
            and selector.matches(p["metadata"].get("labels"))
        ]
        if any(controller_of(p) is None for p in mine):
            continue  # the number that there should be is unknown
        yield from _differences("budget", budget, {"currentHealthy": sum(map(is_healthy, mine))})
        if (budget.get("status") or {}).get("disruptedPods"):
            yield f"budget {_name(budget)} still waits for evicted pods"


def _quotas(state: State) -> Iterator[str]:
    for quota in state.kinds["ResourceQuota"]:
        namespace = quota["metadata"]["namespace"]
        used = usage((p for p in state.pods if p["metadata"]["namespace"] == namespace), state.now)
        status = quota.get("status") or {}
        if status.get("hard") != quota["spec"]["hard"]:
            yield f"quota {_name(quota)} has not been taken in"
        shown = {name: milli(text) for name, text in (status.get("used") or {}).items()}
        if shown != used:
            yield f"quota {_name(quota)} says {shown}, used is {used}"


def _services(state: State) -> Iterator[str]:
    slices = defaultdict(list)
    for each in state.kinds["EndpointSlice"]:
        service = (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name")
        slices[each["metadata"]["namespace"], service].append(each)
    endpoints = {_name(e): e for e in state.kinds["Endpoints"]}
    addresses = Counter(
        row["ip"]
        for service in state.kinds["Service"]
        for row in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    )
    for address, count in addresses.items():
        if count > 1:
            yield f"{count} services have the address {address}"
    for service in state.kinds["Service"]:
        balancer = (service.get("status") or {}).get("loadBalancer") or {}
        if (service["spec"]["type"] == "LoadBalancer") != bool(balancer.get("ingress")):
            yield (
                f"service {_name(service)} of type {service['spec']['type']} has the addresses "
                f"{balancer}"
            )
        if not service["spec"].get("selector"):
            continue
        labels, namespace = service["spec"]["selector"].items(), service["metadata"]["namespace"]
        wanted = Counter(
            p["status"]["podIP"]
            for p in state.pods
            if p["metadata"]["namespace"] == namespace
            and labels <= (p["metadata"].get("labels") or {}).items()
            and is_healthy(p)
        )
        listed = Counter(
            address["ip"]
            for subset in endpoints.get(_name(service), {}).get("subsets") or ()
            for address in subset.get("addresses") or ()
        )
        if listed != wanted:
            yield f"the endpoints of {_name(service)} are {sorted(listed)}, not {sorted(wanted)}"
        sliced = Counter(
            endpoint["addresses"][0]
            for each in slices[namespace, service["metadata"]["name"]]
            for endpoint in each.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready")
        )
        if sliced != wanted:
            yield (
                f"the endpoint slices of {_name(service)} have {sorted(sliced)}, not "
                f"{sorted(wanted)}"
            )


def _accounts(state: State) -> Iterator[str]:
    accounts = {_name(a): a for a in state.kinds["ServiceAccount"]}
    for namespace in state.kinds["Namespace"]:
        account = accounts.get(f"{namespace['metadata']['name']}/default")
        if account is None:
            yield f"namespace {_name(namespace)} has no default service account"
        elif not account.get("secrets"):
            yield f"service account {_name(account)} has no token"


def _volumes(state: State) -> Iterator[str]:
    volumes = {v["metadata"]["name"]: v for v in state.kinds["PersistentVolume"]}
    bound = set()
    for claim in state.kinds["PersistentVolumeClaim"]:
        name = claim["spec"].get("volumeName", "")
        volume = volumes.get(name)
        bound.add(name)
        if (claim.get("status") or {}).get("phase") != "Bound" or volume is None:
            yield f"claim {_name(claim)} is not bound"
        elif volume["spec"]["claimRef"]["uid"] != claim["metadata"]["uid"]:
            yield f"claim {_name(claim)} is bound to {name}, which belongs to another claim"
    for name in volumes.keys() - bound:
        yield f"volume {name} belongs to no claim"


_CHECKS = (
    _orphans,
    _containers,
    _nodes,
    _pods,
    _replica_sets,
    _deployments,
    _stateful_sets,
    _daemon_sets,
    _jobs,
    _budgets,
    _quotas,
    _services,
    _accounts,
    _volumes,
)
