#!/usr/bin/env python3
"""A stand-in for a Kubernetes API server, for tests on machines that can have no real one.

It follows the public API where Leases and ConfigMaps are concerned: create, get, list, watch, update, patch and delete, with
optimistic concurrency by resourceVersion, Status objects, 401, 403, 404, 409, 410, 422; SelfSubjectAccessReview; and API
discovery, as far as kubectl asks for it. It is no API server: there is no admission, no etcd behind it, and of RBAC it knows
Roles and RoleBindings.

    kube_apiserver.py --port 6443 --state state.json [--cert cert.pem --key key.pem]
                      [--users users.json [--manifest rbac.yaml]] [--asked asked.jsonl]

`users.json` has for each bearer token {"name": "...", "verbs": ["get", ...]}; without it everybody may do everything. Who has
no verbs there may do what the Roles of the manifest allow. What is asked for is written to `asked.jsonl`, each thing once.
What it is to do wrong is told by POST /stand-in/fault {"status": 429, "count": 2, "verbs": ["update"], "after": false}:
`after` is true where the write is made before it is answered so, and a status of 0 closes the connection instead. Instead of
a status, "hold" keeps the request waiting until POST /stand-in/go; POST /stand-in/held tells how many wait.
POST /stand-in/compact forgets all events, as a compaction does, and ends all watches with 410. POST /stand-in/events lists them.
"""

import argparse
import copy
import datetime
import http.server
import json
import os
import re
import ssl
import threading
import time
import urllib.parse
import uuid

RESOURCES = {
    # AllowCreateOnUpdate and AllowUnconditionalUpdate are as in the strategies of the real server.
    ("coordination.k8s.io/v1", "leases"): dict(kind="Lease", create_on_update=True, unconditional=False),
    ("v1", "configmaps"): dict(kind="ConfigMap", create_on_update=False, unconditional=True),
}
PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?$"
)
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
LEASE_SPEC = {
    "holderIdentity": str, "leaseDurationSeconds": int, "acquireTime": "time", "renewTime": "time",
    "leaseTransitions": int, "strategy": str, "preferredHolder": str,
}
ANNOTATIONS_MAX = 256 * 1024
BODY_MAX = 3 * 1024 * 1024
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Refusal(Exception):
    def __init__(self, code, reason, message, details=None):
        super().__init__(message)
        self.status = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "details": details or {}, "code": code,
        }


class Roles:
    """What the Roles of a manifest allow to those whom its RoleBindings name, as RBAC has it."""

    def __init__(self, path):
        import yaml
        with open(path, encoding="utf-8") as file:
            objects = list(yaml.safe_load_all(file))
        of_kind = lambda kind: [value for value in objects if value["kind"] == kind]
        place = lambda value: (value["metadata"]["namespace"], value["metadata"]["name"])
        roles = {place(role): role["rules"] for role in of_kind("Role")}
        accounts = {place(account) for account in of_kind("ServiceAccount")}
        self.rules = []
        for binding in of_kind("RoleBinding"):
            namespace, role = binding["metadata"]["namespace"], binding["roleRef"]
            if (role["apiGroup"], role["kind"]) != ("rbac.authorization.k8s.io", "Role"):
                raise ValueError(f"roleRef: {role}")
            for subject in binding["subjects"]:
                if subject["kind"] != "ServiceAccount" or (subject["namespace"], subject["name"]) not in accounts:
                    raise ValueError(f"subjects: {subject}")
                user = f'system:serviceaccount:{subject["namespace"]}:{subject["name"]}'
                self.rules += [(user, namespace, rule) for rule in roles[(namespace, role["name"])]]

    def allow(self, user, namespace, verb, group, plural, name):
        has = lambda allowed, wanted: wanted in allowed or "*" in allowed
        return any(
            who == user and where == namespace and has(rule["verbs"], verb) and has(rule["apiGroups"], group)
            # What is created has no name in its request, and so is in no rule that has names.
            and has(rule["resources"], plural) and ("resourceNames" not in rule or name in rule["resourceNames"])
            for who, where, rule in self.rules
        )


