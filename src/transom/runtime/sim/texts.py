"""The exact error texts of docker (through the kubelet's dockershim) and containerd. Pure text.

`RuntimeTexts` is the interface, with one class per runtime. A `RuntimeFailure` created here is
complete. `StartFailureText` describes a failed process start in the three places where users see
it.
"""

from __future__ import annotations

import json
from typing import Literal, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.runtime.api import RuntimeFailure
from transom.runtime.sim.names import ImageReference

Fault = Literal["not-found", "not-a-path", "denied", "user", "build", "working-directory"]
"""Why a process cannot start: no such executable (in $PATH, or at its path), not executable, no
such user, the container is built for another Windows version, or its working directory is a file.
"""


class StartFailureText(NamedTuple):
    exit_code: int
    message: str  # of the container's status
    failure: RuntimeFailure  # of the call that was to start it


class RuntimeTexts(Protocol):
    reason_cannot_start: str

    # Pulls
    def no_host(self, ref: ImageReference) -> RuntimeFailure: ...
    def no_repository(self, ref: ImageReference) -> RuntimeFailure: ...
    def no_tag(self, ref: ImageReference) -> RuntimeFailure: ...
    def wrong_password(self, ref: ImageReference) -> RuntimeFailure: ...
    def no_platform(self, ref: ImageReference, platform: str) -> RuntimeFailure: ...
    def other_system(self, ref: ImageReference, image_os: str) -> RuntimeFailure: ...
    def too_new(self, ref: ImageReference, image: str, host: str) -> RuntimeFailure | None:
        """A Windows image of a later build than the host's. None: the pull does not check that."""

    def no_space(self, ref: ImageReference) -> RuntimeFailure: ...
    def pull_failed(self, ref: ImageReference, text: str) -> RuntimeFailure: ...
    def registry_unreachable(self, ref: ImageReference, why: str) -> RuntimeFailure:
        """The registry is unreachable; "" when it does not respond."""

    # Sandboxes
    def sandbox_image(self, image: str, failure: RuntimeFailure) -> RuntimeFailure: ...
    def no_handler(self, handler: str) -> RuntimeFailure: ...
    def sandbox_network(
        self, sandbox: str, namespace: str, pod: str, text: str
    ) -> RuntimeFailure: ...
    def sandbox_teardown(
        self, sandbox: str, namespace: str, pod: str, text: str
    ) -> RuntimeFailure: ...
    def sandbox_start(self, sandbox: str, pod: str, text: str) -> RuntimeFailure: ...
    def other_build(self, identity: str, hostname: str) -> str: ...
    def network_not_ready(self, text: str) -> str: ...

    # Containers
    def no_container(self, identity: str) -> RuntimeFailure: ...
    def no_sandbox(self, identity: str) -> RuntimeFailure: ...
    def no_image(self, image: str) -> RuntimeFailure: ...
    def no_command(self, container: str) -> RuntimeFailure: ...
    def create_failed(self, container: str, text: str) -> RuntimeFailure: ...
    def sandbox_stopped(self, sandbox: str) -> RuntimeFailure: ...
    def cannot_start(
        self, container: str, os: str, fault: Fault, executable: str, hostname: str
    ) -> StartFailureText: ...
    def start_failed(self, container: str, text: str) -> StartFailureText: ...
    def not_running(self, container: str, state: str) -> RuntimeFailure: ...
    def exec_text(self, container: str, os: str, fault: Fault, executable: str) -> str: ...
    def exec_failed(self, exec_id: str, text: str) -> RuntimeFailure: ...
    def exec_timeout(self, seconds: float) -> RuntimeFailure: ...
    def forward_refused(self, os: str, sandbox: str, port: int, stamp: str) -> RuntimeFailure: ...


_RUNC = "container_linux.go:370: starting container process caused: "
_OTHER_BUILD = "The container operating system does not match the host operating system."
_WINDOWS_FAULTS = {
    "not-found": ("The system cannot find the file specified.", "0x2"),
    "not-a-path": ("The system cannot find the file specified.", "0x2"),
    "denied": ("Access is denied.", "0x5"),
    "user": ("The user name or password is incorrect.", "0x52e"),
}


