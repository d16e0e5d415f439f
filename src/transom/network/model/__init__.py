"""The model data plane: computes the path of a packet, hop by hop, from the content of stacks,
firewalls and HNS.

Reads state and never writes it. It implements forwarding rules and no named Windows limitations:
those follow from the rules.
"""
