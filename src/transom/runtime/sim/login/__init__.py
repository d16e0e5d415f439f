"""Processes on a simulated machine itself, outside of its containers: login sessions, and the
machine's services.
"""