def _runc(fault: Fault, executable: str, caused: str = _RUNC) -> str:
    match fault:
        case "not-a-path":
            why = f'exec: "{executable}": stat {executable}: no such file or directory'
        case "denied":
            why = f'exec: "{executable}": permission denied'
        case "working-directory":
            inner = "container init"
            if inner not in caused:  # which newer versions of runc add to each failure
                old = caused == _RUNC
                caused += (
                    f"process_linux.go:459: {inner} caused: " if old else f"error during {inner}: "
                )
            why = f"mkdir {executable}: not a directory"
        case "user":
            return f"unable to find user {executable}: no matching entries in passwd file"
        case _:
            why = f'exec: "{executable}": executable file not found in $PATH'
    return f"{caused}{why}: unknown"


def _wincat(port: int, stamp: str) -> str:
    return (
        f"{stamp} Failed to connect to 127.0.0.1:{port} because dial tcp 127.0.0.1:{port}: "
        "connectex: "
        "No connection could be made because the target machine actively refused it.\n"
    )


def _unknown(text: str) -> RuntimeFailure:
    return RuntimeFailure("Unknown", text)


class DockerTexts:
    reason_cannot_start = "ContainerCannotRun"

    def no_host(self, ref: ImageReference) -> RuntimeFailure:
        return self.registry_unreachable(
            ref, f"dial tcp: lookup {ref.registry.partition(':')[0]}: no such host"
        )

    def registry_unreachable(self, ref: ImageReference, why: str) -> RuntimeFailure:
        silent = (
            "net/http: request canceled while waiting for connection (Client.Timeout exceeded "
            "while awaiting headers)"
        )
        host = "registry-1.docker.io" if ref.registry == "docker.io" else ref.registry
        return _unknown(f"Error response from daemon: Get https://{host}/v2/: {why or silent}")

    def no_repository(self, ref: ImageReference) -> RuntimeFailure:
        return _unknown(
            f"Error response from daemon: pull access denied for {ref.familiar}, repository "
            "does not exist or may require "
            "'docker login': denied: requested access to the resource is denied"
        )

    def no_tag(self, ref: ImageReference) -> RuntimeFailure:
        name = f"{ref.familiar}@{ref.digest}" if ref.digest else f"{ref.familiar}:{ref.tag}"
        return _unknown(
            f"Error response from daemon: manifest for {name} not found: manifest unknown: "
            "manifest unknown"
        )

    def wrong_password(self, ref: ImageReference) -> RuntimeFailure:
        host = "registry-1.docker.io" if ref.registry == "docker.io" else ref.registry
        return _unknown(
            "Error response from daemon: Get "
            f"https://{host}/v2/{ref.path}/manifests/{ref.tag or ref.digest}: "
            "unauthorized: incorrect username or password"
        )

    def no_platform(self, ref: ImageReference, platform: str) -> RuntimeFailure:
        return _unknown(f"no matching manifest for {platform} in the manifest list entries")

    def other_system(self, ref: ImageReference, image_os: str) -> RuntimeFailure:
        return _unknown(f'image operating system "{image_os}" cannot be used on this platform')

    def too_new(self, ref: ImageReference, image: str, host: str) -> RuntimeFailure | None:
        return _unknown(f"a Windows version {image}-based image is incompatible with a {host} host")

    def no_space(self, ref: ImageReference) -> RuntimeFailure:
        return _unknown(
            "failed to register layer: Error processing tar file(exit status 1): no space "
            "left on device"
        )

    def pull_failed(self, ref: ImageReference, text: str) -> RuntimeFailure:
        return _unknown(f"Error response from daemon: {text}")

    def sandbox_image(self, image: str, failure: RuntimeFailure) -> RuntimeFailure:
        return _unknown(f'failed pulling image "{image}": {failure.description}')

    def no_handler(self, handler: str) -> RuntimeFailure:
        return _unknown(f'RuntimeHandler "{handler}" not supported')

    def sandbox_network(self, sandbox: str, namespace: str, pod: str, text: str) -> RuntimeFailure:
        return _unknown(
            f'failed to set up sandbox container "{sandbox}" network for pod "{pod}": '
            f'networkPlugin cni failed to set up pod "{pod}_{namespace}" network: {text}'
        )

    def sandbox_teardown(self, sandbox: str, namespace: str, pod: str, text: str) -> RuntimeFailure:
        return _unknown(
            f'networkPlugin cni failed to teardown pod "{pod}_{namespace}" network: {text}'
        )

    def sandbox_start(self, sandbox: str, pod: str, text: str) -> RuntimeFailure:
        return _unknown(
            f'failed to start sandbox container for pod "{pod}": Error response from daemon: {text}'
        )

    def other_build(self, identity: str, hostname: str) -> str:
        extra = {
            "SystemType": "Container",
            "Name": identity,
            "Owner": "docker",
            "IgnoreFlushesDuringBoot": True,
            "LayerFolderPath": rf"C:\ProgramData\docker\windowsfilter\{identity}",
            "HostName": hostname,
            "HvPartition": False,
        }
        shown = json.dumps(extra, separators=(",", ":"))
        return f"hcsshim::CreateComputeSystem {identity}: {_OTHER_BUILD}\n(extra info: {shown})"

    def network_not_ready(self, text: str) -> str:
        return f"docker: network plugin is not ready: {text}"

    def no_container(self, identity: str) -> RuntimeFailure:
        return _unknown(f"Error: No such container: {identity}")

    no_sandbox = no_container

    def no_image(self, image: str) -> RuntimeFailure:
        return _unknown(f"Error: No such image: {image}")

    def no_command(self, container: str) -> RuntimeFailure:
        return _unknown("Error response from daemon: No command specified")

    def create_failed(self, container: str, text: str) -> RuntimeFailure:
        return _unknown(f"Error response from daemon: {text}")

    def sandbox_stopped(self, sandbox: str) -> RuntimeFailure:
        return _unknown(
            f"Error response from daemon: cannot join network of a non running container: {sandbox}"
        )

    def cannot_start(
        self, container: str, os: str, fault: Fault, executable: str, hostname: str
    ) -> StartFailureText:
        if fault == "build":
            return self.start_failed(container, self.other_build(container, hostname))
        text = self._fault(container, os, fault, executable, "OCI runtime create failed")
        code = {"not-found": 127, "not-a-path": 127, "denied": 126}.get(fault, 128)
        return self.start_failed(container, text)._replace(exit_code=code)

    def start_failed(self, container: str, text: str) -> StartFailureText:
        failure = _unknown(
            f'failed to start container "{container}": Error response from daemon: {text}'
        )
        return StartFailureText(128, text, failure)

    def _fault(self, container: str, os: str, fault: Fault, executable: str, prefix: str) -> str:
        if os == "windows":
            text, number = _WINDOWS_FAULTS[fault]
            return (
                f"container {container} encountered an error during "
                "hcsshim::System::CreateProcess: "
                f"failure in a Windows system call: {text} ({number})"
            )
        if fault == "user":
            return f"linux spec user: {_runc(fault, executable)}"
        return f"{prefix}: {_runc(fault, executable)}"

    def not_running(self, container: str, state: str) -> RuntimeFailure:
        return _unknown(f"container not running ({container})")

    def exec_text(self, container: str, os: str, fault: Fault, executable: str) -> str:
        return self._fault(container, os, fault, executable, "OCI runtime exec failed: exec failed")

    def exec_failed(self, exec_id: str, text: str) -> RuntimeFailure:
        return _unknown(f"failed to exec in container - Exec setup failed - {text}")

    def exec_timeout(self, seconds: float) -> RuntimeFailure:
        return RuntimeFailure("DeadlineExceeded", "context deadline exceeded")

    def forward_refused(self, os: str, sandbox: str, port: int, stamp: str) -> RuntimeFailure:
        if os == "windows":
            return _unknown(f"command terminated with exit code 1: {_wincat(port, stamp)}")
        process = 10000 + port % 20000
        return _unknown(
            f"exit status 1: {stamp} socat[{process}] E connect(5, AF=2 127.0.0.1:{port}, "
            "16): Connection refused\n"
        )


