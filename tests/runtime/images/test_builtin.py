"""Images that need no network."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from transom.runtime.api import RuntimeFailure
from transom.runtime.images import builtin, pause
from transom.runtime.images.model import ImageNotFound, StoredImage
from transom.runtime.images.reference import parse_reference
from transom.runtime.images.service import ImageService
from transom.windows.builds import BUILDS

needs_busybox = pytest.mark.skipif(
    not builtin.BUSYBOX.exists(), reason="the package busybox-static is not installed"
)


def pull(
    folder: Path, name: str, system: str, build: int = 0, *, stable_abi: bool = False
) -> StoredImage:
    return asyncio.run(ImageService(folder).pull(name, None, system, build, stable_abi=stable_abi))


@pytest.mark.parametrize("build", BUILDS.values(), ids=lambda build: str(build.number))
def test_windows_base_images_of_every_build(tmp_path: Path, build: builtin.WindowsBuild) -> None:
    for repository in ("nanoserver", "servercore", "windows"):
        for tag in (*build.tags, f"{build.full_version}-amd64", f"{build.tags[0]}-KB4592440"):
            found = pull(
                tmp_path, f"mcr.microsoft.com/windows/{repository}:{tag}", "windows", build.number
            )
            assert (
                found.os_version == build.full_version
                and found.build == build.number
                and found.layers == ()
            )
            assert found.config["config"].get("User", "") == (
                "ContainerUser" if repository == "nanoserver" else ""
            )


def test_tags_of_another_patch_level_or_build(tmp_path: Path) -> None:
    name = "mcr.microsoft.com/windows/servercore:10.0.17763.973"
    assert pull(tmp_path, name, "windows", 17763).os_version == "10.0.17763.973"
    with pytest.raises(RuntimeFailure, match="no match for platform in manifest: not found"):
        pull(tmp_path, name, "windows", 20348)
    with pytest.raises(RuntimeFailure, match="no match for platform in manifest: not found"):
        pull(tmp_path, name, "linux")
    newer = pull(
        tmp_path, "mcr.microsoft.com/windows/servercore:ltsc2022", "windows", 26100, stable_abi=True
    )
    assert newer.build == 20348
    with pytest.raises(RuntimeFailure) as caught:
        pull(tmp_path, "mcr.microsoft.com/windows/nanoserver", "windows", 17763)
    whole = "mcr.microsoft.com/windows/nanoserver:latest"
    assert str(caught.value) == (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{whole}": '
        f'failed to resolve reference "{whole}": {whole}: not found'
    )


@pytest.mark.parametrize(
    ("name", "systems"),
    [
        ("k8s.gcr.io/pause:3.2", "linux"),
        ("k8s.gcr.io/pause:3.5", "linux windows"),
        ("registry.k8s.io/pause:3.9", "linux windows"),
        ("mcr.microsoft.com/oss/kubernetes/pause:1.4.1", "windows"),
        ("mcr.microsoft.com/oss/kubernetes/pause:3.4.1", "linux windows"),
        ("mcr.microsoft.com/k8s/core/pause:1.2.0", "windows"),
        ("busybox", "linux"),
        ("busybox:1.28", "linux"),
        ("docker.io/library/busybox:stable-musl", "linux"),
        ("busybox:windows", ""),
        ("nginx", ""),
        (
            "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0",
            "windows",
        ),
        ("k8s.gcr.io/pause:latest", ""),
        ("busybox@sha256:" + "0" * 64, ""),
        ("mcr.microsoft.com/windows/servercore/iis:latest", ""),
    ],
)
def test_which_names_are_built_in(name: str, systems: str) -> None:
    found = builtin.image_recipe(parse_reference(name))
    assert " ".join(found.systems if found else ()) == systems


def test_no_such_tag() -> None:
    with pytest.raises(ImageNotFound):
        builtin.image_recipe(parse_reference("mcr.microsoft.com/windows/servercore:latest"))


@needs_busybox
def test_busybox_runs_from_its_layer(tmp_path: Path) -> None:
    found = pull(tmp_path / "one", "busybox", "linux")
    assert found.id == pull(tmp_path / "two", "busybox:1.28", "linux").id  # the same everywhere
    assert found.config["config"]["Cmd"] == ["sh"]
    (tree,) = found.layers
    assert (
        os.readlink(tree / "bin/sh") == "busybox"
        and (tree / "tmp").stat().st_mode & 0o7777 == 0o1777
    )
    assert "nobody:x:65534:65534:" in (tree / "etc/passwd").read_text()
    if os.geteuid() == 0:
        done = subprocess.run(
            ["chroot", str(tree), "/bin/sh", "-c", "id -un; echo $((6*7)); env -i true"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "root\n42\n"


# An ELF header, and one program header that names an interpreter.
DYNAMIC = struct.pack("<5s27xQ14xHH6x", b"\x7fELF\x02", 64, 56, 1) + struct.pack("<I52x", 3)


@pytest.mark.parametrize("content", [None, DYNAMIC])
def test_a_missing_or_unsuitable_busybox_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.setattr(builtin, "BUSYBOX", tmp_path / "busybox")
    if content is not None:
        (tmp_path / "busybox").write_bytes(content)
    with pytest.raises(RuntimeFailure, match="install the package busybox-static"):
        pull(tmp_path / "images", "busybox", "linux")


def test_what_a_person_put_there_goes_before_the_built_in(tmp_path: Path) -> None:
    service = ImageService(tmp_path)
    own = pull(tmp_path, "mcr.microsoft.com/windows/servercore:1809", "windows", 17763)
    service.store.register(
        own.manifest, [("mcr.microsoft.com/windows/nanoserver:1809", own.manifest)], local=True
    )
    assert (
        pull(tmp_path, "mcr.microsoft.com/windows/nanoserver:1809", "windows", 17763).id == own.id
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program is for x86-64")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_pause_waits_and_ends_when_asked(tmp_path: Path, number: signal.Signals) -> None:
    (tree,) = pull(tmp_path, "k8s.gcr.io/pause:3.2", "linux").layers
    with subprocess.Popen([str(tree / "pause")]) as process:
        try:
            # It catches both signals and ignores SIGCHLD, so that the kernel buries its children.
            while not (
                _mask(process.pid, "SigCgt") & 0x4002 == 0x4002
                and _mask(process.pid, "SigIgn") & 0x10000
            ):
                assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()


def _mask(pid: int, name: str) -> int:
    """Of signals: the process that started the tests may ignore others."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith(name))


def test_pause_for_windows_is_a_program(tmp_path: Path) -> None:
    (tree,) = pull(
        tmp_path, "mcr.microsoft.com/oss/kubernetes/pause:1.4.1", "windows", 17763
    ).layers
    data = (tree / "pause.exe").read_bytes()
    assert (
        data == pause.windows_amd64()
        and data[:2] == b"MZ"
        and data[64:68] == b"PE\0\0"
        and len(data) == 1024
    )
