"""The values of fields that OpenAPI documents list as enumerations, in each release from 1.24 on."""

from __future__ import annotations

from functools import cache

from transom.machinery.releases.release import Release, in_range, table_lines


@cache
def release_enums(release: Release) -> dict[str, list[str]]:
    """A type and its field (`core/v1.PodSpec.dnsPolicy`) -> values. In the table,
    `""` is the empty value and `%20` a space.
    """
    out = {}
    for line in table_lines("enums.txt"):
        words = line.split(" ")
        if words[-1].startswith("@") and not in_range(words.pop()[1:], release):
            continue
        out[words[0]] = ["" if word == '""' else word.replace("%20", " ") for word in words[1:]]
    return out
