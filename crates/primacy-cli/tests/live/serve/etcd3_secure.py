# What a program in Python does with etcd3 at a server that wants certificates and a password.

import sys

import etcd3

endpoint, ca, cert, key = sys.argv[1:]
host, port = endpoint.rsplit(":", 1)


def client(user=None, password=None, cert=cert, key=key):
    return etcd3.client(
        host=host, port=int(port), timeout=30, ca_cert=ca, cert_cert=cert, cert_key=key, user=user, password=password
    )


def refused(what, ask, in_which_words=False):
    try:
        ask()
    except Exception as error:
        print(what, "is refused:", type(error).__name__, error.details() if in_which_words else "")
    else:
        print(what, "is not refused")


root = client("root", "secret-of-root")
root.put("p/1", "one")
print(root.get("p/1")[0])
events, cancel = root.watch("p/2")
root.put("p/2", "two")
print(next(events).value)
cancel()
lease = root.lease(30)
root.put("p/3", "three", lease)
lease.revoke()
print(root.get("p/3")[0])
with root.lock("job", ttl=30) as lock:
    print(lock.is_acquired())
refused("a wrong password", lambda: client("root", "wrong"), True)
refused("another user", lambda: client("nobody", "secret-of-root"), True)
refused("no user", lambda: client().put("p/1", "x"))
refused("no certificate", lambda: client("root", "secret-of-root", cert=None, key=None))
