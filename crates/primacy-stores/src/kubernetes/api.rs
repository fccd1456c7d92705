//! Requests to the API server, and the meaning of its answers.

use std::fmt;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::clients::{Access, Clients};
use super::lease::Lease;
use super::transport::{Body, TransportError};
use crate::open_error::OpenError;
use crate::register::{Pending, ReadError, SetError};

/// The time limit of a request: many times what the API server needs, and short compared with a lease. A later answer
/// is ignored; a late write is harmless, because it names the version that it replaces.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum length of an answer: an API server accepts no object above 3 MiB.
const BODY_MAX: usize = 4 << 20;

/// The verbs that this store needs on Leases.
pub(super) const VERBS: [&str; 4] = ["get", "create", "update", "watch"];

/// The rights that a role must allow. `docs/stores/kubernetes.md` has the manifest.
pub(super) const RULE: &str = "its role needs the rule {apiGroups: [coordination.k8s.io], resources: [leases], \
                    verbs: [get, create, update, watch]} in this namespace";

/// A client for one Lease.
#[derive(Clone)]
pub(super) struct Api {
    clients: Clients,
    leases: String,
    name: String,
    /// True for a client of the application, which may repeat requests.
    repeats: bool,
}

/// The server's reason for an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    kind: String,
    message: String,
    details: Option<Details>,
    pub(super) code: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    name: String,
}

/// The reason that there is no Lease in the answer.
pub(super) enum Failure {
    /// Nothing was sent.
    Unsent(String),
    /// It was sent, and there was no answer, or an answer that is not the API server's.
    Unanswered(String),
    /// The server has answered with an error.
    Refused(StatusCode, Status),
}

