"""The model data plane: computes the way of a packet, hop by hop, from what stacks, firewalls and HNS have been told.

Reads state and never writes it. It knows rules of forwarding, no limit of Windows by name: those follow from the rules.
"""
