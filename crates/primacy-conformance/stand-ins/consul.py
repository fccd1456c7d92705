#!/usr/bin/env python3
"""A stand-in for a Consul agent, for tests on machines that can have no real one.

It follows the public HTTP API where sessions and the key/value store are concerned: sessions with a time to live, a lock-delay
and a behaviour; GET, PUT and DELETE of keys with acquire, release, cas, flags, recurse, keys, raw; blocking queries; the KV
verbs of transactions; ACL tokens; the texts of the errors. It is no Consul: one process, no Raft, no catalog, no health
checks. What it relies on was read in the documentation and the source of Consul:

- Every write has an index that only grows; a key that is not changed by a write keeps its ModifyIndex. X-Consul-Index is the
  ModifyIndex of a key that is there, and the highest index of all keys, deleted ones too, where it is not.
- acquire adds one to LockIndex, unless the same session holds the lock; a plain write sets LockIndex back to 0, and keeps
  Session; a key that is deleted and made again begins with LockIndex 1.
- A session ends at the earliest after its TTL; Consul waits twice as long (`--ttl-factor`). A restart, as a new leader of
  Consul's, counts anew for all sessions.
- A lock-delay holds for the keys that a session held when it was ended, also by a destroy; not after a release.

    consul.py --port 8500 [--state state.json] [--acl acl.json] [--cert cert.pem --key key.pem] [--ttl-min 10] [--ttl-factor 2]

`acl.json` has for each token the rules that it has: {"key": {"a/.lock": "write"}, "key_prefix": {"a/": "read"},
"session_prefix": {"": "write"}}; without the file everybody may do everything. What it is to do wrong is told by
POST /stand-in/fault {"match": "PUT /v1/txn", "count": 2, "status": 500, "body": "No cluster leader", "after": false}: `after`
is true where the request is done before it is answered so, a status of 0 closes the connection instead, and "hold": true
holds the request before it is done until POST /stand-in/go. POST /stand-in/index {"index": 3} sets the index back, as the
restoring of an old snapshot does; POST /stand-in/expire {"session": ID} ends a session as if its time had run out.
"""

import argparse
import base64
import http.server
import json
import os
import random
import re
import ssl
import threading
import time
import urllib.parse
import uuid

TTL_MAX = 86400
LOCK_DELAY_MAX = 60
WAIT_DEFAULT, WAIT_MAX = 300, 600
NODE = "stand-in"
KEY = re.compile(r"[A-Za-z0-9,\-_./]*")
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
DENIED = "Permission denied: token with AccessorID '%s' lacks permission '%s:%s' on \"%s\""
TXN_OPS_MAX = 64


