#!/usr/bin/env python3
"""What the stand-in for the API server answers to a stranger, the `kubernetes` package of PyPI. It fails where something is
not as a real server has it.

    kube_check.py ADDRESS
"""

import datetime
import sys
import threading

from kubernetes import client, watch
from kubernetes.client.rest import ApiException

LEASE, SPACE = "strange", "default"


def refused(status, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == status and reason in error.body, (error.status, error.body)
    else:
        raise AssertionError(f"{call.__name__} was not refused")


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def leases(api):
    spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time=now())
    body = client.V1Lease(metadata={"name": LEASE}, spec=spec)
    refused(404, "NotFound", api.read_namespaced_lease, LEASE, SPACE)
    first = api.create_namespaced_lease(SPACE, body)
    assert first.metadata.uid and first.metadata.creation_timestamp and first.spec.renew_time == spec.renew_time
    refused(409, "AlreadyExists", api.create_namespaced_lease, SPACE, body)
    refused(404, "namespaces", api.create_namespaced_lease, "nowhere", body)
    refused(422, "must be specified for an update", api.replace_namespaced_lease, LEASE, SPACE, body)
    wrong = client.V1Lease(metadata={"name": "Wrong_Name"}, spec=spec)
    refused(422, "RFC 1123", api.create_namespaced_lease, SPACE, wrong)
    wrong = client.V1Lease(metadata={"name": "wrong"}, spec=client.V1LeaseSpec(lease_duration_seconds=0))
    refused(422, "greater than 0", api.create_namespaced_lease, SPACE, wrong)

    same = api.replace_namespaced_lease(LEASE, SPACE, first)
    assert same.metadata.resource_version == first.metadata.resource_version, "nothing was changed"
    first.spec.renew_time = now()
    second = api.replace_namespaced_lease(LEASE, SPACE, first)
    assert second.metadata.resource_version != first.metadata.resource_version
    first.spec.renew_time = now()
    refused(409, "Conflict", api.replace_namespaced_lease, LEASE, SPACE, first)
    old = {"metadata": {"resourceVersion": first.metadata.resource_version, "labels": {"a": "b"}}}
    refused(409, "Conflict", api.patch_namespaced_lease, LEASE, SPACE, old)
    return second


def watched(api):
    events, begun = [], threading.Event()

    def collect():
        stream = watch.Watch().stream(
            api.list_namespaced_lease, SPACE, field_selector=f"metadata.name={LEASE}", timeout_seconds=30)
        for event in stream:
            events.append((event["type"], event["object"].metadata.resource_version))
            begun.set()
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=collect)
    thread.start()
    assert begun.wait(30), "a watch begins with what is there"
    patched = api.patch_namespaced_lease(LEASE, SPACE, {"metadata": {"labels": {"a": "b"}}})
    preconditions = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    refused(409, "Conflict", api.delete_namespaced_lease, LEASE, SPACE, body=preconditions)
    api.delete_namespaced_lease(LEASE, SPACE)
    thread.join(60)
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"], events
    assert events[1][1] == patched.metadata.resource_version
    # An update may make a Lease, unless it says which one it means.
    refused(409, "UID", api.replace_namespaced_lease, LEASE, SPACE, patched)
    patched.metadata.uid = patched.metadata.resource_version = None
    made = api.replace_namespaced_lease(LEASE, SPACE, patched)
    assert made.metadata.uid and len(api.list_namespaced_lease(SPACE).items) == 1
    api.delete_namespaced_lease(LEASE, SPACE)


def config_maps(api):
    made = api.create_namespaced_config_map(SPACE, client.V1ConfigMap(metadata={"name": "map"}, data={"a": "1"}))
    made.data["a"] = "2"
    api.replace_namespaced_config_map("map", SPACE, made)
    refused(409, "Conflict", api.replace_namespaced_config_map, "map", SPACE, made)
    missing = client.V1ConfigMap(metadata={"name": "missing"})
    refused(404, "NotFound", api.replace_namespaced_config_map, "missing", SPACE, missing)


def main():
    configuration = client.Configuration()
    configuration.host = sys.argv[1]
    client.Configuration.set_default(configuration)
    leases(client.CoordinationV1Api())
    watched(client.CoordinationV1Api())
    config_maps(client.CoreV1Api())


main()
