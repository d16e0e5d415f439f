"""Images that need no network: Windows base images, emulated by Wine, pause images, and busybox
from Debian's package busybox-static. They are built on first use and are reproducible.
"""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from transom.kit.programs import run_program
from transom.runtime.images import making, pause
from transom.runtime.images.content import BlobStore
from transom.runtime.images.making import ImageOptions, NewLayer
from transom.runtime.images.model import ImageError, ImageNotFound, NoMatchingPlatform
from transom.runtime.images.platforms import NodePlatform, platform_of_node, platform_rank
from transom.runtime.images.reference import ImageReference
from transom.windows import builds
from transom.windows.builds import BUILDS, WindowsBuild

BUSYBOX: Final = Path("/bin/busybox")
_CMD: Final = ("c:\\windows\\system32\\cmd.exe",)
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Windows base images, and the user that each specifies.
_WINDOWS: Final[Mapping[str, str]] = {
    "mcr.microsoft.com/windows/nanoserver": "ContainerUser",
    "mcr.microsoft.com/windows/servercore": "",
    "mcr.microsoft.com/windows/windows": "",
    "mcr.microsoft.com/windows/server": "",
    "mcr.microsoft.com/windows": "",
    "docker.io/microsoft/nanoserver": "ContainerUser",
    "docker.io/microsoft/windowsservercore": "",
}
# Contains nothing: programs of HostProcess containers are those of the node. For any build.
_HOST_PROCESS: Final = "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image"
_KUBERNETES: Final = (
    "k8s.gcr.io",
    "registry.k8s.io",
    "gcr.io/google_containers",
    "gcr.io/google-containers",
)
_PAUSE_BOTH: Final = (
    *(f"{place}/pause" for place in _KUBERNETES),
    "mcr.microsoft.com/oss/kubernetes/pause",
    "docker.io/rancher/pause",
)
_PAUSE_WINDOWS: Final = ("mcr.microsoft.com/k8s/core/pause", "docker.io/kubeletwin/pause")
_PAUSE_LINUX: Final = tuple(f"{place}/pause-amd64" for place in _KUBERNETES)
_PAUSE_TAG: Final = re.compile(r"[123]\.\d+(?:\.\d+)?(?:-[a-z0-9.-]+)?")
_BUSYBOX: Final = (
    "docker.io/library/busybox",
    *(f"{place}/busybox" for place in _KUBERNETES),
    "k8s.gcr.io/e2e-test-images/busybox",
    "registry.k8s.io/e2e-test-images/busybox",
)
_BUSYBOX_TAGS: Final = ("latest", "1", "1.*", "stable", "stable-*", "glibc", "musl", "uclibc")

_FOLDERS: Final = {
    "bin": 0o755,
    "dev": 0o755,
    "etc": 0o755,
    "home": 0o755,
    "proc": 0o755,
    "root": 0o700,
    "sys": 0o755,
    "tmp": 0o1777,
    "usr": 0o755,
    "usr/bin": 0o755,
    "usr/sbin": 0o755,
    "var": 0o755,
    "var/spool": 0o755,
    "var/spool/mail": 0o755,
    "var/www": 0o755,
}
_USERS: Final = (
    ("root", 0, 0, "root", "/root", "/bin/sh"),
    ("daemon", 1, 1, "daemon", "/usr/sbin", "/bin/false"),
    ("bin", 2, 2, "bin", "/bin", "/bin/false"),
    ("sys", 3, 3, "sys", "/dev", "/bin/false"),
    ("sync", 4, 100, "sync", "/bin", "/bin/sync"),
    ("mail", 8, 8, "mail", "/var/spool/mail", "/bin/false"),
    ("www-data", 33, 33, "www-data", "/var/www", "/bin/false"),
    ("operator", 37, 37, "Operator", "/var", "/bin/false"),
    ("nobody", 65534, 65534, "nobody", "/home", "/bin/false"),
)
_GROUPS: Final = {
    "root": 0,
    "daemon": 1,
    "bin": 2,
    "sys": 3,
    "adm": 4,
    "tty": 5,
    "disk": 6,
    "lp": 7,
    "mail": 8,
    "kmem": 9,
    "wheel": 10,
    "cdrom": 11,
    "dialout": 18,
    "floppy": 19,
    "video": 28,
    "audio": 29,
    "tape": 32,
    "www-data": 33,
    "operator": 37,
    "utmp": 43,
    "plugdev": 46,
    "staff": 50,
    "lock": 54,
    "netdev": 82,
    "users": 100,
    "nobody": 65534,
}
_SCRIPT: Final = (
    "#!/bin/busybox sh\ntrap 'exit 0' TERM INT\nwhile :; do sleep 2147483647 & wait $!; done\n"
)


