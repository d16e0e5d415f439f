"""POSIX shells: ash, dash and bash, as far as scripts in manifests need them."""
