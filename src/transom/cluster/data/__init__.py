"""The data of a cluster outside its API: snapshots, migration between stores, records in etcd."""
