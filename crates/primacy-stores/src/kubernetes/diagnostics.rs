//! Checks of an API server and of this account's rights.

use super::api::{Api, Failure, RULE, VERBS};
use super::{Connected, Source, connect};
use crate::diagnostics::{Check, Examination, SURVIVES, Verdict};
use crate::open_error::OpenError;
use crate::opening::Address;
use crate::runtime;

/// The answers of a server.
struct Seen {
    version: Result<String, Failure>,
    /// Each verb, and whether it is allowed.
    rights: Vec<(&'static str, Result<bool, Failure>)>,
}

/// Asks the API server.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let (source, namespace) = Source::parse(&address.rest)?;
        let Connected { clients, namespace: default } = connect(source).await?;
        let namespace = namespace.unwrap_or(default);
        // No Lease has an empty name, and no Lease is read.
        let api = Api::new(clients, &namespace, String::new(), false);
        let asking = runtime::run(async move {
            let version = api.version().await;
            let mut rights = Vec::new();
            for verb in VERBS {
                rights.push((verb, api.may(&namespace, verb).await));
            }
            Seen { version, rights }
        });
        Ok(asking.await.map_err(|why| OpenError::Unavailable { why })?.judge())
    })
}

impl Seen {
    fn judge(&self) -> Vec<Check> {
        vec![self.survives(), self.allows()]
    }

    fn survives(&self) -> Check {
        let version = match &self.version {
            Ok(version) => format!("the API server is of version {version}"),
            Err(failure) => format!("it does not tell its version: {failure}"),
        };
        Check::not(
            Verdict::Unknown,
            SURVIVES,
            format!("{version}; of the etcd behind it, it tells nothing"),
            "a cluster whose etcd has one member is one failure away from an outage; one whose etcd is set back to a backup gives a \
             token a second time",
            "ask the provider, or kubectl -n kube-system get pods -l component=etcd; three of them survive the loss of one",
        )
    }

    fn allows(&self) -> Check {
        const NAME: &str = "this account may do with Leases what is needed";
        let why = "who may not renew loses the lead, and who may not watch finds a new leader late";
        let (mut refused, mut unknown) = (Vec::new(), None);
        for (verb, answer) in &self.rights {
            match answer {
                Ok(true) => {}
                Ok(false) => refused.push(*verb),
                Err(failure) => unknown = unknown.or(Some(failure)),
            }
        }
        match (refused.is_empty(), unknown) {
            (true, None) => Check::pass(NAME, format!("it may {}", VERBS.join(", "))),
            (false, _) => {
                Check::not(Verdict::Fail, NAME, format!("it may not {}", refused.join(", ")), why, RULE)
            }
            (true, Some(failure)) => {
                let found = format!("it does not tell: {failure}");
                Check::not(
                    Verdict::Unknown,
                    NAME,
                    found,
                    why,
                    "kubectl auth can-i VERB leases.coordination.k8s.io",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(answers: [Result<bool, Failure>; 4]) -> Check {
        let rights = VERBS.into_iter().zip(answers).collect();
        Seen { version: Ok("v1.33.1".to_owned()), rights }.allows()
    }

    #[test]
    fn a_right_that_is_missing_or_not_told_is_not_passed() {
        let no_answer = || Failure::Unanswered("no answer".to_owned());
        let unknown = || Err(no_answer());
        assert_eq!(rights([Ok(true), Ok(true), Ok(true), Ok(true)]).verdict, Verdict::Pass);
        let watch = rights([Ok(true), unknown(), Ok(true), Ok(false)]);
        assert!(
            watch.verdict == Verdict::Fail && watch.found.contains("watch") && watch.fix.contains("leases")
        );
        assert_eq!(rights([Ok(true), Ok(true), Ok(true), unknown()]).verdict, Verdict::Unknown);
        let none = Seen { version: Err(no_answer()), rights: Vec::new() };
        assert_eq!(none.survives().verdict, Verdict::Unknown);
    }
}
