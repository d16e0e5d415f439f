"""Takes the facts about releases 1.21 to 1.37 from Kubernetes' public source and writes the tables
of `machinery/releases`.

  python -m tools.release_facts GIT_DIRECTORY_OF_KUBERNETES

For each release: the API types with their fields, the served resources, deprecated and removed
kinds, the feature gates, and the build that `/version` reports. Only facts are taken, no code. A
fact that does not hold in all releases has a range: `@24-` since 1.24, `@-25` until 1.25, `@24-25`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.go_columns import Column, documented, kind_columns
from tools.go_types import META, ROOTS, SPECIAL, GoTypes

from transom.machinery.kinds import KINDS, Kind
from transom.machinery.releases import Release, in_range

FIRST, LAST = 21, 37
MINORS = range(FIRST, LAST + 1)
OUT = Path(__file__).parents[1] / "src" / "transom" / "machinery" / "releases"
_ALPHA = re.compile(r"v\d+alpha\d+")
# The first release whose source has discovery documents; rows of earlier ones are those of that
# release, if the kind existed, otherwise those of 1.20.
_DISCOVERY = 28
# What changed before there were discovery documents: resource -> the first release that serves it.
_SINCE = {
    "v1 pods/ephemeralcontainers": 23,
    "v1 pods/resize": 33,
}
_SINGULAR_NAMES = 27  # earlier discovery documents leave the singular name empty
_EVICTION_V1 = 22
_SERVICE_COLLECTIONS = 23
_GATE_FILES = (
    "pkg/features/kube_features.go",
    "pkg/features/versioned_kube_features.go",
    "staging/src/k8s.io/apiserver/pkg/features/kube_features.go",
    "staging/src/k8s.io/apiserver/pkg/features/versioned_kube_features.go",
    "staging/src/k8s.io/apiextensions-apiserver/pkg/features/kube_features.go",
    "staging/src/k8s.io/controller-manager/pkg/features/kube_features.go",
)


class Source:
    """The git directory of Kubernetes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", self._directory, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def ref(self, minor: int) -> str:
        """The tag of the last patch, or the release branch."""
        tags = [t for t in self.git("tag", "-l", f"v1.{minor}.*").split() if "-" not in t]
        return max(tags, key=lambda t: int(t.rpartition(".")[2]), default=f"release-1.{minor}")

    def read(self, ref: str, path: str) -> str:
        try:
            return self.git("show", f"{ref}:{path}")
        except subprocess.CalledProcessError:
            return ""

    def files(self, ref: str, *paths: str) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", ref, *paths).split()


# ---- ranges ----


def range_text(minors: Iterable[int]) -> str:
    """`@24-`, `@-25`; "" for what holds in all releases."""
    numbers = sorted(minors)
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    if spans == [[FIRST, LAST]]:
        return ""
    parts = [
        f"{'' if a == FIRST else a}-{'' if b == LAST else b}" if a != b else str(a)
        for a, b in spans
    ]
    return "@" + ",".join(parts)


def merged(by_minor: dict[int, list[str]]) -> list[str]:
    """All lines in one order, each with the range of releases that have it."""
    order: list[str] = []
    holds: dict[str, set[int]] = {}
    for minor in sorted(by_minor, reverse=True):
        before = ""
        for line in by_minor[minor]:
            if line not in holds:
                order.insert(order.index(before) + 1 if before else 0, line)
            holds.setdefault(line, set()).add(minor)
            before = line
    return [f"{line} {text}" if (text := range_text(holds[line])) else line for line in order]


def exact_blocks(head: str, by_minor: dict[int, list[str]]) -> list[list[str]]:
    """The lines of one thing in all releases, headed by its name: one block, or several where the
    order of the lines changed.
    """
    lines = merged(by_minor)
    if all(_of_release(lines, minor) == found for minor, found in by_minor.items()):
        groups = [(list(by_minor), lines)]
    else:
        groups = []
        for minor in sorted(by_minor):
            if groups and groups[-1][1] == by_minor[minor]:
                groups[-1][0].append(minor)
            else:
                groups.append(([minor], by_minor[minor]))
    return [
        [f"{head} {where}" if (where := range_text(minors)) else head, *found]
        for minors, found in groups
    ]