class ContainerdTexts:
    """containerd before 1.6, with runc 1.0."""

    reason_cannot_start = "StartError"
    shim = create = ""
    caused = executed = _RUNC

    def _pull(self, ref: ImageReference, text: str, code: str = "Unknown") -> RuntimeFailure:
        return RuntimeFailure(code, f'failed to pull and unpack image "{ref}": {text}')

    def no_host(self, ref: ImageReference) -> RuntimeFailure:
        return self.registry_unreachable(
            ref, f"dial tcp: lookup {ref.registry.partition(':')[0]}: no such host"
        )

    def registry_unreachable(self, ref: ImageReference, why: str) -> RuntimeFailure:
        silent = (
            "dial tcp 192.0.2.1:443: connectex: A connection attempt failed because the "
            "connected party did not properly "
            "respond after a period of time, or established connection failed because "
            "connected host has failed to respond."
        )
        host = "registry-1.docker.io" if ref.registry == "docker.io" else ref.registry
        return self._pull(
            ref,
            f'failed to resolve reference "{ref}": failed to do request: Head '
            f'"https://{host}/v2/{ref.path}/manifests/{ref.tag or ref.digest}": {why or silent}',
        )

    def no_repository(self, ref: ImageReference) -> RuntimeFailure:
        return self._pull(
            ref,
            f'failed to resolve reference "{ref}": pull access denied, repository does not '
            "exist or may require "
            "authorization: server message: insufficient_scope: authorization failed",
        )

    def no_tag(self, ref: ImageReference) -> RuntimeFailure:
        return self._pull(ref, f'failed to resolve reference "{ref}": {ref}: not found', "NotFound")

    def wrong_password(self, ref: ImageReference) -> RuntimeFailure:
        return self._pull(
            ref,
            f'failed to resolve reference "{ref}": failed to authorize: failed to fetch '
            "oauth token: "
            "unexpected status: 401 Unauthorized",
        )

    def no_platform(self, ref: ImageReference, platform: str) -> RuntimeFailure:
        return self._pull(ref, "no match for platform in manifest: not found", "NotFound")

    def other_system(self, ref: ImageReference, image_os: str) -> RuntimeFailure:
        layer = "sha256:" + (ref.digest.partition(":")[2] or "0" * 64)
        return self._pull(
            ref,
            f"failed to extract layer {layer}: hcsshim::ImportLayer failed in Win32: "
            "The system cannot find the path specified. (0x3): unknown",
        )

    def too_new(self, ref: ImageReference, image: str, host: str) -> RuntimeFailure | None:
        return None

    def no_space(self, ref: ImageReference) -> RuntimeFailure:
        return self._pull(ref, "failed to extract layer: no space left on device: unknown")

    def pull_failed(self, ref: ImageReference, text: str) -> RuntimeFailure:
        return self._pull(ref, text)

    def sandbox_image(self, image: str, failure: RuntimeFailure) -> RuntimeFailure:
        return RuntimeFailure(
            failure.code,
            (
                f'failed to get sandbox image "{image}": failed to pull image "{image}": '
                f"{failure.description}"
            ),
        )

    def no_handler(self, handler: str) -> RuntimeFailure:
        return _unknown(f'failed to get sandbox runtime: no runtime for "{handler}" is configured')

    def sandbox_network(self, sandbox: str, namespace: str, pod: str, text: str) -> RuntimeFailure:
        return _unknown(f'failed to setup network for sandbox "{sandbox}": {text}')

    def sandbox_teardown(self, sandbox: str, namespace: str, pod: str, text: str) -> RuntimeFailure:
        return _unknown(f'failed to destroy network for sandbox "{sandbox}": {text}')

    def sandbox_start(self, sandbox: str, pod: str, text: str) -> RuntimeFailure:
        return _unknown(f"failed to create containerd task: {text}: unknown")

    def other_build(self, identity: str, hostname: str) -> str:
        return f"hcs::CreateComputeSystem {identity}: {_OTHER_BUILD}"

    def network_not_ready(self, text: str) -> str:
        text = "cni plugin not initialized" if text == "cni config uninitialized" else text
        return f"Network plugin returns error: {text}"

    def no_container(self, identity: str) -> RuntimeFailure:
        return RuntimeFailure(
            "NotFound", f'an error occurred when try to find container "{identity}": not found'
        )

    def no_sandbox(self, identity: str) -> RuntimeFailure:
        return RuntimeFailure("NotFound", f'failed to find sandbox id "{identity}": not found')

    def no_image(self, image: str) -> RuntimeFailure:
        return RuntimeFailure(
            "NotFound", f'failed to get image from containerd "{image}": image "{image}": not found'
        )

    def no_command(self, container: str) -> RuntimeFailure:
        return _unknown(
            f'failed to generate container "{container}" spec: failed to generate spec: no '
            "command specified"
        )

    def create_failed(self, container: str, text: str) -> RuntimeFailure:
        return _unknown(f'failed to generate container "{container}" spec: {text}')

    def sandbox_stopped(self, sandbox: str) -> RuntimeFailure:
        return _unknown(f'sandbox container "{sandbox}" is not running')

    def cannot_start(
        self, container: str, os: str, fault: Fault, executable: str, hostname: str
    ) -> StartFailureText:
        if fault == "build":
            return self._broken(
                f"failed to create containerd task: {self.other_build(container, hostname)}: "
                "unknown"
            )
        if os == "windows":
            text, _ = _WINDOWS_FAULTS[fault]
            return self._broken(
                f'failed to start containerd task "{container}": hcs::System::CreateProcess '
                f"{container}: {text}: unknown"
            )
        return self._broken(
            f"failed to create containerd task: {self.shim}OCI runtime create failed: "
            f"{self.create}{_runc(fault, executable, self.caused)}"
        )

    def start_failed(self, container: str, text: str) -> StartFailureText:
        return self._broken(f"failed to create containerd task: {text}: unknown")

    def _broken(self, text: str) -> StartFailureText:
        return StartFailureText(128, text, _unknown(text))

    def not_running(self, container: str, state: str) -> RuntimeFailure:
        return _unknown(f"container is in CONTAINER_{state.upper()} state")

    def exec_text(self, container: str, os: str, fault: Fault, executable: str) -> str:
        if os == "windows":
            text, _ = _WINDOWS_FAULTS[fault]
            return f"hcs::System::CreateProcess {container}: {text}: unknown"
        return f"OCI runtime exec failed: exec failed: {_runc(fault, executable, self.executed)}"

    def exec_failed(self, exec_id: str, text: str) -> RuntimeFailure:
        return _unknown(f'failed to exec in container: failed to start exec "{exec_id}": {text}')

    def exec_timeout(self, seconds: float) -> RuntimeFailure:
        return RuntimeFailure(
            "DeadlineExceeded",
            (
                f"failed to exec in container: timeout {seconds:g}s exceeded: context deadline "
                "exceeded"
            ),
        )

    def forward_refused(self, os: str, sandbox: str, port: int, stamp: str) -> RuntimeFailure:
        if os == "windows":
            return _unknown(f"port forward failed: exit code 1: {_wincat(port, stamp)}")
        namespace = f"/var/run/netns/cni-{sandbox[:8]}-{sandbox[8:12]}-{sandbox[12:16]}-{sandbox[16:20]}-{sandbox[20:32]}"
        return _unknown(
            f'failed to execute portforward in network namespace "{namespace}": failed to '
            f"dial {port}: "
            f"dial tcp4 127.0.0.1:{port}: connect: connection refused"
        )


class Containerd16Texts(ContainerdTexts):
    """containerd 1.6 and 1.7, with runc 1.1."""

    shim = "failed to create shim task: "
    create = "runc create failed: "
    caused = executed = "unable to start container process: "


class Containerd2Texts(Containerd16Texts):
    """containerd 2, with runc 1.2 and later."""

    caused = "unable to start container process: error during container init: "


def runtime_texts(flavour: str, version: tuple[int, ...]) -> RuntimeTexts:
    """The texts of a version of Docker or containerd."""
    if flavour == "containerd" and version >= (2,):
        return Containerd2Texts()
    if flavour == "containerd" and version >= (1, 6):
        return Containerd16Texts()
    return TEXTS[flavour]


TEXTS: dict[str, RuntimeTexts] = {"docker": DockerTexts(), "containerd": ContainerdTexts()}
