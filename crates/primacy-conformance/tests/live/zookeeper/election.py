"""A stranger in the election: kazoo's own. It says when it leads and when that is over, by the machine's clock."""

import signal
import sys
import threading
import time

from kazoo.client import KazooClient

hosts, path, name, timeout, times, hold = sys.argv[1:]
told_to_go = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told_to_go.set())


def say(what):
    print(what, time.monotonic_ns(), flush=True)


def lead():
    say("leads")
    told_to_go.wait(float(hold))
    say("over")


client = KazooClient(hosts=hosts, timeout=float(timeout))
client.start()
say("stands")
for _ in range(int(times)):
    # It is told by the main thread's signals, which must not be the one that waits.
    thread = threading.Thread(target=client.Election(path, name).run, args=(lead,))
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
client.stop()
say("gone")
