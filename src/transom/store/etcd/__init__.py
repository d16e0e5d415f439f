"""The etcd engine of the store: an etcd cluster holds the data, this process a copy of it."""
