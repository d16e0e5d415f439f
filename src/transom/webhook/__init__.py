"""The admission webhook: validates Windows pods in any cluster with the rules of our own API
server.

It receives AdmissionReviews and calls no API, so it needs no RBAC permissions. Start-up options
describe the cluster's nodes.
"""
