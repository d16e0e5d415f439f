"""Which images a node pulls, and the errors of its daemon for others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from transom.runtime.api import RuntimeFailure
from transom.runtime.images.service import ImageService
from transom.runtime.native.store import NodeImages

_NANOSERVER = "mcr.microsoft.com/windows/nanoserver"
_NOT_IN_MANIFEST = "no match for platform in manifest: not found"


def _pull(folder: Path, engine: Literal["containerd", "docker"], image: str) -> str:
    """Empty when it succeeds."""
    node = NodeImages(ImageService(folder), "test/node", "windows", 17763, engine=engine)
    try:
        identity = asyncio.run(node.pull(image, None))
    except RuntimeFailure as failure:
        return str(failure)
    found = node.find(image)
    assert found is not None and found.id == identity
    return ""


@pytest.mark.parametrize(
    "engine, tag, says",
    [
        ("docker", "1809", ""),
        ("docker", "ltsc2016", ""),  # pulled, and rejected when its container starts
        ("docker", "20H2", "no matching manifest for windows/amd64 10.0.17763 in the manifest"),
        ("containerd", "1809", ""),
        ("containerd", "ltsc2016", _NOT_IN_MANIFEST),
        ("containerd", "20H2", _NOT_IN_MANIFEST),
    ],
)
def test_images_of_other_builds(
    tmp_path: Path, engine: Literal["containerd", "docker"], tag: str, says: str
) -> None:
    found = _pull(tmp_path, engine, f"{_NANOSERVER}:{tag}")
    assert (found == "") == (says == "")
    assert says in found


def test_a_linux_image_on_a_docker_node(tmp_path: Path) -> None:
    assert "no matching manifest for windows/amd64" in _pull(tmp_path, "docker", "busybox")
