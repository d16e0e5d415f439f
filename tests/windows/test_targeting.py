"""The target operating system of a pod: wrong results would produce wrong warnings."""

from __future__ import annotations

from typing import Any

import pytest

from transom.windows.images import image_build_of, image_os, split_image_name
from transom.windows.targeting import find_target_os


@pytest.mark.parametrize(
    ("image", "os", "build"),
    [
        ("mcr.microsoft.com/windows/nanoserver:1809", "windows", 17763),
        ("mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019", "windows", 17763),
        ("mcr.microsoft.com/dotnet/framework/aspnet:4.8", "windows", None),
        ("mcr.microsoft.com/dotnet/aspnet:6.0-nanoserver-ltsc2022", "windows", 20348),
        ("mcr.microsoft.com/dotnet/aspnet:6.0-alpine3.18", "linux", None),
        ("mcr.microsoft.com/dotnet/aspnet:6.0", None, None),
        ("microsoft/iis", "windows", None),
        ("example.com/app:1.4.1-windows-1809-amd64", "windows", 17763),
        ("example.com/app:10.0.17763.1697", "windows", 17763),
        ("example.com/app-windows:2.0", "windows", None),
        ("example.com:5000/team/app:ltsc2022", "windows", 20348),
        ("calico/windows:v3.20", "windows", None),
        ("ghcr.io/prometheus-community/windows-exporter:0.20", "windows", None),
        # Named after Windows, but the system is unknown, or for Linux.
        ("example.com/windows-machine-config-operator:v1", None, None),
        ("sigwindowstools/k8s-gmsa-webhook:latest", None, None),
        ("dockurr/windows", "linux", None),
        ("example.com/darwin:1", None, None),
        ("example.com/app:2004", None, None),
        ("example.com/app:1.0", None, None),
        ("example.com/winner:win", None, None),
        ("registry.k8s.io/pause:3.9", None, None),
        ("registry.k8s.io/e2e-test-images/nginx:1.14-alpine", None, None),
        ("registry.k8s.io/e2e-test-images/agnhost:2.21-windows-amd64-1809", "windows", 17763),
        ("nginx", "linux", None),
        ("docker.io/library/redis:6", "linux", None),
        ("example.com/nginx", None, None),
        ("python:3.11-slim", "linux", None),
        ("golang:1.20-windowsservercore-ltsc2022", "windows", 20348),
        ("gcr.io/distroless/static@sha256:" + "a" * 64, "linux", None),
        ("", None, None),
    ],
)
def test_names_of_images(image: str, os: str | None, build: int | None) -> None:
    found = image_build_of(image)
    assert (image_os(image), found.number if found else None) == (os, build)


def test_a_port_is_not_a_tag() -> None:
    assert split_image_name("example.com:5000/app") == ("example.com:5000/app", "")
    assert split_image_name("example.com:5000/app:1@sha256:00") == ("example.com:5000/app", "1")


def selector(**labels: str) -> dict[str, Any]:
    return {
        "nodeSelector": {
            key.replace("__", "/").replace("_", "."): value for key, value in labels.items()
        }
    }


def affinity(*terms: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
                        for key, operator, values in terms
                    ]
                }
            }
        }
    }


OS = "kubernetes.io/os"
WINDOWS_IMAGE = {"containers": [{"image": "a:nanoserver"}]}
LINUX_IMAGE = {"containers": [{"image": "nginx"}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (None, "hinted")),
        ({"containers": [{"image": "x"}]}, (None, "hinted")),
        (selector(kubernetes_io__os="windows"), ("windows", "pinned")),
        (selector(beta_kubernetes_io__os="linux"), ("linux", "pinned")),
        (
            {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763"}},
            ("windows", "pinned"),
        ),
        (
            {"nodeSelector": {"cloud.google.com/gke-os-distribution": "windows_ltsc"}},
            ("windows", "pinned"),
        ),
        ({"nodeSelector": {"kubernetes.azure.com/os-sku": "AzureLinux"}}, ("linux", "pinned")),
        ({"nodeSelector": {"pool": "windows"}}, (None, "hinted")),
        (affinity((OS, "In", ["windows"])), ("windows", "pinned")),
        (affinity((OS, "NotIn", ["linux"])), ("windows", "pinned")),
        (affinity((OS, "NotIn", ["windows"])), ("linux", "pinned")),
        (affinity((OS, "In", ["windows", "linux"])), (None, "hinted")),
        (affinity((OS, "In", ["windows"]), (OS, "In", ["linux"])), (None, "hinted")),
        (affinity((OS, "In", ["windows"]), ("pool", "In", ["a"])), (None, "hinted")),
        (affinity((OS, "Exists", [])), (None, "hinted")),
        ({"os": {"name": "windows"}}, ("windows", "declared")),
        ({"os": {"name": "linux"}, **WINDOWS_IMAGE}, ("linux", "declared")),
        ({"securityContext": {"windowsOptions": {"runAsUserName": "a"}}}, ("windows", "declared")),
        ({"securityContext": {"windowsOptions": {}}}, (None, "hinted")),
        (
            {"initContainers": [{"securityContext": {"windowsOptions": {"hostProcess": True}}}]},
            ("windows", "declared"),
        ),
        (
            {
                "securityContext": {"windowsOptions": {"runAsUserName": "a"}},
                **selector(kubernetes_io__os="linux"),
            },
            ("linux", "pinned"),
        ),
        ({"runtimeClassName": "windows-2019"}, ("windows", "declared")),
        ({"runtimeClassName": "gvisor"}, (None, "hinted")),
        ({"runtimeClassName": "known"}, ("windows", "pinned")),
        ({"runtimeClassName": "handler"}, ("windows", "declared")),
        ({"tolerations": [{"key": "os", "value": "windows"}]}, ("windows", "hinted")),
        ({"tolerations": [{"key": "os", "operator": "Exists"}]}, (None, "hinted")),
        ({"tolerations": [{"operator": "Exists"}]}, (None, "hinted")),
        ({"tolerations": [{"key": "os", "value": "windows"}], **LINUX_IMAGE}, ("linux", "likely")),
        (WINDOWS_IMAGE, ("windows", "likely")),
        (LINUX_IMAGE, ("linux", "likely")),
        (
            {"containers": [*LINUX_IMAGE["containers"], *WINDOWS_IMAGE["containers"]]},
            ("windows", "likely"),
        ),
        ({**WINDOWS_IMAGE, **selector(kubernetes_io__os="linux")}, ("linux", "pinned")),
        (
            {
                "nodeSelector": [],
                "affinity": "x",
                "tolerations": {},
                "containers": {"a": 1},
                "os": 5,
            },
            (None, "hinted"),
        ),
    ],
)
def test_verdicts(spec: dict[str, Any], expected: tuple[str | None, str]) -> None:
    classes: dict[str, dict[str, Any]] = {
        "known": {"handler": "x", "scheduling": {"nodeSelector": {OS: "windows"}}},
        "handler": {"handler": "runhcs-wcow-process"},
    }
    found = find_target_os({"spec": spec}, classes.get)
    assert (found.os, found.weight) == expected


def test_no_spec() -> None:
    assert find_target_os({}).os is None
