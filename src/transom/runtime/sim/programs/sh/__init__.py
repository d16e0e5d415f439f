"""POSIX shells: ash, dash and bash, as far as manifests and their scripts go."""
