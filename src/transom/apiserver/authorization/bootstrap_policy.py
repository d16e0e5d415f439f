"""The default roles and bindings of a control plane, as tables.

`resource_rule` is a rule on resources, `non_resource_rule` a rule on paths; values are separated by
spaces, "core" is the empty group. `bootstrap_roles.py` builds the objects and reconciles those in
the cluster.
"""

from __future__ import annotations

from transom.machinery.objects import Object

Rules = tuple[Object, ...]
_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = "create delete deletecollection get list patch update watch"


def resource_rule(verbs: str, groups: str, resources: str, names: str = "") -> Object:
    rule = {
        "verbs": verbs.split(),
        "apiGroups": ["" if g == "core" else g for g in groups.split()],
        "resources": resources.split(),
    }
    if names:
        rule["resourceNames"] = names.split()
    return rule


def non_resource_rule(verbs: str, urls: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": urls.split()}


_EVENTS = resource_rule("create patch update", "core events.k8s.io", "events")

CLUSTER_ROLES: dict[str, Rules] = {
    "cluster-admin": (
        resource_rule("*", "*", "*"),
        non_resource_rule("*", "*"),
    ),
    "system:aggregate-to-admin": (
        resource_rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        resource_rule(_ALL, "rbac.authorization.k8s.io", "rolebindings roles"),
    ),
    "system:aggregate-to-edit": (
        resource_rule(
            _READ,
            "core",
            "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
        ),
        resource_rule("impersonate", "core", "serviceaccounts"),
        resource_rule(_WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
        resource_rule(
            _WRITE,
            "core",
            "configmaps endpoints persistentvolumeclaims replicationcontrollers "
            "replicationcontrollers/scale secrets "
            "serviceaccounts services services/proxy",
        ),
        resource_rule(
            _WRITE,
            "apps",
            "daemonsets deployments deployments/rollback deployments/scale replicasets "
            "replicasets/scale "
            "statefulsets statefulsets/scale",
        ),
        resource_rule(_WRITE, "autoscaling", "horizontalpodautoscalers"),
        resource_rule(_WRITE, "batch", "cronjobs jobs"),
        resource_rule(
            _WRITE,
            "extensions",
            "daemonsets deployments deployments/rollback deployments/scale ingresses "
            "networkpolicies replicasets "
            "replicasets/scale replicationcontrollers/scale",
        ),
        resource_rule(_WRITE, "policy", "poddisruptionbudgets"),
        resource_rule(_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    ),
    "system:aggregate-to-view": (
        resource_rule(
            _READ,
            "core",
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
            "replicationcontrollers "
            "replicationcontrollers/scale serviceaccounts services services/status",
        ),
        resource_rule(
            _READ,
            "core",
            "bindings events limitranges namespaces/status pods/log pods/status "
            "replicationcontrollers/status "
            "resourcequotas resourcequotas/status",
        ),
        resource_rule(_READ, "core", "namespaces"),
        resource_rule(
            _READ,
            "apps",
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
            "deployments/status "
            "replicasets replicasets/scale replicasets/status statefulsets "
            "statefulsets/scale statefulsets/status",
        ),
        resource_rule(
            _READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"
        ),
        resource_rule(_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        resource_rule(
            _READ,
            "extensions",
            "daemonsets daemonsets/status deployments deployments/scale deployments/status "
            "ingresses "
            "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
            "replicationcontrollers/scale",
        ),
        resource_rule(_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
        resource_rule(_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    ),
    "system:auth-delegator": (
        resource_rule("create", "authentication.k8s.io", "tokenreviews"),
        resource_rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    "system:basic-user": (
        resource_rule(
            "create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"
        ),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": (
        resource_rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient"),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": (
        resource_rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient"),
    ),
    "system:certificates.k8s.io:kube-apiserver-client-approver": (
        resource_rule(
            "approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client"
        ),
    ),
    "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver": (
        resource_rule(
            "approve",
            "certificates.k8s.io",
            "signers",
            "kubernetes.io/kube-apiserver-client-kubelet",
        ),
    ),
    "system:certificates.k8s.io:kubelet-serving-approver": (
        resource_rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
    ),
    "system:certificates.k8s.io:legacy-unknown-approver": (
        resource_rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown"),
    ),
    "system:discovery": (
        non_resource_rule(
            "get",
            (
                "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version "
                "/version/"
            ),
        ),
    ),
    "system:heapster": (
        resource_rule(_READ, "core", "events namespaces nodes pods"),
        resource_rule(_READ, "extensions", "deployments"),
    ),
    "system:kube-aggregator": (resource_rule(_READ, "core", "endpoints services"),),
    "system:kube-controller-manager": (
        _EVENTS,
        resource_rule("create", "coordination.k8s.io", "leases"),
        resource_rule("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
        resource_rule("create", "core", "endpoints"),
        resource_rule("get update", "core", "endpoints", "kube-controller-manager"),
        resource_rule("create", "core", "secrets serviceaccounts"),
        resource_rule("delete", "core", "secrets"),
        resource_rule("get", "core", "configmaps namespaces secrets serviceaccounts"),
        resource_rule("update", "core", "secrets serviceaccounts"),
        resource_rule("create", "authentication.k8s.io", "tokenreviews"),
        resource_rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        resource_rule("list watch", "*", "*"),
        resource_rule("create", "core", "serviceaccounts/token"),
    ),
    "system:kube-dns": (resource_rule("list watch", "core", "endpoints services"),),
    "system:kube-scheduler": (
        _EVENTS,
        resource_rule("create", "coordination.k8s.io", "leases"),
        resource_rule("get update", "coordination.k8s.io", "leases", "kube-scheduler"),
        resource_rule("create", "core", "endpoints"),
        resource_rule("get update", "core", "endpoints", "kube-scheduler"),
        resource_rule(_READ, "core", "nodes"),
        resource_rule("delete get list watch", "core", "pods"),
        resource_rule("create", "core", "bindings pods/binding"),
        resource_rule("patch update", "core", "pods/status"),
        resource_rule(_READ, "core", "replicationcontrollers services"),
        resource_rule(_READ, "apps extensions", "replicasets"),
        resource_rule(_READ, "apps", "statefulsets"),
        resource_rule(_READ, "policy", "poddisruptionbudgets"),
        resource_rule(_READ, "core", "persistentvolumeclaims persistentvolumes"),
        resource_rule("create", "authentication.k8s.io", "tokenreviews"),
        resource_rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        resource_rule(_READ, "storage.k8s.io", "csinodes"),
    ),
    "system:kubelet-api-admin": (
        resource_rule(_READ, "core", "nodes"),
        resource_rule("proxy", "core", "nodes"),
        resource_rule("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/spec nodes/stats"),
    ),
    "system:monitoring": (
        non_resource_rule("get", "/healthz /healthz/* /livez /livez/* /metrics /readyz /readyz/*"),
    ),
    "system:node": (
        resource_rule("create", "authentication.k8s.io", "tokenreviews"),
        resource_rule(
            "create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"
        ),
        resource_rule(_READ, "core", "services"),
        resource_rule("create get list watch", "core", "nodes"),
        resource_rule("patch update", "core", "nodes/status"),
        resource_rule("patch update", "core", "nodes"),
        resource_rule("create patch update", "core", "events"),
        resource_rule(_READ, "core", "pods"),
        resource_rule("create delete", "core", "pods"),
        resource_rule("patch update", "core", "pods/status"),
        resource_rule("create", "core", "pods/eviction"),
        resource_rule(_READ, "core", "configmaps secrets"),
        resource_rule("get", "core", "persistentvolumeclaims persistentvolumes"),
        resource_rule("get", "core", "endpoints"),
        resource_rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        resource_rule("create delete get patch update", "coordination.k8s.io", "leases"),
        resource_rule("get", "storage.k8s.io", "volumeattachments"),
        resource_rule("create", "core", "serviceaccounts/token"),
        resource_rule("get patch update", "core", "persistentvolumeclaims/status"),
        resource_rule(_READ, "storage.k8s.io", "csidrivers"),
        resource_rule("create delete get patch update", "storage.k8s.io", "csinodes"),
        resource_rule(_READ, "node.k8s.io", "runtimeclasses"),
    ),
    "system:node-bootstrapper": (
        resource_rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    ),
    "system:node-problem-detector": (
        resource_rule("get", "core", "nodes"),
        resource_rule("patch", "core", "nodes/status"),
        _EVENTS,
    ),
    "system:node-proxier": (
        resource_rule("list watch", "core", "endpoints services"),
        resource_rule(_READ, "core", "nodes"),
        _EVENTS,
        resource_rule("list watch", "discovery.k8s.io", "endpointslices"),
    ),
    "system:persistent-volume-provisioner": (
        resource_rule("create delete get list watch", "core", "persistentvolumes"),
        resource_rule("get list update watch", "core", "persistentvolumeclaims"),
        resource_rule(_READ, "storage.k8s.io", "storageclasses"),
        resource_rule("watch", "core", "events"),
        _EVENTS,
    ),
    "system:public-info-viewer": (
        non_resource_rule("get", "/healthz /livez /readyz /version /version/"),
    ),
    "system:service-account-issuer-discovery": (
        non_resource_rule("get", "/.well-known/openid-configuration /openid/v1/jwks"),
    ),
    "system:volume-scheduler": (
        resource_rule("get list patch update watch", "core", "persistentvolumes"),
        resource_rule(_READ, "storage.k8s.io", "storageclasses"),
        resource_rule("get list patch update watch", "core", "persistentvolumeclaims"),
    ),
}

# Each is bound to the service account of the same name in kube-system.
CONTROLLER_ROLES: dict[str, Rules] = {
    "attachdetach-controller": (
        resource_rule("list watch", "core", "persistentvolumeclaims persistentvolumes"),
        resource_rule(_READ, "core", "nodes"),
        resource_rule("patch update", "core", "nodes/status"),
        resource_rule("list watch", "core", "pods"),
        _EVENTS,
        resource_rule("create delete get list watch", "storage.k8s.io", "volumeattachments"),
        resource_rule(_READ, "storage.k8s.io", "csidrivers"),
        resource_rule(_READ, "storage.k8s.io", "csinodes"),
    ),
    "certificate-controller": (
        resource_rule("delete get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        resource_rule(
            "update",
            "certificates.k8s.io",
            "certificatesigningrequests/approval certificatesigningrequests/status",
        ),
        resource_rule(
            "approve",
            "certificates.k8s.io",
            "signers",
            "kubernetes.io/kube-apiserver-client-kubelet",
        ),
        resource_rule(
            "sign",
            "certificates.k8s.io",
            "signers",
            "kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet "
            "kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
        ),
        resource_rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        _EVENTS,
    ),
    "clusterrole-aggregation-controller": (
        resource_rule(
            "escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles"
        ),
    ),
    "cronjob-controller": (
        resource_rule("get list update watch", "batch", "cronjobs"),
        resource_rule("create delete get list patch update watch", "batch", "jobs"),
        resource_rule("update", "batch", "cronjobs/status"),
        resource_rule("update", "batch", "cronjobs/finalizers"),
        resource_rule("delete list", "core", "pods"),
        _EVENTS,
    ),
    "daemon-set-controller": (
        resource_rule(_READ, "apps extensions", "daemonsets"),
        resource_rule("update", "apps extensions", "daemonsets/status"),
        resource_rule("update", "apps extensions", "daemonsets/finalizers"),
        resource_rule("list watch", "core", "nodes"),
        resource_rule("create delete list patch watch", "core", "pods"),
        resource_rule("create", "core", "pods/binding"),
        resource_rule("create delete get list patch update watch", "apps", "controllerrevisions"),
        _EVENTS,
    ),
    "deployment-controller": (
        resource_rule("get list update watch", "apps extensions", "deployments"),
        resource_rule("update", "apps extensions", "deployments/status"),
        resource_rule("update", "apps extensions", "deployments/finalizers"),
        resource_rule(
            "create delete get list patch update watch", "apps extensions", "replicasets"
        ),
        resource_rule("get list update watch", "core", "pods"),
        _EVENTS,
    ),
    "disruption-controller": (
        resource_rule(_READ, "apps extensions", "deployments"),
        resource_rule(_READ, "apps extensions", "replicasets"),
        resource_rule(_READ, "core", "replicationcontrollers"),
        resource_rule(_READ, "policy", "poddisruptionbudgets"),
        resource_rule(_READ, "apps", "statefulsets"),
        resource_rule("update", "policy", "poddisruptionbudgets/status"),
        resource_rule("get", "*", "*/scale"),
        _EVENTS,
    ),
    "endpoint-controller": (
        resource_rule(_READ, "core", "pods services"),
        resource_rule("create delete get list update", "core", "endpoints"),
        resource_rule("create", "core", "endpoints/restricted"),
        _EVENTS,
    ),
    "endpointslice-controller": (
        resource_rule(_READ, "core", "nodes pods services"),
        resource_rule("update", "core", "services/finalizers"),
        resource_rule("create delete get list update", "discovery.k8s.io", "endpointslices"),
        _EVENTS,
    ),
    "endpointslicemirroring-controller": (
        resource_rule(_READ, "core", "endpoints services"),
        resource_rule("update", "core", "services/finalizers"),
        resource_rule("update", "core", "endpoints/finalizers"),
        resource_rule("create delete get list update", "discovery.k8s.io", "endpointslices"),
        _EVENTS,
    ),
    "expand-controller": (
        resource_rule("get list patch update watch", "core", "persistentvolumes"),
        resource_rule("patch update", "core", "persistentvolumeclaims/status"),
        resource_rule(_READ, "core", "persistentvolumeclaims"),
        resource_rule(_READ, "storage.k8s.io", "storageclasses"),
        resource_rule("get", "core", "endpoints services"),
        resource_rule("get", "core", "secrets"),
        _EVENTS,
    ),
    "generic-garbage-collector": (
        resource_rule("delete get list patch update watch", "*", "*"),
        _EVENTS,
    ),
    "horizontal-pod-autoscaler": (
        resource_rule(_READ, "autoscaling", "horizontalpodautoscalers"),
        resource_rule("update", "autoscaling", "horizontalpodautoscalers/status"),
        resource_rule("get update", "*", "*/scale"),
        resource_rule("list", "core", "pods"),
        resource_rule("get", "core", "services/proxy", "http:heapster: https:heapster:"),
        resource_rule("list", "metrics.k8s.io", "pods"),
        resource_rule("get list", "custom.metrics.k8s.io", "*"),
        _EVENTS,
    ),
    "job-controller": (
        resource_rule("get list update watch", "batch", "jobs"),
        resource_rule("update", "batch", "jobs/status"),
        resource_rule("update", "batch", "jobs/finalizers"),
        resource_rule("create delete list patch watch", "core", "pods"),
        _EVENTS,
    ),
    "namespace-controller": (
        resource_rule("delete get list watch", "core", "namespaces"),
        resource_rule("update", "core", "namespaces/finalize namespaces/status"),
        resource_rule("delete deletecollection get list", "*", "*"),
    ),
    "node-controller": (
        resource_rule("delete get list patch update", "core", "nodes"),
        resource_rule("patch update", "core", "nodes/status"),
        resource_rule("update", "core", "pods/status"),
        resource_rule("delete list", "core", "pods"),
        _EVENTS,
    ),
    "persistent-volume-binder": (
        resource_rule("create delete get list update watch", "core", "persistentvolumes"),
        resource_rule("update", "core", "persistentvolumes/status"),
        resource_rule("get list update watch", "core", "persistentvolumeclaims"),
        resource_rule("update", "core", "persistentvolumeclaims/status"),
        resource_rule("create delete get list watch", "core", "pods"),
        resource_rule(_READ, "storage.k8s.io", "storageclasses"),
        resource_rule("create delete get update", "core", "endpoints"),
        resource_rule("create delete get", "core", "services"),
        resource_rule("get", "core", "secrets"),
        resource_rule("get list", "core", "nodes"),
        resource_rule("watch", "core", "events"),
        _EVENTS,
    ),
    "pod-garbage-collector": (
        resource_rule("delete list watch", "core", "pods"),
        resource_rule("get list", "core", "nodes"),
    ),
    "pv-protection-controller": (
        resource_rule("get list update watch", "core", "persistentvolumes"),
        _EVENTS,
    ),
    "pvc-protection-controller": (
        resource_rule("get list update watch", "core", "persistentvolumeclaims"),
        resource_rule(_READ, "core", "pods"),
        _EVENTS,
    ),
    "replicaset-controller": (
        resource_rule("get list update watch", "apps extensions", "replicasets"),
        resource_rule("update", "apps extensions", "replicasets/status"),
        resource_rule("update", "apps extensions", "replicasets/finalizers"),
        resource_rule("create delete list patch watch", "core", "pods"),
        _EVENTS,
    ),
    "replication-controller": (
        resource_rule("get list update watch", "core", "replicationcontrollers"),
        resource_rule("update", "core", "replicationcontrollers/status"),
        resource_rule("update", "core", "replicationcontrollers/finalizers"),
        resource_rule("create delete list patch watch", "core", "pods"),
        _EVENTS,
    ),
    "resourcequota-controller": (
        resource_rule("list watch", "*", "*"),
        resource_rule("update", "core", "resourcequotas/status"),
        _EVENTS,
    ),
    "root-ca-cert-publisher": (
        resource_rule("create update", "core", "configmaps"),
        _EVENTS,
    ),
    "route-controller": (
        resource_rule("list watch", "core", "nodes"),
        resource_rule("patch", "core", "nodes/status"),
        _EVENTS,
    ),
    "service-account-controller": (
        resource_rule("create", "core", "serviceaccounts"),
        _EVENTS,
    ),
    "service-controller": (
        resource_rule(_READ, "core", "services"),
        resource_rule("patch update", "core", "services/status"),
        resource_rule("list watch", "core", "nodes"),
        _EVENTS,
    ),
    "statefulset-controller": (
        resource_rule("list watch", "core", "pods"),
        resource_rule(_READ, "apps", "statefulsets"),
        resource_rule("update", "apps", "statefulsets/status"),
        resource_rule("update", "apps", "statefulsets/finalizers"),
        resource_rule("create delete get patch update", "core", "pods"),
        resource_rule("create delete get list patch update watch", "apps", "controllerrevisions"),
        resource_rule("create get", "core", "persistentvolumeclaims"),
        _EVENTS,
    ),
    "ttl-controller": (
        resource_rule("list patch update watch", "core", "nodes"),
        _EVENTS,
    ),
}

# Aggregated user-facing roles, selected by label from the roles above and from custom ones.
AGGREGATED_ROLES = {
    "admin": "aggregate-to-admin",
    "edit": "aggregate-to-edit",
    "view": "aggregate-to-view",
}
AGGREGATION_LABELS = {
    "edit": "aggregate-to-admin",
    "system:aggregate-to-admin": "aggregate-to-admin",
    "system:aggregate-to-edit": "aggregate-to-edit",
    "system:aggregate-to-view": "aggregate-to-view",
    "view": "aggregate-to-edit",
}

# ClusterRole -> subjects: `Group:name`, `User:name`, `ServiceAccount:name` (in kube-system).
CLUSTER_BINDINGS: dict[str, str] = {
    "cluster-admin": "Group:system:masters",
    "system:basic-user": "Group:system:authenticated",
    "system:discovery": "Group:system:authenticated",
    "system:kube-controller-manager": "User:system:kube-controller-manager",
    "system:kube-dns": "ServiceAccount:kube-dns",
    "system:kube-scheduler": "User:system:kube-scheduler",
    "system:monitoring": "Group:system:monitoring",
    # nodes have their own authorizer; administrators may add subjects to the binding
    "system:node": "",
    "system:node-proxier": "User:system:kube-proxy",
    "system:public-info-viewer": "Group:system:authenticated Group:system:unauthenticated",
    "system:service-account-issuer-discovery": "Group:system:serviceaccounts",
    "system:volume-scheduler": "User:system:kube-scheduler",
}

# (namespace, role) -> rules
NAMESPACE_ROLES: dict[tuple[str, str], Rules] = {
    ("kube-public", "system:controller:bootstrap-signer"): (
        resource_rule(_READ, "core", "configmaps"),
        resource_rule("update", "core", "configmaps", "cluster-info"),
        _EVENTS,
    ),
    ("kube-system", "extension-apiserver-authentication-reader"): (
        resource_rule(_READ, "core", "configmaps", "extension-apiserver-authentication"),
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        resource_rule("watch", "core", "configmaps"),
        resource_rule("get update", "core", "configmaps", "kube-controller-manager"),
    ),
    ("kube-system", "system::leader-locking-kube-scheduler"): (
        resource_rule("watch", "core", "configmaps"),
        resource_rule("get update", "core", "configmaps", "kube-scheduler"),
    ),
    ("kube-system", "system:controller:bootstrap-signer"): (
        resource_rule(_READ, "core", "secrets"),
    ),
    ("kube-system", "system:controller:cloud-provider"): (
        resource_rule("create get list watch", "core", "configmaps"),
    ),
    ("kube-system", "system:controller:token-cleaner"): (
        resource_rule("delete get list watch", "core", "secrets"),
        _EVENTS,
    ),
}

# (namespace, binding) -> (role, subjects)
NAMESPACE_BINDINGS: dict[tuple[str, str], tuple[str, str]] = {
    ("kube-public", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer",
        "ServiceAccount:bootstrap-signer",
    ),
    ("kube-system", "system::extension-apiserver-authentication-reader"): (
        "extension-apiserver-authentication-reader",
        "User:system:kube-controller-manager User:system:kube-scheduler",
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        "system::leader-locking-kube-controller-manager",
        "User:system:kube-controller-manager ServiceAccount:kube-controller-manager",
    ),
    ("kube-system", "system::leader-locking-kube-scheduler"): (
        "system::leader-locking-kube-scheduler",
        "User:system:kube-scheduler ServiceAccount:kube-scheduler",
    ),
    ("kube-system", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer",
        "ServiceAccount:bootstrap-signer",
    ),
    ("kube-system", "system:controller:cloud-provider"): (
        "system:controller:cloud-provider",
        "ServiceAccount:cloud-provider",
    ),
    ("kube-system", "system:controller:token-cleaner"): (
        "system:controller:token-cleaner",
        "ServiceAccount:token-cleaner",
    ),
}


# Permissions that later releases grant and 1.20 does not, for the API versions that are served in
# addition. These roles do not have the label of the bootstrap policy, so that the policy equals
# that of 1.20.
LATER_ROLES: dict[str, Rules] = {
    "system:basic-user:later": (
        resource_rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    "system:controller:ttl-after-finished-controller": (
        resource_rule("delete get list watch", "batch", "jobs"),
        _EVENTS,
    ),
}
LATER_BINDINGS: dict[str, str] = {
    "system:basic-user:later": "Group:system:authenticated",
    "system:controller:ttl-after-finished-controller": "ServiceAccount:ttl-after-finished-controller",
}
