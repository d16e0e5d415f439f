"""Images for real containers: references, registries, archives, layers, and an on-disk store that
all nodes of a machine share.
"""
