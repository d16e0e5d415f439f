"""The kubelet's configuration: the file of --config, and the drop-in files of --config-dir, which
are merged over it in the order of their paths.
"""

from __future__ import annotations

from typing import Any, Final

from transom.kubelet.configuration_fields import configuration_settings
from transom.machinery import goyaml
from transom.machinery.mergepatch import merge_patch
from transom.machinery.objects import Object
from transom.machines.smallfiles import LARGEST_YAML, list_small_directory, read_small_file
from transom.node.programs.flags.golang import ParsedFlags
from transom.node.programs.start import ProgramStart

_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
_KIND: Final = "KubeletConfiguration"
_EXTENSION: Final = ".conf"

# Fields of KubeletConfiguration and the equivalent flags.
_FLAG_FIELDS: Final = {
    "healthzBindAddress": "healthz-bind-address",
    "healthzPort": "healthz-port",
    "clusterDNS": "cluster-dns",
    "clusterDomain": "cluster-domain",
    "resolvConf": "resolv-conf",
    "maxPods": "max-pods",
    "cgroupsPerQOS": "cgroups-per-qos",
    "enforceNodeAllocatable": "enforce-node-allocatable",
    "kubeReserved": "kube-reserved",
    "systemReserved": "system-reserved",
    "evictionHard": "eviction-hard",
    "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period",
    "featureGates": "feature-gates",
    "podsPerCore": "pods-per-core",
    "enableDebuggingHandlers": "enable-debugging-handlers",
    "hairpinMode": "hairpin-mode",
    "port": "port",
    "staticPodPath": "pod-manifest-path",
    "serializeImagePulls": "serialize-image-pulls",
    "providerID": "provider-id",
}


class ConfigFileError(Exception):
    """The configuration cannot be used; the text is what the kubelet logs."""


def read_kubelet_configuration(start: ProgramStart, path: str, directory: str) -> Object:
    """The merged configuration. Raises ConfigFileError."""
    content: Object = {}
    if path:
        content = _load(start, path, f"failed to load Kubelet config file {path}, error ")
    if directory:
        for name in _drop_ins(start, directory):
            content = merge_patch(content, _load_drop_in(start, name))
    return content


def _load(start: ProgramStart, path: str, begin: str) -> Object:
    try:
        content = goyaml.load_yaml(read_small_file(start.files, start.path(path), LARGEST_YAML))
    except OSError as problem:
        reason = start.rules.file_error("open", path, problem)
        text = f'{begin}failed to read kubelet config file "{path}", error: {reason}'
        raise ConfigFileError(text) from problem
    except goyaml.YamlError as problem:
        raise ConfigFileError(f"{begin}{str(problem).partition(chr(10))[0]}") from problem
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        kind = content.get("kind", "") if isinstance(content, dict) else ""
        raise ConfigFileError(f'{begin}no kind "{kind}" is registered for version "{_VERSION}"')
    return content


def _drop_ins(start: ProgramStart, directory: str) -> list[str]:
    try:
        names = sorted(list_small_directory(start.files, start.path(directory)))
    except OSError as problem:
        reason = start.rules.file_error("lstat", directory, problem)
        raise ConfigFileError(
            f'failed to merge kubelet configs: failed to walk through kubelet dropin directory "{directory}": {reason}'
        ) from problem
    return [start.rules.join(directory, name) for name in names if name.endswith(_EXTENSION)]


def _load_drop_in(start: ProgramStart, path: str) -> Object:
    begin = f"failed to merge kubelet configs: failed to load kubelet dropin file, path: {path}, "
    try:
        content = goyaml.load_yaml(read_small_file(start.files, start.path(path), LARGEST_YAML))
    except OSError as problem:
        reason = start.rules.file_error("open", path, problem)
        raise ConfigFileError(f"{begin}error: {reason}") from problem
    except goyaml.YamlError as problem:
        raise ConfigFileError(f"{begin}error: {str(problem).partition(chr(10))[0]}") from problem
    if not isinstance(content, dict) or not (content.get("kind") and content.get("apiVersion")):
        raise ConfigFileError(f"{begin}no apiVersion/kind")
    if (content["apiVersion"], content["kind"]) != (_VERSION, _KIND):
        shown = f"{content['apiVersion']}, Kind={content['kind']}"
        raise ConfigFileError(f"{begin}unknown apiVersion/kind: {shown}")
    return content


def apply_configuration(content: Object, parsed: ParsedFlags) -> None:
    """Flags take precedence over the files."""
    for field, name in _FLAG_FIELDS.items():
        if field in content and name not in parsed.values:
            value = content[field]
            parsed.values[name] = tuple(map(str, value)) if isinstance(value, list) else value


def file_settings(content: Object) -> dict[str, Any]:
    """The settings that have no flag. Raises ConfigFileError."""
    try:
        return configuration_settings(content)
    except ValueError as problem:
        raise ConfigFileError(f"failed to load kubelet config: {problem}") from problem
