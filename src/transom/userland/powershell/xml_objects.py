"""`[xml]`: documents as PowerShell shows them. Elements and attributes are properties; repeated elements are an array, and an
element that has only text is that text. XPath as scripts use it: paths, `//`, `*`, `@name`, `text()`, `[n]`, `[@a='b']`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from xml.dom import Node, minidom
from xml.parsers.expat import ExpatError

from transom.userland.limits import MAX_INPUT, check_size
from transom.userland.powershell.values import PowerShellError, PsObject, to_text

DOCUMENT: Final = "System.Xml.XmlDocument"
ELEMENT: Final = "System.Xml.XmlElement"
_ATTRIBUTE: Final = "System.Xml.XmlAttribute"
_KINDS: Final = {
    Node.DOCUMENT_NODE: DOCUMENT,
    Node.ATTRIBUTE_NODE: _ATTRIBUTE,
    Node.TEXT_NODE: "System.Xml.XmlText",
}
_TYPES: Final = {
    Node.DOCUMENT_NODE: "Document",
    Node.ATTRIBUTE_NODE: "Attribute",
    Node.TEXT_NODE: "Text",
}
_STEP: Final = re.compile(r"(//?)?([^/\[\]]+)((?:\[[^\]]*\])*)")
_PREDICATE: Final = re.compile(r"\[([^\]]*)\]")
_COMPARISON: Final = re.compile(r"""(@?[\w.:-]+|text\(\)|\.)\s*(?:=\s*(?:'([^']*)'|"([^"]*)"))?""")
_ENCODING: Final = re.compile(r"\sencoding=[\"'][\w.-]+[\"']")
_DECLARED: Final = re.compile(r"<!(ENTITY|DOCTYPE)", re.IGNORECASE)


def _without_encoding(source: str) -> str:
    """The text of a document has no encoding any more, whatever its declaration says."""
    head, end, rest = source.partition("?>")
    if not end or not head.lstrip().startswith("<?xml"):
        return source
    return _ENCODING.sub("", head, count=1) + end + rest


