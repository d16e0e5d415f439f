"""Takes the internal Go types of releases 1.21 to 1.37 from Kubernetes' public source and writes
`machinery/releases/internal_types.txt`.

  python -m tools.internal_types GIT_DIRECTORY_OF_KUBERNETES

Some errors print internal values, so the names, types and order of their fields are part of the
answer. Only facts are taken. A field whose JSON name does not follow from its Go name has it after
`=`; the members of an embedded field (`^`) are those of its parent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from tools.release_facts import MINORS, OUT, Source, merged, range_text

from transom.machinery.validation.gotypes import json_name

_EXTENSIONS = "staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
# Package -> the internal files, and the published files with the JSON names.
PACKAGES = {
    "apiextensions": ((f"{_EXTENSIONS}/types.go",), (f"{_EXTENSIONS}/v1/types.go",)),
    **{
        name: (
            (f"pkg/apis/{name}/types.go",),
            tuple(f"staging/src/k8s.io/api/{name}/{v}/types.go" for v in ("v1", "v1beta1")),
        )
        for name in (
            [
                "apps",
                "batch",
                "certificates",
                "core",
                "flowcontrol",
                "networking",
                "node",
                "policy",
                "rbac",
                "storage",
            ]
        )
    },
}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^\t(\w+)\s+([\w.*\[\]]+)(?:\s+`json:\"([^\",]*)[^`]*`)?", re.M)
_EMBEDDED = re.compile(r"^\t([\w.]+)(?:\s+`json:\"([^\",]*)[^`]*`)?\s*(?://.*)?$", re.M)
_BASIC = {"string", "bool", "int", "int32", "int64", "float64", "byte"}
_ALIASES = {"metav1": "v1", "api": "core", "core": "core"}
_IMPORTS = re.compile(r'(\w+) "[\w./-]*/(\w+)"')


def struct_blocks(text: str) -> Iterator[tuple[str, str]]:
    for match in _STRUCT.finditer(text):
        yield match[1], re.sub(r"^\s*//.*\n", "", match[2], flags=re.M)


def json_names(text: str) -> dict[tuple[str, str], str]:
    """(struct, field) -> JSON name."""
    return {
        (name, field[1]): field[3]
        for name, body in struct_blocks(text)
        for field in _FIELD.finditer(body)
        if field[3]
    }


def full_type(go_type: str, package: str) -> str:
    """`*Volume` -> `*core.Volume`."""
    match = re.fullmatch(r"((?:\*|\[\]|map\[\w+\])*)([\w.]+)", go_type)
    if match is None:
        return go_type
    prefix, name = match[1], match[2]
    prefix = re.sub(r"map\[\w+\]", "map[string]", prefix)
    if name in _BASIC:
        return prefix + name
    qualifier, dot, short = name.partition(".")
    if not dot:
        return f"{prefix}{package}.{name}"
    return f"{prefix}{_ALIASES.get(qualifier, qualifier)}.{short}"


def lines_of(body: str, struct: str, package: str, names: dict[tuple[str, str], str]) -> list[str]:
    out = []
    for line in body.splitlines():
        if match := _EMBEDDED.match(line):
            inner = full_type(match[1], package)
            short = match[1].rpartition(".")[2]
            if short == "TypeMeta":
                return []  # a kind
            json = names.get((struct, short), "metadata" if short == "ObjectMeta" else "")
            out.append(f"{short}={json} {inner}" if json else f"{short}^ {inner}")
        elif match := _FIELD.match(line):
            field, go_type = match[1], full_type(match[2], package)
            json = names.get((struct, field), "") or json_name(field)
            shown = field if json == json_name(field) else f"{field}={json}"
            out.append(f"{shown} {go_type}")
    return out


def internal_types(source: Source, ref: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for package, (internal, published) in PACKAGES.items():
        names: dict[tuple[str, str], str] = {}
        for path in reversed(published):
            names.update(json_names(source.read(ref, path)))
        for path in internal:
            for struct, body in struct_blocks(source.read(ref, path)):
                lines = lines_of(body, struct, package, names)
                if lines and not struct.endswith(("List", "Options")):
                    found[f"{package}.{struct}"] = lines
    return found


def main() -> int:
    source = Source(sys.argv[1])
    by_minor = {}
    for minor in MINORS:
        ref = source.ref(minor)
        if not source.read(ref, "pkg/apis/core/types.go"):
            ref = "HEAD"
        by_minor[minor] = internal_types(source, ref)
    out = []
    for name in sorted({name for found in by_minor.values() for name in found}):
        having = {minor: found[name] for minor, found in by_minor.items() if name in found}
        where = range_text(having)
        out += ["", f"{name} {where}" if where else name, *_ordered(having)]
    head = "# Written by tools/internal_types.py: internal types, their fields in Go's order.\n"
    (OUT / "internal_types.txt").write_text(head + "\n".join(out[1:]) + "\n")
    return 0


def _ordered(having: dict[int, list[str]]) -> list[str]:
    """The merged lines; a range that is the type's own is left out."""
    whole = range_text(having)
    return [line.removesuffix(f" {whole}") if whole else line for line in merged(having)]


if __name__ == "__main__":
    sys.exit(main())
