"""The attributes of parameters: [Parameter()], [Alias()], [ValidateSet()] and others."""

from __future__ import annotations

import re

from transom.userland.powershell.tree import PsNode, ScriptParameter

ATTRIBUTE_NAME = re.compile(r"\[\s*([A-Za-z_][\w.]*)\s*\(", re.DOTALL)
_WORDS = re.compile(r"'([^']*)'|\"([^\"]*)\"|([^\s,'\"]+)")
_SWITCHED_ON = r"\b{}\b\s*(?!\s*=\s*\$false)"


def declared_parameter(name: str, default: PsNode | None, attributes: list[str]) -> ScriptParameter:
    """A parameter with its type and its attributes."""
    kind, mandatory, from_pipeline, from_property = "", False, False, False
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    not_empty, attributed, pattern, check = False, False, "", ""
    for text in attributes:
        found = ATTRIBUTE_NAME.match(text)
        if found is None:
            kind = text[1:-1].strip().lower().removeprefix("system.")
            continue
        inner = text[found.end() :].rstrip("]").rstrip().removesuffix(")")
        words = tuple(one or two or three for one, two, three in _WORDS.findall(inner))
        attribute = found[1].lower().rpartition(".")[2]
        if attribute == "parameter":
            attributed = True
            mandatory = mandatory or _switched_on("Mandatory", inner)
            from_pipeline = from_pipeline or _switched_on("ValueFromPipeline", inner)
            from_property = from_property or _switched_on("ValueFromPipelineByPropertyName", inner)
        elif attribute == "validateset":
            choices = words
        elif attribute == "validaterange" and len(words) == 2:
            limits = (float(words[0]), float(words[1]))
        elif attribute == "alias":
            aliases = words
        elif attribute in ("validatenotnullorempty", "validatenotnull"):
            not_empty = True
        elif attribute == "validatepattern" and words:
            pattern = inner.strip()[1:-1]
        elif attribute == "validatescript":
            check = inner.strip()[1:-1]
    return ScriptParameter(
        name,
        default,
        kind,
        mandatory,
        from_pipeline,
        from_property,
        choices,
        limits,
        aliases,
        not_empty,
        pattern,
        check,
        attributed,
    )


def _switched_on(name: str, text: str) -> bool:
    return re.search(_SWITCHED_ON.format(name), text, re.IGNORECASE) is not None
