"""Turns pods and containers into the sandbox and container configurations of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.client.api import is_not_found
from transom.client.resources import RUNTIME_CLASSES
from transom.kit.lazy_dataclass import replace
from transom.kubelet import hostsfile, labels, paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.dns import pod_dns
from transom.kubelet.environment import create_container_config_error, make_environment_variables
from transom.kubelet.expansion import (
    ExpansionTooLarge,
    expand_all_variables,
    variable_mapping,
)
from transom.kubelet.failures import ClaimFailure, ContainerFailure
from transom.kubelet.interfaces import (
    ClaimDevices,
    NoDynamicResources,
    NoResourceManagers,
    ResourceManagers,
)
from transom.kubelet.mounts import volume_devices, volume_mounts
from transom.kubelet.referenced import ReferencedObjects
from transom.kubelet.userns import pod_user_namespace
from transom.kubelet.volumes.manager import VolumeManager
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.podutil import is_restartable_init_container
from transom.machines.smallfiles import read_small_file
from transom.network.api import PortMapping
from transom.runtime.api import (
    ContainerConfig,
    Image,
    LinuxContainer,
    Mount,
    Sandbox,
    SandboxConfig,
)

MOST_HOST_PORTS: Final = 2_000  # of a pod
_SANDBOX: Final = "CreatePodSandboxConfigError"
_CONTAINER: Final = "CreateContainerConfigError"


class ContainerBuilder:
    __slots__ = ("_claims", "_env", "_managers", "_objects", "_volumes")

    def __init__(
        self,
        env: KubeletContext,
        volumes: VolumeManager,
        objects: ReferencedObjects,
        managers: ResourceManagers | None = None,
        claims: ClaimDevices | None = None,
    ) -> None:
        self._env = env
        self._claims = claims or NoDynamicResources()
        self._managers = managers or NoResourceManagers()
        self._volumes = volumes
        self._objects = objects

    async def runtime_handler(self, pod: Object) -> str:
        name = pod["spec"].get("runtimeClassName")
        if not name:
            return ""
        try:
            found = await self._env.client.get(RUNTIME_CLASSES, "", name)
        except ApiError as problem:
            if is_not_found(problem):
                raise ContainerFailure(
                    _SANDBOX, f'runtimeclass.node.k8s.io "{name}" not found'
                ) from problem
            raise ContainerFailure(
                _SANDBOX, f"failed to lookup RuntimeClass {name}: {problem}"
            ) from problem
        except OSError as problem:
            raise ContainerFailure(
                _SANDBOX, f"failed to lookup RuntimeClass {name}: {problem}"
            ) from problem
        return str(found.get("handler") or "")

    def sandbox_config(self, pod: Object, attempt: int) -> SandboxConfig:
        env, meta, spec = self._env, pod["metadata"], pod["spec"]
        dns = pod_dns(env, pod, _SANDBOX)
        hostname = ""
        if not spec.get("hostNetwork"):
            short, domain = hostsfile.hostname_and_domain(pod, env.config.cluster_domain, _SANDBOX)
            hostname = hostsfile.kernel_hostname(pod, short, domain, _SANDBOX)
        linux = env.os.sandbox_options(pod, env.config)
        linux = replace(
            linux,
            user_namespace=pod_user_namespace(env, pod),
            resources=self._managers.pod_resources(pod),
        )
        if groups := self._volumes.groups(pod):
            linux = replace(linux, supplemental_groups=(*linux.supplemental_groups, *groups))
        return SandboxConfig(
            name=meta["name"],
            namespace=meta["namespace"],
            uid=meta["uid"],
            attempt=attempt,
            hostname=hostname,
            log_directory=paths.pod_logs_dir(env, pod),
            dns=dns,
            ports=_sandbox_ports(spec),
            labels=labels.pod_labels(pod),
            annotations=meta.get("annotations") or {},
            linux=linux,
        )

    async def container_config(
        self,
        pod: Object,
        container: Object,
        sandbox: Sandbox,
        image: Image,
        attempt: int,
        volume_images: Mapping[str, Image],
    ) -> ContainerConfig:
        env = self._env
        uid, name = pod["metadata"]["uid"], container["name"]
        target = self._target(uid, container)
        pod_ips = env.config.node_ips if pod["spec"].get("hostNetwork") else sandbox.ips
        hostname, domain = hostsfile.hostname_and_domain(pod, env.config.cluster_domain, _CONTAINER)
        hostsfile.kernel_hostname(pod, hostname, domain, _CONTAINER)
        volumes = self._volumes.of(uid)
        raw = volume_devices(env, container, volumes)
        variables = await make_environment_variables(env, self._objects, pod, container, pod_ips)
        values = dict(variables)
        mounts = await volume_mounts(env, container, volumes, values, volume_images)
        if env.os.locks_sub_paths(env.config.release):
            sub_paths = [mount.host_path for mount in mounts if mount.volume_path]
            self._volumes.keep_open(uid, sub_paths[:-1])  # it closes only the last one
        hosts = self._hosts_file(pod, container, pod_ips, hostname, domain)
        if hosts is not None:
            mounts.append(hosts)
        linux, windows = env.os.container_options(pod, container, image, env.host, env.config)
        if linux is not None:
            linux = replace(linux, resources=self._managers.adjust(pod, container, linux.resources))
        if windows is not None:
            adjusted = self._managers.adjust_windows(pod, container, windows.resources)
            windows = replace(windows, resources=adjusted)
        termination = self._termination_log(uid, container)
        if termination is not None:
            mounts.append(termination)
        self._log_directory(pod, name)
        resolve = variable_mapping(values)
        try:
            command = expand_all_variables(container.get("command"), resolve)
            args = expand_all_variables(container.get("args"), resolve)
        except ExpansionTooLarge as problem:
            raise create_container_config_error(str(problem)) from problem
        return ContainerConfig(
            name=name,
            attempt=attempt,
            image=container.get("image") or "",
            image_ref=image.id,
            command=command,
            args=args,
            working_dir=container.get("workingDir") or "",
            env=variables,
            mounts=tuple(mounts),
            devices=raw,
            cdi_devices=self._cdi_devices(pod, container),
            log_path=env.os.join(name, f"{attempt}.log"),
            stdin=bool(container.get("stdin")),
            stdin_once=bool(container.get("stdinOnce")),
            tty=bool(container.get("tty")),
            labels=labels.container_labels(pod, container),
            annotations=labels.container_annotations(
                pod, container, attempt, env.config.pod_features.short_hash
            ),
            ports=port_mappings(container),
            init=_must_end(pod["spec"], name),
            linux=self._linux(pod, linux, target),
            windows=windows,
            stop_signal=self._stop_signal(container),
        )

    def _cdi_devices(self, pod: Object, container: Object) -> tuple[str, ...]:
        try:
            return self._claims.cdi_devices(pod, container)
        except ClaimFailure as failure:
            raise create_container_config_error(str(failure)) from failure

    def _stop_signal(self, container: Object) -> str:
        if not self._env.config.pod_features.stop_signals:
            return ""
        return (container.get("lifecycle") or {}).get("stopSignal") or ""

    def _target(self, uid: str, container: Object) -> str:
        """The container whose processes an ephemeral container targets."""
        name = container.get("targetContainerName")
        if not name:
            return ""
        for known in self._env.runtime.containers(uid):
            if known.name == name:
                return known.id
        raise create_container_config_error(f"unable to find target container {name}")

    def _linux(
        self, pod: Object, options: LinuxContainer | None, target: str
    ) -> LinuxContainer | None:
        if options is None:
            return None
        groups = self._volumes.groups(pod)
        if groups:
            options = replace(options, supplemental_groups=(*options.supplemental_groups, *groups))
        if target and options.pid_namespace == "container":
            options = replace(options, pid_namespace="target", target_id=target)
        return options

    def _hosts_file(
        self, pod: Object, container: Object, pod_ips: tuple[str, ...], hostname: str, domain: str
    ) -> Mount | None:
        """Only once the pod has an address, and only where the container does not bring its own
        file.
        """
        env = self._env
        if not pod_ips or not env.os.manages_hosts_file(env.runtime.version, env.config.release):
            return None
        of_node, in_container = env.os.hosts_file()
        if any(mount["mountPath"] == in_container for mount in container.get("volumeMounts") or ()):
            return None
        aliases = pod["spec"].get("hostAliases") or ()
        files = env.host.files
        path = env.os.join(paths.pod_dir(env, pod["metadata"]["uid"]), "etc-hosts")
        try:
            if pod["spec"].get("hostNetwork"):
                content = hostsfile.node_hosts_file(read_small_file(files, of_node), aliases)
            else:
                content = hostsfile.managed_hosts_file(pod_ips, hostname, domain, aliases)
            files.write(path, content, 0o644)
        except OSError as problem:
            raise create_container_config_error(
                env.os.file_error("open", problem.filename or path, problem)
            ) from problem
        return Mount(container_path=in_container, host_path=path)

    def _termination_log(self, uid: str, container: Object) -> Mount | None:
        env = self._env
        path = container.get("terminationMessagePath")
        if not path or not env.os.single_file_mounts(env.runtime.version):
            return None
        directory = paths.container_dir(env, uid, container["name"])
        log = env.os.join(directory, f"{env.rng.getrandbits(32):08x}")
        try:
            env.host.files.mkdir(directory, 0o750)
            env.host.files.write(log, b"", 0o666)
        except OSError:
            return None  # as in Kubernetes: the container runs without one
        return Mount(container_path=env.os.mount_path(path), host_path=log)

    def _log_directory(self, pod: Object, name: str) -> None:
        env = self._env
        directory = env.os.join(paths.pod_logs_dir(env, pod), name)
        try:
            env.host.files.mkdir(directory, 0o755)
        except OSError as problem:
            text = env.os.file_error("mkdir", directory, problem)
            raise create_container_config_error(
                f"create container log directory for container {name} failed: {text}"
            ) from problem


def _must_end(spec: Object, name: str) -> bool:
    """Whether it is an init container but no sidecar."""
    return any(
        container["name"] == name and not is_restartable_init_container(container)
        for container in spec.get("initContainers") or ()
    )


def _sandbox_ports(spec: Object) -> tuple[PortMapping, ...]:
    """Raises ContainerFailure: plugins set up each host port on the event loop."""
    ports = tuple(
        port for container in spec.get("containers") or () for port in port_mappings(container)
    )
    mapped = sum(port.host_port != 0 for port in ports)
    if mapped > MOST_HOST_PORTS:
        raise create_container_config_error(
            f"the pod has {mapped} host ports, at most {MOST_HOST_PORTS} are supported"
        )
    return ports


def port_mappings(container: Object) -> tuple[PortMapping, ...]:
    """The declared ports; of ports with the same name, or identical ports, only the first."""
    ports = container.get("ports")
    if not ports:
        return ()
    out: dict[object, PortMapping] = {}
    for port in ports:
        host_ip, protocol = port.get("hostIP") or "", port.get("protocol") or "TCP"
        mapped = PortMapping(port["containerPort"], port.get("hostPort") or 0, protocol, host_ip)
        out.setdefault(port.get("name") or mapped, mapped)
    return tuple(out.values())