def _of_release(lines: list[str], minor: int) -> list[str]:
    """The lines that hold in a release."""
    out = []
    for line in lines:
        text, at, where = line.partition(" @")
        if not at or in_range(where, Release(1, minor)):
            out.append(text)
    return out


# ---- types ----


def read_types(source: Source, ref: str) -> GoTypes:
    types = GoTypes()
    for path in source.files(ref, *ROOTS, META):
        if not path.endswith(".go") or "generated" in path or path.endswith("_test.go"):
            continue
        package = ""
        for root in ROOTS:
            match = re.fullmatch(r"(\w+/v\w+)/[\w.]+\.go", path.removeprefix(root))
            if path.startswith(root) and match:
                package = match[1]
        if path.startswith(META + "/") and "/" not in path.removeprefix(META + "/"):
            package = "meta/v1"
        if package and not _ALPHA.fullmatch(package.partition("/")[2]):
            types.add_file(package, source.read(ref, path))
    return types


def rendered(types: GoTypes) -> dict[str, list[str]]:
    out = {}
    for name, declared in types.declared.items():
        if name in SPECIAL or declared.expression or not name.rpartition(".")[2][0].isupper():
            continue
        try:
            out[name] = types.render(name)
        except LookupError:
            continue  # internal helpers of the packages, or they use alpha types
    return without_alpha(out)


_REFERENCE = re.compile(r"^\S+ (?:map |\[\]|\*)*((?:\w+/\w+\.)?[A-Z]\w*)(?: |$)")
_LEAVES = {"Time", "Quantity", "IntOrString", "RawExtension", *SPECIAL.values()}


def without_alpha(types: dict[str, list[str]]) -> dict[str, list[str]]:
    """The types without fields of a type that is only in an alpha version."""
    out = {}
    for name, lines in types.items():
        package = name.partition(".")[0]
        kept = []
        for line in lines:
            found = _REFERENCE.match(line)
            ref = found[1] if found else ""
            if ref and "/" not in ref and ref not in _LEAVES:
                ref = f"{package}.{ref}"
            if "/" not in ref or ref in types:
                kept.append(line)
        out[name] = kept
    return out


def write_types(found: dict[int, dict[str, list[str]]]) -> None:
    names = sorted({name for types in found.values() for name in types})
    blocks = [
        "# API types of releases 1.21 to 1.37, written by tools/release_facts.py. Blocks and lines "
        "are as in gotypes.txt;\n# `#N` is the number of the field in protobuf, `name~` is left "
        "out when it is zero, `@24-30` are the releases\n# that have the line (or block)."
    ]
    for name in names:
        having = {minor: types[name] for minor, types in found.items() if name in types}
        head = f"{name} {text}" if (text := range_text(having)) else name
        lines = merged(having)
        own = range_text(having)
        lines = [line.removesuffix(f" {own}") if own else line for line in lines]
        blocks.append("\n".join([head, *lines]))
    (OUT / "types.txt").write_text("\n\n".join(blocks) + "\n")


# ---- lifecycle ----

_LIFECYCLE = re.compile(
    r"func \(in \*(\w+)\) APILifecycle(Introduced|Deprecated|Removed|Replacement)\(\)"
    r"[^{]*\{\s*return ([^\n]*)"
)


def lifecycle(source: Source, ref: str) -> dict[tuple[str, str, str], dict[str, str]]:
    """(directory, version, kind) -> introduced, deprecated, removed, replacement."""
    out: dict[tuple[str, str, str], dict[str, str]] = {}
    for path in source.files(ref, *ROOTS):
        if not path.endswith("lifecycle.go"):
            continue
        group, version = path.split("/")[-3:-1]
        for kind, what, value in _LIFECYCLE.findall(source.read(ref, path)):
            if kind.endswith("List"):
                continue
            if what == "Replacement":
                value = "/".join(re.findall(r'"([^"]*)"', value))
            else:
                value = ".".join(re.findall(r"\d+", value))
            out.setdefault((group, version, kind), {})[what.lower()] = value
    return out


# ---- resources ----


