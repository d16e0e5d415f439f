"""`transom trace`: the path of a packet between objects of a cluster, hop by hop, and why it fails
where it does.
"""