class Store:
    """All objects, and the events that watches have not seen yet."""

    def __init__(self, path, namespaces):
        self.path, self.namespaces = path, namespaces
        self.changed = threading.Condition()
        self.revision, self.objects = 1000, {}
        self.events, self.compacted = [], 0
        self.faults, self.ended = [], 0
        self.held, self.gone = 0, 0
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            self.revision = kept["revision"]
            self.objects = {tuple(json.loads(key)): value for key, value in kept["objects"].items()}
            self.compacted = self.revision

    def put(self, key, kind, value):
        """Keeps it under a new revision, on disk before it is answered."""
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        if kind == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = value
        if self.path:
            kept = {json.dumps(key): value for key, value in self.objects.items()}
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump({"revision": self.revision, "objects": kept}, file)
            os.replace(self.path + ".new", self.path)
        self.events.append((self.revision, key, kind, value))
        self.changed.notify_all()
        return value


def micro_time(value):
    if not isinstance(value, str) or not MICRO_TIME.match(value):
        raise Refusal(400, "BadRequest", f"parsing time {value!r} as \"2006-01-02T15:04:05.000000Z07:00\"")
    head, _, fraction = value.replace("Z", "+00:00").partition(".")
    digits, zone = (re.match(r"^(\d+)(.*)$", fraction).groups() if fraction else ("", head[19:]))
    moment = datetime.datetime.fromisoformat(f"{head[:19]}.{(digits + '000000')[:6]}{zone}")
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def check(resource, value):
    """What the real server refuses, and in which form it keeps the rest."""
    meta = value["metadata"]
    name = meta.get("name") or ""
    invalid = lambda message: Refusal(422, "Invalid", f'{resource["kind"]} "{name}" is invalid: {message}')
    if len(name) > 253 or not SUBDOMAIN.match(name):
        raise invalid("metadata.name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters")
    annotations = meta.get("annotations") or {}
    if not all(isinstance(text, str) for text in annotations.values()):
        raise Refusal(400, "BadRequest", "annotations are texts")
    if sum(len(key) + len(text.encode()) for key, text in annotations.items()) > ANNOTATIONS_MAX:
        raise invalid("metadata.annotations: Too long: must have at most 262144 bytes")
    if resource["kind"] == "Lease":
        spec = {}
        for field, kind in LEASE_SPEC.items():
            given = (value.get("spec") or {}).get(field)
            if given is None:
                continue
            if kind == "time":
                given = micro_time(given)
            elif type(given) is not kind or (kind is int and not -2**31 <= given < 2**31):
                raise Refusal(400, "BadRequest", f"spec.{field}: {given!r} is of the wrong type")
            spec[field] = given
        if spec.get("leaseDurationSeconds", 1) <= 0:
            raise invalid("spec.leaseDurationSeconds: must be greater than 0")
        if spec.get("leaseTransitions", 0) < 0:
            raise invalid("spec.leaseTransitions: must be greater than or equal to 0")
        value["spec"] = spec


