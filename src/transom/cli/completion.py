"""`transom completion`: shell completions of verbs, options, and names of a cluster's objects.

The scripts call `transom __complete WORD...`, which prints the candidates for the last word, so the
shells need no knowledge of the verbs. Errors give no candidates: a completion must not print them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from transom.cli.aliases import ALIASES, resolve_alias
from transom.cli.command import Command
from transom.kit.user_errors import UserError

HELP = """\
Print a script that lets a shell complete the verbs and options of transom, and the names of clusters, nodes, pods and
Windows limitations."""
EXAMPLES = """\
  source <(transom completion bash)                                      in ~/.bashrc
  transom completion zsh > "${fpath[1]}/_transom"
  transom completion fish > ~/.config/fish/completions/transom.fish"""

_BASH = """\
# bash completion for transom
_transom() {
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    local IFS=$'\\n'
    COMPREPLY=($(transom __complete "${words[@]}" 2>/dev/null))
}
complete -o default -F _transom transom
complete -o default -F _transom kubectl-transom
"""
_ZSH = """\
#compdef transom kubectl-transom
# zsh completion for transom
_transom() {
    local -a found
    found=("${(@f)$(transom __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -Q -- "${found[@]}"
    else
        _files
    fi
}
if [[ "${funcstack[1]}" = _transom ]]; then
    _transom "$@"
else
    compdef _transom transom kubectl-transom
fi
"""
_FISH = """\
# fish completion for transom
function __transom_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (transom __complete $words[2..-1] 2>/dev/null)
    if set -q found[1]
        string join -- \\n $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c transom -f -a '(__transom_complete)'
complete -c kubectl-transom -f -a '(__transom_complete)'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion_script(shell: str) -> str:
    return SHELLS[shell]


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=", ".join(SHELLS))


def run_completion_command(args: argparse.Namespace) -> int:
    print(completion_script(args.shell), end="")
    return 0


MakeParser = Callable[[str], tuple[argparse.ArgumentParser, Command]]


def complete(words: Sequence[str], verbs: Iterable[str], make_parser: MakeParser) -> list[str]:
    """The candidates for the last word, which may be empty; no candidates where files are meant."""
    *before, current = words or [""]
    if not before:
        return _starting({*verbs, *(alias[0] for alias in ALIASES)}, current)
    *before, current = _without_equals_signs(before, current)
    resolved = resolve_alias(before)
    seconds = []
    if len(before) == 1:
        seconds = [alias[1] for alias in ALIASES if len(alias) > 1 and alias[0] == before[0]]
    if resolved[0] not in verbs:
        return _starting(seconds, current)
    option, equals, value = current.partition("=") if current.startswith("--") else ("", "", "")
    if equals:
        found = complete([*before, option, value], verbs, make_parser)
        return [f"{option}={word}" for word in found]
    try:
        candidates = _candidates(make_parser(resolved[0])[0], resolved[1:], current)
        return _starting([*seconds, *candidates], current)
    except (UserError, OSError):
        return []


def _without_equals_signs(before: Sequence[str], current: str) -> list[str]:
    """bash passes `--name=blue` as three words, and completes only the last of them."""
    words = [word for word in before if word != "="]
    return [*words, "" if current == "=" else current]


def _starting(candidates: Iterable[str], prefix: str) -> list[str]:
    return sorted({word for word in candidates if word.startswith(prefix)})


def _candidates(parser: argparse.ArgumentParser, words: list[str], current: str) -> Iterable[str]:
    options, positionals, position = _actions(parser)
    cluster, waiting = "", None
    for word in words:
        if waiting is not None:
            cluster = word if "--name" in waiting.option_strings else cluster
            waiting = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            action = options.get(name)
            if action is not None and equals and name == "--name":
                cluster = value
            elif action is not None and not equals and action.nargs != 0:
                waiting = action
        elif position < len(positionals):
            action = positionals[position]
            if isinstance(action, argparse._SubParsersAction):
                if word not in action.choices:
                    return []
                options, positionals, position = _actions(action.choices[word])
            elif action.nargs not in ("*", "+"):
                position += 1
    if waiting is None and current.startswith("-"):
        return options
    if waiting is None:
        waiting = positionals[position] if position < len(positionals) else None
    return _values(waiting, cluster) if waiting is not None else []


def _actions(
    parser: argparse.ArgumentParser,
) -> tuple[dict[str, argparse.Action], list[argparse.Action], int]:
    """The options, the positional arguments, and the position of the first of these: 0."""
    options = {name: action for action in parser._actions for name in action.option_strings}
    return options, [action for action in parser._actions if not action.option_strings], 0


def _values(action: argparse.Action, cluster: str) -> Iterable[str]:
    if action.choices is not None:
        return map(str, action.choices)
    find = _NAMES.get(str(action.metavar))
    return find(cluster) if find is not None else ()


def _clusters(cluster: str) -> list[str]:
    from transom.cluster.config import known_clusters

    return known_clusters()


def _object_names(cluster: str, path: str) -> list[tuple[str, str]]:
    """Namespace and name of each object below a path of the API."""
    from transom.cluster import lifecycle
    from transom.node.settings import default_name

    call = lifecycle.control_client(lifecycle.existing_cluster(cluster or default_name()))
    found = [item["metadata"] for item in call("GET", path)["items"]]
    return [(meta.get("namespace", ""), meta["name"]) for meta in found]


def _nodes(cluster: str) -> list[str]:
    return [name for _, name in _object_names(cluster, "/api/v1/nodes")]


def _pods(cluster: str) -> list[str]:
    """Names in the namespace default, and NAMESPACE/NAME of all pods."""
    found = _object_names(cluster, "/api/v1/pods")
    own = [name for namespace, name in found if namespace == "default"]
    return own + [f"{namespace}/{name}" for namespace, name in found]


def _namespaces(cluster: str) -> list[str]:
    return [name for _, name in _object_names(cluster, "/api/v1/namespaces")]


def _nodes_and_pods(cluster: str) -> list[str]:
    return _nodes(cluster) + _pods(cluster)


def _limits(cluster: str) -> list[str]:
    from transom.windows import registry

    return list(registry.RECORDS)


def _releases(cluster: str) -> list[str]:
    from transom.machinery.releases import RELEASES

    return list(RELEASES)


def _builds(cluster: str) -> list[str]:
    from transom.windows import builds

    return [str(number) for number in builds.BUILDS]


# metavar of an argument -> what it names
_NAMES: dict[str, Callable[[str], list[str]]] = {
    "CLUSTER": _clusters,
    "NODE": _nodes,
    "POD": _pods,
    "NODE|POD": _nodes_and_pods,
    "FROM": _nodes_and_pods,
    "TO[:PORT]": _nodes_and_pods,
    "NAMESPACE": _namespaces,
    "ID|TOPIC": _limits,
    "IDS": _limits,
    "BUILD": _builds,
    "R": _releases,
    "RELEASE": _releases,
    "X.Y": _releases,
}


COMMAND = Command(HELP, EXAMPLES, add_completion_arguments, run_completion_command)
