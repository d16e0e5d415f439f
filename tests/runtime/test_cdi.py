"""Devices of CDI specifications become parts of a container's configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.runtime.api import ContainerConfig, Mount
from transom.runtime.cdi import CdiFailure, inject_cdi_devices


def files(**specs: Any) -> Any:
    """`etc_gpu_json` is /etc/cdi/gpu.json."""
    host = LinuxHost("n1", clock=VirtualClock())
    for name, spec in specs.items():
        folder, file, kind = name.split("_")
        path = "/etc/cdi" if folder == "etc" else "/var/run/cdi"
        host.files.mkdir(path)
        data = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
        host.files.write(f"{path}/{file}.{kind}", data)
    return host.files


def spec(*devices: tuple[str, Any], common: Any = None) -> Any:
    rows = [{"name": name, "containerEdits": edits} for name, edits in devices]
    out: dict[str, Any] = {"cdiVersion": "0.6.0", "kind": "ex.com/gpu", "devices": rows}
    return {**out, "containerEdits": common} if common else out


def config(*devices: str, **more: Any) -> ContainerConfig:
    return ContainerConfig(
        name="c", attempt=0, image="i", image_ref="i", cdi_devices=devices, **more
    )


def test_edits_of_a_file_come_before_those_of_its_devices() -> None:
    node = files(
        var_gpu_json=spec(
            ("a", {"env": ["GPU=a", "A=1"], "deviceNodes": [{"path": "/dev/a"}]}),
            (
                "b",
                {
                    "env": ["GPU=b"],
                    "mounts": [{"hostPath": "/opt", "containerPath": "/lib", "options": ["ro"]}],
                    "deviceNodes": [{"path": "/dev/b", "hostPath": "/dev/x", "permissions": "r"}],
                },
            ),
            common={"env": ["GPU=none", "LIB=x=y"]},
        )
    )
    made = inject_cdi_devices(
        node, config("ex.com/gpu=a", "ex.com/gpu=b", "ex.com/gpu=a", env=(("LIB", "old"),))
    )
    assert dict(made.env) == {"LIB": "x=y", "GPU": "b", "A": "1"}
    assert made.mounts == (Mount("/lib", "/opt", read_only=True),)
    assert made.devices == ("/dev/a:/dev/a:rwm", "/dev/x:/dev/b:r")


def test_a_container_without_devices_is_not_changed() -> None:
    plain = config()
    assert inject_cdi_devices(files(), plain) is plain


def test_the_directory_of_running_systems_has_priority() -> None:
    yaml = b"kind: ex.com/gpu\ndevices:\n- name: a\n  containerEdits: {env: [GPU=yaml]}\n"
    node = files(etc_gpu_json=spec(("a", {"env": ["GPU=etc"]})), var_gpu_yaml=yaml)
    assert inject_cdi_devices(node, config("ex.com/gpu=a")).env == (("GPU", "yaml"),)


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ({}, "unresolvable CDI devices ex.com/gpu=a, ex.com/gpu=b"),
        ({"etc_gpu_txt": spec(("a", {}), ("b", {}))}, "unresolvable CDI devices ex.com/gpu=a, "),
        ({"etc_gpu_json": b"{"}, "unresolvable CDI devices ex.com/gpu=a, ex.com/gpu=b"),
        ({"etc_gpu_json": b"[" * 100_000}, "unresolvable CDI devices ex.com/gpu=a, ex.com/gpu=b"),
        ({"etc_gpu_json": {"kind": 1, "devices": {}}}, "unresolvable CDI devices ex.com/gpu=a, "),
        (
            {"etc_one_json": spec(("a", {}), ("b", {})), "etc_two_json": spec(("a", {}))},
            "unresolvable CDI devices ex.com/gpu=a",
        ),
        (
            {"etc_gpu_json": spec(("a", {"hooks": [{"path": "/bin/sh"}]}), ("b", {}))},
            "hooks of CDI devices are not supported on this node",
        ),
        (
            {"etc_gpu_json": spec(("a", {"mounts": [{"hostPath": "../x"}]}), ("b", {}))},
            "invalid containerPath",
        ),
        (
            {"etc_gpu_json": spec(("a", {"deviceNodes": [{"path": "/dev/a:x"}]}), ("b", {}))},
            "invalid device node",
        ),
    ],
)
def test_what_cannot_be_injected(specs: Any, text: str) -> None:
    with pytest.raises(CdiFailure) as caught:
        inject_cdi_devices(files(**specs), config("ex.com/gpu=a", "ex.com/gpu=b"))
    assert f"CDI device injection failed: {text}" in str(caught.value)
