"""What the demo deploys, by what the nodes are."""

from __future__ import annotations

from typing import Any

import pytest

from transom.demo import sites as demo_programs
from transom.demo.images import BuiltImage

LINUX, WINDOWS = (
    {"name": "l", "os": "linux", "build": None},
    {"name": "w", "os": "windows", "build": 17763},
)
SIM, OCI, WINE = (
    {"runtime": "containerd://1.4.3-sim"},
    {"runtime": "containerd://1.4.3-oci"},
    {"runtime": "docker://19.3.14-wine"},
)


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        demo_programs, "nginx_image", lambda build, tell: BuiltImage(f"nginx:{build}", "nginx")
    )
    monkeypatch.setattr(demo_programs, "own_image", lambda build: BuiltImage(f"own:{build}", "own"))


def made(
    *nodes: dict[str, Any], fetch: bool = True
) -> tuple[dict[str, Any], dict[str, demo_programs.DemoSite]]:
    sites = demo_programs.choose_sites(nodes, lambda _: None, fetch=fetch)
    objects = {f"{o['kind']}/{o['metadata']['name']}": o for o in demo_programs.site_objects(sites)}
    return objects, {site.os: site for site in sites}


def container(objects: dict[str, Any], name: str) -> Any:
    return objects[f"Deployment/{name}"]["spec"]["template"]["spec"]["containers"][0]


def test_real_ones_ask_each_other() -> None:
    objects, sites = made(LINUX | OCI, WINDOWS | WINE)
    assert list(objects)[:3] == [
        "Namespace/demo",
        "Service/linux",
        "Service/windows",
    ]  # names first
    assert (
        "wget -q -O - http://windows/hello" in objects["ConfigMap/linux-pages"]["data"]["index.cgi"]
    )
    assert (
        "proxy_pass http://linux/hello;" in objects["ConfigMap/windows-conf"]["data"]["nginx.conf"]
    )
    assert container(objects, "windows")["image"] == "nginx:17763"
    assert sites["linux"].shows == "windows-" and sites["windows"].shows == "linux-"


def test_without_a_network() -> None:
    objects, _ = made(LINUX | OCI, WINDOWS | WINE, fetch=False)
    assert container(objects, "windows")["args"] == ["serve", "80", "linux/hello"]
    assert container(objects, "windows")["image"] == "own:17763"


@pytest.mark.parametrize("linux", [SIM, OCI])
def test_simulated_windows_asks_whatever_linux_is(linux: dict[str, str]) -> None:
    _, sites = made(LINUX | linux, WINDOWS | SIM)
    path = "hostname" if linux is SIM else "hello"
    assert sites["windows"].page == f"/dial?host=linux&port=80&protocol=http&request={path}"


def test_one_system_only() -> None:
    recorded: list[str] = []
    (site,) = demo_programs.choose_sites([LINUX | OCI], recorded.append, fetch=True)
    assert site.shows == "linux-" and "http://linux/hello" in site.files["linux-pages"]["index.cgi"]
    assert recorded == ["there are linux nodes only: the server asks itself"]


def test_nodes_of_several_builds() -> None:
    """An image fits one build, so the pod must go to a node of that."""
    objects, _ = made(LINUX | OCI, WINDOWS | WINE, WINDOWS | WINE | {"name": "v", "build": 20348})
    affinity = objects["Deployment/windows"]["spec"]["template"]["spec"]["affinity"]
    assert "'values': ['w']" in str(affinity)


def test_nodes_of_several_kinds() -> None:
    other = {"name": "c", "runtime": "containerd://1.6.20"}
    objects, _ = made(LINUX | SIM, LINUX | OCI | {"name": "m"}, LINUX | other, WINDOWS | SIM)
    assert container(objects, "linux")["image"] == "busybox"
    assert "'values': ['m']" in str(objects["Deployment/linux"]) and "affinity" not in str(
        objects["Deployment/windows"]
    )
    assert demo_programs.choose_sites([LINUX | other], lambda _: None, fetch=True) == []


def test_no_place_is_left_open() -> None:
    for nodes in (
        (LINUX | OCI, WINDOWS | WINE),
        (LINUX | SIM, WINDOWS | SIM),
        (LINUX | OCI,),
        (WINDOWS | WINE,),
    ):
        objects, sites = made(*nodes)
        assert "@" not in "".join(map(str, (objects, sites))).replace("$@", "")
