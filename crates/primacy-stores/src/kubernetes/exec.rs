//! The program that a kubeconfig names to fetch a token (`exec`), as client-go runs such programs:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>.
//!
//! It must be this user's or root's, has limits on its time and output, and runs in a separate task: requests use the earlier token while
//! it is valid, and a request that stops waiting leaves the result to the next one. It is killed when no part of the store is left that
//! could use its token. Processes that outlive it are not killed, as in client-go: its process group id may have been reused by then.

use std::env;
use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{Either, select};
use http::HeaderValue;
use jiff::Timestamp;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::kubeconfig::{Exec, User};
use crate::attempts;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::ownership;
use crate::passing;
use crate::replaced_files::Sources;
use crate::runtime::{self, Aborted};
use crate::secrets;

/// The time that the program may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time for which output of other processes is read after the program has ended.
const REST_PATIENCE: Duration = Duration::from_secs(1);

/// The longest output that is read.
const OUTPUT_MAX: u64 = 1 << 20;

/// The time before its expiry at which a token is renewed.
const FETCH_BEFORE: Duration = Duration::from_secs(60);

/// The minimum pause after a run, if it failed or the token in use is still valid.
const RUN_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The interval at which a request that waits for a run reports this.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// The error of a run that was cancelled.
const GIVEN_UP: &str = "the stores' thread gave its run up";

/// A program, and the token that it has given.
pub(super) struct Program {
    call: Arc<Call>,
    state: Mutex<State>,
}

/// The program with its arguments and environment.
struct Call {
    path: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    run: Option<Run>,
    /// The end of the latest run, and its error, if it gave no token.
    ended: Option<(Instant, Option<String>)>,
}

/// A run of the program, which continues if its callers stop waiting.
struct Run {
    began: Instant,
    /// `None` until its end.
    outcome: watch::Receiver<Option<Outcome>>,
    _task: Aborted<()>,
}

#[derive(Clone)]
struct Outcome {
    at: Instant,
    token: Result<Token, String>,
}

#[derive(Clone)]
struct Token {
    /// The value of `Authorization`, marked as sensitive.
    header: HeaderValue,
    /// The time of expiry; `None` if the program has not stated it.
    until: Option<SystemTime>,
}

/// The output of a program.
#[derive(Deserialize)]
struct Credential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    expiration_timestamp: Option<String>,
    client_certificate_data: Option<String>,
}

impl Program {
    /// Takes the program from a user's entry in a kubeconfig; `cluster` describes the cluster for the program, if it requests that. `None`
    /// if there is no program, or other credentials take precedence.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if others could change the program, or it is not there.
    pub(super) fn take(
        user: &mut User,
        cluster: impl FnOnce() -> Value,
        sources: &mut Sources,
    ) -> Result<Option<Self>, OpenError> {
        let refused = |why: String| OpenError::Refused { why };
        if user.auth_provider.as_ref().is_some_and(|provider| provider.config.contains_key("cmd-path")) {
            let why = "the kubeconfig names a program in auth-provider, which Kubernetes 1.26 has removed; name it in exec";
            return Err(refused(why.to_owned()));
        }
        let Some(exec) = user.exec.take() else { return Ok(None) };
        let has_login = user.username.is_some() && user.password.is_some();
        if has_login || user.auth_provider.is_some() || user.token.is_some() || user.token_file.is_some() {
            return Ok(None);
        }
        if exec.interactive_mode == "Always" {
            let why = "the program in exec of the kubeconfig has interactiveMode Always, and there is nobody to talk to";
            return Err(refused(why.to_owned()));
        }
        let command = exec.command.as_str();
        let Some(path) = find(command) else {
            let hint = exec.install_hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            let why =
                format!("the program {command:?} in exec of the kubeconfig is in no directory of PATH{hint}");
            return Err(refused(why));
        };
        sources.add(&path);
        let unused = |error| passing::of_file(format!("{} is not run: {error}", path.display()), &error);
        ownership::check_program(&path).map_err(unused)?;
        let environment = environment(&exec, cluster);
        let call = Call { path, arguments: exec.args, environment };
        Ok(Some(Self { call: Arc::new(call), state: Mutex::default() }))
    }