def enabled(source: Source, ref: str) -> tuple[set[str], set[str]]:
    """Import paths of the group versions, and `path resource`, that are on by default."""
    text = source.read(ref, "pkg/controlplane/instance.go") or source.read(
        ref, "pkg/master/master.go"
    )
    text += source.read(ref, "pkg/controlplane/apiserver/config.go")
    imports = dict(
        re.findall(r'^\s*(\w+)\s+"k8s\.io/(?:api|kubernetes/pkg/apis)/([^"]+)"', text, re.M)
    )
    versions: set[str] = set()
    resources: set[str] = set()
    blocks = re.findall(r"EnabledByDefault\w*\s*=\s*\[\][^{]*\{(.*?)\n\t\}", text, re.S)
    blocks += re.findall(r"ret\.Enable(?:Versions|Resources)\((.*?)\n\t\)", text, re.S)
    for block in blocks:
        block = re.sub(r"//[^\n]*", "", block)
        for alias, resource in re.findall(
            r'(\w+)\.SchemeGroupVersion(?:\.WithResource\("(\w+)"\))?', block
        ):
            path = imports.get(alias, alias)
            if resource:
                resources.add(f"{path} {resource}")
            else:
                versions.add(path)
    return versions, resources


def directory_of(group: str) -> str:
    if not group:
        return "core"
    short = group.partition(".")[0]
    return "apiserverinternal" if short == "internal" else short


def resource_line(api_version: str, row: dict[str, Any]) -> str:
    """One APIResource: group version, name, kind, scope, verbs, then what is not empty."""
    parts = [
        api_version,
        row["name"],
        row["kind"],
        "namespaced" if row["namespaced"] else "cluster",
        ",".join(row["verbs"]),
    ]
    if row.get("version"):
        group_version = f"{row['group']}/{row['version']}" if row.get("group") else row["version"]
        parts.append(f"as={group_version}")
    if row.get("singularName"):
        parts.append(f"singular={row['singularName']}")
    if row.get("shortNames"):
        parts.append(f"short={','.join(row['shortNames'])}")
    if row.get("categories"):
        parts.append(f"categories={','.join(row['categories'])}")
    if row.get("stored"):
        parts.append(f"stored={row['stored']}")
    return " ".join(parts)


def stored_version(group: str, kind: str, hash_text: str, versions: Iterable[str]) -> str:
    for version in versions:
        digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]
        if base64.b64encode(digest).decode() == hash_text:
            return version
    return ""


_VERSIONS = (
    "v1",
    "v2",
    *(f"v{n}{s}{m}" for n in (1, 2) for s in ("beta", "alpha") for m in (1, 2, 3)),
)


def discovery_rows(source: Source, ref: str) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for path in source.files(ref, "api/discovery"):
        document = json.loads(source.read(ref, path) or "{}")
        if document.get("kind") != "APIResourceList":
            continue
        gv = document["groupVersion"]
        group = gv.rpartition("/")[0]
        for row in document["resources"]:
            if row.get("storageVersionHash"):
                row["stored"] = stored_version(
                    group, row["kind"], row["storageVersionHash"], _VERSIONS
                )
            out.setdefault(gv, []).append(row)
    return out


def rows_of_1_20() -> dict[str, list[dict[str, Any]]]:
    """Our own table of 1.20, for kinds that were gone before there were discovery documents."""
    out: dict[str, list[dict[str, Any]]] = {}
    for kind in KINDS:
        places = [(kind.group, v) for v in kind.versions]
        places += [(group, v) for group, versions in kind.also for v in versions]
        for group, version in places:
            gv = f"{group}/{version}" if group else version
            out.setdefault(gv, []).extend(_rows_of(kind, group, version))
    return out


def _rows_of(kind: Kind, group: str, version: str) -> Iterator[dict[str, Any]]:
    main: dict[str, Any] = {
        "name": kind.plural,
        "kind": kind.kind,
        "namespaced": kind.namespaced,
        "verbs": list(kind.verbs),
        "singularName": kind.kind.lower(),
        "shortNames": list(kind.short),
        "categories": list(kind.categories),
    }
    if kind.stored:
        main["stored"] = kind.storage
    yield main
    for sub in kind.subresources_of(version, group):
        row: dict[str, Any] = {
            "name": f"{kind.plural}/{sub.name}",
            "kind": sub.kind or kind.kind,
            "namespaced": kind.namespaced,
            "verbs": list(sub.verbs),
        }
        if sub.group:
            row |= {"group": sub.group, "version": sub.version}
        yield row


