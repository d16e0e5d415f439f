"""The command lines of a node's programs, parsed as the programs parse them. Pure: starts
nothing.
"""
