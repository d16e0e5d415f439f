"""Which runtime nodes get, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cluster import engines
from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.nodes import NodeSpec
from transom.runtime.wine import installation, template
from transom.runtime.wine.installation import Installation

BOTH = [NodeSpec("a"), NodeSpec("b", os="windows", build=17763)]


@pytest.mark.parametrize(("linux", "windows", "chosen"), [
    ("", "", engines.Chosen("oci", "oci")),
    ("", "no Wine", engines.Chosen("oci", "sim", ("containers on Windows are simulated: no Wine",))),
    ("not root", "not root", engines.Chosen("sim", "sim", ("containers on Linux and Windows are simulated: not root",))),
])  # fmt: skip
def test_the_best_there_is(monkeypatch: pytest.MonkeyPatch, linux: str, windows: str, chosen: engines.Chosen) -> None:
    monkeypatch.setattr(engines, "missing", lambda: {"linux": linux, "windows": windows})
    assert engines.choose(ClusterConfig(engine="auto"), BOTH) == chosen


def test_real_ones_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "missing", lambda: {"linux": "", "windows": "no Wine"})
    assert engines.choose(ClusterConfig(engine="oci"), BOTH[:1]) == engines.Chosen("oci", "oci")
    with pytest.raises(ClusterError, match="cannot run on windows nodes here: no Wine"):
        engines.choose(ClusterConfig(engine="oci"), BOTH)


def test_nodes_that_say_what_they_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "missing", lambda: {"linux": "", "windows": "no Wine"})
    real = NodeSpec("c", os="windows", engine="oci")
    with pytest.raises(ClusterError, match="node 'c': real containers cannot run here: no Wine"):
        engines.choose(ClusterConfig(), [*BOTH, real])
    assert engines.choose(ClusterConfig(), [BOTH[1], NodeSpec("d", engine="oci")]).of(NodeSpec("d", engine="oci")) == "oci"


def test_nothing_is_looked_for_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "missing", None)
    assert engines.choose(ClusterConfig(), BOTH) == engines.Chosen("sim", "sim")


def test_a_template_of_an_older_recipe_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wine = Installation(Path("wine"), Path("wineserver"), Path("lib"))
    monkeypatch.setattr(Installation, "version", lambda _self: "wine-8.0 (Debian)")
    monkeypatch.setattr(installation, "find", lambda: wine)
    monkeypatch.setattr(engines, "clusters_dir", lambda: tmp_path)
    (tmp_path / "wine" / "template-wine-8.0-Debian-r1").mkdir(parents=True)
    assert engines.template_missing()
    template.place(tmp_path / "wine", wine).mkdir()
    assert not engines.template_missing()
    monkeypatch.setattr(installation, "find", lambda: None)
    assert not engines.template_missing()


def test_a_proxy_is_for_simulated_containers() -> None:
    behind = NodeSpec("c", os="windows", proxy="http://proxy.example.com:80/")
    engines.check(behind, "sim")
    engines.check(NodeSpec("c", os="windows", mac_spoofing=False), "oci")
    with pytest.raises(ClusterError, match="real images are pulled by this machine"):
        engines.check(behind, "oci")


def test_a_disk_that_real_containers_share_with_people_is_no_reason_to_evict() -> None:
    usual = {"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"}
    said = {"nodefs.available": "1Gi"}
    assert engines.thresholds(NodeSpec("a"), "sim", usual) == (None, 85)
    assert engines.thresholds(NodeSpec("a"), "oci", usual) == ({"memory.available": "100Mi"}, 100)
    assert engines.thresholds(NodeSpec("a", eviction_hard=said, image_gc_high=90), "oci", usual) == (said, 90)
    assert engines.thresholds(NodeSpec("a", eviction_hard={}), "unix:///run/containerd.sock", usual) == ({}, 100)
