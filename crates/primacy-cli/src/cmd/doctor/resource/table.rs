//! A table of a PostgreSQL database.

use primacy::fence::Answer;
use primacy::fence::postgres::{Attempt, FenceState, VERSION, attempt};
use primacy::stores::{Check, Verdict};

use super::{REFUSES, WHY};

/// A table, and its database.
pub(crate) struct Table {
    pub(super) url: String,
    /// The URL as it was given. It has no password, so it may be printed.
    pub(super) given: String,
    /// The name as it is written in a statement.
    pub(super) name: String,
}

impl Table {
    /// Tries writes in a transaction that is rolled back, with statements that affect no row.
    pub(super) async fn try_out(&self, election: Option<&str>) -> Check {
        match attempt(&self.url, &self.name).await {
            Ok(attempt) => self.judge(&attempt, election),
            Err(error) => {
                let fix = "see that the database can be reached, that it has this table, and that this user may write there";
                Check::not(Verdict::Unknown, REFUSES, format!("{}: {error}", self.name), WHY, fix)
            }
        }
    }

    fn judge(&self, attempt: &Attempt, election: Option<&str>) -> Check {
        let name = &self.name;
        let not = |verdict, found: String, fix: String| Check::not(verdict, REFUSES, found, WHY, fix);
        let answers = [Some(&attempt.without), attempt.stale.as_ref()];
        if answers.contains(&Some(&Answer::Admitted)) {
            let found = match (&attempt.without, &attempt.election) {
                (Answer::Admitted, None) => {
                    format!("{name} has no guard: a write without a token was let in, and taken back")
                }
                (Answer::Admitted, Some(_)) => {
                    format!(
                        "{name} has a guard that is turned off: a write without a token was let in, and taken back"
                    )
                }
                (Answer::Refused | Answer::Failed { .. }, _) => {
                    format!("{name}: a stale write was let in, and taken back")
                }
            };
            return not(Verdict::Fail, found, self.install(election.or(attempt.election.as_deref())));
        }
        let guarded = attempt.election.as_deref().unwrap_or_default();
        if let Some((Verdict::Fail, found)) = self.fault(attempt) {
            return not(Verdict::Fail, found, self.install(Some(guarded)));
        }
        for answer in answers.into_iter().flatten() {
            if let Answer::Failed { why } = answer {
                let found = format!("{name}: whether it does was not learned: {why}");
                let fix = "name a user that may delete or update there, as the owner of the table does";
                return not(Verdict::Unknown, found, fix.to_owned());
            }
        }
        if let Some(election) = election
            && election != guarded
        {
            let found = format!("{name} is guarded for the election {guarded}, and not for {election}");
            return not(
                Verdict::Fail,
                found,
                format!("--election {guarded}, if that is meant; a table has one guard"),
            );
        }
        if let Some((verdict, found)) = self.fault(attempt) {
            return not(verdict, found, self.install(Some(guarded)));
        }
        let highest = attempt
            .highest
            .map_or_else(String::new, |highest| format!("; the highest token there is {highest}"));
        let found = format!(
            "{name} refused a write without a token, and one with a stale token of the election {guarded}{highest}"
        );
        if attempt.others.is_empty() {
            return Check::pass(REFUSES, found);
        }
        let found = format!(
            "{found}; but roles that may not write there may use the schema of it or of its fence: {}",
            attempt.others
        );
        let why = "a role that may use a schema can ask for a lock on a table there without any right on that; while it waits \
                   for it behind a transaction of its own, no write is done and no new leader let in. It cannot write so";
        let fix = "run `primacy fence install` again where the schema holds nothing but the fence; take USAGE on other schemas, \
                   or CONNECT on the database, from roles that have nothing to do there (REVOKE … FROM PUBLIC)";
        Check::not(Verdict::Warn, REFUSES, found, why, fix)
    }

    /// Returns the fault of a fence that does refuse stale writes, if it has one.
    fn fault(&self, attempt: &Attempt) -> Option<(Verdict, String)> {
        let name = &self.name;
        match attempt.fence.as_ref()? {
            FenceState::Current if !attempt.unguarded.is_empty() => {
                let found = format!(
                    "rows of {name} can also be written by the name of {}, which this fence does not guard",
                    attempt.unguarded.join(", ")
                );
                Some((Verdict::Fail, found))
            }
            FenceState::Current => None,
            FenceState::Version(1) => {
                let found = format!(
                    "the guard of {name} is of version 1, with which every role that may write there can act with the rights of \
                     the guard's owner"
                );
                Some((Verdict::Fail, found))
            }
            FenceState::Version(found) => {
                let found = format!(
                    "the guard of {name} is of version {found}; this command knows version {VERSION}"
                );
                Some((Verdict::Warn, found))
            }
            FenceState::Altered => Some((
                Verdict::Fail,
                format!("the functions of the guard of {name} were changed since they were installed"),
            )),
            FenceState::Foreign { why } => {
                Some((Verdict::Fail, format!("{why}, who can change what guards {name}")))
            }
        }
    }

