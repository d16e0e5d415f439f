"""Maps the text of an event, a condition or a container status to its cause and remedy: one table.

The texts are those of Kubernetes, its runtimes and its drivers. Named groups of a pattern and the
caller's values (namespace, pod, node, container, image) fill the placeholders of cause and remedy.
The first row that matches wins. Texts that only Windows nodes produce and that have their own
record are in `texts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal, NamedTuple


class KnownCause(NamedTuple):
    pattern: str
    cause: str
    remedy: str
    record: str = ""
    os: Literal["", "windows", "linux"] = ""  # of the node; "" for any
    reasons: tuple[str, ...] = ()  # of the event or status; none: any


class ExplainedCause(NamedTuple):
    cause: str
    remedy: str
    record: str


_LONGEST: Final = 4096  # only this many characters of a text are examined
_PULL: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "Failed",
    "FailedCreatePodSandBox",
    "InspectFailed",
    "RegistryUnavailable",
)

# What the kubelet, the runtime and its plugins report about a pod.
POD: Final[tuple[KnownCause, ...]] = (
    # ConfigMaps, Secrets and their keys
    KnownCause(
        r"couldn't find key (?P<key>\S+) in (?P<kind>\w+) (?P<ns>[^/\s]+)/(?P<name>\S+)",
        "the {kind} {name} has no key {key}",
        (
            "Add the key {key} to the {kind} {name} in namespace {ns}, or correct the key in the "
            "container's env."
        ),
    ),
    KnownCause(
        r"references non-existent (?P<kind>config|secret) key: (?P<key>\S+)",
        "the {kind} of a volume has no key {key}",
        "Add the key {key} to it, or correct the volume's items.",
    ),
    KnownCause(
        r'(?P<kind>configmap|secret)s? "(?P<name>[^"]+)" (?:is forbidden|not found)',
        "the {kind} {name} does not exist",
        "Create the {kind} {name} in namespace {namespace}, or correct its name in the pod.",
    ),
    KnownCause(
        r"object \"(?P<ns>[^\"/]*)\"/\"(?P<name>[^\"]*)\" not registered",
        "the ConfigMap or Secret {name} was not read yet",
        "Check that {name} exists in namespace {ns}.",
    ),
    KnownCause(
        r'serviceaccount "(?P<name>[^"]+)" not found',
        "the ServiceAccount {name} does not exist",
        "kubectl create serviceaccount {name} --namespace {namespace}",
    ),
    # Images
    KnownCause(
        (
            r"no match(?:ing)? (?:manifest )?for (?:platform in manifest|linux/)|image operating "
            r"system \"windows\" cannot be used"
        ),
        "the image {image} is for Windows, and the pod runs on a Linux node",
        (
            "Send the pod to Windows nodes: nodeSelector kubernetes.io/os: windows; or use an "
            "image for Linux."
        ),
        "WIN-POD-010",
        os="linux",
    ),
    KnownCause(
        r"pull QPS exceeded",
        "the kubelet pulls too many images at once",
        "Wait: the kubelet tries again by itself.",
    ),
    KnownCause(
        r"no space left on device|not enough space on the disk",
        "the disk of node {node} is full",
        (
            "Free space on node {node}: remove images that are not used and files that pods "
            "wrote, or give it a larger disk."
        ),
    ),
    KnownCause(
        r"lookup (?P<host>\S+?)(?: on \S+)?: no such host",
        "the name of the registry, {host}, cannot be resolved",
        "Correct the registry in the image's name; if it is right, check the node's DNS.",
        reasons=_PULL,
    ),
    KnownCause(
        (
            r"unauthorized|401 Unauthorized|incorrect username or password|authentication "
            r"required|no basic auth credentials"
        ),
        "the registry rejects the credentials",
        "Correct the user name and password in the pod's imagePullSecrets.",
        reasons=_PULL,
    ),
    KnownCause(
        r"pull access denied|requested access to the resource is denied|insufficient_scope",
        "the repository does not exist, or it needs credentials",
        (
            "Correct the image's name; for a private repository create a docker-registry Secret "
            "and name it in imagePullSecrets."
        ),
        reasons=_PULL,
    ),
    KnownCause(
        r"manifest unknown|manifest for \S+ not found|: not found$|name unknown",
        "the image {image} does not exist in the registry",
        "Correct the image's name and tag: kubectl set image, or change the pod's template.",
        reasons=_PULL,
    ),
    KnownCause(
        r"couldn't parse image reference|invalid reference format|InvalidImageName",
        "{image} is not a valid image name",
        "Correct the image's name: REGISTRY/REPOSITORY:TAG, lower case.",
        reasons=(*_PULL, "InvalidImageName"),
    ),
    KnownCause(
        r"is not present with pull policy of Never",
        "the image {image} is not on the node, and imagePullPolicy is Never",
        "Set imagePullPolicy to IfNotPresent, or load the image on node {node}.",
    ),
    KnownCause(
        (
            r"connection refused|i/o timeout|Client\.Timeout|did not properly respond|TLS "
            r"handshake|x509"
        ),
        "the registry is not reached",
        "Check the registry, the node's network and its proxy variables.",
        reasons=_PULL,
    ),
    # Sandboxes: runtime classes and the network
    KnownCause(
        r'RuntimeClass\S* "(?P<name>[^"]+)" not found|runtimeclass\S* "(?P<n2>[^"]+)" not found',
        "the RuntimeClass {name} does not exist",
        "Create the RuntimeClass {name}, or correct spec.runtimeClassName.",
    ),
    KnownCause(
        r'no runtime for "(?P<handler>[^"]+)" is configured',
        "the runtime of node {node} has no handler {handler}",
        "Use a RuntimeClass whose handler the node's runtime has, or configure the handler there.",
    ),
    KnownCause(
        r"no IP addresses available|no available addresses|Address pool is full",
        "node {node} has no free pod addresses",
        "Move pods to other nodes, or give the node a larger range of pod addresses.",
    ),
    KnownCause(
        r"invalid cni config|no networks found|no valid networks found|error reading "
        r"\S*cni|cni config uninitialized|"
        r"cni plugin not initialized|unmarshal .* types\.NetConf|error parsing configuration",
        "the CNI configuration of node {node} is missing or cannot be used",
        (
            "Correct the CNI configuration on node {node} (Linux: /etc/cni/net.d; Windows with "
            "Docker: C:\\k\\cni\\config, with containerd: C:\\etc\\cni\\net.d)."
        ),
    ),
    KnownCause(
        r"open (?P<file>/run/flannel/subnet\.env): no such file",
        "flanneld's file {file} is missing on node {node}",
        "Restart flanneld, which writes it: transom node exec {node} -- systemctl restart flanneld",
    ),
    KnownCause(
        r"failed to find plugin \"(?P<plugin>[^\"]+)\"",
        "node {node} has no CNI plugin {plugin}",
        "Install the plugin {plugin} on node {node}, or correct the type in its CNI configuration.",
    ),
    KnownCause(
        r"(?:load|open) seccomp profile\S*.* (?P<path>\S+): no such file",
        "node {node} has no seccomp profile {path}",
        "Copy the profile to {path} on node {node}, or use seccompProfile type RuntimeDefault.",
        os="linux",
    ),
    KnownCause(
        r"sysctl (?P<name>\S+) (?:is )?not (?:allowed|in a separate)|unknown sysctl",
        "the runtime refuses a sysctl",
        "Remove the sysctl from spec.securityContext.sysctls, or allow it on the node.",
    ),
    KnownCause(
        r"simulated failure of the sandbox|simulated failure",
        "the annotation sim.transom.dev/fail-sandbox makes sandboxes fail",
        "Remove the annotation and create the pod again.",
        reasons=("FailedCreatePodSandBox",),
    ),
    KnownCause(
        r"simulated failure",
        "an annotation sim.transom.dev/fail-* of the pod injects the failure",
        "Remove the annotation and create the pod again.",
    ),
    # Volumes
    KnownCause(
        r"Multi-Attach error|already attached to (?:node|an instance)|RESOURCE_IN_USE_BY_ANOTHER|Failed to lock the file"
        r"|attached to a different instance|VolumeInUse",
        "a ReadWriteOnce volume is in use on another node",
        (
            "Delete the pod on the other node, or wait until its node releases the volume; see "
            "the claim's volume attachment."
        ),
    ),
    KnownCause(
        r"not in the same (?:availability )?zone|ZoneMismatch|compute: availability zone",
        "the disk of a volume is in another zone than node {node}",
        "Let the pod select nodes of the disk's zone (label topology.kubernetes.io/zone), or use a disk of the node's zone.",
        reasons=("FailedAttachVolume",),
    ),
    KnownCause(
        r"maximum number of data disks|too many EBS volumes|maximum_persistent_disks|SCSI Controller Limit"
        r"|too many volumes",
        "node {node} has as many disks attached as it can",
        "Move pods with disks to other nodes, or add nodes (emulated cloud: transom cloud limit {node} TYPE default).",
        reasons=("FailedAttachVolume",),
    ),
    KnownCause(
        r"ResourceNotFound|InvalidVolume\.NotFound|GCE persistent disk not found|File .+ was not found|Volume not found",
        "the disk of a volume does not exist at the provider, or not in the node's zone",
        "Create the disk, or correct the volume (emulated cloud: transom cloud set DISK missing=off).",
        reasons=("FailedAttachVolume",),
    ),
    KnownCause(
        r"attachdetachment timeout",
        "the attacher of the volume's CSI driver did not attach it",
        "Install or start the driver's external attacher (csi-attacher); for a driver without one, create its CSIDriver "
        "with attachRequired: false.",
    ),
    KnownCause(
        r"mount error\(112\)|Host is down|network (?:path|name) was not found|cannot find the network path",
        "the server of a share does not answer",
        "Start the file server, and check the network between it and node {node} (emulated cloud: transom cloud set "
        "SHARE offline=off).",
    ),
    KnownCause(
        r"mount error\(13\)|network password is (?:not correct|incorrect)",
        "the server of a share rejects the credentials",
        "Correct the user name and the password or key in the volume's Secret.",
    ),
    KnownCause(
        r'persistentvolumeclaim "(?P<name>[^"]+)" not found',
        "the PersistentVolumeClaim {name} does not exist",
        "Create the claim {name} in namespace {namespace}, or correct its name in the pod.",
    ),
    KnownCause(
        (
            r"(?:PVC|persistentvolumeclaim|claim) \"?(?P<name>[^\" ]+)\"? (?:is )?(?:not "
            r"bound|unbound)"
        ),
        "the PersistentVolumeClaim {name} is not bound",
        "See the claim: kubectl describe pvc {name} --namespace {namespace}",
    ),
    KnownCause(
        r"no volume plugin matched",
        "no volume plugin of node {node} can mount a volume of the pod",
        "Install the FlexVolume or CSI driver on node {node}, or correct the driver's name.",
    ),
    KnownCause(
        r"driver name (?P<driver>\S+) not found in the list of registered CSI drivers",
        "the CSI driver {driver} does not run on node {node}",
        "Install the driver {driver} on the node, or correct its name.",
        os="linux",
    ),
    KnownCause(
        r"no CSIDriver object|CSIDriver \"?(?P<driver>[^\" ]+)\"? not found",
        "the CSI driver of a volume is not installed",
        "Install the CSI driver, or correct the driver's name in the volume.",
    ),
    KnownCause(
        r"hostPath type check failed: (?P<path>.+) (?:is not|does not)",
        "node {node} has no {path} of the type that hostPath names",
        "Create it on node {node}, use type DirectoryOrCreate, or correct hostPath.path.",
        os="linux",
    ),
    KnownCause(
        r"failed to mount (?P<path>\\\\\.\\pipe\\\S+): ",
        "node {node} has no named pipe {path}",
        "Start the program that creates the pipe on node {node}, or correct the path.",
        "WIN-STO-018",
        os="windows",
    ),
    KnownCause(
        r"bind source path does not exist: (?P<path>\S+)",
        "node {node} has no {path}: hostPath names a path of Linux",
        (
            "Use a directory of the Windows node (C:\\...) with type DirectoryOrCreate, or a "
            "named pipe (\\\\.\\pipe\\...)."
        ),
        "WIN-STO-017",
        os="windows",
    ),
    KnownCause(
        r'(?<!": )stat (?P<path>\S+): no such file or directory',  # not of a command: see below
        "node {node} has no {path}",
        "Create it on node {node}, or correct hostPath.path.",
    ),
    KnownCause(
        r"couldn't get secret (?P<name>\S+)|Couldn't get secret (?P<n2>\S+)",
        "the Secret {name} of a volume does not exist",
        "Create the Secret in namespace {namespace}, or correct its name in the volume.",
    ),
    KnownCause(
        r"missing value for (?P<variable>\S+)",
        "subPathExpr names the variable {variable}, which the container does not have",
        "Add {variable} to the container's env, or correct subPathExpr.",
    ),
    KnownCause(
        r"failed to (?:create|prepare) subPath|subPath",
        "a subPath cannot be prepared",
        "Check that the subPath exists in the volume and is relative.",
    ),
    KnownCause(
        r"hugePages storage requested",
        "a volume of medium HugePages, and no container requests huge pages",
        "Request hugepages-2Mi in a container (Linux nodes only), or use another medium.",
    ),
    # Identities and security contexts
    KnownCause(
        r"runAsNonRoot and image will run as root",
        "runAsNonRoot is set, and the image runs as root",
        (
            "Set runAsUser to another user than 0, use an image with another user, or remove "
            "runAsNonRoot."
        ),
    ),
    KnownCause(
        r"runAsNonRoot and image has non-numeric user",
        "runAsNonRoot is set, and the image names its user, which cannot be verified",
        "Set runAsUser to a number other than 0.",
        os="linux",
    ),
    KnownCause(
        r"container's runAsUser breaks non-root policy",
        "runAsNonRoot is set, and runAsUser is 0",
        "Set runAsUser to another number, or remove runAsNonRoot.",
    ),
    KnownCause(
        r"unable to find user (?P<user>[^:\s]+)|no users found",
        "the image has no user {user}",
        "Correct runAsUser or the image's USER.",
    ),
    KnownCause(
        r"The user name or password is incorrect|0x52e\b",
        "the container's image has no account of the name in runAsUserName",
        (
            "Use ContainerUser or ContainerAdministrator in windowsOptions.runAsUserName, or "
            "create the account in the image."
        ),
        "WIN-SEC-018",
        os="windows",
    ),
    KnownCause(
        r"credential ?spec",
        "the GMSA credential specification cannot be used",
        (
            "Correct the GMSACredentialSpec, and that the node is a member of the domain and may "
            "read the account's password."
        ),
    ),
    # Commands
    KnownCause(
        r'exec: "(?P<command>[^"]+)": (?:executable file not found|stat \S+: no such file)',
        "the image has no command {command}",
        "Correct the container's command, or use an image that has {command}.",
    ),
    KnownCause(
        r'exec: "(?P<command>[^"]+)": permission denied',
        "{command} is not executable in the image",
        "Correct the container's command, or make the file executable in the image.",
    ),
    KnownCause(
        r"exec format error",
        "the program of image {image} is for another CPU architecture than node {node}, or a script without #!",
        "Use an image for the node's architecture, or select nodes of the image's with kubernetes.io/arch.",
    ),
    KnownCause(
        r"[Nn]o command specified",
        "neither the container nor its image names a command",
        "Set the container's command.",
    ),
    KnownCause(
        r"CreateProcess.*Access is denied",
        "the container's user may not run its command",
        "Correct the command, or run as ContainerAdministrator (windowsOptions.runAsUserName).",
        os="windows",
    ),
    KnownCause(
        r"Unable to attach or mount volumes: unmounted volumes=\[(?P<name>[^\]]*)\].*timed out",
        "the volumes {name} are not attached or mounted yet",
        "Wait; check the storage driver and the provider, and whether another node still has the volume "
        "(kubectl get volumeattachments; emulated cloud: transom cloud list).",
    ),
    KnownCause(
        r"AttachVolume\.Attach failed",
        "the provider refuses to attach a disk to node {node}",
        "Correct what the provider's message names.",
    ),
    KnownCause(
        r"context deadline exceeded",
        "the runtime did not answer in time",
        "Look at the runtime's log on node {node}.",
    ),
)

# Why a kubelet rejected or ended a pod: the reason in the pod's status.
ENDED: Final[Mapping[str, tuple[str, str]]] = {
    "Evicted": (
        "was evicted by its kubelet",
        (
            "Free memory or disk on node {node}, set requests that match what the pod uses, then "
            "delete the pod."
        ),
    ),
    "SysctlForbidden": (
        "asks for sysctls that node {node} does not allow",
        "Remove them from spec.securityContext.sysctls, or allow "
        "them there (kubelet --allowed-unsafe-sysctls); then create the pod again.",
    ),
    "NodeAffinity": (
        "was refused by its kubelet: node {node} does not have the labels that it selects",
        "Correct nodeSelector and affinity, or label the node; then create the pod again.",
    ),
    "MatchNodeSelector": (
        "was refused by its kubelet: node {node} does not have the labels that it selects",
        "Correct nodeSelector and affinity, or label the node; then create the pod again.",
    ),
    "NodeName": ("was sent to another node than spec.nodeName", "Create the pod again."),
    "NodePorts": (
        "was refused by its kubelet: a hostPort is in use on node {node}",
        (
            "Use another hostPort or another node: leave spec.nodeName to the scheduler; then "
            "create the pod again."
        ),
    ),
    "HostPortConflict": (
        "was refused by its kubelet: a hostPort is in use on node {node}",
        "Use another hostPort or another node.",
    ),
    "TaintToleration": (
        "was refused by its kubelet: it does not tolerate a taint of node {node}",
        "Add the toleration, or leave spec.nodeName to the scheduler; then create the pod again.",
    ),
    "PodOSNotSupported": (
        "was refused by its kubelet: spec.os is not the operating system of node {node}",
        "Add nodeSelector kubernetes.io/os, and create the pod again.",
    ),
    "PodOSSelectorNodeLabelDoesNotMatch": (
        (
            "was refused by its kubelet: its label kubernetes.io/os is not the operating system "
            "of node {node}"
        ),
        "Correct the label or the nodeSelector, and create the pod again.",
    ),
    "AppArmor": (
        "asks for an AppArmor profile that node {node} cannot enforce",
        "Load the profile on the node, or remove the annotation; then create the pod again.",
    ),
    "NoNewPrivs": (
        "asks for allowPrivilegeEscalation: false, which the runtime of node {node} is too old for",
        "Upgrade the runtime, or remove the field; then create the pod again.",
    ),
    "ProcMount": (
        "asks for a procMount that the runtime of node {node} is too old for",
        "Upgrade the runtime, or remove the field; then create the pod again.",
    ),
    "UnexpectedAdmissionError": (
        "was refused by its kubelet",
        "Read the message, and the kubelet's log on node {node}.",
    ),
    "Preempting": (
        "was stopped to make room for a critical pod",
        "Add nodes, or lower requests; its controller creates another.",
    ),
    "DeadlineExceeded": (
        "ran longer than its activeDeadlineSeconds",
        "Raise activeDeadlineSeconds, or make it finish sooner; then delete the pod.",
    ),
    "NodeLost": ("is on node {node}, which is lost", "Start the node, or delete the pod."),
    "Shutdown": (
        "was ended by the shutdown of node {node}",
        "Delete the pod; its controller creates another.",
    ),
    "Terminated": (
        "was ended by the shutdown of node {node}",
        "Delete the pod; its controller creates another.",
    ),
}

# Why the API server rejects objects that a controller creates.
REFUSED: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r"exceeded quota: (?P<quota>[^,\s]+)",
        "the ResourceQuota {quota} allows no more",
        "Raise the quota {quota}, lower the pods' requests, or delete what is not needed.",
    ),
    KnownCause(
        r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+?)$",
        "the ResourceQuota {quota} requires {what}",
        (
            "Set {what} in the containers' resources, or give the namespace a LimitRange with "
            "defaults."
        ),
    ),
    KnownCause(
        r"(?:maximum|minimum) \S+ usage per|limit to request ratio",
        "a LimitRange of the namespace does not allow the resources",
        "Change the containers' resources, or the LimitRange.",
    ),
    KnownCause(
        r'serviceaccount "(?P<name>[^"]+)" not found',
        "the ServiceAccount {name} does not exist",
        "kubectl create serviceaccount {name} --namespace {namespace}",
    ),
    KnownCause(
        r"no PriorityClass with name (?P<name>\S+) was found",
        "the PriorityClass {name} does not exist",
        "Create the PriorityClass {name}, or correct priorityClassName.",
    ),
    KnownCause(
        r'RuntimeClass\S* "?(?P<name>[^"\s]+)"? not found',
        "the RuntimeClass {name} does not exist",
        "Create the RuntimeClass {name}, or correct runtimeClassName.",
    ),
    KnownCause(
        r"gmsa|[Cc]redential ?[Ss]pec",
        "the GMSA credential specification does not exist, or may not be used",
        "Create the GMSACredentialSpec, and allow the pod's ServiceAccount to use it.",
    ),
    KnownCause(
        r'failed calling webhook "(?P<hook>[^"]+)"',
        "the admission webhook {hook} does not answer",
        "Start the webhook's pods, or remove its configuration.",
    ),
    KnownCause(
        r'admission webhook "(?P<hook>[^"]+)" denied',
        "the admission webhook {hook} denies the pods",
        "Change the template to what the webhook's message asks for.",
    ),
    KnownCause(
        r"unable to validate against any pod security policy|violates PodSecurity",
        "a pod security policy forbids the pods",
        (
            "Change the template to what the policy allows, or allow the ServiceAccount another "
            "policy."
        ),
    ),
    KnownCause(
        r"namespace \S+ (?:is being terminated|because it is being terminated)",
        "its namespace is being deleted",
        "Wait.",
    ),
    KnownCause(
        r"is invalid: ",
        "the pods of its template are not valid",
        "Correct the fields of the template that the message names.",
    ),
    KnownCause(
        r"is forbidden: ",
        "the API server forbids the pods",
        "Change the template to what the message asks for.",
    ),
)

# Why a probe fails.
PROBE: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r'failed to connect service "\S+:(?P<port>\d+)"',
        "no gRPC server answers on port {port} of the pod",
        "Correct grpc.port in the probe, or let the container serve gRPC health checks on {port} of all addresses (0.0.0.0).",
    ),
    KnownCause(
        r"does not implement the grpc health protocol",
        "the server does not implement the gRPC health protocol",
        "Add the service grpc.health.v1.Health to the server, or use a tcpSocket probe.",
    ),
    KnownCause(
        r'strconv\.Atoi: parsing "(?P<port>[^"]+)"|couldn\'t find port: (?P<p2>\S+)',
        "the probe names a port {port} that the container does not have",
        "Name the container's port {port}, or correct the port in the probe.",
    ),
    KnownCause(
        r"statuscode: (?P<code>404|410)\b",
        "the server has no such path (HTTP {code})",
        "Correct httpGet.path in the probe, or serve this path.",
    ),
    KnownCause(
        r"statuscode: (?P<code>401|403)\b",
        "the server asks the probe for credentials (HTTP {code})",
        "Serve the probe's path without credentials, or send them with httpGet.httpHeaders.",
    ),
    KnownCause(
        r"statuscode: (?P<code>5\d\d)\b",
        "the server answers with an error (HTTP {code})",
        "Read the container's log; correct what the server needs, or the probe's path.",
    ),
    KnownCause(
        r"server gave HTTP response to HTTPS client|first record does not look like a TLS|wrong version number",
        "the probe uses HTTPS, and the server does not",
        "Set httpGet.scheme to HTTP, or correct the port.",
    ),
    KnownCause(
        r'Get "?https://\S+: .*(?:Client\.Timeout|context deadline exceeded|EOF)',
        "the server does not answer the TLS handshake of the probe (scheme HTTPS)",
        "Set httpGet.scheme to HTTP if the server has no TLS, or correct the port.",
    ),
    KnownCause(
        r"statuscode: (?P<code>400)\b",
        "the server rejects the request (HTTP {code}); a server with TLS does so if httpGet.scheme is HTTP",
        "Set httpGet.scheme to HTTPS if the server uses TLS, or correct the probe's path and headers.",
    ),
    KnownCause(
        r"dial tcp \S+:(?P<port>\d+): (?:connect: connection refused|connectex: No connection could be made)",
        "nothing listens on port {port} of the pod",
        "Correct the port in the probe, or let the container listen on {port} of all addresses (0.0.0.0); "
        "if it is slow to start, use a startupProbe.",
    ),
    KnownCause(
        r'exec: "(?P<command>[^"]+)": (?:executable file not found|stat \S+: no such file)',
        "the image has no command {command}",
        "Correct the command in the probe, or use an image that has {command}.",
    ),
    KnownCause(
        r"unreachable host|no route to host|network is unreachable",
        "the node cannot reach the probe's address",
        "Remove host from the probe, so that it uses the pod's address; or correct it.",
    ),
    KnownCause(
        r"cannot find the file specified",
        "the image has no such command",
        "Use httpGet or tcpSocket, or a Windows command.",
        "WIN-CTR-003",
        os="windows",
    ),
    KnownCause(
        r"Client\.Timeout|context deadline exceeded|i/o timeout|timed out|did not properly respond",
        "the container does not answer in time",
        "Raise timeoutSeconds in the probe, or make the container answer sooner.",
    ),
)

# Why a container ends with an error: lines of its log.
LOG: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r"[Aa]ddress (?:already )?in use|EADDRINUSE|Only one usage of each socket address",
        "its port is in use: another container of the pod listens there",
        "Let each container of the pod listen on a port of its own, or remove one of them.",
    ),
    KnownCause(
        r"'(?P<command>[^'\n]+)' is not recognized as an internal or external command",
        "cmd finds no command {command}",
        "Use a command of Windows instead of {command}, or an image that has it.",
        "WIN-CTR-002",
        os="windows",
    ),
    KnownCause(
        r"The term '(?P<command>[^'\n]+)' is not recognized as (?:the|a) name of a cmdlet",
        "PowerShell finds no command {command}",
        "Use a command of Windows instead of {command}, or an image that has it.",
        "WIN-CTR-002",
        os="windows",
    ),
    KnownCause(
        r"(?:sh|bash|ash): (?:line \d+: |\d+: )?(?P<command>[^\s:]+): (?:command )?not found",
        "the shell finds no command {command}",
        "Correct the command, or use an image that has {command}.",
        os="linux",
    ),
    KnownCause(
        r"Permission denied|EACCES|Access is denied|Access to the path",
        "its log says that access was denied",
        "Correct the container's user (runAsUser, fsGroup; Windows: runAsUserName), or the mode of the files.",
    ),
)

# Why a claim is not bound.
CLAIM: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r'storageclass\S* "(?P<name>[^"]+)" not found',
        "the StorageClass {name} does not exist",
        (
            "Create the StorageClass {name}, or delete the claim and create it with another "
            "storageClassName."
        ),
    ),
    KnownCause(
        r"no persistent volumes available for this claim and no storage class is set",
        "no PersistentVolume fits, and there is no default StorageClass",
        (
            "Create a PersistentVolume of this size and access mode, or name a StorageClass in "
            "the claim."
        ),
    ),
    KnownCause(
        r'waiting for a volume to be created, either by external provisioner "(?P<driver>[^"]+)"',
        "the provisioner {driver} did not create a volume",
        "Install or start the provisioner {driver}, or use another StorageClass.",
    ),
    KnownCause(
        r"Cannot bind to requested volume \"(?P<name>[^\"]+)\": (?P<why>.+)",
        "the volume {name} that it names does not fit: {why}",
        "Correct spec.volumeName, or the size, access modes and class of claim and volume.",
    ),
    KnownCause(
        r'volume "(?P<name>[^"]+)" already bound to a different claim',
        "the volume {name} is bound to another claim",
        "Correct spec.volumeName.",
    ),
    KnownCause(
        r"failed to provision volume|Failed to provision",
        "the provisioner cannot create a volume",
        "Read the provisioner's message, and its log.",
    ),
)


def explain_text(
    table: tuple[KnownCause, ...],
    reason: str,
    text: str,
    os: str = "",
    known: Mapping[str, str] | None = None,
) -> ExplainedCause | None:
    """The meaning of a text that a node of this operating system reports with this reason."""
    for row, pattern in _compiled(table):
        if (row.reasons and reason not in row.reasons) or (row.os and os and row.os != os):
            continue
        found = pattern.search(text[:_LONGEST])
        if found is not None:
            values = _Values(known or {})
            for name, value in found.groupdict().items():
                if value is not None:
                    name = _ALIASES.get(name, name)
                    values[name] = _KINDS.get(value, value) if name == "kind" else value
            return ExplainedCause(
                row.cause.format_map(values), row.remedy.format_map(values), row.record
            )
    return None


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "that it names"


_ALIASES: Final = {"k2": "kind", "n2": "name", "p2": "port"}
_KINDS: Final = {
    "configmap": "ConfigMap",
    "ConfigMap": "ConfigMap",
    "secret": "Secret",
    "config": "ConfigMap",
}


@cache
def _compiled(table: tuple[KnownCause, ...]) -> tuple[tuple[KnownCause, re.Pattern[str]], ...]:
    return tuple((row, re.compile(row.pattern)) for row in table)
