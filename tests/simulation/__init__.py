"""The fault simulator: a cluster on virtual time, faults and workloads drawn from a seed, and rules
that always hold.

`python -m tests.simulation --help`, and docs/simulator.md for people. From the inside:

    loop        an event loop without real time: a run is a function of its seed
    faults      clients that lose, delay and refuse calls and cut watches
    processes   components that crash at any await and start again
    kubelets    nodes that only pretend to run containers, and that can be lost
    script      what users do: create, scale, update, evict, delete
    watchdog    what must hold after every commit
    goals       what must hold in the end
    simulated_cluster  all of it together, for one seed
"""