    /// Returns the value of the header `Authorization`: the token in use as long as it is valid, otherwise that of a run, for which it
    /// waits. One run at a time serves all requests, and continues when a request stops waiting for it.
    ///
    /// # Errors
    /// The fault of the program or its output.
    pub(super) async fn authorization(&self) -> Result<HeaderValue, String> {
        let (began, mut outcome) = {
            let mut state = self.state();
            let good = state.token.clone().filter(|token| token.is_good_for(Duration::ZERO));
            let is_due = good.as_ref().is_none_or(|token| !token.is_good_for(FETCH_BEFORE));
            if is_due && state.run.is_none() && !state.rests(good.is_some()) {
                state.run = Some(Run::start(&self.call)?);
            }
            if let Some(good) = good {
                return Ok(good.header);
            }
            match (&state.run, &state.ended) {
                (Some(run), _) => (run.began, run.outcome.clone()),
                (None, ended) => {
                    let why = ended.as_ref().and_then(|(_, why)| why.as_deref()).unwrap_or_default();
                    return Err(format!(
                        "{}; it is run again {RUN_AGAIN_AFTER:?} after that",
                        self.call.gave_no_token(why)
                    ));
                }
            }
        };
        let path = self.call.path.display();
        let mut has_noted = false;
        let outcome = loop {
            let told = timeout(NOTE_EVERY, outcome.wait_for(Option::is_some)).await;
            match told.map(|told| told.ok().and_then(|outcome| outcome.clone())) {
                Ok(outcome) => break outcome,
                Err(_) => {
                    attempts::failed(&format!(
                        "{path} has not given a token yet, after {:.1?}",
                        began.elapsed()
                    ));
                    has_noted = true;
                }
            }
        };
        if has_noted {
            attempts::failed(&format!("{path} has ended after {:.1?}", began.elapsed()));
        }
        let token = outcome.map_or_else(|| Err(GIVEN_UP.to_owned()), |outcome| outcome.token);
        token.map(|token| token.header).map_err(|why| self.call.gave_no_token(&why))
    }

    /// Drops a token that the server does not accept, if it is still this one.
    pub(super) async fn forget(&self, refused: &HeaderValue) {
        let mut state = self.state();
        if state.token.as_ref().is_some_and(|token| token.header == *refused) {
            state.token = None;
        }
    }

    /// Returns the state, updated with the outcome of a run that has ended.
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent even if a thread panicked while it held the lock.
        let mut state = lock(&self.state);
        if let Some(outcome) = state.run.as_ref().and_then(Run::outcome) {
            state.run = None;
            let failed = match outcome.token {
                Ok(token) => {
                    state.token = Some(token);
                    None
                }
                Err(why) => Some(why),
            };
            let told = state.ended.take().and_then(|(_, why)| why);
            let is_in_use = state.token.as_ref().is_some_and(|token| token.is_good_for(Duration::ZERO));
            if let Some(why) = failed.as_ref().filter(|why| is_in_use && told.as_ref() != Some(*why)) {
                tracing::warn!("{}, and the one before stays in use", self.call.gave_no_token(why));
            }
            state.ended = Some((outcome.at, failed));
        }
        state
    }
}

impl State {
    /// Returns whether it is too early to run the program again.
    fn rests(&self, has_token: bool) -> bool {
        self.ended
            .as_ref()
            .is_some_and(|(at, failed)| (has_token || failed.is_some()) && at.elapsed() < RUN_AGAIN_AFTER)
    }
}

impl Run {
    fn start(call: &Arc<Call>) -> Result<Self, String> {
        let (sender, outcome) = watch::channel(None);
        let call = Arc::clone(call);
        let task = runtime::spawn(async move {
            let fetched = timeout(PATIENCE, call.fetch()).await;
            let token = fetched.unwrap_or_else(|_| Err(format!("it was killed after {PATIENCE:?}")));
            sender.send_replace(Some(Outcome { at: Instant::now(), token }));
        })?;
        Ok(Self { began: Instant::now(), outcome, _task: task })
    }