class ImageRecipe(NamedTuple):
    """What a built-in name provides, and for which systems."""

    kind: str  # windows, host-process, pause, busybox
    systems: tuple[str, ...]
    build: WindowsBuild | None = None  # the one in the tag
    version: str = ""  # the full version, if the tag has it
    user: str = ""


@lru_cache(maxsize=256)
def image_recipe(reference: ImageReference) -> ImageRecipe | None:
    """None for a name that is not built in. Raises NotFound for a built-in repository that never
    had this tag.
    """
    if reference.digest:
        return None  # a digest refers to the real image
    repository, tag = reference.repository, reference.tag
    if repository in _WINDOWS:
        build = builds.build_of_tag(tag)
        if build is None:
            raise ImageNotFound(f'failed to resolve reference "{reference}": {reference}')
        version = re.search(r"10\.0\.\d{5}\.\d+", tag)
        return ImageRecipe(
            "windows",
            ("windows",),
            build,
            version[0] if version else build.full_version,
            _WINDOWS[repository],
        )
    if repository == _HOST_PROCESS:
        return ImageRecipe("host-process", ("windows",))
    if repository in _PAUSE_WINDOWS:
        return ImageRecipe("pause", ("windows",))
    if repository in _PAUSE_BOTH and _PAUSE_TAG.fullmatch(tag):
        old = tag in ("3.0", "3.1", "3.2", "3.3") and not repository.startswith("mcr.")
        windows_only = repository.startswith("mcr.") and tag.startswith("1.")
        systems = ("windows",) if windows_only else ("linux",) if old else ("linux", "windows")
        return ImageRecipe("pause", systems, builds.build_of_tag(tag))
    if repository in _PAUSE_LINUX and _PAUSE_TAG.fullmatch(tag):
        return ImageRecipe("pause", ("linux",))
    if repository in _BUSYBOX and any(fnmatchcase(tag, pattern) for pattern in _BUSYBOX_TAGS):
        return ImageRecipe("busybox", ("linux",))
    return None


def write_builtin_image(content: BlobStore, found: ImageRecipe, platform: NodePlatform) -> str:
    """Builds the image for a node; returns the digest of its manifest. Raises NotFound when there
    is none for this node. Blocking.
    """
    if platform.os not in found.systems:
        raise NoMatchingPlatform()
    if platform.os == "windows":
        return _write_windows(content, found, platform)
    if platform.architecture != platform_of_node("linux").architecture:
        raise NoMatchingPlatform()
    return (
        _write_pause(content, platform)
        if found.kind == "pause"
        else _write_busybox(content, platform)
    )


def _write_windows(content: BlobStore, found: ImageRecipe, platform: NodePlatform) -> str:
    build = found.build or BUILDS.get(platform.build) or builds.DEFAULT
    version = found.version or build.full_version
    shown = {"os": "windows", "architecture": "amd64", "os.version": version}
    if platform.architecture != "amd64" or platform_rank(platform, shown) is None:
        raise NoMatchingPlatform()
    options = ImageOptions(
        os="windows",
        os_version=version,
        user=found.user,
        cmd=() if found.kind == "host-process" else _CMD,
        comment=f"Apply image {version}",
    )
    layers: list[NewLayer] = []
    if found.kind == "pause":
        program = pause.windows_amd64()

        def fill(tar: tarfile.TarFile) -> None:
            tar.addfile(making.plain_tar_entry("Files", tarfile.DIRTYPE, 0o755))
            tar.addfile(making.plain_tar_entry("Hives", tarfile.DIRTYPE, 0o755))
            tar.addfile(
                making.plain_tar_entry("Files/pause.exe", mode=0o755, size=len(program)),
                io.BytesIO(program),
            )

        layers.append(making.write_layer(content, fill, packed=False))
        options = options._replace(entrypoint=("c:\\pause.exe",), cmd=(), comment="pause")
    return making.write_image(content, options, layers)


