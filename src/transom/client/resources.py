"""Handles of resources: what a client must know to name one in a request.

A handle is a small tuple, good as a key. Built-in ones come from `machinery.kinds`, in the version they are stored in,
which the in-process client hands out without any conversion; `at` gives another version. Custom resources make their
own handle.
"""

from __future__ import annotations

from typing import NamedTuple

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
        """Where the API server serves it."""
        top = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = f"{top}/namespaces/{namespace}/{self.plural}" if self.namespaced and namespace else f"{top}/{self.plural}"
        if name:
            path += "/" + name
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def builtin(key: str) -> GroupVersionResource:
    """The handle of a built-in kind by its key: `/Pod`, `apps/Deployment`."""
    kind = BY_KEY[key]
    return GroupVersionResource(kind.group, kind.storage, kind.plural, kind.namespaced, kind.kind)


CONFIG_MAPS = builtin("/ConfigMap")
ENDPOINTS = builtin("/Endpoints")
EVENTS = builtin("/Event")
LIMIT_RANGES = builtin("/LimitRange")
NAMESPACES = builtin("/Namespace")
NODES = builtin("/Node")
PERSISTENT_VOLUME_CLAIMS = builtin("/PersistentVolumeClaim")
PERSISTENT_VOLUMES = builtin("/PersistentVolume")
PODS = builtin("/Pod")
POD_TEMPLATES = builtin("/PodTemplate")
REPLICATION_CONTROLLERS = builtin("/ReplicationController")
RESOURCE_QUOTAS = builtin("/ResourceQuota")
SECRETS = builtin("/Secret")
SERVICE_ACCOUNTS = builtin("/ServiceAccount")
SERVICES = builtin("/Service")
API_SERVICES = builtin("apiregistration.k8s.io/APIService")
CONTROLLER_REVISIONS = builtin("apps/ControllerRevision")
DAEMON_SETS = builtin("apps/DaemonSet")
DEPLOYMENTS = builtin("apps/Deployment")
REPLICA_SETS = builtin("apps/ReplicaSet")
STATEFUL_SETS = builtin("apps/StatefulSet")
TOKEN_REVIEWS = builtin("authentication.k8s.io/TokenReview")
SUBJECT_ACCESS_REVIEWS = builtin("authorization.k8s.io/SubjectAccessReview")
HORIZONTAL_POD_AUTOSCALERS = builtin("autoscaling/HorizontalPodAutoscaler")
CRON_JOBS = builtin("batch/CronJob")
JOBS = builtin("batch/Job")
CERTIFICATE_SIGNING_REQUESTS = builtin("certificates.k8s.io/CertificateSigningRequest")
LEASES = builtin("coordination.k8s.io/Lease")
ENDPOINT_SLICES = builtin("discovery.k8s.io/EndpointSlice")
INGRESSES = builtin("networking.k8s.io/Ingress")
NETWORK_POLICIES = builtin("networking.k8s.io/NetworkPolicy")
RUNTIME_CLASSES = builtin("node.k8s.io/RuntimeClass")
POD_DISRUPTION_BUDGETS = builtin("policy/PodDisruptionBudget")
CLUSTER_ROLE_BINDINGS = builtin("rbac.authorization.k8s.io/ClusterRoleBinding")
CLUSTER_ROLES = builtin("rbac.authorization.k8s.io/ClusterRole")
ROLE_BINDINGS = builtin("rbac.authorization.k8s.io/RoleBinding")
ROLES = builtin("rbac.authorization.k8s.io/Role")
PRIORITY_CLASSES = builtin("scheduling.k8s.io/PriorityClass")
CSI_DRIVERS = builtin("storage.k8s.io/CSIDriver")
CSI_NODES = builtin("storage.k8s.io/CSINode")
CSI_STORAGE_CAPACITIES = builtin("storage.k8s.io/CSIStorageCapacity")
STORAGE_CLASSES = builtin("storage.k8s.io/StorageClass")
VOLUME_ATTACHMENTS = builtin("storage.k8s.io/VolumeAttachment")
CUSTOM_RESOURCE_DEFINITIONS = builtin("apiextensions.k8s.io/CustomResourceDefinition")
# Events in the shape of their own group, which the scheduler writes.
NEW_EVENTS = GroupVersionResource("events.k8s.io", "v1", "events", True, "Event")
