"""Resource handles: what a client needs to address a resource in a request.

A handle is a small hashable tuple. Built-in ones come from `machinery.kinds`, in the storage
version, which the in-process client returns without conversion; `at` gives another version. Callers
create the handles of custom resources.
"""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import BY_KEY


class GroupVersionResource(NamedTuple):
    group: str
    version: str
    plural: str
    namespaced: bool = True
    kind: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    def at(self, version: str) -> GroupVersionResource:
        """The same resource in another version."""
        return self._replace(version=version)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path where the API server serves it."""
        top = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = (
            f"{top}/namespaces/{namespace}/{self.plural}"
            if self.namespaced and namespace
            else f"{top}/{self.plural}"
        )
        if name:
            path += "/" + name
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def builtin_resource(key: str) -> GroupVersionResource:
    """The handle of a built-in kind by its key: `/Pod`, `apps/Deployment`."""
    kind = BY_KEY[key]
    return GroupVersionResource(kind.group, kind.storage, kind.plural, kind.namespaced, kind.kind)


CONFIG_MAPS = builtin_resource("/ConfigMap")
ENDPOINTS = builtin_resource("/Endpoints")
EVENTS = builtin_resource("/Event")
NAMESPACES = builtin_resource("/Namespace")
NODES = builtin_resource("/Node")
PERSISTENT_VOLUME_CLAIMS = builtin_resource("/PersistentVolumeClaim")
PERSISTENT_VOLUMES = builtin_resource("/PersistentVolume")
PODS = builtin_resource("/Pod")
REPLICATION_CONTROLLERS = builtin_resource("/ReplicationController")
RESOURCE_QUOTAS = builtin_resource("/ResourceQuota")
SECRETS = builtin_resource("/Secret")
SERVICE_ACCOUNTS = builtin_resource("/ServiceAccount")
SERVICES = builtin_resource("/Service")
API_SERVICES = builtin_resource("apiregistration.k8s.io/APIService")
CONTROLLER_REVISIONS = builtin_resource("apps/ControllerRevision")
DAEMON_SETS = builtin_resource("apps/DaemonSet")
DEPLOYMENTS = builtin_resource("apps/Deployment")
REPLICA_SETS = builtin_resource("apps/ReplicaSet")
STATEFUL_SETS = builtin_resource("apps/StatefulSet")
TOKEN_REVIEWS = builtin_resource("authentication.k8s.io/TokenReview")
SUBJECT_ACCESS_REVIEWS = builtin_resource("authorization.k8s.io/SubjectAccessReview")
HORIZONTAL_POD_AUTOSCALERS = builtin_resource("autoscaling/HorizontalPodAutoscaler")
CRON_JOBS = builtin_resource("batch/CronJob")
JOBS = builtin_resource("batch/Job")
CERTIFICATE_SIGNING_REQUESTS = builtin_resource("certificates.k8s.io/CertificateSigningRequest")
LEASES = builtin_resource("coordination.k8s.io/Lease")
ENDPOINT_SLICES = builtin_resource("discovery.k8s.io/EndpointSlice")
INGRESSES = builtin_resource("networking.k8s.io/Ingress")
NETWORK_POLICIES = builtin_resource("networking.k8s.io/NetworkPolicy")
RUNTIME_CLASSES = builtin_resource("node.k8s.io/RuntimeClass")
POD_DISRUPTION_BUDGETS = builtin_resource("policy/PodDisruptionBudget")
CLUSTER_ROLE_BINDINGS = builtin_resource("rbac.authorization.k8s.io/ClusterRoleBinding")
CLUSTER_ROLES = builtin_resource("rbac.authorization.k8s.io/ClusterRole")
ROLE_BINDINGS = builtin_resource("rbac.authorization.k8s.io/RoleBinding")
ROLES = builtin_resource("rbac.authorization.k8s.io/Role")
PRIORITY_CLASSES = builtin_resource("scheduling.k8s.io/PriorityClass")
CSI_DRIVERS = builtin_resource("storage.k8s.io/CSIDriver")
CSI_NODES = builtin_resource("storage.k8s.io/CSINode")
STORAGE_CLASSES = builtin_resource("storage.k8s.io/StorageClass")
VOLUME_ATTACHMENTS = builtin_resource("storage.k8s.io/VolumeAttachment")
CUSTOM_RESOURCE_DEFINITIONS = builtin_resource("apiextensions.k8s.io/CustomResourceDefinition")
# Events of the events.k8s.io group, which the scheduler writes.
NEW_EVENTS = GroupVersionResource("events.k8s.io", "v1", "events", True, "Event")
