//! The manifest for Kubernetes: its pods run as a kubelet would run them, under an API server that enforces the
//! permissions of its Role.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use primacy_conformance::live::kubernetes::ApiServer;
use primacy_conformance::live::{Ground, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::pages::Page;
use primacy_testbed::started;
use primacy_testbed::{Place, ProcessOutput, primacy, stderr, wait_until};

/// Prints the objects of a manifest as JSON.
const TO_JSON: &str =
    "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";

/// Gives a process the files of a service account where every pod has them, in a view of the file system of its own.
const IN_A_POD: &str = r#"mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
cp -r "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@""#;

/// The token of the service account.
const BEARER: &str = "a-token-of-the-service-account";

fn path_of_manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/kubernetes/nightly.yaml")
}

/// The only object of this kind.
fn object<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let (first, second) = (found.next(), found.next());
    assert!(second.is_none(), "there are two of {kind}");
    first.unwrap_or_else(|| panic!("there is no {kind}"))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A pod of the Deployment.
struct Pod {
    told: ProcessOutput,
    process: Child,
}

/// The parts that pods are made of.
struct Kubelet {
    place: Place,
    ground: PathBuf,
    port: u16,
    /// The pod of the Deployment's template.
    template: Value,
}

impl Kubelet {
    /// A command in a container of a pod with this name.
    fn command(&self, pod: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(program("unshare").unwrap());
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", IN_A_POD]).arg(self.ground.join("serviceaccount"));
        command.args(arguments).stdin(Stdio::null());
        self.place.prepare(&mut command);
        let own = Path::new(primacy()).parent().unwrap().to_str().unwrap();
        command.env("PATH", format!("{own}:{}", std::env::var("PATH").unwrap()));
        command.env_remove("KUBECONFIG").env("HOME", self.place.path("home"));
        command.env("XDG_STATE_HOME", self.place.path(pod));
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
        command.env("KUBERNETES_SERVICE_PORT", self.port.to_string());
        for variable in self.template["containers"][0]["env"].as_array().unwrap() {
            assert_eq!(variable["valueFrom"], json!({"fieldRef": {"fieldPath": "metadata.name"}}));
            command.env(variable["name"].as_str().unwrap(), pod);
        }
        command
    }

    fn start(&self, pod: &str) -> Pod {
        let mut command = self.command(pod, &texts(&self.template["containers"][0]["command"]));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let told = ProcessOutput::default();
        told.listen(process.stdout.take().unwrap());
        told.listen(process.stderr.take().unwrap());
        Pod { told, process }
    }
}

impl Pod {
    /// Waits for the token that its job got.
    fn leads(&self) -> u64 {
        let token =
            || self.told.all().iter().find_map(|line| line.split_once("leads with token ")?.1.parse().ok());
        wait_until("its lead", || token().is_some());
        token().unwrap()
    }

    /// Ends it as a kubelet does.
    fn terminate(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let mut ended = None;
        wait_until("its end", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }
}

/// Makes the files of the service account, and returns the user of its token.
fn make_account(ground: &Ground, account: &str, namespace: &str) {
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(ground.at("cert.pem"), signed.cert.pem()).unwrap();
    fs::write(ground.at("key.pem"), signed.signing_key.serialize_pem()).unwrap();
    let user = json!({BEARER: {"name": format!("system:serviceaccount:{namespace}:{account}")}});
    fs::write(ground.at("users.json"), user.to_string()).unwrap();
    let files = ground.at("serviceaccount");
    fs::create_dir(&files).unwrap();
    for (name, text) in [("token", BEARER), ("namespace", namespace), ("ca.crt", &signed.cert.pem())] {
        fs::write(files.join(name), text).unwrap();
    }
}

/// Returns the rules of the Role: user, verb, group, resource and name, where it is of a name.
fn allowed(role: &Value, user: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        let names = rule
            .get("resourceNames")
            .map_or_else(|| vec![Value::Null], |names| names.as_array().unwrap().clone());
        for (group, resource) in texts(&rule["apiGroups"]).iter().zip(texts(&rule["resources"])) {
            for (verb, name) in
                texts(&rule["verbs"]).iter().flat_map(|verb| names.iter().map(move |name| (verb, name)))
            {
                all.insert(json!([user, verb, group, resource, name]).to_string());
            }
        }
    }
    all
}