class Answer(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status, self.text = status, text


class Failed(Exception):
    """What a transaction says of one of its operations."""


def duration(text):
    """Seconds, of what Go writes as a duration."""
    parts = DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise Answer(500, "time: invalid duration %s" % json.dumps(text))
    return sum(float(number) * UNITS[unit] for number, unit in parts)


class Store:
    def __init__(self, arguments):
        self.path = arguments.state
        self.ttl_min, self.factor = arguments.ttl_min, arguments.ttl_factor
        self.changed = threading.Condition()
        self.index, self.kv_index, self.session_index = 10, 0, 0
        self.keys, self.graves, self.sessions = {}, {}, {}
        self.deadlines, self.delays, self.faults, self.gone, self.restored = {}, {}, [], 0, 0
        if self.path and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for name, value in json.load(file).items():
                    setattr(self, name, value)
        for identifier in self.sessions:
            self.renew(identifier)

    # Sessions

    def create(self, body):
        names = {name.lower(): value for name, value in body.items()}
        behavior = names.get("behavior") or "release"
        if behavior not in ("release", "delete"):
            raise Answer(500, "Invalid Behavior setting '%s'" % behavior)
        ttl = names.get("ttl") or ""
        seconds = duration(ttl) if ttl else 0
        if ttl and seconds and not self.ttl_min <= seconds <= TTL_MAX:
            told = (int(seconds * 1e9), "%gs" % self.ttl_min, "24h0m0s")
            raise Answer(500, "Invalid Session TTL '%d', must be between [%s=%s]" % told)
        delay = names.get("lockdelay", "15s")
        delay = duration(delay) if isinstance(delay, str) else delay * 1e-9
        if delay < 1000e-9:
            delay *= 1e9
        checks = names.get("nodechecks", names.get("checks", ["serfHealth"]))
        self.index += 1
        self.session_index = self.index
        identifier = str(uuid.uuid4())
        self.sessions[identifier] = {
            "ID": identifier, "Name": names.get("name", ""), "Node": names.get("node", NODE),
            "LockDelay": int(min(delay, LOCK_DELAY_MAX) * 1e9), "Behavior": behavior, "TTL": ttl,
            "NodeChecks": checks, "ServiceChecks": None, "CreateIndex": self.index, "ModifyIndex": self.index,
        }
        self.renew(identifier)
        self.keep()
        return identifier

    def renew(self, identifier):
        ttl = self.sessions[identifier]["TTL"]
        seconds = duration(ttl) if ttl else 0
        if seconds:
            self.deadlines[identifier] = time.monotonic() + seconds * self.factor

    def destroy(self, identifier):
        session = self.sessions.pop(identifier, None)
        self.deadlines.pop(identifier, None)
        if session is None:
            return
        self.index += 1
        self.session_index = self.index
        for key in [key for key, entry in self.keys.items() if entry["Session"] == identifier]:
            if session["Behavior"] == "delete":
                self.bury(key)
            else:
                self.put(dict(self.keys[key], Session=""), True)
            if session["LockDelay"]:
                self.delays[key] = time.monotonic() + session["LockDelay"] * 1e-9
        self.keep()

    def watch(self):
        """Ends the sessions whose time has run out."""
        while True:
            with self.changed:
                now = time.monotonic()
                for identifier in [it for it, deadline in self.deadlines.items() if deadline <= now]:
                    self.destroy(identifier)
            time.sleep(0.05)

    # Keys. The caller has counted the index of the write.

    def put(self, entry, with_session):
        before = self.keys.get(entry["Key"])
        entry["CreateIndex"] = before["CreateIndex"] if before else self.index
        if not with_session:
            entry["Session"] = before["Session"] if before else ""
        same = ("LockIndex", "Flags", "Value", "Session")
        if before and all(before[name] == entry[name] for name in same):
            return before
        entry["ModifyIndex"] = self.kv_index = self.index
        self.keys[entry["Key"]] = entry
        return entry

    def bury(self, key):
        if self.keys.pop(key, None):
            self.graves[key] = self.kv_index = self.index

    def entry(self, key, value, flags, session="", lock_index=0):
        return {"LockIndex": lock_index, "Key": key, "Flags": flags, "Value": value, "Session": session}

    def cas(self, key, value, flags, index):
        before = self.keys.get(key)
        if (before["ModifyIndex"] if before else 0) != index:
            return None
        return self.put(self.entry(key, value, flags), False)

    def is_delayed(self, key):
        return self.delays.get(key, 0) > time.monotonic()

    def lock(self, key, value, flags, session):
        if not session:
            raise Failed("missing session")
        if session not in self.sessions:
            raise Failed('invalid session "%s"' % session)
        before = self.keys.get(key)
        if before is None:
            count = 1
        elif before["Session"] == session:
            count = before["LockIndex"]
        elif before["Session"]:
            return None
        else:
            count = before["LockIndex"] + 1
        return self.put(self.entry(key, value, flags, session, count), True)

    def unlock(self, key, value, flags, session):
        if not session:
            raise Failed("missing session")
        before = self.keys.get(key)
        if before is None or before["Session"] != session:
            return None
        return self.put(self.entry(key, value, flags, "", before["LockIndex"]), True)

    def delete(self, key, index):
        before = self.keys.get(key)
        if before is None or before["ModifyIndex"] != index:
            return before is None
        self.bury(key)
        return True

    def operate(self, op):
        verb, key, index = op.get("Verb"), op.get("Key"), op.get("Index") or 0
        value, flags, session = op.get("Value") or "", op.get("Flags") or 0, op.get("Session") or ""
        quoted, entry = json.dumps(key), self.keys.get(key)
        if verb == "set":
            return self.put(self.entry(key, value, flags), False)
        if verb == "cas":
            return self.cas(key, value, flags, index) or self.fail("failed to set key %s, index is stale", quoted)
        if verb == "lock":
            return self.lock(key, value, flags, session) or self.fail(
                "failed to lock key %s, lock is already held", quoted)
        if verb == "unlock":
            return self.unlock(key, value, flags, session) or self.fail(
                "failed to unlock key %s, lock isn't held, or is held by another session", quoted)
        if verb == "delete":
            return self.bury(key)
        if verb == "delete-cas":
            return None if self.delete(key, index) else self.fail("failed to delete key %s, index is stale", quoted)
        if verb == "get":
            return entry or self.fail("key %s doesn't exist", quoted)
        if verb == "check-index":
            if entry is None:
                self.fail("failed to check index, key %s doesn't exist", quoted)
            if entry["ModifyIndex"] != index:
                told = (quoted, entry["ModifyIndex"], index)
                self.fail("failed index check for key %s, current modify index %d != %d", told)
            return entry
        if verb == "check-session":
            if entry is None:
                self.fail("failed to check session, key %s doesn't exist", quoted)
            if entry["Session"] != session:
                self.fail('failed session check for key %s, current session "%s" != "%s"', (quoted, entry["Session"], session))
            return entry
        if verb == "check-not-exists":
            return None if entry is None else self.fail("key %s exists", quoted)
        return self.fail("unknown KV verb %s", json.dumps(verb))

    @staticmethod
    def fail(text, values):
        raise Failed(text % values)

    def transact(self, ops, may):
        errors, results = [], []
        for position, op in enumerate(ops):
            verb, key = op.get("Verb"), op.get("Key", "")
            reads = verb in ("get", "check-index", "check-session", "check-not-exists")
            try:
                may("key", "read" if reads else "write", key)
                if verb == "lock" and self.is_delayed(key):
                    raise Failed('failed to lock key "%s" due to lock delay' % key)
            except (Answer, Failed) as error:
                errors.append({"OpIndex": position, "What": str(error)})
        if errors:
            return 409, {"Results": None, "Errors": errors}
        before = (dict(self.keys), dict(self.graves), self.kv_index)
        self.index += 1
        for position, op in enumerate(ops):
            try:
                entry = self.operate(op)
                if entry is not None:
                    results.append({"KV": dict(entry, Value=entry["Value"] if op["Verb"] == "get" else None)})
            except Failed as error:
                errors.append({"OpIndex": position, "What": str(error)})
        if errors:
            self.keys, self.graves, self.kv_index = before
            return 409, {"Results": None, "Errors": errors}
        self.keep()
        return 200, {"Results": results, "Errors": None}

    def keep(self):
        """On disk before it is answered, and told to all who wait."""
        if self.path:
            names = ("index", "kv_index", "session_index", "keys", "graves", "sessions")
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump({name: getattr(self, name) for name in names}, file)
            os.replace(self.path + ".new", self.path)
        self.changed.notify_all()

    def wait(self, query, look):
        """Looks until what is there has an index above the one that is known, or the time is up."""
        known, restored = int(query.get("index") or 0), self.restored
        wait = min(duration(query["wait"]), WAIT_MAX) if query.get("wait") else WAIT_DEFAULT
        end = time.monotonic() + wait + random.random() * wait / 16
        while True:
            index, found = look()
            index = max(index, 1)
            left = end - time.monotonic()
            if known == 0 or index > known or left <= 0 or self.restored != restored:
                return index, found
            self.changed.wait(left)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # The head and the body of an answer go out together.
    wbufsize = -1

    def log_message(self, form, *values):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True

    def do_GET(self):
        self.serve()

    do_PUT = do_DELETE = do_POST = do_GET

    def serve(self):
        store = self.server.store
        url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        path = urllib.parse.unquote(url.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path.startswith("/stand-in/"):
            with store.changed:
                return self.steer(path, json.loads(body or b"{}"))
        fault = self.fault(store, "%s %s" % (self.command, self.path))
        if fault.get("hold"):
            with store.changed:
                gone = store.gone
                store.changed.wait_for(lambda: store.gone > gone)
        if fault and not fault.get("after") and "status" in fault:
            return self.go_wrong(fault)
        try:
            with store.changed:
                status, found, index = self.route(store, path, body)
        except Answer as answer:
            status, found, index = answer.status, answer.text, None
        except Failed as failed:
            status, found, index = 500, str(failed), None
        if fault.get("after"):
            return self.go_wrong(fault)
        self.answer(status, found, index)

    def fault(self, store, told):
        with store.changed:
            for fault in store.faults:
                if told.startswith(fault.get("match", "")) and fault.get("count", 1) > 0:
                    fault["count"] = fault.get("count", 1) - 1
                    return fault
        return {}

    def go_wrong(self, fault):
        if fault["status"] == 0:
            self.close_connection = True
            return self.connection.close()
        return self.answer(fault["status"], fault.get("body", ""), None)

    def steer(self, path, told):
        store = self.server.store
        if path == "/stand-in/fault":
            store.faults.append(told)
        elif path == "/stand-in/mend":
            store.faults.clear()
        elif path == "/stand-in/go":
            store.gone += 1
        elif path == "/stand-in/expire":
            store.destroy(told["session"])
        elif path == "/stand-in/index":
            behind = store.index - told["index"]
            store.restored += 1
            store.index, store.kv_index = told["index"], told["index"]
            for entry in store.keys.values():
                entry["ModifyIndex"] = max(entry["ModifyIndex"] - behind, 1)
        else:
            return self.answer(404, "", None)
        store.changed.notify_all()
        return self.answer(200, True, None)

    def answer(self, status, found, index):
        if isinstance(found, bytes):
            kind, data = "text/plain", found
        elif isinstance(found, str) and status >= 400:
            kind, data = "text/plain; charset=utf-8", found.encode()
        else:
            kind, data = "application/json", b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if index is not None:
            self.send_header("X-Consul-Index", str(index))
            self.send_header("X-Consul-KnownLeader", "true")
            self.send_header("X-Consul-LastContact", "0")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def may(self, kind, right, name):
        """Refuses what the token of this request gives no right to."""
        if self.server.acl is None:
            return
        token = self.query.get("token") or self.headers.get("X-Consul-Token") or "anonymous"
        bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        rules = self.server.acl.get(bearer or token)
        if rules is None and token != "anonymous":
            raise Answer(403, "ACL not found")
        rules = rules or {}
        exact = rules.get(kind, {}).get(name)
        prefixes = [prefix for prefix in rules.get(kind + "_prefix", {}) if name.startswith(prefix)]
        longest = max(prefixes, key=len, default=None)
        given = exact or (rules[kind + "_prefix"][longest] if longest is not None else "deny")
        if given != "write" and given != right:
            raise Answer(403, DENIED % ("00000000-0000-0000-0000-000000000002", kind, right, name))

    def route(self, store, path, body):
        if "stale" in self.query and "consistent" in self.query:
            raise Answer(400, "Cannot specify ?stale with ?consistent, conflicting semantics.")
        if "dc" in self.query and self.query["dc"] not in ("", "dc1"):
            raise Answer(500, "No path to datacenter")
        if path.startswith("/v1/kv/"):
            return self.kv(store, path[len("/v1/kv/"):], body)
        if path.startswith("/v1/session/"):
            return self.session(store, path[len("/v1/session/"):], body)
        if path == "/v1/txn" and self.command == "PUT":
            ops = [op["KV"] for op in json.loads(body)]
            if len(ops) > TXN_OPS_MAX:
                raise Answer(413, "Transaction contains too many operations (%d > %d)" % (len(ops), TXN_OPS_MAX))
            return (*store.transact(ops, self.may), None)
        address = "127.0.0.1:%d" % self.server.server_address[1]
        if path == "/v1/status/leader":
            return 200, address, None
        if path == "/v1/status/peers":
            return 200, [address], None
        if path == "/v1/agent/self":
            told = {"Datacenter": "dc1", "NodeName": NODE, "Server": True, "Version": "0-stand-in"}
            return 200, {"Config": told, "Member": {"Name": NODE}}, None
        raise Answer(404, "")

    def session(self, store, path, body):
        verb, _, identifier = path.partition("/")
        if verb in ("create", "renew", "destroy") and self.command != "PUT":
            raise Answer(405, "method %s not allowed" % self.command)
        if verb == "create":
            self.may("session", "write", NODE)
            return 200, {"ID": store.create(json.loads(body or b"{}"))}, None
        if verb == "list":
            found = lambda: (store.session_index, list(store.sessions.values()))
            index, sessions = store.wait(self.query, found)
            return 200, sessions, index
        if not identifier:
            raise Answer(400, "Missing session")
        session = store.sessions.get(identifier)
        if verb == "info":
            try:
                self.may("session", "read", NODE)
            except Answer:
                return 200, [], store.session_index
            found = lambda: (store.session_index, [it for it in [store.sessions.get(identifier)] if it])
            index, sessions = store.wait(self.query, found)
            return 200, sessions, index
        if verb == "renew":
            if session is None:
                raise Answer(404, "Session id '%s' not found" % identifier)
            self.may("session", "write", session["Node"])
            store.renew(identifier)
            return 200, [session], None
        if verb == "destroy":
            if session is None and self.server.acl is not None:
                raise Answer(500, 'Unknown session "%s"' % identifier)
            self.may("session", "write", session["Node"] if session else NODE)
            store.destroy(identifier)
            return 200, True, None
        raise Answer(404, "")

    def kv(self, store, key, body):
        if not KEY.fullmatch(key) or key.startswith("/") or "../" in key:
            raise Answer(400, "key contains invalid character. Only alphanumeric characters and ,-_./ are allowed")
        query = self.query
        if not key and self.command != "GET" and "recurse" not in query:
            raise Answer(400, "Missing key name")
        if self.command == "GET":
            return self.read(store, key)
        if len([flag for flag in ("cas", "acquire", "release") if flag in query]) > 1:
            raise Answer(400, "Conflicting flags: %s\n" % urllib.parse.urlencode(query))
        self.may("key", "write", key)
        store.index += 1
        if self.command == "DELETE":
            done = True
            if "recurse" in query:
                for name in [name for name in store.keys if name.startswith(key)]:
                    store.bury(name)
            elif "cas" in query:
                done = store.delete(key, int(query["cas"]))
            else:
                store.bury(key)
            store.keep()
            return 200, done, None
        value, flags = base64.b64encode(body).decode(), int(query.get("flags") or 0)
        if "cas" in query:
            done = store.cas(key, value, flags, int(query["cas"])) is not None
        elif "acquire" in query:
            done = not store.is_delayed(key) and store.lock(key, value, flags, query["acquire"]) is not None
        elif "release" in query:
            done = store.unlock(key, value, flags, query["release"]) is not None
        else:
            done = store.put(store.entry(key, value, flags), False) is not None
        store.keep()
        return 200, done, None

    def read(self, store, key):
        query = self.query
        if "recurse" in query or "keys" in query:
            self.may("key", "read", key)

            def look():
                found = [store.keys[name] for name in sorted(store.keys) if name.startswith(key)]
                indexes = [entry["ModifyIndex"] for entry in found]
                indexes += [index for name, index in store.graves.items() if name.startswith(key)]
                return max(indexes, default=store.kv_index), found
        else:
            if not key:
                raise Answer(400, "Missing key name")
            self.may("key", "read", key)

            def look():
                entry = store.keys.get(key)
                return (entry["ModifyIndex"], [entry]) if entry else (store.kv_index, [])
        index, found = store.wait(query, look)
        if not found:
            return 404, None, index
        if "keys" in query:
            return 200, [entry["Key"] for entry in found], index
        if "raw" in query and "recurse" not in query:
            return 200, base64.b64decode(found[0]["Value"]), index
        return 200, [dict(entry, Value=entry["Value"] or None) for entry in found], index


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    for name in ("--state", "--acl", "--cert", "--key"):
        parser.add_argument(name)
    parser.add_argument("--ttl-min", type=float, default=10)
    parser.add_argument("--ttl-factor", type=float, default=2)
    arguments = parser.parse_args()
    server = Server(("127.0.0.1", arguments.port), Handler)
    server.store, server.acl = Store(arguments), None
    if arguments.acl:
        with open(arguments.acl, encoding="utf-8") as file:
            server.acl = json.load(file)
    if arguments.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.cert, arguments.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.store.watch, daemon=True).start()
    print(f"listening on {arguments.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
