#!/usr/bin/env python3
"""A stranger in an election: the leader election of the `kubernetes` package of PyPI, over a Lease.

    kube_stranger.py ADDRESS LEASE IDENTITY [LEASE_SECONDS RENEW_SECONDS RETRY_SECONDS]

It prints what it does, a line for each thing.
"""

import logging
import sys
import time

from kubernetes import client
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

SECONDS = 5, 3, 1


def lead():
    print("leads", flush=True)
    while True:
        time.sleep(3600)


def main():
    address, lease, identity, *times = sys.argv[1:]
    lease_seconds, renew_seconds, retry_seconds = map(int, times or SECONDS)
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    configuration = client.Configuration()
    configuration.host = address
    client.Configuration.set_default(configuration)
    config = electionconfig.Config(
        LeaseLock(lease, "default", identity), lease_seconds, renew_seconds, retry_seconds,
        onstarted_leading=lead, onstopped_leading=lambda: print("leads no more", flush=True))
    leaderelection.LeaderElection(config).run()


main()