    /// Returns the command that installs the guard.
    fn install(&self, election: Option<&str>) -> String {
        let [url, election, name] = [self.given.as_str(), election.unwrap_or("NAME"), &self.name].map(quoted);
        format!("primacy fence install --store {url} --election {election} --table {name}")
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@=,".contains(letter);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Leaves out fields that could be secret.
impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use primacy::FencingToken;

    use super::*;

    fn guarded(without: Answer, stale: Answer) -> Attempt {
        let election = Some("orders".to_owned());
        let fence = Some(FenceState::Current);
        let (unguarded, others) = (Vec::new(), String::new());
        Attempt {
            election,
            highest: Some(FencingToken(9)),
            fence,
            unguarded,
            others,
            without,
            stale: Some(stale),
        }
    }

    fn judge(attempt: &Attempt, election: Option<&str>) -> Check {
        let url = "postgres://u:secret@h/d".to_owned();
        let table = Table { url, given: "env:ORDERS_URL".to_owned(), name: "\"Led ger\"".to_owned() };
        assert!(!format!("{table:?}").contains("secret"));
        table.judge(attempt, election)
    }

    #[test]
    fn only_a_guard_that_refuses_both_passes() {
        let refused = guarded(Answer::Refused, Answer::Refused);
        assert_eq!(judge(&refused, None).verdict, Verdict::Pass);
        assert_eq!(judge(&refused, Some("orders")).verdict, Verdict::Pass);
        let other = judge(&refused, Some("billing"));
        assert!(other.verdict == Verdict::Fail && other.found.contains("orders"), "{other:?}");
        assert_eq!(judge(&guarded(Answer::Refused, Answer::Admitted), None).verdict, Verdict::Fail);
        let off = judge(&guarded(Answer::Admitted, Answer::Refused), None);
        assert!(off.verdict == Verdict::Fail && off.found.contains("turned off"), "{off:?}");
        let failed = Answer::Failed { why: "55P03 canceled".to_owned() };
        assert_eq!(judge(&guarded(Answer::Refused, failed.clone()), None).verdict, Verdict::Unknown);
        for (fence, verdict, part) in [
            (FenceState::Version(1), Verdict::Fail, "rights of the guard's owner"),
            (FenceState::Version(9), Verdict::Warn, "version 9"),
            (FenceState::Altered, Verdict::Fail, "were changed"),
            (FenceState::Foreign { why: "x belongs to y".to_owned() }, Verdict::Fail, "x belongs to y"),
        ] {
            let check = judge(&Attempt { fence: Some(fence), ..refused.clone() }, None);
            assert!(check.verdict == verdict && check.found.contains(part), "{check:?}");
            assert!(check.fix.contains("fence install"), "{check:?}");
        }
        let parent = Attempt { unguarded: vec!["root".to_owned()], ..refused.clone() };
        let check = judge(&parent, None);
        assert!(check.verdict == Verdict::Fail && check.found.contains("the name of root"), "{check:?}");
        let used = Attempt { others: "public (x)".to_owned(), ..refused.clone() };
        let check = judge(&used, None);
        assert!(check.verdict == Verdict::Warn && check.found.contains("public (x)"), "{check:?}");
        let none =
            Attempt { election: None, highest: None, fence: None, without: failed, stale: None, ..refused };
        assert_eq!(judge(&none, None).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_table_without_a_guard_is_told_with_the_command_that_guards_it() {
        let refused = guarded(Answer::Admitted, Answer::Admitted);
        let none = Attempt { election: None, highest: None, fence: None, stale: None, ..refused };
        let check = judge(&none, Some("it's"));
        assert_eq!(check.verdict, Verdict::Fail);
        let command =
            r#"primacy fence install --store env:ORDERS_URL --election 'it'\''s' --table '"Led ger"'"#;
        assert_eq!(check.fix, command);
        assert!(judge(&none, None).fix.contains("--election NAME"));
    }
}
