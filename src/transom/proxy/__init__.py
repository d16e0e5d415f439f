"""kube-proxy: programs services and their endpoints as kernel rules of a node, or proxies
connections itself.
"""
