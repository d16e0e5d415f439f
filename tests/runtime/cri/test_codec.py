from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery.protobuf.wire import MalformedProtobuf
from transom.runtime.cri import codec

# Bytes as protoc's code writes them.
CASES: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "a text": ("VersionRequest", {"version": "0.1.0"}, b"\x0a\x050.1.0"),
    "nothing": ("ListImagesRequest", {}, b""),
    "numbers": (
        "StopContainerRequest",
        {"container_id": "x", "timeout": 300},
        b"\x0a\x01x\x10\xac\x02",
    ),
    "a truth": ("StatusRequest", {"verbose": True}, b"\x08\x01"),
    "a negative number": (
        "LinuxContainerResources",
        {"oom_score_adj": -998},
        b"\x28\x9a\xf8\xff\xff\xff\xff\xff\xff\xff\x01",
    ),
    "a number that is there and zero": (
        "LinuxSandboxSecurityContext",
        {"run_as_user": {}},
        b"\x1a\x00",
    ),
    "packed numbers": (
        "LinuxSandboxSecurityContext",
        {"supplemental_groups": [1, 300]},
        b"\x2a\x03\x01\xac\x02",
    ),
    "texts, empty ones too": ("DNSConfig", {"servers": ["a", ""]}, b"\x0a\x01a\x0a\x00"),
    "a map": ("ImageSpec", {"annotations": {"k": "v"}}, b"\x12\x06\x0a\x01k\x12\x01v"),
    "messages": (
        "ContainerConfig",
        {"envs": [{"key": "A", "value": "b"}]},
        b"\x32\x06\x0a\x01A\x12\x01b",
    ),
    "bytes": (
        "ExecSyncResponse",
        {"stdout": b"\xff\x00", "exit_code": 1},
        b"\x0a\x02\xff\x00\x18\x01",
    ),
    "a field beyond fifteen": (
        "LinuxContainerSecurityContext",
        {"apparmor": {"profile_type": 2}},
        b"\x82\x01\x02\x08\x02",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_messages(case: str) -> None:
    message, value, raw = CASES[case]
    assert codec.encode(message, value) == raw
    assert codec.decode(message, raw) == value


def test_what_is_as_good_as_nothing_is_not_written() -> None:
    config = {"hostname": "", "linux": None, "labels": {}, "port_mappings": [], "unheard-of": 1}
    assert codec.encode("PodSandboxConfig", config) == b""


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\xf8\x07\x05" + b"\xfa\x07\x01x" + b"\xfd\x07aaaa" + b"\xf9\x07aaaaaaaa"
    assert codec.decode("VersionRequest", unknown + b"\x0a\x01x" + unknown) == {"version": "x"}
    assert codec.decode("ImageSpec", b"\x12\x08\x0a\x01k\x18\x01\x12\x01v") == {
        "annotations": {"k": "v"}
    }


def test_numbers_may_come_one_by_one() -> None:
    assert codec.decode("PortForwardRequest", b"\x10\x50\x10\x51") == {"port": [80, 81]}


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\x05x", b"\x08\x80", b"\x0c"])
def test_invalid_messages(raw: bytes) -> None:
    with pytest.raises(MalformedProtobuf):
        codec.decode("PodSandboxMetadata", raw)


_TEXT = st.text(string.printable, min_size=1, max_size=5)
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "int": st.integers(-(2**63), 2**63 - 1).filter(bool),
    "uint": st.integers(1, 2**64 - 1),
    "bool": st.just(True),
    "bytes": st.binary(min_size=1, max_size=5),
    "map": st.dictionaries(_TEXT, _TEXT, min_size=1, max_size=3),
}


def _values(message: str) -> st.SearchStrategy[dict[str, Any]]:
    def of(field: Any) -> st.SearchStrategy[Any]:
        one = (
            _KINDS[field.kind] if field.kind in _KINDS else st.deferred(lambda: _values(field.kind))
        )
        return st.lists(one, min_size=1, max_size=3) if field.repeated else one

    return st.fixed_dictionaries(
        {}, optional={field.name: of(field) for field in codec.TABLE.messages[message]}
    )


@given(
    st.sampled_from(sorted(codec.TABLE.messages)).flatmap(
        lambda name: st.tuples(st.just(name), _values(name))
    )
)
def test_every_message_comes_back(drawn: tuple[str, dict[str, Any]]) -> None:
    message, value = drawn
    assert codec.decode(message, codec.encode(message, value)) == value


def test_no_number_is_given_twice_and_every_type_is_known() -> None:
    table = codec.TABLE.messages
    for name, fields in table.items():
        assert len({field.number for field in fields}) == len(fields), name
        assert {field.kind for field in fields} <= _KINDS.keys() | table.keys(), name
