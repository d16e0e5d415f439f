"""The operating system and Windows build of an image, derived from its name.

Uses only names, no registry. Returns None for an unknown name: a guess would cause wrong warnings,
so the tables below contain only names and tags for a single system, and not those of multi-platform
images.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from transom.windows.builds import WindowsBuild, build_of_tag

Os = Literal["windows", "linux"]

# Repositories, and folders of repositories (with a trailing slash), that have only Windows images.
_WINDOWS_REPOSITORIES: Final = (
    "mcr.microsoft.com/windows",
    "mcr.microsoft.com/windows/",
    "mcr.microsoft.com/windows-cssc/",
    "mcr.microsoft.com/dotnet/framework/",
    "mcr.microsoft.com/mssql/server/windows",
    "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image",
    "microsoft/windowsservercore",
    "microsoft/nanoserver",
    "microsoft/iis",
    "microsoft/aspnet",
    "microsoft/wcf",
    "microsoft/dotnet-framework",
    "microsoft/mssql-server-windows",
    "microsoft/mssql-server-windows-developer",
    "microsoft/mssql-server-windows-express",
    "microsoft/windows-nanoserver",
    "microsoft/sample-dotnet-framework",
    "ghcr.io/prometheus-community/windows-exporter",
    "calico/windows",
    "calico/node-windows",
    "calico/cni-windows",
)
# Words of a tag, or suffixes of a repository, that indicate Windows.
_WINDOWS_WORDS: Final = frozenset(
    (
        "windows",
        "windowsservercore",
        "servercore",
        "nanoserver",
        "windowsserver",
        "ltsc2016",
        "ltsc2019",
        "ltsc2022",
        "ltsc2025",
        "windowsamd64",
        "win1809",
        "win2019",
        "win2022",
    )
)
_WINDOWS_VERSION: Final = re.compile(
    r"(?:^|[^0-9.])10\.0\.(?:1[4-9]|2[0-9])[0-9]{3}(?:\.|$|[^0-9])"
)

# Official images that never had a Windows variant, and base images of Linux distributions.
_LINUX_LIBRARY: Final = frozenset(
    (
        "adminer",
        "almalinux",
        "alpine",
        "amazonlinux",
        "bash",
        "busybox",
        "cassandra",
        "centos",
        "couchbase",
        "couchdb",
        "debian",
        "drupal",
        "elasticsearch",
        "fedora",
        "fluentd-elasticsearch",
        "ghost",
        "haproxy",
        "httpd",
        "joomla",
        "kibana",
        "kong",
        "logstash",
        "mariadb",
        "memcached",
        "mysql",
        "nextcloud",
        "nginx",
        "node",
        "percona",
        "perl",
        "php",
        "phpmyadmin",
        "postgres",
        "rabbitmq",
        "redis",
        "redmine",
        "rockylinux",
        "ruby",
        "solr",
        "sonarqube",
        "tomcat",
        "ubuntu",
        "wordpress",
        "zookeeper",
    )
)
_LINUX_REPOSITORIES: Final = (
    "gcr.io/distroless/",
    "registry.access.redhat.com/",
    "registry.redhat.io/",
    "quay.io/centos/",
    "quay.io/fedora/",
    "cgr.dev/chainguard/",
    "bitnami/",
    "docker.io/bitnami/",
    "linuxserver/",
    "lscr.io/linuxserver/",
)
_LINUX_WORDS: Final = frozenset(
    (
        "linux",
        "alpine",
        "debian",
        "ubuntu",
        "centos",
        "fedora",
        "ubi",
        "ubi7",
        "ubi8",
        "ubi9",
        "rhel",
        "rhel7",
        "rhel8",
        "slim",
        "distroless",
        "musl",
        "stretch",
        "buster",
        "bullseye",
        "bookworm",
        "trixie",
        "xenial",
        "bionic",
        "focal",
        "jammy",
        "noble",
    )
)
_LINUX_PREFIX: Final = re.compile(r"alpine[0-9]")
_WORDS: Final = re.compile(r"[-_.+]")
# Images for both systems, with tags for Linux.
_BOTH: Final = ("e2e-test-images/", "e2eteam/")
# Linux images named after Windows: virtual machines, operators, webhooks.
_NOT_WINDOWS: Final = frozenset(("dockurr/windows", "docker.io/dockurr/windows"))


def split_image_name(image: str) -> tuple[str, str]:
    """The repository and the tag, "" if there is none."""
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon is that of a port
        return name, ""
    return repository, tag


@lru_cache(maxsize=4096)
def image_os(image: str) -> Os | None:
    """The operating system of an image; None if its name does not show it."""
    repository, tag = split_image_name(image.lower())
    words = _WORDS.split(tag)
    if repository in _NOT_WINDOWS:
        return "linux"
    if _WINDOWS_WORDS.intersection(words) or _WINDOWS_VERSION.search(tag):
        return "windows"
    if any(name in repository for name in _BOTH):
        return None
    if not _LINUX_WORDS.isdisjoint(words) or any(_LINUX_PREFIX.match(word) for word in words):
        return "linux"
    hub = repository.removeprefix("docker.io/")
    if _among(repository, _WINDOWS_REPOSITORIES) or _among(hub, _WINDOWS_REPOSITORIES):
        return "windows"
    last = _WORDS.split(hub.rpartition("/")[2])
    if (
        (last[-1] in _WINDOWS_WORDS and len(last) > 1)
        or "servercore" in last
        or "nanoserver" in last
    ):
        return "windows"
    if hub.removeprefix("library/") in _LINUX_LIBRARY or _among(repository, _LINUX_REPOSITORIES):
        return "linux"
    return None


def image_build_of(image: str) -> WindowsBuild | None:
    """The Windows build in an image's tag, if its name shows that it is for Windows."""
    return build_of_tag(split_image_name(image)[1]) if image_os(image) == "windows" else None


def _among(repository: str, names: tuple[str, ...]) -> bool:
    return any(
        repository == name or (name.endswith("/") and repository.startswith(name)) for name in names
    )