impl Api {
    pub(super) fn new(clients: Clients, namespace: &str, name: String, repeats: bool) -> Self {
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self { clients, leases, name, repeats }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the Lease; `None` if there is none.
    pub(super) async fn read(&self) -> Result<Option<Lease>, Failure> {
        match self.ask(Method::GET, &format!("{}/{}", self.leases, self.name), Vec::new()).await {
            Ok(lease) => Ok(Some(lease)),
            // Any other 404, such as that of a wrong address, does not show that the Lease does not exist.
            Err(Failure::Refused(StatusCode::NOT_FOUND, status)) if status.is_about(&self.name) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn create(&self, lease: Vec<u8>) -> Result<Lease, SetError> {
        let made = self.ask(Method::POST, &self.leases, lease).await;
        made.map_err(|failure| failure.of_write(self, StatusCode::CONFLICT))
    }

    pub(super) async fn update(&self, lease: Vec<u8>) -> Result<Lease, SetError> {
        let made = self.ask(Method::PUT, &format!("{}/{}", self.leases, self.name), lease).await;
        made.map_err(|failure| failure.of_write(self, StatusCode::NOT_FOUND))
    }

    /// Watches the Lease from its present state on; returns a stream with one line for each event.
    pub(super) async fn watch(&self, seconds: u64) -> Result<Body, Failure> {
        let (leases, name) = (&self.leases, &self.name);
        let path = format!("{leases}?watch=1&fieldSelector=metadata.name%3D{name}&timeoutSeconds={seconds}");
        let access = self.access().await?;
        within(async {
            let response = send(access, Method::GET, &path, Vec::new()).await?;
            if response.status().is_success() {
                Ok(response.into_body())
            } else {
                Err(refused(response).await)
            }
        })
        .await
    }

    /// Returns the server's version as text.
    pub(super) async fn version(&self) -> Result<String, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let told = self.ask_for(Method::GET, "/version", Vec::new()).await?;
        let version = serde_json::from_slice::<Version>(&told);
        Ok(version.map_err(|error| Failure::Unanswered(error.to_string()))?.git_version)
    }

    /// Returns whether this account may do this with Leases of the namespace. The review is not kept.
    pub(super) async fn may(&self, namespace: &str, verb: &str) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct Review {
            status: Answer,
        }
        #[derive(Deserialize)]
        struct Answer {
            allowed: bool,
        }
        let wanted = json!({
            "namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases",
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": wanted },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let told = self.ask_for(Method::POST, path, review.to_string().into_bytes()).await?;
        let review = serde_json::from_slice::<Review>(&told);
        Ok(review.map_err(|error| Failure::Unanswered(error.to_string()))?.status.allowed)
    }

    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Lease, Failure> {
        let told = self.ask_for(method, path, body).await?;
        Lease::parse(&told).map_err(Failure::Unanswered)
    }

    async fn ask_for(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let access = self.access().await?;
        within(async {
            let response = send(access, method, path, body).await?;
            if !response.status().is_success() {
                return Err(refused(response).await);
            }
            whole(response).await
        })
        .await
    }

    /// Returns the client and its `Authorization` header, if a program fetches the token; the program has a separate
    /// time limit.
    async fn access(&self) -> Result<(Access, Option<HeaderValue>), Failure> {
        let access = self.clients.current();
        let shown = match &access.program {
            Some(program) => Some(program.authorization().await.map_err(Failure::Unsent)?),
            None => None,
        };
        Ok((access, shown))
    }
}

/// Sends a request with the `Authorization` header.
fn send(
    (access, shown): (Access, Option<HeaderValue>),
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Pending<'static, Result<Response<Body>, Failure>> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("Content-Type", "application/json").header("Accept", "application/json");
    if let Some(shown) = &shown {
        request = request.header(AUTHORIZATION, shown);
    }
    let request = request.body(body).map_err(|error| Failure::Unsent(error.to_string()));
    Box::pin(async move {
        let response = access.transport.send(request?).await.map_err(|error| match error {
            TransportError::NotSent { why } => Failure::Unsent(why),
            TransportError::NoAnswer { why } => Failure::Unanswered(why),
        })?;
        if let (Some(program), Some(shown), StatusCode::UNAUTHORIZED) =
            (&access.program, &shown, response.status())
        {
            // The next request uses a new token.
            program.forget(shown).await;
        }
        Ok(response)
    })
}

async fn within<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = || Failure::Unanswered(format!("the API server did not answer within {REQUEST_TIMEOUT:?}"));
    timeout(REQUEST_TIMEOUT, work).await.unwrap_or_else(|_| Err(late()))
}

/// Interprets an answer that is an error.
async fn refused(response: Response<Body>) -> Failure {
    let code = response.status();
    let body = match whole(response).await {
        Ok(body) => body,
        Err(failure) => return failure,
    };
    match serde_json::from_slice::<Status>(&body) {
        Ok(status) if status.kind == "Status" => Failure::Refused(code, status),
        Ok(_) | Err(_) => Failure::Unanswered(format!("it answered {code}, and not as an API server does")),
    }
}

async fn whole(response: Response<Body>) -> Result<Vec<u8>, Failure> {
    let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
    let body = body.map_err(|error| Failure::Unanswered(format!("the answer was cut off: {error}")))?;
    Ok(body.to_bytes().to_vec())
}

impl Status {
    fn is_about(&self, name: &str) -> bool {
        self.details.as_ref().is_some_and(|details| details.name == name)
    }
}

impl Failure {
    pub(super) fn of_read(self) -> ReadError {
        ReadError::Unavailable { why: self.to_string() }
    }

    pub(super) fn of_open(self) -> OpenError {
        let why = self.to_string();
        match self {
            Self::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => OpenError::Refused { why },
            Self::Unsent(_) | Self::Unanswered(_) | Self::Refused(..) => OpenError::Unavailable { why },
        }
    }

    /// Interprets the failure of a write. `other` is the status, besides 409, by which the server reports that the
    /// Lease is not the expected one.
    fn of_write(self, api: &Api, other: StatusCode) -> SetError {
        let why = self.to_string();
        match self {
            // The failure may be that of a repetition after a successful first attempt.
            Self::Unsent(_) | Self::Refused(..) if api.repeats => SetError::Unknown { why },
            Self::Unsent(_) => SetError::Unavailable { why },
            Self::Refused(StatusCode::CONFLICT, _) => SetError::Conflict,
            Self::Refused(code, status) if code == other && status.is_about(&api.name) => SetError::Conflict,
            Self::Refused(code, _) if code.is_client_error() && code != StatusCode::REQUEST_TIMEOUT => {
                SetError::Unavailable { why }
            }
            Self::Refused(..) | Self::Unanswered(_) => SetError::Unknown { why },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent(why) | Self::Unanswered(why) => write!(f, "the API server was not reached: {why}"),
            Self::Refused(code, status) => {
                write!(f, "the API server says {}: {}", code.as_u16(), status.message)?;
                match *code {
                    StatusCode::FORBIDDEN => write!(f, "; {RULE}"),
                    StatusCode::UNAUTHORIZED => f.write_str("; it does not accept these credentials"),
                    StatusCode::TOO_MANY_REQUESTS => {
                        f.write_str("; it has too much to do, or holds this account to a limit")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_while_it_is_opened_passes_unless_it_is_about_rights() {
        let said = |code| Failure::Refused(code, Status::default());
        let table = [
            (Failure::Unsent("connection refused".to_owned()), true),
            (Failure::Unanswered("connection closed before message completed".to_owned()), true),
            (said(StatusCode::TOO_MANY_REQUESTS), true),
            (said(StatusCode::INTERNAL_SERVER_ERROR), true),
            (said(StatusCode::SERVICE_UNAVAILABLE), true),
            (said(StatusCode::GATEWAY_TIMEOUT), true),
            (said(StatusCode::UNAUTHORIZED), false),
            (said(StatusCode::FORBIDDEN), false),
        ];
        for (failure, passes) in table {
            let told = failure.to_string();
            assert_eq!(failure.of_open().is_passing(), passes, "{told}");
        }
    }
}
