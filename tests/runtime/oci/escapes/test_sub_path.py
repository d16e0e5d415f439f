"""CVE-2021-25741, CVE-2017-1002101: a container exchanges a subPath for a link while another
container is started with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.runtime.behaviour import RuntimeHarness
from tests.runtime.oci.escapes.attack import ROUNDS, exchange, running, tried

from transom.machines import mounting
from transom.runtime.api import Mount, RuntimeFailure
from transom.runtime.native import containers
from transom.runtime.native.hostmounts import resolve_host_mounts

Play = Callable[[Any], None]
Propagation = Literal["private", "hostToContainer", "bidirectional"]
PROPAGATIONS: list[Propagation] = ["private", "hostToContainer", "bidirectional"]
LOOK = "ls /mnt; touch /mnt/from-inside 2>/dev/null; true"
NODE = "only-in-the-node"


def _prepare(b: RuntimeHarness, tmp_path: Path) -> Path:
    """Files that show where a container is: in the node's root, and outside of the node."""
    b.host.files.write(f"/{NODE}", b"")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("")
    return outside


def _check(b: RuntimeHarness, outside: Path, printed: list[str] | None) -> None:
    assert os.listdir(outside) == ["secret"], "the container wrote to the machine"
    assert not b.host.files.exists("/from-inside"), "the container wrote to the node"
    if printed is not None:
        assert set(printed) <= {"inside", "from-inside"}, (
            "the container saw something else than its volume"
        )


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("leads", ["to the machine", "to the node"])
async def test_a_race_for_a_sub_path(
    oci: Play, tmp_path: Path, propagation: Propagation, leads: str
) -> None:
    async with oci() as b:
        outside = _prepare(b, tmp_path)
        path, _ = b.volume("data")
        target = str(outside) if leads == "to the machine" else "/"
        sandbox = await b.sandbox()
        victim = Mount("/mnt", f"{path}/d", propagation=propagation, volume_path=path)
        async with running(b, exchange("/data/d", target), sandbox, Mount("/data", path)):
            for _ in range(ROUNDS):
                _check(b, outside, await tried(b, LOOK, sandbox, victim))
        assert [
            entry for entry in mounting.mount_points(str(b.folder)) if "/mounts" in entry.point
        ] == []


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("part", ["d", "d/inner", "d/inner/deep"])
async def test_a_link_between_the_check_and_the_mount(
    oci: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, propagation: Propagation, part: str
) -> None:
    """The same race, won every time: the exchange is made right after Transom has looked."""

    async with oci() as b:
        outside = _prepare(b, tmp_path)
        path, _ = b.volume("data")
        real = Path(b.host.files.folder) / path.lstrip("/")
        (real / "d/inner/deep").mkdir(parents=True)

        def exchanged(*arguments: Any) -> Any:
            found = resolve_host_mounts(*arguments)
            if (real / part).is_dir() and not (real / part).is_symlink():
                (real / part).rename(real / "moved")
            (real / part).unlink(missing_ok=True)
            (real / part).symlink_to(outside)
            return found

        monkeypatch.setattr(containers, "resolve_host_mounts", exchanged)
        victim = Mount("/mnt", f"{path}/d/inner/deep", propagation=propagation, volume_path=path)
        with pytest.raises(RuntimeFailure):
            await b.run(("ls", "/mnt"), mounts=(victim,))
        _check(b, outside, None)


async def test_links_that_stay_in_the_volume_are_followed(oci: Play) -> None:
    async with oci() as b:
        path, _ = b.volume("data")
        b.host.files.mkdir(f"{path}/real")
        b.host.files.write(f"{path}/real/file", b"here\n")
        b.host.files.symlink("real", f"{path}/relative")
        b.host.files.symlink(f"{path}/real", f"{path}/absolute")
        b.host.files.symlink("../../etc", f"{path}/out")
        sandbox = await b.sandbox()
        for name in ("relative", "absolute"):
            mount = Mount("/mnt", f"{path}/{name}", volume_path=path)
            assert await b.output(("cat", "/mnt/file"), sandbox, mounts=(mount,)) == ["here"]
        with pytest.raises(RuntimeFailure, match="permission denied"):
            await b.create(
                ("ls",), sandbox, mounts=(Mount("/mnt", f"{path}/out", volume_path=path),)
            )
        with pytest.raises(RuntimeFailure, match="permission denied"):
            await b.create(
                ("ls",), sandbox, mounts=(Mount("/mnt", f"{path}/out/new", volume_path=path),)
            )
        assert not b.host.files.exists("/etc/new")


async def test_a_single_file(oci: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """subPath of one file, as config maps are often mounted, and the termination message."""

    async with oci() as b:
        outside = _prepare(b, tmp_path)
        path, _ = b.volume("data")
        b.host.files.write(f"{path}/file", b"mine\n")
        mount = Mount(
            "/etc/app.conf", f"{path}/file", volume_path=path, propagation="hostToContainer"
        )
        assert await b.output(("cat", "/etc/app.conf"), mounts=(mount,)) == ["mine"]
        real = Path(b.host.files.folder) / path.lstrip("/") / "file"

        def exchanged(*arguments: Any) -> Any:
            found = resolve_host_mounts(*arguments)
            real.unlink()
            real.symlink_to(outside / "secret")
            return found

        monkeypatch.setattr(containers, "resolve_host_mounts", exchanged)
        with pytest.raises(RuntimeFailure):
            await b.run((*("sh", "-c"), "echo changed > /etc/app.conf"), mounts=(mount,))
        assert (outside / "secret").read_text() == ""


async def test_what_changes_honestly_is_looked_at_again(
    oci: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config map is replaced by another version while a container starts with one of its
    files.
    """

    async with oci() as b:
        path, _ = b.volume("cm")
        files = b.host.files
        for version in ("..1", "..2"):
            files.mkdir(f"{path}/{version}")
            files.write(f"{path}/{version}/key", f"version {version}\n".encode())
        files.symlink("..1", f"{path}/..data")
        files.symlink("..data/key", f"{path}/key")
        replaced = []

        def exchanged(*arguments: Any) -> Any:
            found = resolve_host_mounts(*arguments)
            if not replaced:
                replaced.append(True)
                files.symlink("..2", f"{path}/..tmp")
                files.rename(f"{path}/..tmp", f"{path}/..data")
                files.remove(f"{path}/..1", recursive=True)
            return found

        monkeypatch.setattr(containers, "resolve_host_mounts", exchanged)
        mount = Mount("/etc/app.conf", f"{path}/key", read_only=True, volume_path=path)
        assert await b.output(("cat", "/etc/app.conf"), mounts=(mount,)) == ["version ..2"]