def merge(target, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key), value)
    return target


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_):
        pass

    def answer(self, code, value, headers=()):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def serve(self):
        try:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else b""
            if length > BODY_MAX:
                raise Refusal(413, "RequestEntityTooLarge", "limit is 3145728")
            url = urllib.parse.urlsplit(self.path)
            self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            if url.path.startswith("/stand-in/"):
                return self.control(url.path, json.loads(body or b"{}"))
            if url.path == "/readyz":
                return self.answer(200, {})
            if url.path == "/version":
                return self.answer(200, {"major": "1", "minor": "33", "gitVersion": "v1.33.0-stand-in"})
            if url.path == REVIEWS and self.command == "POST":
                return self.review(json.loads(body or b"{}"))
            self.route(url.path, body)
        except Refusal as refusal:
            headers = [("Retry-After", "1")] if refusal.status["code"] == 429 else []
            self.answer(refusal.status["code"], refusal.status, headers)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.answer(400, Refusal(400, "BadRequest", f"the object cannot be read: {error}").status)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def control(self, path, order):
        store = self.server.store
        with store.changed:
            if path == "/stand-in/fault":
                store.faults.append(order)
            elif path == "/stand-in/held":
                return self.answer(200, {"held": store.held})
            elif path == "/stand-in/go":
                store.gone += 1
                store.changed.notify_all()
            elif path == "/stand-in/events":
                listed = [{"revision": revision, "object": value} for revision, _, _, value in store.events]
                return self.answer(200, {"events": listed})
            elif path == "/stand-in/compact":
                store.events, store.compacted = [], store.revision
                store.ended += 1
                store.changed.notify_all()
            else:
                raise Refusal(404, "NotFound", "no such order")
        self.answer(200, {})

    def discover(self, path):
        """What kubectl looks up before anything else; nothing, if this is no such question."""
        groups = [group for group, _ in RESOURCES if group != "v1"]
        if path == "/version":
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = [{"groupVersion": group, "version": group.rpartition("/")[2]} for group in groups]
            listed = [{"name": version["groupVersion"].rpartition("/")[0], "versions": [version], "preferredVersion": version}
                      for version in versions]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        group = path.removeprefix("/apis/").removeprefix("/api/")
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        listed = [{"name": plural, "singularName": resource["kind"].lower(), "namespaced": True, "kind": resource["kind"],
                   "verbs": verbs} for (known, plural), resource in RESOURCES.items() if known == group]
        return listed and {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": listed}

    def route(self, path, body):
        discovered = self.command == "GET" and self.discover(path)
        if discovered:
            return self.answer(200, discovered)
        found = PATH.match(path)
        api = (found["core"] or found["group"], found["plural"]) if found else None
        if api not in RESOURCES:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        self.api, self.resource = api, RESOURCES[api]
        self.namespace, self.name = found["namespace"], found["name"]
        watching = self.query.get("watch") in ("1", "true", "True")
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        verb = verbs.get(self.command) or ("watch" if watching else "get" if self.name else "list")
        self.authorize(verb)
        fault = self.fault(verb)
        if fault and fault.get("hold"):
            self.hold()
            fault = None
        if fault and not fault.get("after"):
            return self.fail(fault)
        if verb == "watch":
            return self.watch()
        with self.server.store.changed:
            code, value = getattr(self, verb)(*([json.loads(body or b"{}")] if self.command != "GET" else []))
            value = copy.deepcopy(value)
        if fault:
            return self.fail(fault)
        self.answer(code, value)

    def fault(self, verb):
        with self.server.store.changed:
            for fault in self.server.store.faults:
                concerns = verb in fault.get("verbs", [verb]) and fault.get("name", self.name) == self.name
                if concerns and fault.get("plural", self.api[1]) == self.api[1]:
                    fault["count"] = fault.get("count", 1) - 1
                    if fault["count"] <= 0:
                        self.server.store.faults.remove(fault)
                    return fault
        return None

    def hold(self):
        store = self.server.store
        with store.changed:
            gone, store.held = store.gone, store.held + 1
            store.changed.wait_for(lambda: store.gone != gone)
            store.held -= 1

    def fail(self, fault):
        code = fault["status"]
        if code == 0:
            self.close_connection = True
            return self.connection.shutdown(2)
        reasons = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
        raise Refusal(code, reasons.get(code, "Unknown"), fault.get("message", "told to fail"))

    def authorize(self, verb):
        users = self.server.users
        if users is None:
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        user = users.get(token)
        if user is None:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        group = self.api[0].rpartition("/")[0]
        # A list or a watch of one name is one of that name.
        wanted = re.fullmatch(r"metadata\.name==?(.+)", self.query.get("fieldSelector", ""))
        name = self.name or (wanted and wanted[1])
        self.note([user["name"], verb, group, self.api[1], name])
        if not self.allows(user, self.namespace, verb, group, self.api[1], name):
            resource = self.api[1] + ("." + group if group else "")
            named = f' "{name}"' if name else ""
            raise Refusal(403, "Forbidden", f'{resource}{named} is forbidden: User "{user["name"]}" cannot {verb} resource '
                          f'"{self.api[1]}" in API group "{group}" in the namespace "{self.namespace}"')

    def allows(self, user, namespace, verb, group, plural, name):
        if "verbs" in user:
            return verb in user["verbs"]
        return self.server.roles.allow(user["name"], namespace, verb, group, plural, name)

    def review(self, review):
        asked = review["spec"]["resourceAttributes"]
        users = self.server.users
        if users is None:
            allowed = True
        else:
            user = users.get((self.headers.get("Authorization") or "").removeprefix("Bearer "))
            if user is None:
                raise Refusal(401, "Unauthorized", "Unauthorized")
            allowed = self.allows(user, asked.get("namespace"), asked["verb"], asked.get("group", ""), asked["resource"],
                                  asked.get("name") or None)
        review["status"] = {"allowed": allowed}
        self.answer(201, review)

    def note(self, asked):
        with self.server.store.changed:
            if self.server.asked and asked not in self.server.noted:
                self.server.noted.append(asked)
                with open(self.server.asked, "a", encoding="utf-8") as file:
                    file.write(json.dumps(asked) + "\n")

    def details(self):
        return {"name": self.name, "group": self.api[0].rpartition("/")[0], "kind": self.api[1]}

    def key(self, name):
        return (*self.api, self.namespace, name)

    def find(self):
        found = self.server.store.objects.get(self.key(self.name))
        if found is None:
            group = self.api[0].rpartition("/")[0]
            resource = self.api[1] + ("." + group if group else "")
            raise Refusal(404, "NotFound", f'{resource} "{self.name}" not found', self.details())
        return found

    def conflict(self, why="the object has been modified; please apply your changes to the latest version and try again"):
        return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {self.api[1]} "{self.name}": {why}', self.details())

    def get(self):
        return 200, self.find()

    def selected(self):
        selector = self.query.get("fieldSelector", "")
        wanted = re.fullmatch(r"metadata\.name==?(.+)", selector)
        if selector and not wanted:
            raise Refusal(400, "BadRequest", f"field label not supported: {selector}")
        return lambda key: key[:3] == (*self.api, self.namespace) and (not wanted or key[3] == wanted[1])

    def list(self):
        store, selected = self.server.store, self.selected()
        items = [value for key, value in sorted(store.objects.items()) if selected(key)]
        return 200, {"kind": self.resource["kind"] + "List", "apiVersion": self.api[0],
                     "metadata": {"resourceVersion": str(store.revision)}, "items": items}

    def create(self, value):
        store = self.server.store
        if self.namespace not in store.namespaces:
            raise Refusal(404, "NotFound", f'namespaces "{self.namespace}" not found', {"name": self.namespace, "kind": "namespaces"})
        meta = value.setdefault("metadata", {})
        if meta.get("resourceVersion"):
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self.name = meta.get("name")
        check(self.resource, value)
        if self.key(self.name) in store.objects:
            raise Refusal(409, "AlreadyExists", f'{self.api[1]} "{self.name}" already exists', self.details())
        return 201, self.new(value)

    def new(self, value):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        value.update(kind=self.resource["kind"], apiVersion=self.api[0])
        value["metadata"].update(namespace=self.namespace, uid=str(uuid.uuid4()), creationTimestamp=now)
        return self.server.store.put(self.key(self.name), "ADDED", value)

    def update(self, value):
        store, meta = self.server.store, value.setdefault("metadata", {})
        if meta.get("name", self.name) != self.name:
            raise Refusal(400, "BadRequest", "the name of the object does not match the name on the URL")
        meta["name"] = self.name
        check(self.resource, value)
        old = store.objects.get(self.key(self.name))
        if old is None:
            if not self.resource["create_on_update"]:
                self.find()
            if meta.get("uid"):
                raise self.conflict(f'Precondition failed: UID in precondition: {meta["uid"]}, UID in object meta: ')
            if self.namespace not in store.namespaces:
                raise Refusal(404, "NotFound", f'namespaces "{self.namespace}" not found')
            return 201, self.new(value)
        if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise self.conflict(f'Precondition failed: UID in precondition: {meta["uid"]}')
        return 200, self.replace(old, value)

    def replace(self, old, value):
        meta, was = value["metadata"], old["metadata"]
        version = meta.get("resourceVersion")
        if not version and not self.resource["unconditional"]:
            raise Refusal(422, "Invalid", f'{self.resource["kind"]} "{self.name}" is invalid: metadata.resourceVersion: '
                          "Invalid value: 0x0: must be specified for an update")
        if version and not version.isdigit():
            raise Refusal(400, "BadRequest", f"unable to parse resource version {version!r}")
        if version and version != was["resourceVersion"]:
            raise self.conflict()
        value.update(kind=old["kind"], apiVersion=old["apiVersion"])
        for field in ("namespace", "uid", "creationTimestamp", "resourceVersion"):
            meta[field] = was[field]
        # A write that changes nothing is none.
        return old if value == old else self.server.store.put(self.key(self.name), "MODIFIED", value)

    def patch(self, patch):
        old = self.find()
        value = merge(copy.deepcopy(old), patch)
        value["metadata"].setdefault("resourceVersion", old["metadata"]["resourceVersion"])
        check(self.resource, value)
        return 200, self.replace(old, value)

    def delete(self, options):
        old, wanted = self.find(), (options or {}).get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            if wanted.get(field) and wanted[field] != old["metadata"][field]:
                raise self.conflict(f"Precondition failed: {field}")
        self.server.store.put(self.key(self.name), "DELETED", copy.deepcopy(old))
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": self.details()}

    def watch(self):
        store, selected = self.server.store, self.selected()
        until = time.monotonic() + float(self.query.get("timeoutSeconds") or 1800)
        with store.changed:
            asked, ended = self.query.get("resourceVersion") or "", store.ended
            seen = int(asked) if asked not in ("", "0") else store.revision
            events = []
            if asked in ("", "0"):
                events = [("ADDED", copy.deepcopy(value)) for key, value in sorted(store.objects.items()) if selected(key)]
            gone = seen < store.compacted
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while True:
            if gone:
                why = f"too old resource version: {seen} ({store.compacted})"
                events.append(("ERROR", Refusal(410, "Expired", why).status))
            for kind, value in events:
                line = json.dumps({"type": kind, "object": value}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
            left = until - time.monotonic()
            if gone or left <= 0:
                break
            with store.changed:
                store.changed.wait_for(lambda: store.revision > seen or store.ended != ended, timeout=min(left, 1))
                fresh = [event for event in store.events if event[0] > seen]
                events = [(kind, copy.deepcopy(value)) for _, key, kind, value in fresh if selected(key)]
                gone = store.ended != ended
                seen = max(seen, store.revision)
                if not events and self.query.get("allowWatchBookmarks") in ("1", "true", "True") and left < 1:
                    mark = {"kind": self.resource["kind"], "apiVersion": self.api[0],
                            "metadata": {"resourceVersion": str(seen)}}
                    events = [("BOOKMARK", mark)]
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, address):
        pass  # A client that goes in the middle of a request is nothing to report.


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state")
    parser.add_argument("--namespace", action="append")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--client-ca")
    parser.add_argument("--users")
    parser.add_argument("--manifest")
    parser.add_argument("--asked")
    options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), Handler)
    server.store = Store(options.state, options.namespace or ["default", "kube-system"])
    server.users, server.asked, server.noted = None, options.asked, []
    server.roles = Roles(options.manifest) if options.manifest else None
    if options.users:
        with open(options.users, encoding="utf-8") as file:
            server.users = json.load(file)
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.cert, options.key)
        if options.client_ca:
            context.load_verify_locations(options.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


main()
