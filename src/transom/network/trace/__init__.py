"""`transom trace`: the way of a packet between things of a cluster, told hop by hop, and why it fails where it does."""