class XmlObject(PsObject):
    """A node of a document. Properties are read from the node on each access."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        super().__init__(_KINDS.get(node.nodeType, ELEMENT), {}, "")
        self.node = node

    @property
    def properties(self) -> dict[str, Any]:
        return _adapted(self.node)

    @properties.setter
    def properties(self, _value: dict[str, Any]) -> None:
        """Set by the base class; a node has its own."""

    @property
    def text(self) -> str:
        return "#document" if self.node.nodeType == Node.DOCUMENT_NODE else self.node.nodeName

    @text.setter
    def text(self, _value: str) -> None:
        """The text of a node is its name."""

    def get(self, name: str) -> Any:
        lower = name.lower()
        for known, value in _adapted(self.node).items():
            if known.lower() == lower:
                return value
        return intrinsic(self.node, lower)

    def put(self, name: str, value: Any) -> None:
        """Assigns to an attribute, or to the text of a child element."""
        node, shown = self.node, to_text(value)
        if name.lower() in ("#text", "innertext", "value"):
            set_text(node, shown)
            return
        for attribute in list(node.attributes.values()) if node.attributes else ():
            if attribute.name.lower() == name.lower():
                node.setAttribute(attribute.name, shown)
                return
        for child in _elements(node):
            if child.tagName.lower() == name.lower():
                set_text(child, shown)
                return
        raise PowerShellError(
            f"The property '{name}' cannot be found on this object. Verify that the property exists and can be set.",
            "InvalidOperation: (:) [], RuntimeException",
            "PropertyAssignmentException",
        )


def parse_xml(value: Any) -> XmlObject:
    if isinstance(value, XmlObject):
        return value
    source = to_text(
        "\n".join(to_text(line) for line in value) if isinstance(value, list) else value
    )
    check_size(len(source), MAX_INPUT)
    try:
        if _DECLARED.search(source):
            raise ValueError("DTD is prohibited in this XML document.")
        return XmlObject(minidom.parseString(_without_encoding(source).encode()))
    except (ExpatError, ValueError) as problem:
        raise PowerShellError(
            f'Cannot convert value "{source[:120]}" to type "System.Xml.XmlDocument". Error: "{problem}"',
            "InvalidArgument: (:) [], RuntimeException",
            "InvalidCastToXmlDocument",
        ) from None


def _elements(node: Any) -> Iterator[Any]:
    return (child for child in node.childNodes if child.nodeType == Node.ELEMENT_NODE)


def _inner_text(node: Any) -> str:
    if node.nodeType in (Node.TEXT_NODE, Node.CDATA_SECTION_NODE, Node.ATTRIBUTE_NODE):
        return str(node.nodeValue)
    return "".join(_inner_text(child) for child in node.childNodes)


def set_text(node: Any, value: str) -> None:
    while node.childNodes:
        node.removeChild(node.childNodes[0])
    node.appendChild(node.ownerDocument.createTextNode(value))


def _adapted(node: Any) -> dict[str, Any]:
    """The value of a node as PowerShell's XML adapter shows it."""
    found: dict[str, list[Any]] = {}
    for attribute in node.attributes.values() if node.attributes else ():
        found.setdefault(attribute.name, []).append(attribute.value)
    for child in _elements(node):
        plain = not child.attributes and not any(True for _ in _elements(child))
        found.setdefault(child.tagName, []).append(
            _inner_text(child) if plain else XmlObject(child)
        )
    own = "".join(
        child.nodeValue
        for child in node.childNodes
        if child.nodeType in (Node.TEXT_NODE, Node.CDATA_SECTION_NODE)
    )
    if own.strip() and node.nodeType == Node.ELEMENT_NODE:
        found["#text"] = [own]
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def intrinsic(node: Any, lower: str) -> Any:
    """Properties of .NET's own class."""
    match lower:
        case "innertext":
            return _inner_text(node)
        case "outerxml":
            return outer_xml(node)
        case "innerxml":
            return "".join(outer_xml(child) for child in node.childNodes)
        case "name":
            return "#document" if node.nodeType == Node.DOCUMENT_NODE else node.nodeName
        case "localname":
            return node.nodeName.rpartition(":")[2]
        case "value":
            return node.nodeValue
        case "nodetype":
            return _TYPES.get(node.nodeType, "Element")
        case "documentelement":
            return XmlObject(node.documentElement) if node.nodeType == Node.DOCUMENT_NODE else None
        case "parentnode":
            return XmlObject(node.parentNode) if node.parentNode is not None else None
        case "firstchild" | "lastchild":
            found = node.firstChild if lower == "firstchild" else node.lastChild
            return XmlObject(found) if found is not None else None
        case "haschildnodes":
            return bool(node.childNodes)
        case "childnodes":
            return [XmlObject(child) for child in node.childNodes]
        case "attributes":
            return (
                [XmlObject(attribute) for attribute in node.attributes.values()]
                if node.attributes
                else []
            )
        case "#text" if node.nodeType == Node.TEXT_NODE:
            return node.nodeValue
    return None


def outer_xml(node: Any) -> str:
    """.NET writes ` />` for an empty element, and no declaration that was not there."""
    if node.nodeType == Node.DOCUMENT_NODE:
        return "".join(outer_xml(child) for child in node.childNodes)
    return re.sub(r"(?<=[\w\"'])/>", " />", node.toxml())


# ---- methods ----


def _create_element(node: Any, arguments: list[Any]) -> XmlObject:
    document = node if node.nodeType == Node.DOCUMENT_NODE else node.ownerDocument
    return XmlObject(document.createElement(to_text(arguments[0])))


def _append(node: Any, arguments: list[Any]) -> Any:
    child = arguments[0]
    if isinstance(child, XmlObject):
        node.appendChild(child.node)
    return child


def _remove(node: Any, arguments: list[Any]) -> Any:
    child = arguments[0]
    if isinstance(child, XmlObject):
        node.removeChild(child.node)
    return child


def _set_attribute(node: Any, arguments: list[Any]) -> None:
    node.setAttribute(to_text(arguments[0]), to_text(arguments[1]))


def _by_tag(node: Any, arguments: list[Any]) -> list[XmlObject]:
    return [XmlObject(found) for found in node.getElementsByTagName(to_text(arguments[0]))]


