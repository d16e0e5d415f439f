"""Programs with the names and flags of kube-apiserver and etcd, for test suites that start them:
controller-runtime's envtest finds them in the folder KUBEBUILDER_ASSETS.
"""
