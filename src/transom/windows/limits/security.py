"""Limits of security contexts: Linux-only fields, users, and secrets."""

from __future__ import annotations

from typing import Final

from transom.windows.limits.pods import HOST_PROCESS
from transom.windows.records import RecordField, WindowsLimit
from transom.windows.sysctls import SAFE

_CONTAINER: Final = "spec.containers[*].securityContext"
_POD: Final = "spec.securityContext"

LIMITS: Final = (
    WindowsLimit(
        id="WIN-SEC-001",
        title="privileged is ignored",
        statement=(
            "Windows has no privileged containers: a container cannot get privileges on its node."
        ),
        effect="ignored",
        remedy="Remove it. From 1.22, HostProcess containers (windowsOptions.hostProcess) run as "
        "processes of the node; CSI node plugins use csi-proxy.",
        checklist=("RES-05", "FEAT-04", "SEC-13", "API-23"),
        fields=(RecordField(f"{_CONTAINER}.privileged", "is", True),),
        unless=HOST_PROCESS,
        severity="warning",
        fix="drop",
        section="V1.Container",
        topics=("hostprocess",),
    ),
    WindowsLimit(
        id="WIN-SEC-002",
        title="allowPrivilegeEscalation is ignored",
        statement="Windows has nothing that the field could forbid or allow.",
        effect="ignored",
        remedy="Drop it.",
        checklist=("API-21",),
        fields=(
            RecordField(f"{_CONTAINER}.allowPrivilegeEscalation", "is", True),
            RecordField(f"{_CONTAINER}.allowPrivilegeEscalation", "is", False),
        ),
        severity="info",
        fix="drop",
        section="V1.Container",
    ),
    WindowsLimit(
        id="WIN-SEC-003",
        title="Added capabilities are ignored",
        statement="POSIX capabilities do not exist on Windows: added capabilities have no effect.",
        effect="ignored",
        remedy="Remove them; grant the privilege to the account that runs the container.",
        checklist=("SEC-11", "API-22"),
        fields=(RecordField(f"{_CONTAINER}.capabilities.add"),),
        severity="warning",
        fix="drop",
        section="V1.Container",
        topics=("capabilities",),
    ),
    WindowsLimit(
        id="WIN-SEC-004",
        title="Dropped capabilities are ignored",
        statement="POSIX capabilities do not exist on Windows: there are none to drop.",
        effect="ignored",
        remedy="Remove the field; run as ContainerUser instead.",
        checklist=("SEC-11", "API-22"),
        fields=(RecordField(f"{_CONTAINER}.capabilities.drop"),),
        severity="info",
        fix="drop",
        section="V1.Container",
        topics=("capabilities",),
    ),
    WindowsLimit(
        id="WIN-SEC-005",
        title="seLinuxOptions are ignored",
        statement="SELinux does not exist on Windows.",
        effect="ignored",
        remedy="Drop them.",
        checklist=("SEC-08", "API-29", "API-49"),
        fields=(RecordField(f"{_CONTAINER}.seLinuxOptions"), RecordField(f"{_POD}.seLinuxOptions")),
        severity="info",
        fix="drop",
        section="V1.PodSecurityContext",
        topics=("selinux",),
    ),
    WindowsLimit(
        id="WIN-SEC-006",
        title="AppArmor profiles are ignored",
        statement="AppArmor does not exist on Windows.",
        effect="ignored",
        remedy="Drop the profile.",
        checklist=("SEC-09",),
        fields=(
            RecordField("metadata.annotations['container.apparmor.security.beta.kubernetes.io/*']"),
            RecordField(f"{_CONTAINER}.appArmorProfile"),
            RecordField(f"{_POD}.appArmorProfile"),
        ),
        severity="info",
        fix="drop",
        section="Security",
        topics=("apparmor",),
    ),
    WindowsLimit(
        id="WIN-SEC-007",
        title="Seccomp profiles are ignored",
        statement="Seccomp does not exist on Windows.",
        effect="ignored",
        remedy="Drop the profile.",
        checklist=("SEC-10",),
        fields=(
            RecordField("metadata.annotations['seccomp.security.alpha.kubernetes.io/pod']"),
            RecordField("metadata.annotations['container.seccomp.security.alpha.kubernetes.io/*']"),
            RecordField(f"{_CONTAINER}.seccompProfile"),
            RecordField(f"{_POD}.seccompProfile"),
        ),
        severity="info",
        fix="drop",
        section="Security",
        topics=("seccomp",),
    ),
    WindowsLimit(
        id="WIN-SEC-008",
        title="procMount is ignored",
        statement="Windows has no /proc.",
        effect="ignored",
        remedy="Drop it.",
        checklist=("API-24",),
        fields=(RecordField(f"{_CONTAINER}.procMount", "not", "Default"),),
        severity="info",
        fix="drop",
        section="V1.Container",
    ),
    WindowsLimit(
        id="WIN-SEC-009",
        title="readOnlyRootFilesystem is ignored",
        statement="The registry and system processes write to the root file system of a Windows "
        "container, so it stays writable. "
        "Volumes can be mounted read-only.",
        effect="ignored",
        remedy="Remove it; mount data with readOnly: true and run as ContainerUser.",
        checklist=("LSTO-06", "LSTO-14", "API-25"),
        fields=(RecordField(f"{_CONTAINER}.readOnlyRootFilesystem", "is", True),),
        severity="warning",
        fix="drop",
        section="V1.Container",
        topics=("read-only",),
    ),
    WindowsLimit(
        id="WIN-SEC-010",
        title="runAsUser is ignored",
        statement="Windows has no numeric user ids. From 1.20, the kubelet ignores the number.",
        effect="ignored",
        remedy="Use securityContext.windowsOptions.runAsUserName, for example ContainerUser.",
        checklist=("API-28", "API-50", "SEC-05"),
        since=(1, 20),
        fields=(
            RecordField(f"{_CONTAINER}.runAsUser", "above", -1),
            RecordField(f"{_POD}.runAsUser", "above", -1),
        ),
        severity="warning",
        fix="drop",
        section="V1.PodSecurityContext",
        topics=("user", "uid"),
    ),
    WindowsLimit(
        id="WIN-SEC-011",
        title="runAsUser fails before 1.20",
        statement=(
            "Windows has no numeric user ids; up to 1.19 the kubelet does not create such a container."
        ),
        effect="fails",
        remedy="Remove it. Create the account when you build the image; from 1.17, set "
        "securityContext.windowsOptions.runAsUserName.",
        checklist=("SEC-06", "API-28", "API-50"),
        until=(1, 19),
        fields=(
            RecordField(f"{_CONTAINER}.runAsUser", "above", -1),
            RecordField(f"{_POD}.runAsUser", "above", -1),
        ),
        severity="error",
        fix="drop",
        reason="CreateContainerConfigError",
        message="run as uid ({uid}) is not supported on Windows",
        section="V1.PodSecurityContext",
        topics=("user", "uid"),
    ),
    WindowsLimit(
        id="WIN-SEC-012",
        title="runAsGroup is ignored",
        statement="Windows has no numeric groups.",
        effect="ignored",
        remedy="Drop it.",
        checklist=("API-26", "API-51"),
        fields=(
            RecordField(f"{_CONTAINER}.runAsGroup", "above", -1),
            RecordField(f"{_POD}.runAsGroup", "above", -1),
        ),
        severity="info",
        fix="drop",
        section="V1.PodSecurityContext",
        topics=("group", "gid"),
    ),
    WindowsLimit(
        id="WIN-SEC-013",
        title="runAsNonRoot forbids ContainerAdministrator",
        statement="Windows has no root user. The kubelet treats ContainerAdministrator, in exactly "
        "this spelling, as root: with runAsNonRoot, a container whose spec or image selects that "
        "user is not created.",
        effect="fails",
        remedy="Run as ContainerUser (windowsOptions.runAsUserName), or remove runAsNonRoot.",
        checklist=("API-27", "API-52"),
        since=(1, 20),
        until=(1, 21),
        check="run-as-non-root",
        severity="error",
        reason="CreateContainerConfigError",
        message="container's runAsUser ({user}) which will be regarded as root identity and will "
        "break non-root policy "
        "(pod: {pod}, container: {container})",
        section="V1.Container",
        note=(
            "The comparison is case-sensitive, and the message names the user of the image, not of "
            "the pod."
        ),
        topics=("user", "root", "ContainerAdministrator"),
    ),
    WindowsLimit(
        id="WIN-SEC-014",
        title="runAsNonRoot fails before 1.20",
        statement="Up to 1.19 the kubelet recognises root by its number. A Windows image names its "
        "user, if any, so the container is not created.",
        effect="fails",
        remedy="Drop runAsNonRoot.",
        checklist=("API-27", "API-52"),
        until=(1, 19),
        fields=(
            RecordField(f"{_CONTAINER}.runAsNonRoot", "is", True),
            RecordField(f"{_POD}.runAsNonRoot", "is", True),
        ),
        severity="error",
        fix="drop",
        reason="CreateContainerConfigError",
        message=(
            "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify "
            "user is non-root"
        ),
        section="V1.Container",
        topics=("user", "root"),
    ),
    WindowsLimit(
        id="WIN-SEC-015",
        title="supplementalGroups are ignored",
        statement="Windows has no numeric groups.",
        effect="ignored",
        remedy="Drop them.",
        checklist=("API-53",),
        fields=(RecordField(f"{_POD}.supplementalGroups"),),
        severity="info",
        fix="drop",
        section="V1.PodSecurityContext",
        topics=("group", "gid"),
    ),
    WindowsLimit(
        id="WIN-SEC-016",
        title="Safe sysctls have no effect",
        statement=(
            "sysctls are an interface of the Linux kernel. Windows nodes accept safe sysctls, "
            "which have no effect."
        ),
        effect="ignored",
        remedy="Drop them.",
        checklist=("API-54",),
        fields=(RecordField(f"{_POD}.sysctls"),),
        unless=(RecordField(f"{_POD}.sysctls[*].name", "none-of", SAFE),),
        severity="warning",
        fix="drop",
        section="V1.PodSecurityContext",
    ),
    WindowsLimit(
        id="WIN-SEC-017",
        title="Secrets are in clear text on the disk of the node",
        statement="Linux nodes keep Secrets and similar volumes in memory. Windows has no "
        "in-memory file system: they are plain files in the kubelet directory.",
        effect="degraded",
        remedy="Restrict the directory with file ACLs, and encrypt the volume with BitLocker.",
        checklist=("SEC-01",),
        section="Security",
        topics=("secret", "bitlocker", "tmpfs"),
    ),
    WindowsLimit(
        id="WIN-SEC-018",
        title="Accounts of the node do not exist in containers",
        statement="Each container has its own security account database. It cannot use accounts of "
        "the node or of another container.",
        effect="fails",
        remedy="Create the account when you build the image, or use ContainerUser, "
        "ContainerAdministrator or a group managed service account.",
        checklist=("RES-06", "API-05"),
        reason="ContainerCannotRun",
        message="The user name or password is incorrect.",
        section="Resource handling",
        topics=("SAM", "user", "runAsUserName"),
    ),
    WindowsLimit(
        id="WIN-SEC-019",
        title="runAsUserName is not there yet",
        statement=("windowsOptions.runAsUserName is alpha in 1.16 and on by default from 1.17."),
        effect="ignored",
        remedy="Set the user when you build the image, or upgrade.",
        checklist=("SEC-04", "SEC-06"),
        until=(1, 16),
        lifted_by=("WindowsRunAsUserName",),
        fields=(
            RecordField(f"{_CONTAINER}.windowsOptions.runAsUserName"),
            RecordField(f"{_POD}.windowsOptions.runAsUserName"),
        ),
        severity="warning",
        section="Security",
        topics=("user",),
    ),
    WindowsLimit(
        id="WIN-SEC-020",
        title="No field of PodSecurityContext works on Windows",
        statement="All fields of the pod security context except windowsOptions are for Linux.",
        effect="ignored",
        remedy="See the records of the fields.",
        until=(1, 25),
        checklist=("API-35", "API-48", "SEC-12"),
        section="V1.PodSecurityContext",
        topics=("podSecurityContext",),
    ),
    WindowsLimit(
        id="WIN-SEC-021",
        title="A group managed service account cannot open network shares with containerd",
        statement="Without a Windows update, a container on containerd gets the GMSA identity but "
        "no access to restricted network shares.",
        effect="fails",
        remedy=(
            "Update the node (KB5000822 for Windows Server 2019, KB4586853 for version 2004), or "
            "use Docker."
        ),
        checklist=("RT-09", "RT-10", "RT-11"),
        builds=(0, 19041),
        patches=((17763, 1817), (19041, 662)),
        runtimes=("containerd",),
        fields=(
            RecordField(f"{_CONTAINER}.windowsOptions.gmsaCredentialSpecName"),
            RecordField(f"{_CONTAINER}.windowsOptions.gmsaCredentialSpec"),
            RecordField(f"{_POD}.windowsOptions.gmsaCredentialSpecName"),
            RecordField(f"{_POD}.windowsOptions.gmsaCredentialSpec"),
        ),
        severity="warning",
        section="CRI-ContainerD",
        topics=("gmsa", "SMB"),
    ),
    WindowsLimit(
        id="WIN-SEC-022",
        title="GMSA fields are not read at 1.14",
        statement=(
            "The windowsOptions fields need 1.15; in 1.14 annotations hold the credential spec."
        ),
        effect="ignored",
        remedy=(
            "Use the annotation pod.alpha.windows.kubernetes.io/gmsa-credential-spec with the "
            "feature gate WindowsGMSA."
        ),
        checklist=("ROAD-19",),
        until=(1, 14),
        fields=(
            RecordField(f"{_CONTAINER}.windowsOptions.gmsaCredentialSpec"),
            RecordField(f"{_POD}.windowsOptions.gmsaCredentialSpec"),
        ),
        severity="warning",
        section="What's next",
        topics=("gmsa",),
    ),
    WindowsLimit(
        id="WIN-SEC-023",
        title="A service account token cannot be owned by a numeric user",
        statement="A projected token is owned by the user in runAsUser. Windows cannot set the "
        "owner of a file by number, so the volume is never mounted.",
        effect="fails",
        remedy="Drop runAsUser.",
        checklist=("API-50",),
        since=(1, 20),
        until=(1, 30),
        fields=(RecordField("spec.volumes[*].projected.sources[*].serviceAccountToken"),),
        given=(RecordField(f"{_POD}.runAsUser", "above", -1),),
        severity="error",
        reason="FailedMount",
        message="chown {path}: not supported by windows",
        section="V1.PodSecurityContext",
        topics=("token", "runAsUser", "projected"),
    ),
    WindowsLimit(
        id="WIN-SEC-024",
        title="runAsNonRoot forbids ContainerAdministrator in any spelling",
        statement="Windows has no root user. The kubelet treats ContainerAdministrator as root: "
        "with runAsNonRoot, a container whose spec or image selects that user is not created.",
        effect="fails",
        remedy="Run as ContainerUser (windowsOptions.runAsUserName), or remove runAsNonRoot.",
        checklist=("API-27", "API-52"),
        since=(1, 22),
        check="run-as-non-root",
        severity="error",
        reason="CreateContainerConfigError",
        message="container's runAsUserName ({user}) which will be regarded as root identity and will "
        "break non-root policy "
        "(pod: {pod}, container: {container})",
        section="V1.Container",
        topics=("user", "root", "ContainerAdministrator"),
    ),
    WindowsLimit(
        id="WIN-SEC-025",
        title="runAsUser prevents the pod from getting its token",
        statement="From 1.21, every pod gets a projected service account token owned by the user "
        "in runAsUser. Windows cannot set this owner before 1.31: the pod stays in "
        "ContainerCreating.",
        effect="fails",
        remedy="Remove runAsUser; use windowsOptions.runAsUserName.",
        checklist=("API-50",),
        since=(1, 21),
        until=(1, 30),
        fields=(RecordField(f"{_POD}.runAsUser", "above", -1),),
        unless=(RecordField("spec.automountServiceAccountToken", "is", False),),
        severity="error",
        fix="drop",
        reason="FailedMount",
        message="chown {path}: not supported by windows",
        section="V1.PodSecurityContext",
        topics=("token", "runAsUser", "projected"),
    ),
    WindowsLimit(
        id="WIN-SEC-026",
        title="Pods with unsafe sysctls are refused",
        statement="Like a Linux node, a Windows node rejects pods with unsafe sysctls unless its "
        "kubelet allows them with --allowed-unsafe-sysctls: the pod fails with the reason "
        "SysctlForbidden.",
        effect="fails",
        remedy="Remove them: sysctls are an interface of the Linux kernel.",
        checklist=("API-54",),
        check="unsafe-sysctls",
        severity="error",
        reason="SysctlForbidden",
        message="forbidden sysctl: ",
        section="V1.PodSecurityContext",
        topics=("sysctl",),
    ),
)
