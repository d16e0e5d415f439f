"""Reads the API types of one release of Kubernetes from its Go source, as lines of a type table.

Used by `tools/release_facts.py`. Only facts are taken: names, types, tags and markers of fields.
The format of the lines is that of `machinery/gotypes.txt`, with the protobuf number as `#N`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

# Directory of a group's types -> how the type table calls the package.
ROOTS = {
    "staging/src/k8s.io/api/": "",
    "staging/src/k8s.io/apiextensions-apiserver/pkg/apis/": "",
    "staging/src/k8s.io/kube-aggregator/pkg/apis/": "",
}
_IMPORTS = {
    "k8s.io/api/": "",
    "k8s.io/apiextensions-apiserver/pkg/apis/": "",
    "k8s.io/kube-aggregator/pkg/apis/": "",
    "k8s.io/apimachinery/pkg/apis/": "",
}
META = "staging/src/k8s.io/apimachinery/pkg/apis/meta/v1"
# Types with a JSON form of their own.
SPECIAL = {
    "meta/v1.Time": "Time",
    "meta/v1.MicroTime": "MicroTime",
    "meta/v1.Duration": "Duration",
    "meta/v1.FieldsV1": "FieldsV1",
    "apiextensions/v1.JSON": "JSON",
    "apiextensions/v1.JSONSchemaPropsOrArray": "JSONSchemaPropsOrArray",
    "apiextensions/v1.JSONSchemaPropsOrBool": "JSONSchemaPropsOrBool",
    "apiextensions/v1.JSONSchemaPropsOrStringArray": "JSONSchemaPropsOrStringArray",
}
_FOREIGN = {
    "resource.Quantity": "Quantity",
    "intstr.IntOrString": "IntOrString",
    "runtime.RawExtension": "RawExtension",
    "runtime.Object": "RawExtension",
    "types.UID": "string",
    "types.NodeName": "string",
    "types.NamespacedName": "string",
}
_SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int64",
    "int32": "int32",
    "int64": "int64",
    "uint32": "int64",
    "uint64": "int64",
    "float64": "float64",
    "byte": "byte",
    "uint8": "byte",
    "interface{}": "interface{}",
    "any": "interface{}",
}
_TAG = re.compile(r"`([^`]*)`")
_JSON = re.compile(r'json:"([^"]*)"')
_PROTO = re.compile(r'protobuf:"\w+,(\d+)')
# Markers that name no gate: the gate that Kubernetes' code checks.
_GATE_NAMES = {
    "LoadBalancerClass": "ServiceLoadBalancerClass",
    "PodCertificateProjection": "PodCertificateRequest",
}
# Gates of fields that decide about more than the field; the strategy of the kind handles them.
_BY_STRATEGY = frozenset(("CrossNamespaceVolumeDataSource",))
_STRATEGY = re.compile(r'patchStrategy:"([^"]*)"')
_KEY = re.compile(r'patchMergeKey:"([^"]*)"')
_IMPORT = re.compile(r'^\s*(?:import\s+)?(?:(\w+)\s+)?"([^"]+)"', re.M)


@dataclass
class Declared:
    """A type declaration: the fields of a struct, or another type's expression."""

    package: str
    imports: Mapping[str, str]
    expression: str = ""
    fields: list[tuple[str, str, str, list[str]]] = field(default_factory=list)
    markers: list[str] = field(default_factory=list)  # of the declaration itself

    @property
    def atomic(self) -> bool:
        return any(m in ("structType=atomic", "mapType=atomic") for m in self.markers)


