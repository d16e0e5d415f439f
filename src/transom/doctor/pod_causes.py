"""Known causes of problems of pods: patterns of the texts of events and statuses."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class KnownCause(NamedTuple):
    pattern: str
    cause: str
    remedy: str
    record: str = ""
    os: Literal["", "windows", "linux"] = ""  # of the node; "" for any
    reasons: tuple[str, ...] = ()  # of the event or status; none: any
    commands: tuple[str, ...] = ()  # carry out the remedy
    change: str = (
        ""  # JSON of a patch (strategic merge) of the pod's spec ; "container": of the container
    )


_PULL: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "Failed",
    "FailedCreatePodSandBox",
    "InspectFailed",
    "RegistryUnavailable",
)
# What the kubelet, the runtime and its plugins report about a pod.
POD_CAUSES: Final[tuple[KnownCause, ...]] = (
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
        "Create it, or correct serviceAccountName.",
        commands=("kubectl create serviceaccount {name} --namespace {namespace}",),
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
        change='{"nodeSelector":{"kubernetes.io/os":"windows"}}',
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
        r"^context canceled$",
        "the pull takes longer than the kubelet waits for progress",
        (
            "Pull the image on the node ahead of time, use a smaller one, or give the kubelet a "
            "longer --image-pull-progress-deadline."
        ),
        reasons=_PULL,
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
        "Move pods with disks to other nodes, or add nodes (emulated cloud: transom cloud limit {node} {disk_type} default).",
        reasons=("FailedAttachVolume",),
    ),
    KnownCause(
        r"ResourceNotFound|InvalidVolume\.NotFound|GCE persistent disk not found|File .+ was not found|Volume not found",
        "the disk of a volume does not exist at the provider, or not in the node's zone",
        "Create the disk in the node's zone, or correct the volume.",
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
        "Start the file server, and check the network between it and node {node}.",
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
        r"processing PVC (?P<namespace>[^/\s]+)/(?P<name>\S+): PVC is not bound",
        "the PersistentVolumeClaim {name} is not bound",
        "See the claim: kubectl describe pvc {name} --namespace {namespace}",
    ),
    KnownCause(
        r"(?P<call>\w+) command failed, status: (?P<status>[^,]+), reason:",
        "the FlexVolume driver {driver} answers {call} with {status}",
        "Correct what the driver's message names, or the driver: {driver_path} on node {node}.",
    ),
    KnownCause(
        r"exec 'git |failed to exec 'git ",
        "node {node} has no git, which a gitRepo volume needs",
        "Clone the repository in an init container into an emptyDir, or install git on node {node}.",
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
        r"hostPath type check failed: (?P<path>.+) is not a (?P<what>directory|file)$",
        "node {node} has no {what} {path}",
        "Create the {what} on node {node}, let the kubelet create it (type DirectoryOrCreate, or "
        "FileOrCreate if its directory exists), or correct hostPath.path.",
    ),
    KnownCause(
        r"hostPath type check failed: (?P<path>.+) is not a socket file$",
        "node {node} has no socket {path}",
        "Start the program that creates the socket on node {node}, or correct hostPath.path.",
        os="linux",
    ),
    KnownCause(
        r"hostPath type check failed: (?P<path>.+) is not a (?P<what>\w+ device)$",
        "node {node} has no {what} {path}",
        "Attach the device to node {node}, or correct hostPath.path.",
        os="linux",
    ),
    KnownCause(
        r"(?:^|: )container (?P<name>\S+) not found$",
        "a downwardAPI volume names container {name}, which the pod does not have",
        "Correct containerName in the volume's resourceFieldRef.",
        reasons=("FailedMount",),
    ),
    KnownCause(
        r'endpoints "(?P<name>[^"]+)" not found',
        "the Endpoints {name} with the servers of a volume do not exist",
        "Create the Endpoints {name} in namespace {namespace} with the addresses of the servers, or correct the "
        "volume's endpoints.",
        reasons=("FailedMount",),
    ),
    KnownCause(
        r'NewMounter.*: path "(?P<path>[^"]+)" does not exist',
        "node {node} has no {path}, the path of a local volume",
        "Create the directory on node {node}, or correct local.path of the PersistentVolume.",
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
        r"apparmor profile not found (?P<profile>\S+)",
        "node {node} has not loaded the AppArmor profile {profile}",
        "Load the profile on node {node} (apparmor_parser), or use the profile RuntimeDefault.",
    ),
    KnownCause(
        r"hugePages storage requested",
        "a volume of medium HugePages, and no container requests huge pages",
        "Request hugepages-2Mi in a container (Linux nodes only), or use another medium.",
    ),
    # Identities and security contexts
    KnownCause(
        r"runAsNonRoot and image (?:will run as root|has non-numeric user)",
        "runAsNonRoot is set, and this kubelet cannot tell the user of a Windows image from root",
        "Remove runAsNonRoot.",
        "WIN-SEC-014",
        os="windows",
        change='{"container":{"securityContext":{"runAsNonRoot":false}}}',
    ),
    KnownCause(
        r"runAsNonRoot and image will run as root",
        "runAsNonRoot is set, and the image runs as root",
        (
            "Set runAsUser to another user than 0, use an image with another user, or remove "
            "runAsNonRoot: the command lets it run as root."
        ),
        change='{"container":{"securityContext":{"runAsNonRoot":false}}}',
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
        change='{"container":{"securityContext":{"windowsOptions":{"runAsUserName":"ContainerUser"}}}}',
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
