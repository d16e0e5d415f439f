"""The roles and bindings a control plane is born with, as tables.

`on` is a rule on resources, `at` a rule on paths; words are separated by spaces, "core" is the group without a name.
`bootstrap_roles.py` makes objects of them and keeps the cluster's in line.
"""

from __future__ import annotations

from transom.machinery.objects import Object

Rules = tuple[Object, ...]
_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = "create delete deletecollection get list patch update watch"


def on(verbs: str, groups: str, resources: str, names: str = "") -> Object:
    rule = {
        "verbs": verbs.split(),
        "apiGroups": ["" if g == "core" else g for g in groups.split()],
        "resources": resources.split(),
    }
    if names:
        rule["resourceNames"] = names.split()
    return rule


def at(verbs: str, urls: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": urls.split()}


_EVENTS = on("create patch update", "core events.k8s.io", "events")

CLUSTER_ROLES: dict[str, Rules] = {
    "cluster-admin": (
        on("*", "*", "*"),
        at("*", "*"),
    ),
    "system:aggregate-to-admin": (
        on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        on(_ALL, "rbac.authorization.k8s.io", "rolebindings roles"),
    ),
    "system:aggregate-to-edit": (
        on(_READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        on("impersonate", "core", "serviceaccounts"),
        on(_WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
        on(_WRITE, "core",
            "configmaps endpoints persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
            "serviceaccounts services services/proxy"),
        on(_WRITE, "apps",
            "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "
            "statefulsets statefulsets/scale"),
        on(_WRITE, "autoscaling", "horizontalpodautoscalers"),
        on(_WRITE, "batch", "cronjobs jobs"),
        on(_WRITE, "extensions",
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "
            "replicasets/scale replicationcontrollers/scale"),
        on(_WRITE, "policy", "poddisruptionbudgets"),
        on(_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    ),
    "system:aggregate-to-view": (
        on(_READ, "core",
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
            "replicationcontrollers/scale serviceaccounts services services/status"),
        on(_READ, "core",
            "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
            "resourcequotas resourcequotas/status"),
        on(_READ, "core", "namespaces"),
        on(_READ, "apps",
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
            "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"),
        on(_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
        on(_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        on(_READ, "extensions",
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
            "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
            "replicationcontrollers/scale"),
        on(_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
        on(_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    ),
    "system:auth-delegator": (
        on("create", "authentication.k8s.io", "tokenreviews"),
        on("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    "system:basic-user": (
        on("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": (
        on("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient"),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": (
        on("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient"),
    ),
    "system:certificates.k8s.io:kube-apiserver-client-approver": (
        on("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client"),
    ),
    "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver": (
        on("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
    ),
    "system:certificates.k8s.io:kubelet-serving-approver": (
        on("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
    ),
    "system:certificates.k8s.io:legacy-unknown-approver": (
        on("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown"),
    ),
    "system:discovery": (
        at("get", "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"),
    ),
    "system:heapster": (
        on(_READ, "core", "events namespaces nodes pods"),
        on(_READ, "extensions", "deployments"),
    ),
    "system:kube-aggregator": (
        on(_READ, "core", "endpoints services"),
    ),
    "system:kube-controller-manager": (
        _EVENTS,
        on("create", "coordination.k8s.io", "leases"),
        on("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
        on("create", "core", "endpoints"),
        on("get update", "core", "endpoints", "kube-controller-manager"),
        on("create", "core", "secrets serviceaccounts"),
        on("delete", "core", "secrets"),
        on("get", "core", "configmaps namespaces secrets serviceaccounts"),
        on("update", "core", "secrets serviceaccounts"),
        on("create", "authentication.k8s.io", "tokenreviews"),
        on("create", "authorization.k8s.io", "subjectaccessreviews"),
        on("list watch", "*", "*"),
        on("create", "core", "serviceaccounts/token"),
    ),
    "system:kube-dns": (
        on("list watch", "core", "endpoints services"),
    ),
    "system:kube-scheduler": (
        _EVENTS,
        on("create", "coordination.k8s.io", "leases"),
        on("get update", "coordination.k8s.io", "leases", "kube-scheduler"),
        on("create", "core", "endpoints"),
        on("get update", "core", "endpoints", "kube-scheduler"),
        on(_READ, "core", "nodes"),
        on("delete get list watch", "core", "pods"),
        on("create", "core", "bindings pods/binding"),
        on("patch update", "core", "pods/status"),
        on(_READ, "core", "replicationcontrollers services"),
        on(_READ, "apps extensions", "replicasets"),
        on(_READ, "apps", "statefulsets"),
        on(_READ, "policy", "poddisruptionbudgets"),
        on(_READ, "core", "persistentvolumeclaims persistentvolumes"),
        on("create", "authentication.k8s.io", "tokenreviews"),
        on("create", "authorization.k8s.io", "subjectaccessreviews"),
        on(_READ, "storage.k8s.io", "csinodes"),
    ),
    "system:kubelet-api-admin": (
        on(_READ, "core", "nodes"),
        on("proxy", "core", "nodes"),
        on("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/spec nodes/stats"),
    ),
    "system:monitoring": (
        at("get", "/healthz /healthz/* /livez /livez/* /metrics /readyz /readyz/*"),
    ),
    "system:node": (
        on("create", "authentication.k8s.io", "tokenreviews"),
        on("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
        on(_READ, "core", "services"),
        on("create get list watch", "core", "nodes"),
        on("patch update", "core", "nodes/status"),
        on("patch update", "core", "nodes"),
        on("create patch update", "core", "events"),
        on(_READ, "core", "pods"),
        on("create delete", "core", "pods"),
        on("patch update", "core", "pods/status"),
        on("create", "core", "pods/eviction"),
        on(_READ, "core", "configmaps secrets"),
        on("get", "core", "persistentvolumeclaims persistentvolumes"),
        on("get", "core", "endpoints"),
        on("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        on("create delete get patch update", "coordination.k8s.io", "leases"),
        on("get", "storage.k8s.io", "volumeattachments"),
        on("create", "core", "serviceaccounts/token"),
        on("get patch update", "core", "persistentvolumeclaims/status"),
        on(_READ, "storage.k8s.io", "csidrivers"),
        on("create delete get patch update", "storage.k8s.io", "csinodes"),
        on(_READ, "node.k8s.io", "runtimeclasses"),
    ),
    "system:node-bootstrapper": (
        on("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    ),
    "system:node-problem-detector": (
        on("get", "core", "nodes"),
        on("patch", "core", "nodes/status"),
        _EVENTS,
    ),
    "system:node-proxier": (
        on("list watch", "core", "endpoints services"),
        on(_READ, "core", "nodes"),
        _EVENTS,
        on("list watch", "discovery.k8s.io", "endpointslices"),
    ),
    "system:persistent-volume-provisioner": (
        on("create delete get list watch", "core", "persistentvolumes"),
        on("get list update watch", "core", "persistentvolumeclaims"),
        on(_READ, "storage.k8s.io", "storageclasses"),
        on("watch", "core", "events"),
        _EVENTS,
    ),
    "system:public-info-viewer": (
        at("get", "/healthz /livez /readyz /version /version/"),
    ),
    "system:service-account-issuer-discovery": (
        at("get", "/.well-known/openid-configuration /openid/v1/jwks"),
    ),
    "system:volume-scheduler": (
        on("get list patch update watch", "core", "persistentvolumes"),
        on(_READ, "storage.k8s.io", "storageclasses"),
        on("get list patch update watch", "core", "persistentvolumeclaims"),
    ),
}

# Each is bound to the service account of its name in kube-system.
CONTROLLER_ROLES: dict[str, Rules] = {
    "attachdetach-controller": (
        on("list watch", "core", "persistentvolumeclaims persistentvolumes"),
        on(_READ, "core", "nodes"),
        on("patch update", "core", "nodes/status"),
        on("list watch", "core", "pods"),
        _EVENTS,
        on("create delete get list watch", "storage.k8s.io", "volumeattachments"),
        on(_READ, "storage.k8s.io", "csidrivers"),
        on(_READ, "storage.k8s.io", "csinodes"),
    ),
    "certificate-controller": (
        on("delete get list watch", "certificates.k8s.io", "certificatesigningrequests"),
        on("update", "certificates.k8s.io", "certificatesigningrequests/approval certificatesigningrequests/status"),
        on("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
        on("sign", "certificates.k8s.io", "signers",
            "kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet "
            "kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown"),
        on("create", "authorization.k8s.io", "subjectaccessreviews"),
        _EVENTS,
    ),
    "clusterrole-aggregation-controller": (
        on("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles"),
    ),
    "cronjob-controller": (
        on("get list update watch", "batch", "cronjobs"),
        on("create delete get list patch update watch", "batch", "jobs"),
        on("update", "batch", "cronjobs/status"),
        on("update", "batch", "cronjobs/finalizers"),
        on("delete list", "core", "pods"),
        _EVENTS,
    ),
    "daemon-set-controller": (
        on(_READ, "apps extensions", "daemonsets"),
        on("update", "apps extensions", "daemonsets/status"),
        on("update", "apps extensions", "daemonsets/finalizers"),
        on("list watch", "core", "nodes"),
        on("create delete list patch watch", "core", "pods"),
        on("create", "core", "pods/binding"),
        on("create delete get list patch update watch", "apps", "controllerrevisions"),
        _EVENTS,
    ),
    "deployment-controller": (
        on("get list update watch", "apps extensions", "deployments"),
        on("update", "apps extensions", "deployments/status"),
        on("update", "apps extensions", "deployments/finalizers"),
        on("create delete get list patch update watch", "apps extensions", "replicasets"),
        on("get list update watch", "core", "pods"),
        _EVENTS,
    ),
    "disruption-controller": (
        on(_READ, "apps extensions", "deployments"),
        on(_READ, "apps extensions", "replicasets"),
        on(_READ, "core", "replicationcontrollers"),
        on(_READ, "policy", "poddisruptionbudgets"),
        on(_READ, "apps", "statefulsets"),
        on("update", "policy", "poddisruptionbudgets/status"),
        on("get", "*", "*/scale"),
        _EVENTS,
    ),
    "endpoint-controller": (
        on(_READ, "core", "pods services"),
        on("create delete get list update", "core", "endpoints"),
        on("create", "core", "endpoints/restricted"),
        _EVENTS,
    ),
    "endpointslice-controller": (
        on(_READ, "core", "nodes pods services"),
        on("update", "core", "services/finalizers"),
        on("create delete get list update", "discovery.k8s.io", "endpointslices"),
        _EVENTS,
    ),
    "endpointslicemirroring-controller": (
        on(_READ, "core", "endpoints services"),
        on("update", "core", "services/finalizers"),
        on("update", "core", "endpoints/finalizers"),
        on("create delete get list update", "discovery.k8s.io", "endpointslices"),
        _EVENTS,
    ),
    "expand-controller": (
        on("get list patch update watch", "core", "persistentvolumes"),
        on("patch update", "core", "persistentvolumeclaims/status"),
        on(_READ, "core", "persistentvolumeclaims"),
        on(_READ, "storage.k8s.io", "storageclasses"),
        on("get", "core", "endpoints services"),
        on("get", "core", "secrets"),
        _EVENTS,
    ),
    "generic-garbage-collector": (
        on("delete get list patch update watch", "*", "*"),
        _EVENTS,
    ),
    "horizontal-pod-autoscaler": (
        on(_READ, "autoscaling", "horizontalpodautoscalers"),
        on("update", "autoscaling", "horizontalpodautoscalers/status"),
        on("get update", "*", "*/scale"),
        on("list", "core", "pods"),
        on("get", "core", "services/proxy", "http:heapster: https:heapster:"),
        on("list", "metrics.k8s.io", "pods"),
        on("get list", "custom.metrics.k8s.io", "*"),
        _EVENTS,
    ),
    "job-controller": (
        on("get list update watch", "batch", "jobs"),
        on("update", "batch", "jobs/status"),
        on("update", "batch", "jobs/finalizers"),
        on("create delete list patch watch", "core", "pods"),
        _EVENTS,
    ),
    "namespace-controller": (
        on("delete get list watch", "core", "namespaces"),
        on("update", "core", "namespaces/finalize namespaces/status"),
        on("delete deletecollection get list", "*", "*"),
    ),
    "node-controller": (
        on("delete get list patch update", "core", "nodes"),
        on("patch update", "core", "nodes/status"),
        on("update", "core", "pods/status"),
        on("delete list", "core", "pods"),
        _EVENTS,
    ),
    "persistent-volume-binder": (
        on("create delete get list update watch", "core", "persistentvolumes"),
        on("update", "core", "persistentvolumes/status"),
        on("get list update watch", "core", "persistentvolumeclaims"),
        on("update", "core", "persistentvolumeclaims/status"),
        on("create delete get list watch", "core", "pods"),
        on(_READ, "storage.k8s.io", "storageclasses"),
        on("create delete get update", "core", "endpoints"),
        on("create delete get", "core", "services"),
        on("get", "core", "secrets"),
        on("get list", "core", "nodes"),
        on("watch", "core", "events"),
        _EVENTS,
    ),
    "pod-garbage-collector": (
        on("delete list watch", "core", "pods"),
        on("get list", "core", "nodes"),
    ),
    "pv-protection-controller": (
        on("get list update watch", "core", "persistentvolumes"),
        _EVENTS,
    ),
    "pvc-protection-controller": (
        on("get list update watch", "core", "persistentvolumeclaims"),
        on(_READ, "core", "pods"),
        _EVENTS,
    ),
    "replicaset-controller": (
        on("get list update watch", "apps extensions", "replicasets"),
        on("update", "apps extensions", "replicasets/status"),
        on("update", "apps extensions", "replicasets/finalizers"),
        on("create delete list patch watch", "core", "pods"),
        _EVENTS,
    ),
    "replication-controller": (
        on("get list update watch", "core", "replicationcontrollers"),
        on("update", "core", "replicationcontrollers/status"),
        on("update", "core", "replicationcontrollers/finalizers"),
        on("create delete list patch watch", "core", "pods"),
        _EVENTS,
    ),
    "resourcequota-controller": (
        on("list watch", "*", "*"),
        on("update", "core", "resourcequotas/status"),
        _EVENTS,
    ),
    "root-ca-cert-publisher": (
        on("create update", "core", "configmaps"),
        _EVENTS,
    ),
    "route-controller": (
        on("list watch", "core", "nodes"),
        on("patch", "core", "nodes/status"),
        _EVENTS,
    ),
    "service-account-controller": (
        on("create", "core", "serviceaccounts"),
        _EVENTS,
    ),
    "service-controller": (
        on(_READ, "core", "services"),
        on("patch update", "core", "services/status"),
        on("list watch", "core", "nodes"),
        _EVENTS,
    ),
    "statefulset-controller": (
        on("list watch", "core", "pods"),
        on(_READ, "apps", "statefulsets"),
        on("update", "apps", "statefulsets/status"),
        on("update", "apps", "statefulsets/finalizers"),
        on("create delete get patch update", "core", "pods"),
        on("create delete get list patch update watch", "apps", "controllerrevisions"),
        on("create get", "core", "persistentvolumeclaims"),
        _EVENTS,
    ),
    "ttl-controller": (
        on("list patch update watch", "core", "nodes"),
        _EVENTS,
    ),
}

# Aggregated for users, gathered by label from the roles above and from what others add.
AGGREGATED_ROLES = {"admin": "aggregate-to-admin", "edit": "aggregate-to-edit", "view": "aggregate-to-view"}
AGGREGATION_LABELS = {
    "edit": "aggregate-to-admin",
    "system:aggregate-to-admin": "aggregate-to-admin",
    "system:aggregate-to-edit": "aggregate-to-edit",
    "system:aggregate-to-view": "aggregate-to-view",
    "view": "aggregate-to-edit",
}

# Cluster role -> who has it everywhere: `Group:name`, `User:name`, `ServiceAccount:name` (of kube-system).
CLUSTER_BINDINGS: dict[str, str] = {
    "cluster-admin": "Group:system:masters",
    "system:basic-user": "Group:system:authenticated",
    "system:discovery": "Group:system:authenticated",
    "system:kube-controller-manager": "User:system:kube-controller-manager",
    "system:kube-dns": "ServiceAccount:kube-dns",
    "system:kube-scheduler": "User:system:kube-scheduler",
    "system:monitoring": "Group:system:monitoring",
    "system:node": "",  # nodes have their own authorizer; the binding stays for who wants to add to it
    "system:node-proxier": "User:system:kube-proxy",
    "system:public-info-viewer": "Group:system:authenticated Group:system:unauthenticated",
    "system:service-account-issuer-discovery": "Group:system:serviceaccounts",
    "system:volume-scheduler": "User:system:kube-scheduler",
}

# (namespace, role) -> rules
NAMESPACE_ROLES: dict[tuple[str, str], Rules] = {
    ("kube-public", "system:controller:bootstrap-signer"): (
        on(_READ, "core", "configmaps"),
        on("update", "core", "configmaps", "cluster-info"),
        _EVENTS,
    ),
    ("kube-system", "extension-apiserver-authentication-reader"): (
        on(_READ, "core", "configmaps", "extension-apiserver-authentication"),
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        on("watch", "core", "configmaps"),
        on("get update", "core", "configmaps", "kube-controller-manager"),
    ),
    ("kube-system", "system::leader-locking-kube-scheduler"): (
        on("watch", "core", "configmaps"),
        on("get update", "core", "configmaps", "kube-scheduler"),
    ),
    ("kube-system", "system:controller:bootstrap-signer"): (on(_READ, "core", "secrets"),),
    ("kube-system", "system:controller:cloud-provider"): (on("create get list watch", "core", "configmaps"),),
    ("kube-system", "system:controller:token-cleaner"): (
        on("delete get list watch", "core", "secrets"),
        _EVENTS,
    ),
}

# (namespace, binding) -> (role, who has it)
NAMESPACE_BINDINGS: dict[tuple[str, str], tuple[str, str]] = {
    ("kube-public", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer", "ServiceAccount:bootstrap-signer",
    ),
    ("kube-system", "system::extension-apiserver-authentication-reader"): (
        "extension-apiserver-authentication-reader", "User:system:kube-controller-manager User:system:kube-scheduler",
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        "system::leader-locking-kube-controller-manager",
        "User:system:kube-controller-manager ServiceAccount:kube-controller-manager",
    ),
    ("kube-system", "system::leader-locking-kube-scheduler"): (
        "system::leader-locking-kube-scheduler", "User:system:kube-scheduler ServiceAccount:kube-scheduler",
    ),
    ("kube-system", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer", "ServiceAccount:bootstrap-signer",
    ),
    ("kube-system", "system:controller:cloud-provider"): (
        "system:controller:cloud-provider", "ServiceAccount:cloud-provider",
    ),
    ("kube-system", "system:controller:token-cleaner"): (
        "system:controller:token-cleaner", "ServiceAccount:token-cleaner",
    ),
}

# What later releases grant and 1.20 does not, for the API versions that are served beyond it. These roles do not carry
# the label of the bootstrap policy, so that it reads as 1.20's.
LATER_ROLES: dict[str, Rules] = {
    "system:basic-user:later": (on("create", "authentication.k8s.io", "selfsubjectreviews"),),
    "system:controller:ttl-after-finished-controller": (on("delete get list watch", "batch", "jobs"), _EVENTS),
}
LATER_BINDINGS: dict[str, str] = {
    "system:basic-user:later": "Group:system:authenticated",
    "system:controller:ttl-after-finished-controller": "ServiceAccount:ttl-after-finished-controller",
}