def early_rows(
    minor: int, first: dict[str, list[dict[str, Any]]], old: dict[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of a release without discovery documents."""
    out = {gv: list(rows) for gv, rows in first.items()}
    for gv, rows in old.items():
        known = {row["name"] for row in out.get(gv, ())}
        out.setdefault(gv, []).extend(row for row in rows if row["name"] not in known)
    for gv, rows in out.items():
        changed = []
        for row in rows:
            if minor < _SINCE.get(f"{gv} {row['name']}", 0):
                continue
            row = dict(row)
            if minor < _SINGULAR_NAMES:
                row.pop("singularName", None)
            if row["name"] == "pods/eviction":
                row["version"] = "v1" if minor >= _EVICTION_V1 else "v1beta1"
            if (gv, row["name"]) == ("v1", "services") and minor < _SERVICE_COLLECTIONS:
                row["verbs"] = [v for v in row["verbs"] if v != "deletecollection"]
            changed.append(row)
        out[gv] = changed
    return out


def served_lines(
    source: Source,
    minor: int,
    ref: str,
    rows: dict[str, list[dict[str, Any]]],
    types: dict[str, list[str]],
    life: dict[tuple[str, str, str], dict[str, str]],
) -> list[str]:
    """The lines of a release; those that are off by default begin with `-`."""
    versions, resources = enabled(source, ref)
    betas = {"apiextensions/v1beta1", "apiregistration/v1beta1"}
    versions |= {"apiextensions/v1", "apiregistration/v1", *(betas if minor < 22 else ())}
    lines = []
    for gv in sorted(rows):
        group, _, version = gv.rpartition("/")
        if _ALPHA.fullmatch(version):
            continue
        path = f"{directory_of(group)}/{version}"
        kinds = {row["name"]: row["kind"] for row in rows[gv]}
        for row in sorted(rows[gv], key=lambda row: str(row["name"])):
            main = row["name"].partition("/")[0]
            kind = kinds.get(main, row["kind"])
            if f"{path}.{kind}" not in types:
                continue
            removed = life.get((path.partition("/")[0], version, kind), {}).get("removed")
            if removed and int(removed.partition(".")[2]) <= minor:
                continue
            on = path in versions or f"{path} {main}" in resources
            lines.append(("" if on else "- ") + resource_line(gv, row))
    return lines


def deprecation_lines(
    minor: int, life: dict[tuple[str, str, str], dict[str, str]], groups: dict[str, str]
) -> list[str]:
    lines = []
    for (directory, version, kind), facts in sorted(life.items()):
        deprecated = facts.get("deprecated", "")
        if _ALPHA.fullmatch(version) or not deprecated or int(deprecated[2:]) > minor:
            continue
        removed = facts.get("removed", "")
        if directory not in groups or (removed and int(removed[2:]) <= minor):
            continue
        group = groups[directory]
        gv = f"{group}/{version}" if group else version
        lines.append(f"{gv} {kind} {deprecated} {removed or '-'} {facts.get('replacement') or '-'}")
    return lines


# ---- priorities of group versions ----

_PRIORITY = re.compile(
    r'\{Group: "([^"]*)", Version: "(\w+)"\}:\s*\{group: (\d+), version: (\d+)\}', re.I
)
_PRIORITY_FILES = (
    "cmd/kube-apiserver/app/aggregator.go",
    "pkg/controlplane/apiserver/aggregator.go",
)


def priority_lines(source: Source, ref: str) -> list[str]:
    lines = set()
    for path in _PRIORITY_FILES:
        for group, version, of_group, of_version in _PRIORITY.findall(source.read(ref, path)):
            if not _ALPHA.fullmatch(version):
                gv = f"{group}/{version}" if group else version
                lines.add(f"{gv} {of_group} {of_version}")
    return sorted(lines)


# ---- printer columns ----


def read_columns(source: Source, ref: str) -> dict[str, list[Column]]:
    texts = []
    for path in source.files(ref, *ROOTS, META):
        if path.endswith("types_swagger_doc_generated.go"):
            package = path.removeprefix("staging/src/").rpartition("/")[0]
            texts.append((package, source.read(ref, path)))
    printers = source.read(ref, "pkg/printers/internalversion/printers.go")
    return dict(kind_columns(printers, documented(texts)))


def column_lines(found: dict[int, dict[str, list[Column]]]) -> list[str]:
    """`=N text` are the descriptions; `Kind [[name, type, format, priority, N], ...]`."""
    numbers: dict[str, int] = {}
    by_minor: dict[int, list[str]] = {}
    for minor, kinds in found.items():
        for kind, columns in sorted(kinds.items()):
            row = [
                [*column[:4], numbers.setdefault(column.description, len(numbers))]
                for column in columns
            ]
            line = f"{kind} {json.dumps(row, separators=(',', ':'))}"
            by_minor.setdefault(minor, []).append(line)
    lines = [f"={number} {json.dumps(text)}" for text, number in numbers.items()]
    return [*lines, *merged(by_minor)]


# ---- feature gates ----

_CONSTANT = re.compile(r'^\s*(\w+)\s+(?:featuregate\.Feature\s*)?=\s*"(\w+)"', re.M)
_UNVERSIONED = re.compile(r"^\s*(?:\w+\.)?(\w+):\s*\{(Default: .*)\}", re.M)
_VERSIONED = re.compile(r"^\t(?:\w+\.)?(\w+): \{\n(.*?)^\t\}", re.M | re.S)
_SPEC = re.compile(r'MustParse\("1\.(\d+)"\), (.*)\}')
_STAGES = {"Alpha": "alpha", "Beta": "beta", "GA": "stable", "Deprecated": "deprecated"}


def gates(source: Source, ref: str, minor: int) -> dict[str, str]:
    """Name -> `beta=true`; `stable=true!` if it is locked."""
    out: dict[str, str] = {}
    for path in _GATE_FILES:
        text = source.read(ref, path)
        names = dict(_CONSTANT.findall(text))
        for constant, spec in _UNVERSIONED.findall(text):
            out[names.get(constant, constant)] = _gate(spec)
        for constant, body in _VERSIONED.findall(text):
            specs = [spec for spec in _SPEC.findall(body) if int(spec[0]) <= minor]
            if specs:
                newest = max(specs, key=lambda spec: int(spec[0]))
                out[names.get(constant, constant)] = _gate(newest[1])
    return out


def _gate(spec: str) -> str:
    """`Default: true, PreRelease: featuregate.GA, LockToDefault: true`, in any order."""
    notes = dict(re.findall(r"(\w+): (?:featuregate\.)?(\w+)", spec))
    locked = "!" if notes.get("LockToDefault") == "true" else ""
    return f"{_STAGES[notes['PreRelease']]}={notes['Default']}{locked}"


# ---- everything ----


def build_line(source: Source, minor: int, ref: str) -> str:
    commit, date = source.git(
        "log", "-1", "--format=%H %cd", "--date=format:%Y-%m-%dT%H:%M:%SZ", ref
    ).split()
    version = ref if ref.startswith("v") else f"v1.{minor}.0"
    go = source.read(ref, ".go-version").strip() or _go_of_build_image(source, ref)
    return f"1.{minor} {version} {commit} {date} go{go}"


def _go_of_build_image(source: Source, ref: str) -> str:
    text = source.read(ref, "build/dependencies.yaml")
    found = re.search(r'name: "golang: upstream version"\s+version: ([\d.]+)', text)
    return found[1] if found else "1.16"


# ---- enumerations ----

_GENERATED = "pkg/generated/openapi/zz_generated.openapi.go"
_ENUM_PACKAGES = {
    "k8sio_api_": "",
    "pkg_apis_meta_": "meta/",
    "pkg_apis_apiextensions_": "apiextensions/",
    "pkg_apis_apiregistration_": "apiregistration/",
}


def enum_lines(source: Source, ref: str) -> list[str]:
    """Each field with a list of values in OpenAPI documents."""
    out, type_id, field = [], "", ""
    for line in source.read(ref, _GENERATED).splitlines():
        if line.startswith("func schema_"):
            type_id = _enum_type(line.removeprefix("func schema_").partition("(")[0])
        elif found := re.match(r'\t{5}"([^"]+)": {', line):
            field = found[1]
        elif type_id and (found := re.match(r"\t+Enum:\s+\[\]interface{}{(.*?)}", line)):
            values = json.loads(f"[{found[1]}]")
            words = " ".join(value.replace(" ", "%20") or '""' for value in values)
            out.append(f"{type_id}.{field} {words}")
    return out


def _enum_type(function: str) -> str:
    """`k8sio_api_core_v1_Pod` -> `core/v1.Pod`; "" for types that are not of an API."""
    for prefix, package in _ENUM_PACKAGES.items():
        if function.startswith(prefix):
            *groups, version, name = function.removeprefix(prefix).split("_")
            return f"{package}{'/'.join([*groups, version])}.{name}"
    return ""


def main() -> int:
    source = Source(sys.argv[1])
    types: dict[int, dict[str, list[str]]] = {}
    lines: dict[int, list[str]] = {}
    deprecated: dict[int, list[str]] = {}
    priorities: dict[int, list[str]] = {}
    columns: dict[int, dict[str, list[Column]]] = {}
    enums: dict[int, list[str]] = {}
    gate_values: dict[str, dict[int, str]] = {}
    # The builds of older releases do not change.
    builds = [
        line
        for line in (OUT / "builds.txt").read_text().splitlines()
        if line.startswith("1.") and int(line[2:4]) < FIRST
    ]
    first = discovery_rows(source, source.ref(_DISCOVERY))
    old = rows_of_1_20()
    groups = {directory_of(gv.rpartition("/")[0]): gv.rpartition("/")[0] for gv in [*first, *old]}
    for minor in MINORS:
        ref = source.ref(minor)
        print(ref, file=sys.stderr)
        builds.append(build_line(source, minor, ref))
        types[minor] = rendered(read_types(source, ref))
        priorities[minor] = priority_lines(source, ref)
        columns[minor] = read_columns(source, ref)
        enums[minor] = enum_lines(source, ref)
        life = lifecycle(source, ref)
        rows = discovery_rows(source, ref) if minor >= _DISCOVERY else early_rows(minor, first, old)
        groups |= {directory_of(gv.rpartition("/")[0]): gv.rpartition("/")[0] for gv in rows}
        lines[minor] = served_lines(source, minor, ref, rows, types[minor], life)
        deprecated[minor] = deprecation_lines(minor, life, groups)
        for name, value in gates(source, ref, minor).items():
            gate_values.setdefault(name, {})[minor] = value
    OUT.mkdir(exist_ok=True)
    write_types(types)
    _write("builds.txt", "Release, version of its last patch, commit, date, Go version.", builds)
    _write(
        "resources.txt",
        "Served resources as discovery lists them: group version, resource, kind, scope, verbs. "
        "`-` stands before what is off by default. `as=` is the group version of a subresource's "
        "kind, `stored=` the storage version.",
        merged(lines),
    )
    _write(
        "deprecations.txt",
        "Group version, kind, release that deprecated it, release that removes it, replacement.",
        merged(deprecated),
    )
    _write(
        "priorities.txt",
        "Group version, priority of the group, priority of the version in it.",
        merged(priorities),
    )
    _write(
        "columns.txt",
        "Printer columns: `=N` is a description, a kind has [name, type, format, priority, N].",
        column_lines(columns),
    )
    _write("enums.txt", "Fields with an enumeration in OpenAPI, and its values.", merged(enums))
    gate_lines = []
    for name, values in sorted(gate_values.items()):
        steps: dict[str, list[int]] = {}
        for minor, value in values.items():
            steps.setdefault(value, []).append(minor)
        gate_lines.append(
            " ".join([name, *(f"{value}{range_text(ms)}" for value, ms in steps.items())])
        )
    _write("gates.txt", "Feature gates: stage=default, `!` if it cannot be changed.", gate_lines)
    return 0


def _write(name: str, about: str, lines: list[str]) -> None:
    head = f"# Written by tools/release_facts.py. {about} `@24-30` are the releases that have it.\n"
    (OUT / name).write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
