"""OVN, as ovn-kubernetes uses it: logical switches and routers, load balancers, GENEVE tunnels."""