class GoTypes:
    """All declarations of a release: `core/v1.PodSpec` -> Declared."""

    def __init__(self) -> None:
        self.declared: dict[str, Declared] = {}

    def add_file(self, package: str, text: str) -> None:
        head, _, _ = text.partition("\ntype ")
        imports = {}
        for name, path in _IMPORT.findall(head):
            imports[name or path.rpartition("/")[2]] = path
        comment: list[str] = []
        lines = iter(text.splitlines())
        in_group = False
        for line in lines:
            bare = line.strip()
            if bare.startswith("//"):
                comment.append(bare[2:].strip())
                continue
            if bare == "type (":
                in_group = True
            match = re.match(r"(?:type )?(\w+)(?:\[.*?\])? (=\s*)?(.+)", bare)
            if match and (line.startswith("type ") or (in_group and line.startswith("\t"))):
                name, rest = match[1], match[3].split("//")[0].strip()
                made = Declared(package, imports, "", [], _markers(comment))
                self.declared.setdefault(f"{package}.{name}", made)
                if rest.startswith("struct {") and not rest.endswith("}"):
                    made.fields = _read_fields(lines)
                elif not rest.startswith("struct"):
                    made.expression = rest
            if bare == ")":
                in_group = False
            if bare:
                comment = []

    # ---- rendering ----

    def render(self, name: str) -> list[str]:
        """The lines of a struct."""
        made = self.declared[name]
        lines = []
        for go_name, expression, tag, markers in made.fields:
            line = self._line(made, go_name, expression, tag, markers)
            if line:
                lines.append(line)
        return lines

    def _line(
        self, made: Declared, go_name: str, expression: str, tag: str, markers: list[str]
    ) -> str:
        json_tag = (_JSON.search(tag) or ["", ""])[1]
        name, *options = json_tag.split(",")
        if name == "-":
            return ""
        number = _PROTO.search(tag)
        hash_number = f" #{number[1]}" if number else ""
        if "inline" in options or (not go_name and not name):
            short = self._absolute(made, expression.lstrip("*"))
            return f"& {_relative(short, made.package)}{hash_number}"
        if not name:
            return ""
        own = go_name or expression.lstrip("*").rpartition(".")[2]
        text, atomic = self._type(made, expression)
        mark = ""
        if "omitempty" not in options and "omitzero" not in options:
            mark = "!?" if "optional" in markers else "!"
        if "omitzero" in options:
            mark = "~"
        parts = [f"{name}{mark} {text}"]
        if own != name[:1].upper() + name[1:]:
            parts.append(f"={own}")
        parts += _merge_notes(tag, markers, text, atomic)
        return " ".join(parts) + hash_number

    def _absolute(self, made: Declared, expression: str) -> str:
        if "." not in expression:
            return f"{made.package}.{expression}"
        alias, _, name = expression.partition(".")
        path = made.imports.get(alias, alias)
        for prefix, short in _IMPORTS.items():
            if path.startswith(prefix):
                return f"{short}{path.removeprefix(prefix)}.{name}"
        return f"{path.rpartition('/')[2]}.{name}"

    def _type(self, made: Declared, expression: str) -> tuple[str, bool]:
        """The expression in the table's form, and whether apply treats the value as atomic."""
        if expression.startswith("*"):
            text, atomic = self._type(made, expression[1:])
            return ("*" + text if not text.startswith(("[]", "map ")) else text), atomic
        if expression in ("[]byte", "[]uint8"):
            return "bytes", False
        if expression.startswith("[]"):
            return f"[]{self._type(made, expression[2:])[0]}", False
        if expression.startswith("map["):
            key, _, value = expression[4:].partition("]")
            own = "" if key in _SCALARS else f"[{self._alias_name(made, key)}]"
            return f"map{own} {self._type(made, value)[0]}", False
        if expression in _SCALARS:
            return _SCALARS[expression], False
        absolute = self._absolute(made, expression)
        if absolute in SPECIAL:
            return SPECIAL[absolute], False
        if absolute in _FOREIGN:
            return self._named_scalar(made, expression, _FOREIGN[absolute]), False
        found = self.declared.get(absolute)
        if found is None:
            raise LookupError(f"{made.package}: {expression} ({absolute})")
        if not found.expression:
            return _relative(absolute, made.package), found.atomic
        text, atomic = self._type(found, found.expression)
        text = _moved(text, found.package, made.package)
        name = self._alias_name(made, expression)
        if text.startswith("[]"):
            text = f"{text.partition(':')[0]}={name}"
        elif text.startswith("map"):
            head, _, item = text.partition(" ")
            text = f"{head}={name} {item}"
        return self._named_scalar(made, expression, text), atomic or found.atomic

    def _named_scalar(self, made: Declared, expression: str, text: str) -> str:
        """A scalar with the name of its own type, which decoding errors print."""
        scalar = text.partition(":")[0]
        if scalar not in ("string", "int32", "int64", "bool"):
            return text
        return f"{scalar}:{self._alias_name(made, expression)}"

    def _alias_name(self, made: Declared, expression: str) -> str:
        absolute = self._absolute(made, expression)
        package, _, name = absolute.rpartition(".")
        return f"{package.rpartition('/')[2]}.{name}"


def _moved(text: str, package: str, target: str) -> str:
    """A rendered type of one package as another package writes it."""
    match = re.fullmatch(r"((?:\*|\[\]|map(?:\[\S*\])? )*)([A-Z]\w*)", text)
    if match is None or package == target or match[2] in {*SPECIAL.values(), *_FOREIGN.values()}:
        return text
    return f"{match[1]}{package}.{match[2]}"


def _relative(absolute: str, package: str) -> str:
    return absolute.removeprefix(package + ".") if absolute.startswith(package + ".") else absolute


def _markers(comment: list[str]) -> list[str]:
    return [line[1:].strip() for line in comment if line.startswith("+")]


def _read_fields(lines: Iterator[str]) -> list[tuple[str, str, str, list[str]]]:
    """The fields up to the closing brace: Go name ("" if embedded), type, tag, markers."""
    fields = []
    comment: list[str] = []
    for line in lines:
        bare = line.strip()
        if bare.startswith("/*"):
            while "*/" not in bare:
                bare = next(lines)
            continue
        if bare == "}":
            break
        if bare.startswith("//"):
            comment.append(bare[2:].strip())
            continue
        if not bare:
            comment = []
            continue
        tag = (_TAG.search(bare) or ["", ""])[1]
        code = bare.split("`")[0].split("//")[0].split()
        if len(code) == 1:
            fields.append(("", code[0], tag, _markers(comment)))
        elif code:
            for name in "".join(code[:-1]).split(","):
                fields.append((name, code[-1], tag, _markers(comment)))
        comment = []
    return fields


def _merge_notes(tag: str, markers: list[str], text: str, atomic: bool) -> list[str]:
    notes = []
    strategy = (_STRATEGY.search(tag) or ["", ""])[1]
    key = (_KEY.search(tag) or ["", ""])[1]
    if strategy:
        notes.append(f"patch={strategy}{':' + key if key else ''}")
    list_type = next((m.partition("=")[2] for m in markers if m.startswith("listType=")), "")
    keys = [m.partition("=")[2] for m in markers if m.startswith("listMapKey=")]
    if list_type:
        notes.append(f"list={list_type}{':' + ','.join(keys) if keys else ''}")
    own = next(
        (m.partition("=")[2] for m in markers if m.startswith(("mapType=", "structType="))), ""
    )
    if own == "granular":
        notes.append("map=granular")
    elif own == "atomic" or (atomic and not text.startswith("[]")):
        notes.append("map=atomic")
    gates = [m.partition("=")[2] for m in markers if m.startswith("featureGate=")]
    gates = [_GATE_NAMES.get(gate, gate) for gate in gates]
    if gates and not _BY_STRATEGY.issuperset(gates):
        notes.append(f"gate={','.join(gates)}")
    return notes
