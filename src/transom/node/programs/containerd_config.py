"""config.toml of containerd on simulated nodes: the image of sandboxes and the directories of CNI.

containerd reads it when it starts, so that a change takes effect when its service restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machines.api import Files
from transom.machines.smallfiles import read_small_file
from transom.node.programs.setup_mark import is_unchanged_setup_file, mark_setup_file

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = lazy_import("tomllib")

PATHS: Final[Mapping[str, str]] = {
    "windows": r"C:\Program Files\containerd\config.toml",
    "linux": "/etc/containerd/config.toml",
}
_OLD: Final = "io.containerd.grpc.v1.cri"
_IMAGES: Final = "io.containerd.cri.v1.images"
_RUNTIME: Final = "io.containerd.cri.v1.runtime"
_SEPARATE_PLUGINS_SINCE: Final = 2


class ContainerdConfig(NamedTuple):
    """Empty: containerd's default."""

    sandbox_image: str = ""
    cni_binaries: str = ""
    cni_directory: str = ""


def containerd_config_text(version: str, config: ContainerdConfig) -> str:
    """In the format of the version: 3 since containerd 2.0, with a plugin each for images and
    containers.
    """
    image, binaries, directory = map(_literal, config)
    if int(version.partition(".")[0] or 0) < _SEPARATE_PLUGINS_SINCE:
        lines = [
            "version = 2",
            "",
            f'[plugins."{_OLD}"]',
            f"  sandbox_image = {image}",
            f'  [plugins."{_OLD}".cni]',
            f"    bin_dir = {binaries}",
            f"    conf_dir = {directory}",
        ]
    else:
        lines = [
            "version = 3",
            "",
            f"[plugins.'{_IMAGES}'.pinned_images]",
            f"  sandbox = {image}",
            f"[plugins.'{_RUNTIME}'.cni]",
            f"  bin_dirs = [{binaries}]",
            f"  conf_dir = {directory}",
        ]
    return "\n".join([*lines, ""])


def _literal(text: str) -> str:
    """A TOML string without escapes."""
    return f"'{text}'"


def install_containerd_config(files: Files, path: str, body: str, separator: str) -> bool:
    """Writes the file unless users have changed it; returns whether they have. Raises OSError."""
    text = mark_setup_file(body)
    try:
        found = read_small_file(files, path).decode(errors="replace")
    except FileNotFoundError:
        found = ""
    if found and not is_unchanged_setup_file(found):
        return True
    if found != text:
        files.mkdir(path.rpartition(separator)[0])
        files.write(path, text.encode())
    return False


def read_containerd_config(files: Files, path: str) -> ContainerdConfig:
    """Raises ValueError with the reason why containerd does not start."""
    try:
        content = tomllib.loads(read_small_file(files, path).decode(errors="replace"))
    except FileNotFoundError:
        return ContainerdConfig()
    except (OSError, ValueError) as problem:
        raise ValueError(f"failed to load TOML: {path}: {problem}") from problem
    plugins = _table(content, "plugins")
    old = _table(plugins, _OLD)
    cni = _table(old, "cni") or _table(_table(plugins, _RUNTIME), "cni")
    binaries = cni.get("bin_dirs") or [cni.get("bin_dir")]
    return ContainerdConfig(
        _text(old.get("sandbox_image"))
        or _text(_table(_table(plugins, _IMAGES), "pinned_images").get("sandbox")),
        _text(binaries[0] if isinstance(binaries, list) else binaries),
        _text(cni.get("conf_dir")),
    )


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
