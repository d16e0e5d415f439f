"""Kubernetes' CEL: the libraries and costs that k8s.io/apiserver adds to the language, the limits
that it sets, and the expressions of admission policies.

`environment.kubernetes_environment` is what all users of CEL compile with. The package itself loads
no engine; its modules do.
"""
