"""Fixes of manifests that are safe to apply automatically, as small text edits."""
