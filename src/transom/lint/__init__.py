"""Checks how manifests will behave on Windows nodes before they are applied. Reads
`transom.windows`, produces findings and fixes.
"""
