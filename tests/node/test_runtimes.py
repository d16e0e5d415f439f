"""Which runtime nodes get, and what is reported about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cluster.config import ClusterConfig
from transom.kit.user_errors import UserError
from transom.node import real_runtimes, runtimes
from transom.node.spec import NodeSpec
from transom.runtime.wine import installation, template
from transom.runtime.wine.installation import WineInstallation

BOTH = [NodeSpec("a"), NodeSpec("b", os="windows", build=17763)]


@pytest.mark.parametrize(
    ("linux", "windows", "chosen"),
    [
        ("", "", runtimes.EngineChoice("oci", "oci")),
        (
            "",
            "no Wine",
            runtimes.EngineChoice("oci", "sim", ("containers on Windows are simulated: no Wine",)),
        ),
        (
            "not root",
            "not root",
            runtimes.EngineChoice(
                "sim", "sim", ("containers on Linux and Windows are simulated: not root",)
            ),
        ),
    ],
)
def test_the_best_there_is(
    monkeypatch: pytest.MonkeyPatch, linux: str, windows: str, chosen: runtimes.EngineChoice
) -> None:
    monkeypatch.setattr(
        runtimes, "missing_requirements", lambda: {"linux": linux, "windows": windows}
    )
    assert runtimes.choose_engines(ClusterConfig(engine="auto"), BOTH) == chosen


def test_real_ones_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runtimes, "missing_requirements", lambda: {"linux": "", "windows": "no Wine"}
    )
    assert runtimes.choose_engines(ClusterConfig(engine="oci"), BOTH[:1]) == runtimes.EngineChoice(
        "oci", "oci"
    )
    with pytest.raises(UserError, match="cannot run on windows nodes here: no Wine"):
        runtimes.choose_engines(ClusterConfig(engine="oci"), BOTH)


def test_nodes_that_say_what_they_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runtimes, "missing_requirements", lambda: {"linux": "", "windows": "no Wine"}
    )
    real = NodeSpec("c", os="windows", engine="oci")
    with pytest.raises(UserError, match="node 'c': real containers cannot run here: no Wine"):
        runtimes.choose_engines(ClusterConfig(), [*BOTH, real])
    assert (
        runtimes.choose_engines(ClusterConfig(), [BOTH[1], NodeSpec("d", engine="oci")]).of(
            NodeSpec("d", engine="oci")
        )
        == "oci"
    )


def test_nothing_is_looked_for_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "missing_requirements", None)
    assert runtimes.choose_engines(ClusterConfig(), BOTH) == runtimes.EngineChoice("sim", "sim")


def test_a_template_of_an_older_recipe_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wine = WineInstallation(Path("wine"), Path("wineserver"), Path("lib"))
    monkeypatch.setattr(WineInstallation, "version", lambda _self: "wine-8.0 (Debian)")
    monkeypatch.setattr(installation, "find_wine", lambda: wine)
    monkeypatch.setattr(real_runtimes, "clusters_dir", lambda: tmp_path)
    (tmp_path / "wine" / "template-wine-8.0-Debian-r1").mkdir(parents=True)
    assert real_runtimes.template_missing()
    template.template_folder(tmp_path / "wine", wine).mkdir()
    assert not real_runtimes.template_missing()
    monkeypatch.setattr(installation, "find_wine", lambda: None)
    assert not real_runtimes.template_missing()


def test_a_proxy_is_for_simulated_containers() -> None:
    behind = NodeSpec("c", os="windows", proxy="http://proxy.example.com:80/")
    runtimes.check_engine(behind, "sim")
    runtimes.check_engine(NodeSpec("c", os="windows", mac_spoofing=False), "oci")
    with pytest.raises(UserError, match="real images are pulled by this machine"):
        runtimes.check_engine(behind, "oci")


def test_a_disk_that_real_containers_share_with_the_machine_causes_no_eviction() -> None:
    usual = {"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"}
    printed = {"nodefs.available": "1Gi"}
    assert runtimes.eviction_thresholds(NodeSpec("a"), "sim", usual) == (None, 85)
    assert runtimes.eviction_thresholds(NodeSpec("a"), "oci", usual) == (
        {"memory.available": "100Mi"},
        100,
    )
    assert runtimes.eviction_thresholds(
        NodeSpec("a", eviction_hard=printed, image_gc_high=90), "oci", usual
    ) == (printed, 90)
    assert runtimes.eviction_thresholds(
        NodeSpec("a", eviction_hard={}), "unix:///run/containerd.sock", usual
    ) == ({}, 100)
