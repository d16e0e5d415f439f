"""What the StatefulSet controller of a release can do."""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet


class StatefulSetFeatures(NamedTuple):
    available: bool  # minReadySeconds, and availableReplicas in the status
    ordinals: bool
    index_label: bool
    retention: bool  # of claims
    max_unavailable: bool
    title_events: bool  # events begin with a capital letter


def stateful_set_features(features: FeatureSet) -> StatefulSetFeatures:
    on = features.enabled
    return StatefulSetFeatures(
        available=on("StatefulSetMinReadySeconds"),
        ordinals=on("StatefulSetStartOrdinal"),
        index_label=on("PodIndexLabel"),
        retention=on("StatefulSetAutoDeletePVC"),
        max_unavailable=on("MaxUnavailableStatefulSet"),
        title_events=has_behaviour(features.release, "StatefulSetTitleEvents"),
    )
