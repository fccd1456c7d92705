//! Parsing a URL, and opening an election in etcd.

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Login, RequestError};
use super::connect::Member;
use super::queue::Queue;
use super::register::EtcdRegister;
use super::watch::Watches;
use super::{Connected, EtcdSessions};
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::runtime;
use crate::shared_connections::{Share, SharedConnections};
use crate::store_url::StoreUrl;
use crate::tls::Files;

/// The form of the URL.
pub(super) const FORM: &str = "etcd://HOST[:PORT][,HOST...][/PREFIX]";

/// The time limit of opening an election.
const OPEN_MAX: Duration = Duration::from_secs(5);

static CONNECTIONS: SharedConnections<Connected> = SharedConnections::new();

/// The parsed URL.
struct ParsedUrl {
    members: Vec<Member>,
    login: Option<Login>,
    prefix: String,
    recipe: Recipe,
}

enum Recipe {
    Session,
    Lease,
}

fn parse(rest: &str) -> Result<ParsedUrl, OpenError> {
    let mut url = StoreUrl::parse(rest, FORM)?;
    if url.hosts.is_empty() {
        return Err(url.malformed("it names no host"));
    }
    let files = Files::take(&mut url)?;
    let tls = files.take_tls(&mut url, files.is_given())?;
    let recipe = match url.take("recipe").as_deref() {
        None | Some("session") => Recipe::Session,
        Some("lease") => Recipe::Lease,
        Some(_) => return Err(url.malformed("`recipe` is session or lease")),
    };
    url.finish()?;
    let login = match (url.user.take(), url.password.take()) {
        (Some(user), Some(password)) => Some(Login { user, password }),
        // With a client certificate, etcd needs no login.
        (None, None) => None,
        (Some(_), None) => return Err(url.malformed("a user needs a password: USER:PASSWORD@")),
        (None, Some(_)) => return Err(url.malformed("a password needs a user: USER:PASSWORD@")),
    };
    let tls = if tls {
        let mut config = files.client()?;
        // etcd speaks only HTTP/2, and some proxies in front of it require the negotiation.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Some(Arc::new(config))
    } else {
        None
    };
    let members = url.hosts.into_iter().map(|host| Member::new(host, tls.clone())).collect();
    Ok(ParsedUrl { members, login, prefix: url.path, recipe })
}

/// A share of the connection to the cluster of this URL, for an election in it.
fn join(rest: &str, election: &str, place: ParsedUrl) -> Result<Share<Connected>, OpenError> {
    CONNECTIONS.join(rest, election, || {
        let client = Arc::new(Client::new(place.members, place.login));
        let watches = Arc::new(Watches::new(Arc::clone(&client)));
        Ok(Connected { client, pool: Arc::default(), watches })
    })
}

/// A client of the cluster of this URL, one of each of its members, and the prefix.
#[expect(clippy::type_complexity, reason = "it is taken apart at once")]
pub(super) fn clients(url: &str) -> Result<(Arc<Client>, Vec<(String, Arc<Client>)>, String), OpenError> {
    let Some(rest) = url.strip_prefix("etcd:") else {
        return Err(OpenError::Malformed { form: FORM, why: "this is no URL of etcd".to_owned() });
    };
    let ParsedUrl { members, login, prefix, recipe: _ } = parse(rest)?;
    let alone =
        |member: &Member| (member.address(), Arc::new(Client::new(vec![member.clone()], login.clone())));
    let each = members.iter().map(alone).collect();
    Ok((Arc::new(Client::new(members, login)), each, prefix))
}

/// Opens `etcd://HOST/PREFIX`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let mut place = parse(&address.rest)?;
        let prefix = std::mem::take(&mut place.prefix);
        let queue = Queue::new(&prefix, &address.election);
        let is_lease = matches!(place.recipe, Recipe::Lease);
        let share = join(&address.rest, &address.election, place)?;
        // Reads now, so that a wrong name, password or permission fails at once, and not in an election that no
        // candidate wins.
        let (client, asked) = (Arc::clone(&share.client), queue.clone());
        let look = async move { tokio::time::timeout(OPEN_MAX, asked.first(&client)).await };
        let looked = runtime::run(look).await.map_err(|why| OpenError::Unavailable { why })?;
        let in_time =
            looked.unwrap_or_else(|_| Err(RequestError::NoAnswer { why: "not in time".to_owned() }));
        in_time.map_err(refusal)?;
        Ok(if is_lease {
            Opened::Register(Arc::new(EtcdRegister::new(share, queue.record_key())))
        } else {
            Opened::Sessions(Arc::new(EtcdSessions::new(share, queue, &address.election)))
        })
    })
}

pub(super) fn refusal(error: RequestError) -> OpenError {
    match error {
        RequestError::Refused { why } => OpenError::Refused {
            why: format!(
                "etcd refuses: {why}. See to the user, its password, its rights, or the files of TLS"
            ),
        },
        RequestError::NoSession | RequestError::NotSent { .. } | RequestError::NoAnswer { .. } => {
            OpenError::Unavailable { why: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_the_password() {
        for (rest, word) in [
            ("//", "no host"),
            ("//u:secret@h?tls=maybe", "`tls`"),
            ("//u:secret@h?tls=off&ca=x", "`tls=off`"),
            ("//u:secret@h?recipe=x", "`recipe`"),
            ("//u@h", "password"),
            ("//u:secret@h?color=red", "none of this store's"),
            ("//u:secret@h?ca=/no/such/file", "/no/such/file"),
        ] {
            let error = parse(rest).err().unwrap().to_string();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
        let place = parse("//u:secret@a,b:1/some/prefix/?tls=on").unwrap();
        assert_eq!((place.members.len(), place.prefix.as_str()), (2, "some/prefix"));
        assert!(!format!("{:?}", Client::new(place.members, place.login)).contains("secret"));
    }
}
