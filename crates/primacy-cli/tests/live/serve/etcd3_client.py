# What a program in Python does with etcd3, which knows nothing of Primacy: locks and leases of two clients.

import sys
import threading

import etcd3

host, port = sys.argv[1].rsplit(":", 1)
one, other = (etcd3.client(host=host, port=int(port), timeout=30) for _ in range(2))

one.put("plain", "value")
assert other.get("plain")[0] == b"value"
assert one.replace("plain", "value", "next") and not one.replace("plain", "value", "again")

lease = one.lease(30)
one.put("leased", "x", lease)
assert 0 < lease.remaining_ttl <= 30 and lease.granted_ttl == 30
assert list(lease.keys) == [b"leased"]
assert list(lease.refresh())[0].TTL == 30
lease.revoke()
assert other.get("leased")[0] is None

short = one.lease(1)
one.put("short", "x", short)
gone = threading.Event()
watch = other.add_watch_callback("short", lambda told: gone.set())
assert gone.wait(60), "its lease ended, and nobody was told"
other.cancel_watch(watch)
assert other.get("short")[0] is None

first, second = one.lock("job", ttl=30), other.lock("job", ttl=30)
assert first.acquire(timeout=10) and first.is_acquired()
assert not second.acquire(timeout=1), "both hold it"
taken = threading.Event()
waits = threading.Thread(target=lambda: second.acquire(timeout=60) and taken.set())
waits.start()
assert first.release()
waits.join()
assert taken.is_set() and second.is_acquired() and not first.is_acquired()
second.release()

told = []
events, cancel = one.watch_prefix("seen/")
for number in range(100):
    other.put("seen/%d" % (number % 7), str(number))
for event in events:
    told.append(int(event.value))
    if len(told) == 100:
        cancel()
assert told == list(range(100)), told
print("all held")
