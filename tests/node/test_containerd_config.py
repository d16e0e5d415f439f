"""config.toml of containerd."""

from __future__ import annotations

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.machines.windows import WindowsHost
from transom.node.programs.containerd_config import (
    PATHS,
    ContainerdConfig,
    containerd_config_text,
    install_containerd_config,
    read_containerd_config,
)
from transom.node.programs.setup_mark import is_unchanged_setup_file

CONFIG = ContainerdConfig("registry.k8s.io/pause:3.6", r"C:\k\cni", r"C:\k\cni\config")
PATH = PATHS["windows"]


@pytest.mark.windows("W-OS-23", "W-OS-32", "W-DBG-02")
@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("1.7.24", "  sandbox_image = 'registry.k8s.io/pause:3.6'"),
        ("2.1.5", "  sandbox = 'registry.k8s.io/pause:3.6'"),
    ],
)
def test_the_file_of_a_version(version: str, line: str) -> None:
    files = WindowsHost("w", VirtualClock()).files
    text = containerd_config_text(version, CONFIG)
    assert line in text.splitlines()
    assert not install_containerd_config(files, PATH, text, "\\")
    assert is_unchanged_setup_file(files.read(PATH).decode())
    assert read_containerd_config(files, PATH) == CONFIG


def test_a_changed_file_is_kept_and_an_unchanged_one_follows_the_settings() -> None:
    files, path = LinuxHost("l", VirtualClock()).files, PATHS["linux"]
    first = containerd_config_text("2.1.5", ContainerdConfig("a", "/b", "/c"))
    second = containerd_config_text("2.1.5", ContainerdConfig("z", "/b", "/c"))
    install_containerd_config(files, path, first, "/")
    install_containerd_config(files, path, second, "/")
    assert read_containerd_config(files, path).sandbox_image == "z"
    files.write(path, files.read(path).replace(b"'z'", b'"mine"'))
    assert install_containerd_config(files, path, first, "/")
    assert read_containerd_config(files, path) == ContainerdConfig("mine", "/b", "/c")


def test_files_that_containerd_cannot_use() -> None:
    files, path = LinuxHost("l", VirtualClock()).files, PATHS["linux"]
    assert read_containerd_config(files, path) == ContainerdConfig()
    files.mkdir("/etc/containerd")
    files.write(path, b"version = 2\nplugins = 3\n")
    assert read_containerd_config(files, path) == ContainerdConfig()
    files.write(path, b"version = \n")
    with pytest.raises(ValueError, match="failed to load TOML: /etc/containerd/config"):
        read_containerd_config(files, path)
