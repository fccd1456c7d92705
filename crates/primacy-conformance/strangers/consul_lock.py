#!/usr/bin/env python3
"""A stranger's client, python-consul2, against an agent of Consul's or its stand-in: sessions, the lock of `consul lock`, and
blocking queries, as that client was written for real agents. It prints `ok` where everything was as it should be.

    consul_stranger.py PORT
"""

import sys
import threading
import time

import consul

LOCK_FLAG = 0x2DDCCBC058A50C18
KEY = "strangers/lock/.lock"


def main():
    client = consul.Consul(host="127.0.0.1", port=int(sys.argv[1]))
    assert client.status.leader() and client.agent.self()["Config"]["NodeName"]
    one = client.session.create(name="one", ttl=10, lock_delay=0, checks=[])
    two = client.session.create(name="two", ttl=10, lock_delay=0, checks=[])
    named = {session["ID"]: session["Name"] for session in client.session.list()[1]}
    assert named[one] == "one" and named[two] == "two", named
    index, session = client.session.info(one)
    assert session["TTL"] == "10s" and session["LockDelay"] == 0 and session["Behavior"] == "release", session
    assert client.session.renew(one)["ID"] == one

    # Nobody has the key; one takes it, and two does not get it.
    index, entry = client.kv.get(KEY)
    assert entry is None and int(index) > 0, (index, entry)
    assert client.kv.put(KEY, "one", flags=LOCK_FLAG, acquire=one)
    assert client.kv.put(KEY, "one", flags=LOCK_FLAG, acquire=one), "the same session again"
    assert not client.kv.put(KEY, "two", flags=LOCK_FLAG, acquire=two)
    index, entry = client.kv.get(KEY)
    assert entry["Value"] == b"one" and entry["Session"] == one and entry["Flags"] == LOCK_FLAG, entry
    assert entry["LockIndex"] == 1 and entry["ModifyIndex"] == int(index) >= entry["CreateIndex"], entry

    # Two waits until it is let go.
    told = []
    waiting = threading.Thread(target=lambda: told.append(client_of_its_own().kv.get(KEY, index=index, wait="30s")))
    waiting.start()
    time.sleep(0.1)
    assert not told
    assert not client.kv.put(KEY, "", flags=LOCK_FLAG, release=two), "not its own"
    assert client.kv.put(KEY, "", flags=LOCK_FLAG, release=one)
    waiting.join()
    later, entry = told[0]
    assert int(later) > int(index) and "Session" not in entry or not entry["Session"], entry
    assert client.kv.put(KEY, "two", flags=LOCK_FLAG, acquire=two)
    assert client.kv.get(KEY)[1]["LockIndex"] == 2

    # Its session is destroyed; the key stays, and nobody holds it. A wrong index changes nothing.
    assert client.session.destroy(two)
    index, entry = client.kv.get(KEY)
    assert not entry.get("Session") and entry["Value"] == b"two", entry
    assert not client.kv.put(KEY, "x", cas=int(index) - 1)
    assert not client.kv.delete(KEY, cas=int(index) - 1)
    assert client.kv.get("strangers/", keys=True)[1] == [KEY]
    assert client.kv.delete(KEY, cas=int(index))
    again, entry = client.kv.get(KEY)
    assert entry is None and int(again) > int(index)

    # A lock-delay, and a session that deletes.
    slow = client.session.create(name="slow", ttl=10, lock_delay=1, behavior="delete", checks=[])
    assert client.kv.put(KEY, "slow", flags=LOCK_FLAG, acquire=slow)
    assert client.session.destroy(slow)
    assert client.kv.get(KEY)[1] is None
    assert not client.kv.put(KEY, "one", flags=LOCK_FLAG, acquire=one), "delayed"
    while not client.kv.put(KEY, "one", flags=LOCK_FLAG, acquire=one):
        time.sleep(0.05)

    # What is said to those who do it wrong.
    for wrong, kind in [
        (lambda: client.session.renew(two), consul.NotFound),
        (lambda: client.kv.put(KEY, "two", acquire=two), consul.ConsulException),
    ]:
        try:
            wrong()
        except kind:
            continue
        raise AssertionError("no error")
    ops = [
        {"KV": {"Verb": "check-session", "Key": KEY, "Session": one}},
        {"KV": {"Verb": "set", "Key": "strangers/guarded", "Value": "dmFsdWU="}},
    ]
    assert client.txn.put(ops)["Errors"] is None
    assert client.kv.get("strangers/guarded")[1]["Value"] == b"value"
    assert client.session.destroy(one)
    try:
        client.txn.put(ops)
        raise AssertionError("no error")
    except consul.base.ClientError as error:
        assert "failed session check" in str(error), error
    client.kv.delete("strangers/", recurse=True)
    print("ok")


def hold(key):
    """The steps of api/lock.go in Consul's own client."""
    client = client_of_its_own()
    session = client.session.create(name="Consul API Lock", ttl=15)
    index = None
    while True:
        index, entry = client.kv.get(key, index=index, wait="15s")
        assert entry is None or entry["Flags"] == LOCK_FLAG, "Existing key does not match lock use"
        if entry is not None and entry.get("Session"):
            continue
        if client.kv.put(key, "", flags=LOCK_FLAG, acquire=session):
            break
        index = None
        time.sleep(0.1)
    print("held", client.kv.get(key)[1]["ModifyIndex"], flush=True)
    sys.stdin.read()
    entry = client.kv.get(key)[1]
    assert entry["Session"] == session, "the lock was lost: %r" % entry
    assert client.kv.put(key, "", flags=LOCK_FLAG, release=session)
    entry = client.kv.get(key)[1]
    if entry is not None and not entry.get("Session"):
        client.kv.delete(key, cas=entry["ModifyIndex"])
    client.session.destroy(session)
    print("released", flush=True)


def client_of_its_own():
    return consul.Consul(host="127.0.0.1", port=int(sys.argv[1]))


if sys.argv[2:3] == ["hold"]:
    hold(sys.argv[3])
else:
    main()