#[test]
fn the_manifest_is_that_of_the_page() {
    let page = Page::read("kubernetes");
    let blocks = ["Least rights", "In pods"].map(|section| page.take(section, "yaml"));
    let blocks: Vec<&str> = blocks.iter().flatten().map(|(text, _)| *text).collect();
    let manifest = fs::read_to_string(path_of_manifest()).unwrap();
    let (comment, objects) = manifest.split_once('\n').unwrap();
    assert!(comment.starts_with('#'), "{comment}");
    assert_eq!(objects, blocks.join("---\n"));
}

/// Two pods, with nothing but what a pod has: its name, and the service account's files. One leads, gets SIGTERM,
/// and hands over to the other one. All their requests to the API server are allowed by the Role, and all that it
/// allows is requested.
#[test]
fn a_pod_does_what_its_manifest_allows_and_asks_for_no_less() {
    let manifest = path_of_manifest();
    let read = || {
        let python = program("python3")?;
        let read = Command::new(python).args(["-c", TO_JSON]).arg(&manifest).output();
        let read = read.map_err(|error| error.to_string())?;
        let objects: Result<Vec<Value>, _> = serde_json::from_slice(&read.stdout);
        objects.map_err(|_| format!("the manifest cannot be read: {}", stderr(&read)))
    };
    let Some((_runtime, objects)) = started("kubernetes (stand-in)", async { read() }) else { return };
    let deployment = &object(&objects, "Deployment")["spec"];
    let template = &deployment["template"];
    assert_eq!(deployment["selector"]["matchLabels"], template["metadata"]["labels"]);
    let account = template["spec"]["serviceAccountName"].as_str().unwrap();
    let namespace = object(&objects, "Deployment")["metadata"]["namespace"].as_str().unwrap();

    let ground = Ground::new("kubernetes-pods");
    make_account(&ground, account, namespace);
    let path = |name: &str| ground.at(name).to_str().unwrap().to_owned();
    let (asked, state, directory) =
        (ground.at("asked.jsonl"), ground.at("state.json"), ground.path().to_owned());
    let options = [
        ("--cert", path("cert.pem")),
        ("--key", path("key.pem")),
        ("--users", path("users.json")),
        ("--asked", path("asked.jsonl")),
        ("--manifest", manifest.to_str().unwrap().to_owned()),
    ];
    let options: Vec<&str> = options.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let starting = ApiServer::start_with(ground, &options, "https");
    let Some((_runtime, server)) = started("kubernetes (stand-in)", starting) else { return };

    let place = Place::new("live-pods");
    let job = "#!/bin/sh\necho \"$POD_NAME leads with token $PRIMACY_TOKEN\"\nexec sleep 1000\n";
    fs::write(place.path("nightly.sh"), job).unwrap();
    fs::set_permissions(place.path("nightly.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let kubelet =
        Kubelet { place, ground: directory, port: server.port(), template: template["spec"].clone() };
    let [first, second] = ["nightly-5d8c7b9f6-abcde", "nightly-5d8c7b9f6-fghij"];
    let mut leader = kubelet.start(first);
    let token = leader.leads();
    let other = kubelet.start(second);
    let learned = format!("primacy[{second}]: {first} leads, term {token}");
    wait_until("the other pod's learning of it", || other.told.all().contains(&learned));
    let ended = leader.terminate();
    assert_eq!((ended.code(), ended.signal()), (Some(143), None), "{:?}", leader.told.all());
    assert!(other.leads() > token);
    let state = fs::read_to_string(&state).unwrap();
    assert!(state.contains(&format!("\"holderIdentity\": \"{second}")), "{state}");

    let user = format!("system:serviceaccount:{namespace}:{account}");
    let asked = fs::read_to_string(asked).unwrap();
    let asked = asked.lines().map(|line| serde_json::from_str::<Value>(line).unwrap().to_string());
    assert_eq!(asked.collect::<BTreeSet<_>>(), allowed(object(&objects, "Role"), &user));
    // And no more than that is allowed.
    let who = ["primacy", "status", "--election", "another", "--store", "kubernetes://"].map(str::to_owned);
    let refused = kubelet.command(first, &who).output().unwrap();
    assert!(stderr(&refused).contains("cannot get resource \"leases\""), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(74));
}
