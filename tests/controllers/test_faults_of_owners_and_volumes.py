"""Owners and volumes while calls fail, watches end and controllers crash: the result is the same in
every order.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from transom.client.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

from .workloads import FaultyPlane, faulty_plane, run

NS = "default"
SEEDS = range(6)


async def storm(plane: FaultyPlane, rng: random.Random, seconds: int) -> None:
    """Faults for a while, and the controllers start anew in between; then all is well again for a
    while.
    """
    plane.faults.rate = 0.2
    for _ in range(seconds):
        await plane.settle(1)
        if rng.random() < 0.2:
            await plane.stop_controllers()
            plane.start_controllers()
    plane.faults.rate = 0.0
    await plane.settle(150)


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_orphan_and_no_survivor(seed: int) -> None:
    async with run():
        rng = random.Random(seed)
        async with faulty_plane(seed, "garbagecollector") as plane:
            made: list[Object] = []
            for number in range(15):
                owners = rng.sample(made, min(len(made), rng.randrange(3)))
                refs = [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": o["metadata"]["name"],
                        "uid": o["metadata"]["uid"],
                        "blockOwnerDeletion": rng.random() < 0.5,
                    }
                    for o in owners
                ]
                meta = {"name": f"o{number}", "ownerReferences": refs}
                made.append(await plane.client.create(CONFIG_MAPS, NS, {"metadata": meta}))
            await plane.settle()
            for obj in rng.sample(made, 5):
                how = rng.choice(("Background", "Foreground", "Orphan"))
                with suppress(ApiError):  # gone with its owner already
                    await plane.client.delete(
                        CONFIG_MAPS, NS, obj["metadata"]["name"], propagation=how
                    )
            await storm(plane, rng, 10)
            left = (await plane.client.list(CONFIG_MAPS, NS)).items
            there = {obj["metadata"]["uid"] for obj in left}
            for obj in left:
                meta = obj["metadata"]
                assert "deletionTimestamp" not in meta
                assert all(ref["uid"] in there for ref in meta.get("ownerReferences") or ())
            # Who had no owner and was not deleted is still there.
            assert there


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_claim_gets_a_volume_of_its_own(seed: int) -> None:
    async with run():
        rng = random.Random(seed)
        async with faulty_plane(
            seed, "persistentvolume-binder", "pvc-protection", "pv-protection"
        ) as plane:
            for number in range(10):
                spec = {
                    "capacity": {"storage": f"{number % 3 + 1}Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "sc",
                    "hostPath": {"path": "/tmp/x"},
                    "persistentVolumeReclaimPolicy": rng.choice(("Retain", "Delete")),
                }
                await plane.client.create(
                    PERSISTENT_VOLUMES, "", {"metadata": {"name": f"v{number}"}, "spec": spec}
                )
            for number in range(8):
                claim = {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "sc",
                    "resources": {"requests": {"storage": "1Gi"}},
                }
                await plane.client.create(
                    PERSISTENT_VOLUME_CLAIMS,
                    NS,
                    {"metadata": {"name": f"c{number}"}, "spec": claim},
                )
            await storm(plane, rng, 5)
            for number in range(3):
                await plane.client.delete(PERSISTENT_VOLUME_CLAIMS, NS, f"c{number}")
            await storm(plane, rng, 5)
            volumes = {
                v["metadata"]["name"]: v
                for v in (await plane.client.list(PERSISTENT_VOLUMES)).items
            }
            claims = (await plane.client.list(PERSISTENT_VOLUME_CLAIMS, NS)).items
            assert sorted(c["metadata"]["name"] for c in claims) == [
                f"c{number}" for number in range(3, 8)
            ]
            for found in claims:
                volume = volumes.pop(found["spec"]["volumeName"])
                assert found["status"]["phase"] == "Bound" == volume["status"]["phase"]
                assert volume["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
            for volume in volumes.values():
                free = "claimRef" not in volume["spec"]
                assert volume["status"]["phase"] == ("Available" if free else "Released")
                assert free or volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
