from __future__ import annotations

import pytest
from tests.machines.windows.hns.service import made_endpoint, made_network, refused, remote, service

from transom.machines.windows.hns import HnsError, HostNetworkService


@pytest.fixture
def hns() -> HostNetworkService:
    return service()


def test_compartments_are_counted_from_two(hns: HostNetworkService) -> None:
    a, b = (hns.create("namespace", {"Type": "Host"}) for _ in range(2))
    assert (a["NamespaceId"], b["NamespaceId"]) == (2, 3)
    hns.delete("namespace", a["ID"])
    assert hns.create("namespace", {})["NamespaceId"] == 2
    assert hns.create("namespace", {"Type": "HostDefault"})["NamespaceId"] == 1
    assert refused(hns, "namespace", {"Type": "HostDefault"}).code == 0x803B0029
    assert refused(hns, "namespace", {"Type": "Hall"}).code == 0x80070057


def test_endpoints_are_in_one_namespace(hns: HostNetworkService) -> None:
    net = made_network(hns)
    a = made_endpoint(hns, net)
    one, two = (hns.create("namespace", {"Type": "Host"})["ID"] for _ in range(2))
    hns.add_to_namespace(one, a)
    assert hns.endpoints[a]["HostComputeNamespace"] == one
    assert list(hns.endpoints[a])[:4] == [
        "ID",
        "Name",
        "HostComputeNetwork",
        "HostComputeNamespace",
    ]
    assert hns.namespaces[one]["Resources"] == [{"Type": "Endpoint", "Data": {"ID": a}}]
    assert hns.attachment(a) == ("namespace", one)
    with pytest.raises(HnsError) as caught:
        hns.add_to_namespace(two, a)
    assert caught.value.code == 0x803B002B
    assert caught.value.text.startswith("hcnModifyNamespace failed in Win32: ")
    removed = {
        "ResourceType": "Endpoint",
        "RequestType": "Remove",
        "Settings": {"EndpointId": a},
    }
    with pytest.raises(HnsError, match="Element not found"):
        hns.modify("namespace", two, removed)
    hns.modify("namespace", one, removed)
    assert "HostComputeNamespace" not in hns.endpoints[a]
    assert "Resources" not in hns.namespaces[one]
    hns.add_to_namespace(two, a)
    hns.delete("namespace", two)
    assert "HostComputeNamespace" not in hns.endpoints[a]
    hns.add_to_namespace(one, a)
    hns.delete("endpoint", a)
    assert "Resources" not in hns.namespaces[one]


def test_endpoints_that_cannot_be_added(hns: HostNetworkService) -> None:
    net = made_network(hns)
    space = hns.create("namespace", {"Type": "Host"})["ID"]
    far = remote(hns, net, "10.244.2.5")
    with pytest.raises(HnsError, match="remote endpoint"):
        hns.add_to_namespace(space, far)
    host = made_endpoint(hns, net)
    hns.attach_to_host(host)
    with pytest.raises(HnsError, match="already attached"):
        hns.add_to_namespace(space, host)
    missing = "0F5E2B0C-1111-4222-8333-444455556666"
    with pytest.raises(HnsError) as caught:
        hns.add_to_namespace(missing, host)
    assert caught.value.text.startswith(
        "hcnOpenNamespace failed in Win32: Element not found. (0x490)"
    )


def test_containers_in_a_namespace(hns: HostNetworkService) -> None:
    space = hns.create("namespace", {"Type": "Host"})["ID"]
    request = {"ResourceType": "Container", "RequestType": "Add", "Settings": {"ContainerId": "c1"}}
    hns.modify("namespace", space, request)
    assert hns.namespaces[space]["Resources"] == [{"Type": "Container", "Data": {"ID": "c1"}}]
    with pytest.raises(HnsError, match="already exists"):
        hns.modify("namespace", space, request)
    hns.modify("namespace", space, {**request, "RequestType": "Remove"})
    assert "Resources" not in hns.namespaces[space]


def test_the_v1_view(hns: HostNetworkService) -> None:
    a = made_endpoint(hns, made_network(hns))
    space = hns.call("POST", "/namespaces/", {})["Output"]["ID"]
    added = hns.call(
        "POST", f"/namespaces/{space}/addresource", {"Type": "Endpoint", "Data": {"Id": a}}
    )
    assert added["Output"] == {
        "ID": space,
        "CompartmentId": 2,
        "ResourceList": [{"Type": "Endpoint", "Data": {"Id": a}}],
    }
    assert hns.call("GET", f"/endpoints/{a}")["Output"]["Namespace"] == {"ID": space}
    hns.call("POST", f"/namespaces/{space}/removeresource", {"Type": "Endpoint", "Data": {"Id": a}})
    assert hns.call("GET", f"/namespaces/{space}")["Output"] == {"ID": space, "CompartmentId": 2}
    assert hns.call("DELETE", f"/namespaces/{space}") == {"Success": True}
    assert hns.call("GET", f"/namespaces/{space}") == {
        "Success": False,
        "Error": "Element not found. ",
        "ErrorCode": 0x80070490,
    }