METHODS: Final[dict[str, Callable[[Any, list[Any]], Any]]] = {
    "selectnodes": lambda node, a: [
        _selected(found) for found in select_nodes(node, to_text(a[0]))
    ],
    "selectsinglenode": lambda node, a: next(
        (_selected(found) for found in select_nodes(node, to_text(a[0]))), None
    ),
    "getelementsbytagname": _by_tag,
    "getattribute": lambda node, a: node.getAttribute(to_text(a[0])),
    "hasattribute": lambda node, a: node.hasAttribute(to_text(a[0])),
    "setattribute": _set_attribute,
    "removeattribute": lambda node, a: (
        node.removeAttribute(to_text(a[0])) if node.hasAttribute(to_text(a[0])) else None
    ),
    "createelement": _create_element,
    "createtextnode": lambda node, a: XmlObject(node.createTextNode(to_text(a[0]))),
    "appendchild": _append,
    "removechild": _remove,
    "clonenode": lambda node, a: XmlObject(node.cloneNode(bool(a and a[0]))),
    "gettype": lambda node, a: PsObject(
        "System.RuntimeType",
        {"Name": XmlObject(node).kind.rpartition(".")[2], "FullName": XmlObject(node).kind},
        XmlObject(node).kind,
    ),
    "tostring": lambda node, a: XmlObject(node).text,
}


def _selected(found: Any) -> Any:
    return XmlObject(found)


# ---- XPath ----


def select_nodes(node: Any, path: str) -> list[Any]:
    if path.startswith("/") and node.nodeType != Node.DOCUMENT_NODE:
        node = node.ownerDocument
    nodes = [node]
    position = 0
    for match in _STEP.finditer(path):
        if match.start() != position:
            raise _bad_path(path)
        position = match.end()
        nodes = [
            found
            for one in nodes
            for found in _step(one, match[1] or "/", match[2].strip(), match[3])
        ]
    if position != len(path):
        raise _bad_path(path)
    return list(dict.fromkeys(nodes))


def _bad_path(path: str) -> PowerShellError:
    return PowerShellError(
        f'Exception calling "SelectNodes" with "1" argument(s): "\'{path}\' has an invalid token."',
        "NotSpecified: (:) [], MethodInvocationException",
        "XPathException",
    )


def _step(node: Any, separator: str, test: str, predicates: str) -> list[Any]:
    bases = [node, *_descendants(node)] if separator == "//" else [node]
    found = []
    for base in bases:
        matching = _axis(base, test)
        for predicate in _PREDICATE.findall(predicates):
            matching = _filtered(matching, predicate.strip())
        found += matching
    return found


def _descendants(node: Any) -> Iterator[Any]:
    for child in _elements(node):
        yield child
        yield from _descendants(child)


def _axis(node: Any, test: str) -> list[Any]:
    if test == ".":
        return [node]
    if test == "..":
        return [node.parentNode] if node.parentNode is not None else []
    if test == "text()":
        return [child for child in node.childNodes if child.nodeType == Node.TEXT_NODE]
    if test.startswith("@"):
        attributes = node.attributes.values() if node.attributes else ()
        return [one for one in attributes if test in ("@*", f"@{one.name}")]
    wanted = test.rpartition(":")[2]
    return [child for child in _elements(node) if wanted in ("*", child.tagName.rpartition(":")[2])]


def _filtered(nodes: list[Any], predicate: str) -> list[Any]:
    if predicate.isdigit():
        position = int(predicate) - 1
        return nodes[position : position + 1] if position >= 0 else []
    if predicate == "last()":
        return nodes[-1:]
    conditions = re.split(r"\s+and\s+", predicate)
    return [node for node in nodes if all(_holds(node, condition) for condition in conditions)]


def _holds(node: Any, condition: str) -> bool:
    match = _COMPARISON.fullmatch(condition.strip())
    if match is None:
        raise _bad_path(condition)
    wanted = match[2] if match[2] is not None else match[3]
    values = [_inner_text(found) for found in _axis(node, match[1])]
    return bool(values) if wanted is None else wanted in values
