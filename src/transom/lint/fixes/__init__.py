"""Changes of manifests that are safe to make unasked, as small edits of their text."""