    /// Returns the outcome; `None` if the run has not ended.
    fn outcome(&self) -> Option<Outcome> {
        // Checked first, because the run may end between the two checks.
        let has_ended = self.outcome.has_changed().is_err();
        let outcome = self.outcome.borrow().clone();
        outcome.or_else(|| has_ended.then(|| Outcome { at: Instant::now(), token: Err(GIVEN_UP.to_owned()) }))
    }
}

impl Call {
    fn gave_no_token(&self, why: &str) -> String {
        format!("{} gave no token: {why}", self.path.display())
    }

    async fn fetch(&self) -> Result<Token, String> {
        // The program may have been replaced since the kubeconfig was read.
        ownership::check_program(&self.path).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        let (text, ended) = Running::start(command).map_err(|error| error.to_string())?.output().await?;
        match ended {
            Ok(ended) if !ended.success() => {
                Err(format!("it ended with {ended}; what it says is on the standard error"))
            }
            // An application may reap all its children; then the output decides.
            Err(error) if error.raw_os_error() != Some(Errno::CHILD.raw_os_error()) => Err(error.to_string()),
            Ok(_) | Err(_) => Token::of(&text),
        }
    }
}

impl Token {
    fn of(output: &[u8]) -> Result<Self, String> {
        // Only the position of the parser's error is shown: its text may contain the token.
        let credential = serde_json::from_slice::<Credential>(output).map_err(|error| {
            format!(
                "its output is no ExecCredential in JSON (line {}, column {})",
                error.line(),
                error.column()
            )
        })?;
        let status = credential.status.ok_or("its output has no status")?;
        let Some(token) = status.token else {
            return Err(match status.client_certificate_data {
                Some(_) => "it gives a certificate; write it and its key into files, and name these as client-certificate and \
                            client-key of the user"
                    .to_owned(),
                None => "its output has no status.token".to_owned(),
            });
        };
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| "the token has letters that a header cannot have")?;
        header.set_sensitive(true);
        secrets::remember(&token);
        let until = status.expiration_timestamp.map(|until| until.parse::<Timestamp>()).transpose();
        let until = until.map_err(|error| format!("status.expirationTimestamp is no time: {error}"))?;
        Ok(Self { header, until: until.map(SystemTime::from) })
    }

    fn is_good_for(&self, time: Duration) -> bool {
        self.until.is_none_or(|until| SystemTime::now() + time < until)
    }
}

/// Returns the environment variables of the program.
fn environment(exec: &Exec, cluster: impl FnOnce() -> Value) -> Vec<(String, String)> {
    let mut spec = json!({ "interactive": false });
    if exec.provide_cluster_info {
        spec["cluster"] = cluster();
    }
    let info = json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec });
    let named = exec.env.iter().map(|setting| (setting.name.clone(), setting.value.clone()));
    named.chain([("KUBERNETES_EXEC_INFO".to_owned(), info.to_string())]).collect()
}

/// Finds a program as a shell would, except in relative directories of PATH.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return std::path::absolute(command).ok();
    }
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let paths = env::var_os("PATH").filter(|_| !command.is_empty())?;
    env::split_paths(&paths).filter(|dir| dir.is_absolute()).map(|dir| dir.join(command)).find(is_program)
}

/// A running program. When this is dropped before the program has ended, its whole process group is killed.
struct Running {
    child: Child,
    output: ChildStdout,
    /// A handle on the process, which stays valid when its id is reused.
    #[cfg(target_os = "linux")]
    process: OwnedFd,
    /// The id of the process and of its process group.
    pid: Pid,
}

