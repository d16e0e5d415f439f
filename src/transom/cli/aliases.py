"""Command lines of kind, k3d and minikube, as verbs of `transom`.

Users type what they know: `create cluster`, `cluster list`, `start --profile blue`. Each alias is
replaced by our words before the verb is looked up; the verb's own help and errors apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from transom.kit.named_tuple import NamedTuple

Words = list[str]
Option = Callable[[str], Words]  # an option of another tool, by its value: ours


class Alias(NamedTuple):
    words: tuple[str, ...]
    takes_name: bool = False  # the next word, if it is not an option, is the cluster
    options: dict[str, Option] = {}
    flags: dict[str, str] = {}  # options without a value; "" for those that say what we do anyway


def _release(value: str) -> Words:
    """kindest/node:v1.34.0@sha256:..., rancher/k3s:v1.31.4-k3s1, v1.32.0"""
    tag = value.partition("@")[0].rpartition(":")[2]
    found = re.match(r"v?(\d+\.\d+)", tag)
    return ["--release", found[1] if found else value]


def _workers(value: str) -> Words:
    """minikube counts the control plane."""
    return ["--linux", str(int(value) - 1) if value.isdigit() else value]


def _agents(value: str) -> Words:
    return ["--linux", value]


def _servers(value: str) -> Words:
    return [] if value == "1" else ["--servers", value]


def _not_needed(_: str) -> Words:
    return []


_UP, _DOWN, _DELETE = (Alias((verb,), True) for verb in ("up", "down", "delete"))
_LIST = Alias(("list",))
_UP_KIND = _UP._replace(
    options={"--image": _release, "--wait": _not_needed}, flags={"--retain": ""}
)
# kind asks which kubeconfig and which cluster: we know the former, and all clusters share the images.
_DELETE_KIND = _DELETE._replace(options={"--kubeconfig": _not_needed})
_LOAD_KIND = Alias(("image", "load"), options={"--name": _not_needed, "--nodes": _not_needed})
_UP_K3D = _UP._replace(
    options={
        "--image": _release,
        "-i": _release,
        "--agents": _agents,
        "-a": _agents,
        "--servers": _servers,
        "-s": _servers,
        "--timeout": _not_needed,
    },
    flags={"--wait": ""},
)
_UP_MINIKUBE = _UP._replace(
    options={
        "--kubernetes-version": _release,
        "--nodes": _workers,
        "-n": _workers,
        "--driver": _not_needed,
        "--wait": _not_needed,
    },
)
# What users type -> what it means. The first word of an alias is never a verb with other objects.
ALIASES = {
    # kind
    ("create", "cluster"): _UP_KIND,
    ("delete", "cluster"): _DELETE_KIND,
    ("delete", "clusters"): _DELETE_KIND._replace(flags={"-A": "--all"}),
    ("get", "clusters"): Alias(("list", "--quiet")),
    ("get", "nodes"): Alias(("node", "list")),
    ("get", "kubeconfig"): Alias(("kubeconfig",)),
    ("export", "logs"): Alias(("report",)),
    ("load", "docker-image"): _LOAD_KIND._replace(words=("image", "load", "--from", "docker")),
    ("load", "image-archive"): _LOAD_KIND._replace(words=("image", "load", "--file")),
    # k3d
    ("cluster", "create"): _UP_K3D,
    ("cluster", "delete"): _DELETE._replace(flags={"-a": "--all"}),
    ("cluster", "start"): _UP,
    ("cluster", "stop"): _DOWN,
    ("cluster", "list"): _LIST,
    ("cluster", "ls"): _LIST,
    ("kubeconfig", "get"): Alias(("kubeconfig",), True),
    # minikube
    ("start",): _UP_MINIKUBE,
    ("stop",): _DOWN,
    ("profile", "list"): _LIST,
    ("ls",): _LIST,
    ("create",): _UP,
}
_NAME_OPTIONS = ("-p", "--profile", "--cluster")


def resolve_alias(arguments: list[str]) -> list[str]:
    """The command line in our words; unchanged if it is not an alias."""
    for length in (2, 1):
        alias = ALIASES.get(tuple(arguments[:length]))
        if alias is not None:
            return [*alias.words, *_rename_options(arguments[length:], alias)]
    return arguments


def _rename_options(rest: list[str], alias: Alias) -> list[str]:
    if alias.takes_name and rest and not rest[0].startswith("-"):
        rest = ["--name", *rest]
    renamed = []
    words = iter(rest)
    for word in words:
        option, equals, value = word.partition("=")
        if option in _NAME_OPTIONS:
            renamed.append(f"--name{equals}{value}")
        elif option in alias.options:
            renamed += alias.options[option](value if equals else next(words, ""))
        elif word in alias.flags:
            renamed += filter(None, [alias.flags[word]])
        else:
            renamed.append(word)
    return renamed
