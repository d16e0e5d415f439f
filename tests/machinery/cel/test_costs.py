"""Costs of expressions: what Kubernetes charges for an evaluation, and what it estimates when a
rule is created.

The numbers are Kubernetes' own; a change of any of them changes which rules a cluster accepts.
"""

from __future__ import annotations

from typing import Any

import pytest

from transom.kit.cel.types import optional_type
from transom.machinery.cel.costs import KubernetesEstimator
from transom.machinery.cel.environment import kubernetes_environment
from transom.machinery.cel.limits import PER_CALL_LIMIT
from transom.machinery.structural.cel.declarations import declare_schema
from transom.machinery.structural.cel.values import converter

INTEGER, NUMBER, TEXT, BOOLEAN = (
    {"type": kind} for kind in ("integer", "number", "string", "boolean")
)
BYTES, DURATION, DATE, TIME = (
    {"type": "string", "format": f} for f in ("byte", "duration", "date", "date-time")
)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def array(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


LIST_MAP = array(
    obj(k=TEXT, v=TEXT, v2=TEXT),
    **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
)
SET = {"x-kubernetes-list-type": "set"}
CHESS = "Rook takes 👑"
SHORT = "1h2m3s4ms"
MOMENT = "2011-08-18T19:03:37.01+01:00"

GROUPS: dict[
    str, tuple[dict[str, Any], dict[str, Any], dict[str, tuple[int | None, int | None]]]
] = {
    # schema, object, rule -> (charged, estimated)
    "integers": (
        obj(a=INTEGER, b=INTEGER),
        {"a": 5, "b": 5},
        {
            "self.a == self.b": (5, 4),
            "type(self.a) == int": (4, 4),
            "self.a + 1 == 5 + 1": (5, 5),
        },
    ),
    "numbers": (
        obj(i=INTEGER, a=NUMBER, b=NUMBER),
        {"i": 5, "a": 10.0, "b": 1},
        {
            "type(self.b) == double": (4, 4),
            "self.b == 1.0": (3, 2),
            "double(self.i) < self.a": (6, 6),
            "self.i < int(self.a)": (6, 6),
            "double(5) < 10.0": (1, 2),
            "5 < int(10.0)": (1, 2),
            "double(self.i) < 10.0": (4, 4),
        },
    ),
    "strings": (
        obj(val1=TEXT),
        {"val1": CHESS},
        {
            "self.val1.startsWith('Rook')": (4, 3),
            "!self.val1.startsWith('knight')": (5, 4),
            "self.val1.matches('^[^0-9]*$')": (8, 943721),
            "!self.val1.matches('^[0-9]*$')": (7, 629149),
            "type(self.val1) == string": (4, 4),
            "size(self.val1) == 12": (4, 4),
            "self.val1.charAt(3) == 'k'": (4, 4),
            "self.val1.indexOf('o') == 1": (4, 314576),
            "self.val1.indexOf('o', 2) == 2": (4, 314576),
            "self.val1.replace(' ', 'x') == 'Rookxtakesx👑'": (7, 629150),
            "self.val1.replace(' ', 'x', 1) == 'Rookxtakes 👑'": (7, 629150),
            "self.val1.split(' ') == ['Rook', 'takes', '👑']": (6, 629159),
            "self.val1.split(' ', 2) == ['Rook', 'takes 👑']": (6, 629159),
            "self.val1.substring(5) == 'takes 👑'": (5, 314576),
            "self.val1.substring(0, 4) == 'Rook'": (5, 314576),
            "self.val1.substring(4, 10).trim() == 'takes'": (6, 629149),
            "self.val1.upperAscii() == 'ROOK TAKES 👑'": (6, 314577),
            "self.val1.lowerAscii() == 'rook takes 👑'": (6, 314577),
            "self.val1.lowerAscii() == self.val1.lowerAscii()": (10, 943723),
            "'%d %s %f %s %s'.format([1, 'abc', 1.0, duration('1m'), "
            "timestamp('2000-01-01T00:00:00.000Z')]) == "
            "'1 abc 1.000000 60s 2000-01-01T00:00:00Z'": (6, None),
            "'%e'.format([3.14]) == '3.140000×10⁰⁰'": (3, None),
            "'%o %o %o'.format([7, 8, 9]) == '7 10 11'": (2, None),
            "'%b %b %b'.format([7, 8, 9]) == '111 1000 1001'": (3, None),
        },
    ),
    "bytes": (
        obj(val1=BYTES, val2=BYTES),
        {"val1": "QUI=", "val2": "QUI="},
        {
            "self.val1 == self.val2": (5, 314577),
            "self.val1 == b'AB'": (3, 3),
            "type(self.val1) == bytes": (4, 4),
            "size(self.val1) == 2": (4, 4),
        },
    ),
    "booleans": (obj(a=BOOLEAN, b=BOOLEAN), {"a": True, "b": False}, {"self.a != self.b": (5, 4)}),
    "times": (
        obj(d=DURATION, day=DATE, t=TIME),
        {"d": SHORT, "day": "1997-07-16", "t": "2011-08-18T19:03:37.010000000+01:00"},
        {
            "self.d == duration('1h2m') + duration('3s4ms')": (4, 6),
            "self.d.getHours() == 1": (4, 4),
            "type(self.d) == google.protobuf.Duration": (4, 4),
            "self.day.getDate() == 16": (4, 4),
            "type(self.day) == google.protobuf.Timestamp": (4, 4),
            "self.t == timestamp('2011-08-18T00:00:00.000+01:00') + duration('19h3m37s10ms')": (
                4,
                6,
            ),
            "self.t.getDate('01:00') == 18": (4, 4),
        },
    ),
    "enums": (
        obj(e={"type": "string", "enum": ["Pending", "Available", "Bound", "Released", "Failed"]}),
        {"e": "Pending"},
        {
            "self.e == 'Pending'": (3, 3),
            "self.e in ['Pending', 'Available']": (2, 14),
        },
    ),
    "conversions": (
        obj(
            val1=INTEGER,
            val2=NUMBER,
            val4=NUMBER,
            val6=TEXT,
            val7=BYTES,
            val8=TEXT,
            val9=DURATION,
            val10=TEXT,
            val11=TIME,
        ),
        {
            "val1": 10,
            "val2": 10.0,
            "val4": 10.5,
            "val6": "10",
            "val7": "MTA=",
            "val8": "3723.004s",
            "val9": SHORT,
            "val10": MOMENT,
            "val11": MOMENT,
        },
        {
            "int(self.val2) == self.val1": (6, 5),
            "double(self.val1) == self.val2": (6, 5),
            "bytes(self.val6) == self.val7": (6, 629150),
            "string(self.val1) == self.val6": (6, 314578),
            "string(self.val4) == '10.5'": (4, 4),
            "string(self.val7) == self.val6": (6, 629150),
            "duration(self.val8) == self.val9": (6, 6),
            "timestamp(self.val10) == self.val11": (6, 6),
        },
    ),
    "lists": (
        obj(val1=array(INTEGER), val2=array(INTEGER)),
        {"val1": [1, 2, 3], "val2": [1, 2, 3]},
        {
            "1 in self.val1": (5, 1572865),
            "self.val2[0] in self.val1": (8, 1572868),
            "!(0 in self.val1)": (6, 1572866),
            "self.val1 + self.val2 == [1, 2, 3, 1, 2, 3]": (6, 16),
            "self.val1 + [4, 5] == [1, 2, 3, 4, 5]": (4, 24),
            "has(self.val1)": (1, 1),
            "has(self.val1) && has(self.val2)": (2, 2),
            "self.val1.all(k, size(self.val1) > 0)": (None, 11010044),
            "self.val1.exists_one(k, self.val1 == [2])": (None, 23592949),
            "!self.val1.exists_one(k, size(self.val1) > 0)": (None, 9437183),
            "size(self.val1.filter(k, size(self.val1) > 1)) == 1": (None, 26738686),
        },
    ),
    "sets": (
        obj(val1=array(TEXT, **SET), val2=array(TEXT, **SET), val3=array(INTEGER, **SET)),
        {"val1": ["a", "b", "c"], "val2": ["a", "c", "b"], "val3": list(range(1000))},
        {
            "self.val1 == ['c', 'b', 'a']": (3, 13),
            "self.val1 == self.val2": (5, 104862),
            "'a' in self.val1": (5, 1048577),
            "self.val2[0] in self.val1": (8, 1048580),
            "!('x' in self.val1)": (6, 1048578),
            "self.val1 + self.val2 == ['a', 'b', 'c']": (6, 16),
            "self.val1 + ['c', 'd'] == ['a', 'b', 'c', 'd']": (4, 24),
            "sets.contains(self.val1, ['a'])": (6, None),
            "sets.equivalent(self.val1, ['a', 'b', 'c'])": (21, None),
            "sets.intersects(self.val1, ['a'])": (6, None),
            "sets.contains(self.val3, [1])": (1003, None),
            "!sets.equivalent(self.val3, [1, 2, 3])": (6004, None),
            "self.val1.all(k, size(self.val1) > 0)": (None, 7340028),
            "self.val1.exists_one(k, self.val1 == ['a'])": (None, 15728629),
            "size(self.val1.filter(k, size(self.val1) > 1)) == 1": (None, 17825790),
        },
    ),
    "list maps": (
        obj(objs=array(LIST_MAP)),
        {
            "objs": [
                [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}],
                [{"k": "b", "v": "2"}, {"k": "a", "v": "1"}],
                [{"k": "b", "v": "3"}, {"k": "a", "v": "1"}],
                [{"k": "c", "v": "4"}],
            ]
        },
        {
            "self.objs[0] == self.objs[1]": (7, 104864),
            "self.objs[0] + self.objs[2] == self.objs[2]": (11, 104868),
            "self.objs[2] + self.objs[0] == self.objs[0]": (11, 104868),
            "self.objs[0] == [self.objs[0][0], self.objs[0][1]]": (22, 22),
            "self.objs[2] + [self.objs[0][0], self.objs[0][1]] == self.objs[0]": (26, 104883),
            "size(self.objs[0] + [self.objs[3][0]]) == 3": (20, 20),
            "self.objs[0].all(k, size(self.objs[0]) > 0)": (None, 8388604),
            "self.objs[0].exists_one(k, size(self.objs[0]) > 0)": (None, 7340030),
            "size(self.objs[0].filter(k, size(self.objs[0]) > 1)) == 1": (None, 18874366),
        },
    ),
    "maps of texts": (
        obj(val1=mapping(TEXT), val2=mapping(TEXT)),
        {"val1": {"k1": "a", "k2": "b"}, "val2": {"k2": "b", "k1": "a"}},
        {
            "self.val1 == self.val2": (5, 39326),
            "'k1' in self.val1": (3, 3),
            "!('k3' in self.val1)": (4, 4),
            "self.val1 == {'k1': 'a', 'k2': 'b'}": (3, 33),
            "self.val1.all(k, size(self.val1) > 0)": (None, 2752508),
            "size(self.val1.filter(k, size(self.val1) > 1)) == 1": (None, 6684670),
        },
    ),
    "objects": (
        obj(objs=array(obj(f1=TEXT, f2=TEXT))),
        {"objs": [{"f1": "a", "f2": "b"}, {"f1": "a", "f2": "b"}]},
        {
            "self.objs[0] == self.objs[1]": (7, 6),
        },
    ),
    "fields": (
        obj(a=obj(b=INTEGER, c=INTEGER), a1=obj(b1=obj(c1=INTEGER), d2=obj(e2=INTEGER))),
        {"a": {"b": 1}, "a1": {"b1": {"c1": 4}}},
        {
            "has(self.a.b)": (2, 2),
            "has(self.a1.b1.c1)": (3, 3),
            "!(has(self.a1.d2) && has(self.a1.d2.e2))": (3, 6),
            "!has(self.a1.d2)": (3, 3),
        },
    ),
    "maps": (
        obj(val=mapping(INTEGER)),
        {"val": {"b": 1, "d": 2}},
        {
            "!('a' in self.val)": (4, 4),
            "has(self.val.b)": (2, 2),
            "self.val.all(k, self.val[k] > 0)": (17, 3595115),
            "!self.val.exists(k, self.val[k] == 3)": (20, None),
            "self.val.exists_one(k, self.val[k] == 2)": (14, 2696338),
            "!self.val.exists_one(k, self.val[k] > 0)": (17, 3145728),
            "size(self.val.filter(k, self.val[k] > 1)) == 1": (26, 8089017),
            "self.val.all(k, v, v > 0)": (13, None),
            "!self.val.exists(k, v, v == 3)": (16, None),
            "self.val.existsOne(k, v, v == 2)": (10, None),
            "self.val.transformMap(k, v, v > 1, v + 1).size() == 1": (14, None),
            "self.val.transformMap(k, v, v + 1).size() == 2": (15, None),
            "self.val.transformMapEntry(k, v, v > 1, {k + '2': v + 1}).size() == 1": (45, None),
            "self.val.transformMapEntry(k, v, {k + '2': v + 1}).size() == 2": (77, None),
        },
    ),
    "list map": (
        obj(listMap=LIST_MAP),
        {
            "listMap": [
                {"k": "a1", "v": "b1"},
                {"k": "a2", "v": "b2"},
                {"k": "a3", "v": "b3", "v2": "z"},
            ]
        },
        {
            "has(self.listMap[0].v)": (3, 3),
            "self.listMap.all(m, m.k.startsWith('a'))": (21, 6291453),
            "self.listMap.all(m, !has(m.v2) || m.v2 == 'z')": (21, 8388603),
            "self.listMap.exists(m, m.k.endsWith('1'))": (13, 7340028),
            "self.listMap.exists_one(m, m.k == 'a3')": (15, 5242879),
            "!self.listMap.all(m, m.k.endsWith('1'))": (18, 6291454),
            "!self.listMap.exists(m, m.v == 'x')": (25, 7340029),
            "!self.listMap.exists_one(m, m.k.startsWith('a'))": (20, 5242880),
            "size(self.listMap.filter(m, m.k == 'a1')) == 1": (27, 16777215),
            "self.listMap.exists(m, m.k == 'a1' && m.v == 'b1')": (16, 10485753),
            "self.listMap.map(m, m.v).exists(v, v == 'b1')": (55, None),
            "self.listMap.exists(m, has(m.v2) && m.v2 == 'z')": (21, 8388603),
            "!self.listMap.all(m, has(m.v2) && m.v2 != 'z')": (10, 7340029),
            "self.listMap.exists_one(m, has(m.v2) && m.v2 == 'z')": (12, 6291454),
            "self.listMap.filter(m, has(m.v2) && m.v2 == 'z').size() == 1": (24, 17825790),
            "self.listMap.map(m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1": (25, 18874365),
            "self.listMap.filter(m, has(m.v2) && m.v2 == 'z').map(m, m.v2).size() == 1": (39, None),
            "self.listMap.exists(m, m.v2 == 'z')": (24, 7340028),
            "!self.listMap.all(m, m.v2 != 'z')": (22, 6291454),
            "!self.listMap.all(i, m, has(m.v2) && m.v2 != 'z')": (10, None),
            "self.listMap.transformList(i, m, m.v).size() == 3": (47, None),
        },
    ),
    "arrays": (
        obj(array=array(INTEGER)),
        {"array": [1, 1, 2, 2, 3, 3, 4, 5]},
        {
            "2 in self.array": (10, 1572865),
            "self.array.all(e, e > 0)": (43, 7864318),
            "self.array.exists(e, e > 2)": (36, 9437181),
            "self.array.exists_one(e, e > 4)": (22, 6291456),
            "!self.array.all(e, e < 2)": (21, 7864319),
            "!self.array.exists(e, e < 0)": (52, 9437182),
            "!self.array.exists_one(e, e == 2)": (25, 4718594),
            "size(self.array.filter(e, e%2 == 0)) == 3": (68, 25165823),
            "self.array.map(e, e * 20).filter(e, e > 50).exists(e, e == 60)": (194, None),
            "size(self.array) == 8": (4, 4),
            "self.array.exists(i, e, e > 2)": (36, None),
            "self.array.transformList(i, e, e > 2, e * 2).size() > 0": (77, None),
            "self.array.transformList(i, e, e * 2).size() > 0": (117, None),
        },
    ),
    "int or string": (
        obj(something={"x-kubernetes-int-or-string": True}),
        {"something": "25%"},
        {
            "type(self.something) == int ? self.something == 1 : self.something == '25%'": (
                7,
                None,
            ),
            "type(self.something) == string && self.something == '25%'": (7, None),
            "self.something == '25%'": (3, None),
            "self.something == 1 || self.something == '25%'": (6, None),
            "self.something != ['anything']": (3, None),
        },
    ),
    "percentages": (
        obj(min={"x-kubernetes-int-or-string": True}, current=INTEGER, available=INTEGER),
        {"min": "50%", "current": 5, "available": 10},
        {
            r"type(self.min) == string && self.min.matches(r'(\d+(\.\d+)?%)')": (10, None),
            "type(self.min) == int ? self.current <= self.min : double(self.current) / "
            "double(self.available) >= "
            "double(self.min.replace('%', '')) / 100.0": (17, None),
        },
    ),
    "types": (
        obj(m=mapping(obj(f=INTEGER))),
        {"m": {"k1": {"f": 1}, "k2": {"f": 2}}},
        {
            "type(self) == type(self)": (5, None),
            "type(self.m['k1']) == type(self.m['k2'])": (9, None),
        },
    ),
    "nesting": (
        obj(mm=mapping(mapping(TEXT)), lm=array(mapping(TEXT))),
        {"mm": {"x": {"y": "b"}}, "lm": [{"z": "g"}]},
        {
            "self.mm['x']['y'] == 'b'": (5, None),
            "self.mm.map(k, k).map(k, k).size() == 1": (32, None),
            "self.lm.map(e, e).map(e, e).size() == 1": (32, None),
            "self.mm.map(k, self.mm[k].map(m, m)).size() == 1": (34, None),
            "self.lm.map(e, e.map(m, m)).size() == 1": (32, None),
        },
    ),
    "optionals": (
        obj(obj=obj(field=TEXT, absentField=TEXT), m=mapping(TEXT), l=array(TEXT)),
        {"obj": {"field": "a"}, "m": {"k": "v"}, "l": ["a"]},
        {
            "optional.of('a') != optional.of('b')": (3, None),
            "optional.of('a') != optional.none()": (3, None),
            "optional.of('a').hasValue()": (2, None),
            "optional.of('a').or(optional.of('a')).hasValue()": (2, None),
            "optional.none().or(optional.of('a')).hasValue()": (3, None),
            "optional.of('a').optMap(v, v == 'value').hasValue()": (8, None),
            "self.obj.?field == optional.of('a')": (5, None),
            "self.obj.?absentField == optional.none()": (4, None),
            "self.obj.?field.orValue('v') == 'a'": (4, None),
            "self.m[?'k'] == optional.of('v')": (5, None),
            "self.l[?0] == optional.of('a')": (5, None),
            "optional.ofNonZeroValue(1).hasValue()": (2, None),
        },
    ),
    "quantities": (
        obj(val1=TEXT, val2=TEXT),
        {"val1": "50M", "val2": "100M"},
        {
            "isQuantity(self.val1)": (3, None),
            "isQuantity('20Mi')": (1, None),
            "quantity('200M') == quantity('0.2G') && quantity('0.2G') == quantity('200M')": (
                6,
                None,
            ),
            "quantity(self.val1).isLessThan(quantity(self.val2))": (7, None),
            "quantity('50k').add(quantity('20')) == quantity('50.02k')": (5, None),
            "quantity('50k').sub(20) == quantity('49980')": (4, None),
            "quantity('50').isInteger()": (2, None),
        },
    ),
    "list functions": (
        obj(),
        {},
        {
            "lists.range(4) == [0,1,2,3]": (16, None),
            "lists.range(0) == []": (11, None),
            "[5,1,2,3].reverse() == [3,2,1,5]": (16, None),
            "[1,2,3,4].slice(1, 3) == [2, 3]": (14, None),
            "dyn([1,2,3,4]).flatten() == [1,2,3,4]": (16, None),
            "[4, 3, 2, 1].sort() == [1, 2, 3, 4]": (44, None),
            "[1].distinct() == [1]": (14, None),
            "[-2, 5, -2, 1, 1, 5, -2, 1].distinct() == [-2, 5, 1]": (140, None),
        },
    ),
}
CASES = [
    pytest.param(name, rule, charged, estimated, id=f"{name}: {rule}")
    for name, (_, _, rules) in GROUPS.items()
    for rule, (charged, estimated) in rules.items()
]


@pytest.mark.parametrize(("name", "rule", "charged", "estimated"), CASES)
def test_costs_are_those_of_kubernetes(
    name: str, rule: str, charged: int | None, estimated: int | None
) -> None:
    schema, data, _ = GROUPS[name]
    declared = declare_schema(schema, root=False)
    convert = converter(schema)
    assert declared is not None and convert is not None
    variables = {"self": declared.type, "oldSelf": optional_type(declared.type)}
    expression = kubernetes_environment().compile(rule, variables, declared.object_fields())
    if charged is not None:
        outcome = expression.program.evaluate({"self": convert(data)}, PER_CALL_LIMIT)
        assert (outcome.value, outcome.error, outcome.cost) == (True, None, charged)
    if estimated is not None:
        assert expression.estimate(KubernetesEstimator(declared.size_at)).max == estimated
