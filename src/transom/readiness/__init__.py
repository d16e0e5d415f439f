"""The Windows Operational Readiness test cases, against any cluster."""
