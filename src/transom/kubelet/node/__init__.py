"""The kubelet's Node object: created, updated and kept alive. Knows nothing of pods."""
