"""The store of a cluster that keeps its objects in etcd (`--store etcd://...`).

Loaded only then: the default store needs none of it.
"""

from __future__ import annotations

from transom.apiserver.core.registry_layout import RegistryLayout
from transom.machinery.releases import parse_release
from transom.store.etcd.client import EtcdAddress, EtcdClient
from transom.store.etcd.store import EtcdStore
from transom.store.sealing import Sealing


def make_etcd_store(address: EtcdAddress, sealing: Sealing, release: str) -> EtcdStore:
    layout = RegistryLayout(parse_release(release))
    return EtcdStore(EtcdClient(address), address.prefix, layout, sealing)
