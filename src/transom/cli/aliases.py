"""Command lines of kind, k3d and minikube, as verbs of `transom`.

Users type what they know: `create cluster`, `cluster list`, `start --profile blue`. Each alias is
replaced by our words before the verb is looked up; the verb's own help and errors apply.
"""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple


class Alias(NamedTuple):
    words: tuple[str, ...]
    takes_name: bool = False  # the next word, if it is not an option, is the cluster


_UP, _DOWN, _DELETE = (Alias((verb,), True) for verb in ("up", "down", "delete"))
_LIST = Alias(("list",))
# What users type -> what it means. The first word of an alias is never a verb with other objects.
ALIASES = {
    # kind
    ("create", "cluster"): _UP,
    ("delete", "cluster"): _DELETE,
    ("delete", "clusters"): Alias(("delete",)),
    ("get", "clusters"): Alias(("list", "--quiet")),
    ("get", "nodes"): Alias(("node", "list")),
    ("get", "kubeconfig"): Alias(("kubeconfig",)),
    ("export", "logs"): Alias(("report",)),
    ("load", "docker-image"): Alias(("image", "load", "--from", "docker")),
    ("load", "image-archive"): Alias(("image", "load", "--file")),
    # k3d
    ("cluster", "create"): _UP,
    ("cluster", "delete"): _DELETE,
    ("cluster", "start"): _UP,
    ("cluster", "stop"): _DOWN,
    ("cluster", "list"): _LIST,
    ("cluster", "ls"): _LIST,
    ("kubeconfig", "get"): Alias(("kubeconfig",), True),
    # minikube
    ("start",): _UP,
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
            return [*alias.words, *_rename_options(arguments[length:], alias.takes_name)]
    return arguments


def _rename_options(rest: list[str], takes_name: bool) -> list[str]:
    if takes_name and rest and not rest[0].startswith("-"):
        rest = ["--name", *rest]
    renamed = []
    for word in rest:
        option, equals, value = word.partition("=")
        renamed.append(f"--name{equals}{value}" if option in _NAME_OPTIONS else word)
    return renamed