def _write_pause(content: BlobStore, platform: NodePlatform) -> str:
    options = ImageOptions(
        architecture=platform.architecture,
        variant=platform.variant,
        entrypoint=("/pause",),
        env=(_PATH,),
        user="65535:65535",
        comment="pause",
    )

    def fill(tar: tarfile.TarFile) -> None:
        if platform.architecture == "amd64":
            program = pause.linux_amd64()
        else:
            program = _SCRIPT.encode()
            binary = _busybox()
            tar.addfile(making.plain_tar_entry("bin", tarfile.DIRTYPE, 0o755))
            tar.addfile(
                making.plain_tar_entry("bin/busybox", mode=0o755, size=len(binary)),
                io.BytesIO(binary),
            )
        tar.addfile(
            making.plain_tar_entry("pause", mode=0o755, size=len(program)), io.BytesIO(program)
        )

    return making.write_image(content, options, [making.write_layer(content, fill, packed=False)])


def _write_busybox(content: BlobStore, platform: NodePlatform) -> str:
    binary = _busybox()
    applets = sorted(name for name in _applets() if name != "busybox")

    def fill(tar: tarfile.TarFile) -> None:
        for folder, mode in _FOLDERS.items():
            tar.addfile(making.plain_tar_entry(folder, tarfile.DIRTYPE, mode))
        tar.addfile(
            making.plain_tar_entry("bin/busybox", mode=0o755, size=len(binary)), io.BytesIO(binary)
        )
        for applet in applets:
            tar.addfile(
                making.plain_tar_entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777, link="busybox")
            )
        tar.addfile(
            making.plain_tar_entry("usr/bin/env", tarfile.SYMTYPE, 0o777, link="../../bin/env")
        )
        for name, (text, mode) in _etc().items():
            tar.addfile(
                making.plain_tar_entry(f"etc/{name}", mode=mode, size=len(text)),
                io.BytesIO(text.encode()),
            )

    options = ImageOptions(
        architecture=platform.architecture,
        variant=platform.variant,
        cmd=("sh",),
        env=(_PATH,),
        comment="busybox of this machine's package busybox-static",
    )
    return making.write_image(content, options, [making.write_layer(content, fill, packed=False)])


def _etc() -> dict[str, tuple[str, int]]:
    return {
        "group": ("".join(f"{name}:x:{number}:\n" for name, number in _GROUPS.items()), 0o644),
        "nsswitch.conf": ("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n", 0o644),
        "passwd": (
            "".join(
                f"{name}:x:{uid}:{gid}:{about}:{home}:{shell}\n"
                for name, uid, gid, about, home, shell in _USERS
            ),
            0o644,
        ),
        "shadow": ("".join(f"{user[0]}:*:10933:0:99999:7:::\n" for user in _USERS), 0o600),
    }


def _busybox() -> bytes:
    try:
        found = os.stat(BUSYBOX)
        data = BUSYBOX.read_bytes()
    except OSError as problem:
        raise ImageError(
            (
                f"the built-in image needs {BUSYBOX} of this machine: install the package "
                "busybox-static"
            ),
            "FailedPrecondition",
        ) from problem
    if not stat.S_ISREG(found.st_mode) or _is_dynamic(data):
        raise ImageError(
            (
                f"{BUSYBOX} of this machine is not statically linked: install the package "
                "busybox-static"
            ),
            "FailedPrecondition",
        )
    return data


def _is_dynamic(data: bytes) -> bool:
    """Whether a 64-bit ELF program has an interpreter."""
    if data[:5] != b"\x7fELF\x02":
        return False
    at, size, count = (
        int.from_bytes(data[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58))
    )
    return any(data[at + i * size : at + i * size + 4] == b"\x03\0\0\0" for i in range(count))


def _applets() -> list[str]:
    done = run_program([str(BUSYBOX), "--list"], timeout=10)
    names = [
        name
        for name in done.stdout.decode(errors="replace").split()
        if re.fullmatch(r"[a-zA-Z0-9_.\[-]+", name)
    ]
    if done.returncode or not names:
        raise ImageError(f"{BUSYBOX} --list printed no commands", "FailedPrecondition")
    return names
