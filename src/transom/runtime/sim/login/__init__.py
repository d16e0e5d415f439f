"""Processes on a simulated machine itself, outside of its containers: who logs in there, and the machine's services."""
