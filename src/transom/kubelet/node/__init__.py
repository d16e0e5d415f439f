"""The kubelet's Node object: made, kept up to date and kept alive. Knows nothing of pods."""