impl Running {
    fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        #[cfg(target_os = "linux")]
        let process = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // The child has not been reaped yet, so the id is still its own.
            let _ = kill_process_group(pid, Signal::KILL);
        })?;
        Ok(Self {
            child,
            output,
            #[cfg(target_os = "linux")]
            process,
            pid,
        })
    }

    /// Reads the output while waiting for the end. A process that outlives the program may keep its output open, so after the end the rest
    /// is read for [`REST_PATIENCE`] only, like `WaitDelay` of Go's `exec.Cmd`.
    ///
    /// # Errors
    /// An output that cannot be read or is too long.
    async fn output(mut self) -> Result<(Vec<u8>, io::Result<ExitStatus>), String> {
        let mut text = Vec::new();
        let ended = {
            let read = pin!(read(&mut self.output, &mut text));
            let end = pin!(self.child.wait());
            match select(read, end).await {
                Either::Left((read, end)) => {
                    read?;
                    end.await
                }
                Either::Right((ended, read)) => {
                    timeout(REST_PATIENCE, read).await.unwrap_or(Ok(()))?;
                    ended
                }
            }
        };
        Ok((text, ended))
    }

    /// Returns whether it is still running. After its end, its id is kept only until this process reaps it, which the reaper of a node, or
    /// an application that waits for all of its children, may do before this code.
    fn is_running(&self) -> bool {
        #[cfg(target_os = "linux")]
        let program = WaitId::PidFd(self.process.as_fd());
        #[cfg(not(target_os = "linux"))]
        let program = WaitId::Pid(self.pid);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(program, look), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// Reads an output to its end, and keeps in `text` the bytes that were read if it is dropped before.
async fn read(output: &mut ChildStdout, text: &mut Vec<u8>) -> Result<(), String> {
    let mut output = output.take(OUTPUT_MAX + 1);
    while output.read_buf(text).await.map_err(|error| error.to_string())? > 0 {}
    if text.len() as u64 > OUTPUT_MAX {
        return Err(format!("its output is longer than {OUTPUT_MAX} bytes"));
    }
    Ok(())
}

/// Leaves out the arguments, the environment and the token, any of which may be a secret.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("path", &self.call.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn a_credential_is_a_token_and_what_is_wrong_with_it_is_said_without_it() {
        let token =
            Token::of(br#"{"status":{"token":"t","expirationTimestamp":"2030-01-02T03:04:05Z"}}"#).unwrap();
        assert_eq!(token.header, "Bearer t");
        assert!(token.until.unwrap() > SystemTime::UNIX_EPOCH);
        assert_eq!(format!("{:?}", token.header), "Sensitive");
        for (output, said) in [
            (r#"{"status":{"token":"s3cret"#, "no ExecCredential"),
            (r#"{"status":{"token":"s3cret\n"}}"#, "letters"),
            (r#"{"status":{"token":"s3cret","expirationTimestamp":"soon"}}"#, "no time"),
            (r#"{"status":{"clientCertificateData":"s3cret"}}"#, "client-certificate"),
            (r#"{"status":{}}"#, "no status.token"),
            ("{}", "no status"),
        ] {
            let why = Token::of(output.as_bytes()).err().unwrap();
            assert!(why.contains(said) && !why.contains("s3cret"), "{output}: {why}");
        }
    }

    #[test]
    fn a_program_is_found_on_the_path_of_this_process() {
        assert!(find("sh").is_some_and(|path| path.is_absolute() && path.ends_with("sh")));
        assert_eq!(find("/no/such"), Some(PathBuf::from("/no/such")));
        assert_eq!([find(""), find("no such program of any machine")], [None, None]);
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped());
        command
    }

    /// Makes a program that runs `script` with the path as `$0`, and has given a token that is valid for `good_for`.
    fn program(script: &str, path: &Path, good_for: Option<Duration>) -> Program {
        let arguments = vec!["-c".to_owned(), script.to_owned(), path.display().to_string()];
        let call = Call { path: PathBuf::from("/bin/sh"), arguments, environment: Vec::new() };
        let header = HeaderValue::from_static("Bearer earlier");
        let token = good_for.map(|time| Token { header, until: Some(SystemTime::now() + time) });
        Program { call: Arc::new(call), state: Mutex::new(State { token, ..State::default() }) }
    }

    fn place(name: &str) -> PathBuf {
        env::temp_dir().join(format!("primacy-exec-{name}-{}", std::process::id()))
    }

    /// Waits for the end of the present run, if any.
    async fn ended(program: &Program) {
        let run = program.state().run.as_ref().map(|run| run.outcome.clone());
        if let Some(mut outcome) = run {
            let waited = timeout(Duration::from_secs(60), outcome.wait_for(Option::is_some)).await;
            waited.expect("it ends").unwrap();
        }
    }

    const EARLIER: Result<HeaderValue, String> = Ok(HeaderValue::from_static("Bearer earlier"));

    #[tokio::test]
    async fn the_earlier_token_is_used_while_the_program_hangs_and_the_next_one_when_it_is_given() {
        let path = place("hangs");
        let script = r#"until [ -e "$0" ]; do sleep 0.05; done; echo '{"status":{"token":"next"}}'"#;
        let program = program(script, &path, Some(Duration::from_secs(30)));
        for _ in 0..3 {
            let given = timeout(Duration::from_secs(1), program.authorization()).await;
            assert_eq!(given.expect("it does not wait"), EARLIER);
        }
        std::fs::write(&path, "").unwrap();
        ended(&program).await;
        assert_eq!(program.authorization().await, Ok(HeaderValue::from_static("Bearer next")));
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_fails_is_not_run_at_each_request() {
        for good_for in [Some(Duration::from_secs(30)), None] {
            let path = place("fails");
            let program = program(r#"echo run >> "$0"; exit 3"#, &path, good_for);
            for _ in 0..20 {
                match program.authorization().await {
                    Ok(token) => assert_eq!(Ok(token), EARLIER),
                    Err(why) => {
                        assert!(good_for.is_none() && why.starts_with("/bin/sh gave no token: it ended"))
                    }
                }
                ended(&program).await;
            }
            assert!(std::fs::read_to_string(&path).unwrap().lines().count() <= 2);
            std::fs::remove_file(path).unwrap();
        }
    }

    #[tokio::test]
    async fn a_run_goes_on_without_the_request_that_gave_it_up() {
        let (path, go) = (place("given-up"), place("given-up.go"));
        let script = format!(
            r#"echo run >> "$0"; until [ -e {} ]; do sleep 0.05; done; echo '{{"status":{{"token":"t"}}}}'"#,
            go.display()
        );
        let program = program(&script, &path, None);
        let attempts = attempts::Attempts::default();
        let request = attempts.observe(program.authorization());
        assert!(timeout(Duration::from_millis(500), request).await.is_err());
        let noted = attempts.last_error().unwrap();
        assert!(noted.starts_with("/bin/sh has not given a token yet, after "), "{noted}");
        std::fs::write(&go, "").unwrap();
        ended(&program).await;
        assert_eq!(program.authorization().await, Ok(HeaderValue::from_static("Bearer t")));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "run\n");
        for file in [path, go] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[tokio::test]
    async fn a_process_that_outlives_the_program_and_holds_its_output_delays_the_token_only_for_a_moment() {
        let script = r#"setsid sh -c 'echo $$ >&2; exec sleep 600' 2>"$0" & echo '{"status":{"token":"t"}}'"#;
        let dir = place("outlives");
        let program = program(script, &dir, None);
        let given = program.authorization().await;
        let left = loop {
            let said = std::fs::read_to_string(&dir).unwrap_or_default();
            if let Ok(pid) = said.trim().parse() {
                break Pid::from_raw(pid).unwrap();
            }
            tokio::task::yield_now().await;
        };
        rustix::process::kill_process(left, Signal::KILL).expect("it is left alone");
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(given, Ok(HeaderValue::from_static("Bearer t")));
    }

    #[tokio::test]
    async fn a_program_is_killed_with_all_of_its_group_before_its_end_and_nothing_by_its_number_after_it() {
        for ends in [false, true] {
            let script = format!("exec 3<&0; cat <&3 & {}", if ends { "exit" } else { "wait" });
            let mut running = Running::start(shell(&script)).unwrap();
            // One more process of the group reads from here and writes to there.
            let mut input = running.child.stdin.take().unwrap();
            input.write_all(b"1").await.unwrap();
            assert_eq!(running.output.read_u8().await.unwrap(), b'1');
            if ends {
                // Another part of this process, such as the reaper of a node, reaps the program.
                rustix::process::waitpid(Some(running.pid), rustix::process::WaitOptions::empty()).unwrap();
            }
            let duplicate = running.output.as_fd().try_clone_to_owned().unwrap();
            let mut output = tokio::net::unix::pipe::Receiver::from_owned_fd(duplicate).unwrap();
            drop(running);
            let _ = input.write_all(b"2").await;
            let lives = output.read_u8().await.is_ok_and(|byte| byte == b'2');
            assert_eq!(lives, ends);
        }
    }
}
