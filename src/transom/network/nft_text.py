"""Firewall tables as text for `nft -f -`: a whole table, and the smallest transaction from one
state of it to the next.

The kernel data plane runs these scripts; this module runs nothing. `nft_difference` needs the state
that is in effect, but writers change their tables in place, so the caller keeps an `nft_snapshot`
of what it applied last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from transom.network.nft import (
    ClearMark,
    Dnat,
    Field,
    Goto,
    Jump,
    Masquerade,
    NftChain,
    NftLookup,
    NftMatch,
    NftRule,
    NftSet,
    NftTable,
    NftVerdict,
    Reject,
    Remember,
    SetMark,
    Snat,
    Spread,
    Statement,
    VerdictMap,
)

Key = tuple[str, ...]
_COMMENT = 127  # maximum length of a rule comment in the kernel, without the terminator
_BATCH = 2000  # elements in one command: nft's run time grows faster than the length

_EXPRESSIONS: dict[str, str] = {
    "iifname": "iifname",
    "oifname": "oifname",
    "saddr": "{family} saddr",
    "daddr": "{family} daddr",
    "l4proto": "meta l4proto",
    "sport": "th sport",
    "dport": "th dport",
    "ct state": "ct state",
    "ct status": "ct status",
    "mark": "meta mark",
    "saddr type": "fib saddr type",
    "daddr type": "fib daddr type",
}
_TYPES: dict[str, str] = {
    "iifname": "ifname",
    "oifname": "ifname",
    "saddr": "{address}",
    "daddr": "{address}",
    "l4proto": "inet_proto",
    "sport": "inet_service",
    "dport": "inet_service",
    "mark": "mark",
}
_NAMES = ("iifname", "oifname")  # values that are quoted
_BY_FAMILY = {
    family: (
        {name: text.format(family=family) for name, text in _EXPRESSIONS.items()},
        {name: text.format(address=address) for name, text in _TYPES.items()},
    )
    for family, address in (("ip", "ipv4_addr"), ("ip6", "ipv6_addr"))
}


def render_nft_table(table: NftTable) -> str:
    """A script that creates the table, replacing any other of its name."""
    name = f"{table.family} {table.name}"
    lines = [f"add table {name}", f"delete table {name}", f"table {name} {{"]
    for set_name, declared in table.sets.items():
        lines.append(_declare_set(table.family, set_name, declared))
    for map_name, verdicts in table.maps.items():
        lines.append(_declare_map(table.family, map_name, verdicts))
    for chain_name, chain in table.chains.items():
        _chain(lines, table.family, chain_name, chain)
    lines.append("}")
    # Elements after the chains that they jump to.
    for set_name, declared in table.sets.items():
        lines.extend(
            _elements("add", name, set_name, map(_key_writer(declared.key), declared.elements))
        )
    for map_name, verdicts in table.maps.items():
        write = _key_writer(verdicts.key)
        lines.extend(
            _elements(
                "add",
                name,
                map_name,
                (f"{write(key)} : {_verdict(v)}" for key, v in verdicts.elements.items()),
            )
        )
    return "\n".join(lines) + "\n"


def nft_snapshot(table: NftTable) -> NftTable:
    """A copy of the table for a later `nft_difference`. Shares the rules, which are immutable."""
    return NftTable(
        table.family,
        table.name,
        {name: NftChain(list(chain.rules), chain.hook) for name, chain in table.chains.items()},
        {
            name: NftSet(s.key, set() if s.dynamic else set(s.elements), s.dynamic, s.intervals)
            for name, s in table.sets.items()
        },
        {name: VerdictMap(m.key, dict(m.elements)) for name, m in table.maps.items()},
    )


def nft_difference(old: NftTable | None, new: NftTable | None) -> str:
    """A script, empty if nothing differs, that changes the old table, which is in effect, to the
    new one.

    Elements that packets added to dynamic sets stay, unless a set or map changes its type: then the
    table is recreated.
    """
    if new is None:
        return "" if old is None else f"delete table {old.family} {old.name}\n"
    if old is None:
        return render_nft_table(new)
    if (old.family, old.name) != (new.family, new.name):
        return nft_difference(old, None) + render_nft_table(new)
    if _retyped(old, new):
        return render_nft_table(new)
    name = f"{new.family} {new.name}"
    gone = [c for c in old.chains if c not in new.chains]
    rehooked = [
        c for c, chain in new.chains.items() if c in old.chains and old.chains[c].hook != chain.hook
    ]
    fresh = [c for c in new.chains if c not in old.chains]
    changed = [
        c
        for c, chain in new.chains.items()
        if c in old.chains and old.chains[c].rules != chain.rules
    ]
    added, removed = _element_changes(old, new)

    lines: list[str] = []
    declared = [_declare_set(new.family, s, new.sets[s]) for s in new.sets if s not in old.sets]
    declared += [_declare_map(new.family, m, new.maps[m]) for m in new.maps if m not in old.maps]
    if declared:
        lines += [f"table {name} {{", *declared, "}"]
    lines += [f"add chain {name} {c}{_hook(new.chains[c])}" for c in fresh]
    for target, keys in removed:
        lines += _elements("delete", name, target, keys)
    lines += [f"flush chain {name} {c}" for c in dict.fromkeys((*changed, *rehooked, *gone))]
    lines += [f"delete chain {name} {c}" for c in rehooked]
    lines += [f"add chain {name} {c}{_hook(new.chains[c])}" for c in rehooked]
    for target, keys in added:
        lines += _elements("add", name, target, keys)
    for c in dict.fromkeys((*fresh, *changed, *rehooked)):
        lines += [
            f"add rule {name} {c} {text}"
            for rule in new.chains[c].rules
            for text in _rule(new.family, rule)
        ]
    lines += [f"delete chain {name} {c}" for c in gone]
    lines += [f"delete set {name} {s}" for s in old.sets if s not in new.sets]
    lines += [f"delete map {name} {m}" for m in old.maps if m not in new.maps]
    return "\n".join(lines) + "\n" if lines else ""


# ---- declarations ----


def _declare_set(family: str, name: str, declared: NftSet) -> str:
    flags = [
        flag
        for flag, on in (("dynamic,timeout", declared.dynamic), ("interval", declared.intervals))
        if on
    ]
    text = f" flags {','.join(flags)};" if flags else ""
    return f"set {name} {{ type {_type(family, declared.key)};{text} }}"


def _declare_map(family: str, name: str, declared: VerdictMap) -> str:
    return f"map {name} {{ type {_type(family, declared.key)} : verdict; }}"


def _type(family: str, key: tuple[Field, ...]) -> str:
    types = _BY_FAMILY[family][1]
    return " . ".join(types[part] for part in key)


def _hook(chain: NftChain) -> str:
    if chain.hook is None:
        return ""
    hook = chain.hook
    return (
        f" {{ type {hook.type} hook {hook.point} priority {hook.priority}; policy {hook.policy}; }}"
    )


def _chain(lines: list[str], family: str, name: str, chain: NftChain) -> None:
    lines.append(f"chain {name} {{")
    if chain.hook is not None:
        lines.append(_hook(chain)[3:-2])
    for rule in chain.rules:
        lines.extend(_rule(family, rule))
    lines.append("}")


def _retyped(old: NftTable, new: NftTable) -> bool:
    """A name with a new type: it cannot be replaced while rules refer to it."""
    for name, declared in new.sets.items():
        before = old.sets.get(name)
        if name in old.maps or (
            before is not None
            and (before.key, before.dynamic, before.intervals)
            != (declared.key, declared.dynamic, declared.intervals)
        ):
            return True
    return any(
        name in old.sets or (name in old.maps and old.maps[name].key != declared.key)
        for name, declared in new.maps.items()
    )


# ---- elements ----

Changes = list[tuple[str, list[str]]]


def _element_changes(old: NftTable, new: NftTable) -> tuple[Changes, Changes]:
    """The elements to add to and delete from each set and map that is in both tables or new."""
    added: Changes = []
    removed: Changes = []
    for name, declared in new.sets.items():
        if declared.dynamic:
            continue
        before = old.sets[name].elements if name in old.sets else set()
        if before != declared.elements:
            write = _key_writer(declared.key)
            added.append((name, [write(key) for key in declared.elements - before]))
            removed.append((name, [write(key) for key in before - declared.elements]))
    for name, verdicts in new.maps.items():
        known = old.maps[name].elements if name in old.maps else {}
        if known != verdicts.elements:
            write = _key_writer(verdicts.key)
            differing = verdicts.elements.items() - known.items()
            added.append(
                (name, [f"{write(key)} : {_verdict(verdict)}" for key, verdict in differing])
            )
            removed.append(
                (
                    name,
                    [
                        write(key)
                        for key, verdict in known.items()
                        if verdicts.elements.get(key) != verdict
                    ],
                )
            )
    # A removed set or map releases its elements' targets, but only when it is empty.
    for name, verdicts in old.maps.items():
        if name not in new.maps:
            removed.append((name, list(map(_key_writer(verdicts.key), verdicts.elements))))
    return added, removed


def _elements(verb: str, table: str, name: str, elements: Iterable[str]) -> Iterator[str]:
    texts = sorted(elements)
    for start in range(0, len(texts), _BATCH):
        yield f"{verb} element {table} {name} {{ {', '.join(texts[start : start + _BATCH])} }}"


def _key_writer(key: tuple[Field, ...]) -> Callable[[Key], str]:
    if not any(part in _NAMES for part in key):
        return " . ".join
    quoted = [part in _NAMES for part in key]
    return lambda values: " . ".join(
        f'"{v}"' if q else v for v, q in zip(values, quoted, strict=True)
    )


# ---- rules ----


def _rule(family: str, rule: NftRule) -> list[str]:
    parts = [_match(family, match) for match in rule.matches]
    with_port = any(isinstance(s, Dnat) and s.port for s in rule.statements)
    if with_port and not any(
        m.field == "l4proto" and not m.key and not m.negate for m in rule.matches
    ):
        # nft requires a protocol match before ports
        parts.append("meta l4proto { tcp, udp, sctp }")
    comment = f' comment "{_comment(rule.comment)}"' if rule.comment else ""
    if any(isinstance(s, Reject) for s in rule.statements):
        before = [_statement(family, s) for s in rule.statements if not isinstance(s, Reject)]
        reset = " ".join([*parts, "meta l4proto tcp", *before, "reject with tcp reset"])
        return [reset + comment, " ".join([*parts, *before, "reject"]) + comment]
    parts += [_statement(family, s) for s in rule.statements]
    return [" ".join(parts) + comment]


def _comment(text: str) -> str:
    plain = text.replace('"', "'").replace("\n", " ")
    return plain.encode()[:_COMMENT].decode(errors="ignore")


def _match(family: str, match: NftMatch) -> str:
    expressions = _BY_FAMILY[family][0]
    if match.named:
        return (
            f"{_key(family, match.key or (match.field,))} "
            f"{'!= ' if match.negate else ''}@{match.named}"
        )
    expression = expressions[match.field]
    if match.field == "ct status":  # several bits at once, unlike a state
        return f"{expression} & ({'|'.join(match.value)}) {'==' if match.negate else '!='} 0"
    if match.field == "mark" and "/" in match.value[0]:
        value, _, mask = match.value[0].partition("/")
        return f"{expression} & {mask} {'!=' if match.negate else '=='} {value}"
    values = [_value(family, match.field, value) for value in match.value]
    text = values[0] if len(values) == 1 else f"{{ {', '.join(values)} }}"
    return f"{expression} {'!= ' if match.negate else ''}{text}"


def _value(family: str, field: Field, value: str) -> str:
    if field in _NAMES:
        return f'"{value}"'
    if field == "l4proto" and value == "icmp" and family == "ip6":
        return "ipv6-icmp"
    return value


def _verdict(verdict: NftVerdict | Goto | Jump) -> str:
    if isinstance(verdict, Goto):
        return f"goto {verdict.chain}"
    return f"jump {verdict.chain}" if isinstance(verdict, Jump) else verdict.what


def _statement(family: str, statement: Statement) -> str:
    match statement:
        case Goto(chain):
            return f"goto {chain}"
        case Jump(chain):
            return f"jump {chain}"
        case NftVerdict(what):
            return what
        case Dnat(address, port):
            return f"dnat to {_place(address, port)}"
        case SetMark(bits):
            return f"meta mark set meta mark or {bits:#x}"
        case ClearMark(bits):
            return f"meta mark set meta mark and {~bits & 0xFFFFFFFF:#x}"
        case Spread(choices):
            return _spread(choices)
        case NftLookup(key, named):
            return f"{_key(family, key)} vmap @{named}"
        case Remember(named, key, seconds):
            return f"update @{named} {{ {_key(family, key)} timeout {seconds}s }}"
        case Masquerade():
            return "masquerade fully-random"
        case Snat(address):
            return f"snat to {address}"
        case Reject():
            return "reject"


def _spread(choices: tuple[Goto, ...]) -> str:
    if len(choices) == 1:
        return f"goto {choices[0].chain}"
    return (
        f"numgen random mod {len(choices)} vmap {{ "
        f"{', '.join(f'{n} : goto {c.chain}' for n, c in enumerate(choices))} }}"
    )


def _place(address: str, port: int) -> str:
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _key(family: str, key: tuple[Field, ...]) -> str:
    return " . ".join(_BY_FAMILY[family][0][part] for part in key)
