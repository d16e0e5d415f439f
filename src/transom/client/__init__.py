"""One client interface for every component: in-process and HTTPS, informers, work queues, events,
leader election.
"""
