//! Checks of a server: whether it keeps what it has acknowledged.

use tokio_postgres::types::Type;

use super::link::Link;
use super::locks;
use super::refusal::Failure;
use super::settings::{Recipe, Settings};
use super::table::{LOCKS, NUMBER, Table};
use crate::diagnostics::{Check, Examination, SURVIVES, Verdict};
use crate::open_error::OpenError;
use crate::opening::Address;

/// The query for the settings, which every role may run. A role that may not see the standbys of other roles sees only their number.
const QUESTION: &str = "SELECT pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'), \
     pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('synchronous_standby_names'), \
     pg_catalog.count(pid), pg_catalog.count(pid) FILTER (WHERE sync_state OPERATOR(pg_catalog.=) ANY (ARRAY['sync', 'quorum'])), \
     pg_catalog.count(pid) FILTER (WHERE state IS NULL) FROM pg_catalog.pg_stat_replication";

/// The answers of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    standby_names: String,
    /// The number of connected standbys.
    standbys: u64,
    /// The number of standbys that writes wait for; `None` if this role may not see it.
    synchronous: Option<u64>,
    is_pooled: bool,
}

/// Asks the server.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let settings = Settings::of_url(&address.rest)?;
        let table = match settings.recipe {
            Recipe::Lease => Table::Record,
            Recipe::Advisory => Table::Lock,
        };
        let link = Link::new(&settings, table);
        // This refuses a table that another user could change.
        link.open(false).await?;
        let answer = link.ask(QUESTION).await?;
        let seen = answer.rows.first().and_then(|row| Seen::of(row, answer.is_pooled));
        let seen = seen.ok_or_else(|| OpenError::Unavailable {
            why: "what it answers is not what PostgreSQL does".to_owned(),
        })?;
        let mut checks = seen.judge();
        checks.extend(judge_others(&link).await?);
        if settings.recipe == Recipe::Advisory {
            checks.push(judge_holders(&holders(&link).await?));
        }
        Ok(checks)
    })
}

/// Checks whether other roles could keep the table locked, whether a session does so now, and which other roles may write to it.
async fn judge_others(link: &Link) -> Result<[Check; 3], OpenError> {
    const OTHERS: &str = "no other role may use the schema of the table";
    const WRITERS: &str = "no other role may write to the table";
    const FREE: &str = "no session keeps others waiting for the table";
    let table = link.statements().table.clone();
    let rows = link.query(&locks::question(), vec![(Box::new(table.clone()), Type::TEXT)]).await;
    let unavailable = |why: String| OpenError::Unavailable { why };
    let rows = rows.map_err(|failure| match failure {
        Failure::NoTable => unavailable(link.no_table()),
        Failure::NotDone(why) | Failure::Unknown(why) => unavailable(why),
    })?;
    let text = |column: usize| {
        let text = rows.first().map(|row| row.try_get::<_, Option<String>>(column)).transpose();
        text.map(Option::flatten).map_err(|error| unavailable(error.to_string()))
    };
    let others = text(0)?.map_or_else(
        || Check::pass(OTHERS, format!("no role that may not write to {table} may use its schema")),
        |others| {
            Check::not(
                Verdict::Warn,
                OTHERS,
                format!("roles that may not write to {table}, and may use its schema: {others}"),
                "a role that may use a schema can ask for a lock on a table there without any right on that; while it waits for \
                 it behind a transaction of its own, no leader is elected and none renews. It cannot lead so",
                "keep the table in a schema of its own (?schema=NAME) that only the candidates' role may use; or take CONNECT \
                 on the database from roles that have nothing to do there",
            )
        },
    );
    let free = text(1)?.map_or_else(
        || Check::pass(FREE, "nobody waits"),
        |sessions| {
            Check::not(
                Verdict::Warn,
                FREE,
                format!("requests wait for {table} behind: {sessions}"),
                "while it lasts, no leader is elected and none renews",
                "end these sessions (SELECT pg_terminate_backend(PROCESS)), and find out what they are",
            )
        },
    );
    let writers = text(2)?.map_or_else(
        || Check::pass(WRITERS, format!("only this role, the owner of {table} and superusers may")),
        |writers| {
            Check::not(
                Verdict::Warn,
                WRITERS,
                format!("other roles that may write to {table}: {writers}"),
                "each of them can lead, and can replace or delete a record, as the roles of other nodes have to",
                "REVOKE INSERT, UPDATE, DELETE on the table from each that is not the role of a node",
            )
        },
    );
    Ok([others, free, writers])
}

/// Returns the elections whose lock a session of another role has: of each the name, the server's process, the role and the
/// application.
async fn holders(link: &Link) -> Result<Vec<String>, OpenError> {
    let question = format!(
        "SELECT pg_catalog.format('%s by the process %s of the role %s (%s)', election, activity.pid, usename, application_name) \
         FROM {} JOIN (SELECT {NUMBER} AS number, pid FROM {LOCKS}) AS held \
         ON held.number OPERATOR(pg_catalog.=) pg_catalog.hashtextextended(election, tableoid::pg_catalog.int8) \
         JOIN pg_catalog.pg_stat_activity AS activity ON activity.pid OPERATOR(pg_catalog.=) held.pid \
         WHERE usename OPERATOR(pg_catalog.<>) current_user",
        link.statements().table
    );
    match link.ask(&question).await {
        Ok(answer) => {
            Ok(answer.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
        }
        // There is no table yet.
        Err(OpenError::Refused { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn judge_holders(held: &[String]) -> Check {
    const NAME: &str = "no other role holds the lock of an election";
    if held.is_empty() {
        return Check::pass(NAME, "none is held by another role");
    }
    Check::not(
        Verdict::Warn,
        NAME,
        format!("held: {}", held.join("; ")),
        "every role of a database can take every advisory lock, and nobody else leads while it keeps it",
        "run all candidates as one role, end a session that is none of theirs (SELECT pg_terminate_backend(PROCESS)), and take \
         CONNECT on the database from roles that have nothing to do there; or leave `recipe=advisory` out",
    )
}

impl Seen {
    fn of(row: &[Option<String>], is_pooled: bool) -> Option<Self> {
        let text = |column: usize| row.get(column)?.clone();
        let number = |column: usize| text(column)?.parse::<u64>().ok();
        Some(Self {
            fsync: text(0)?,
            full_page_writes: text(1)?,
            synchronous_commit: text(2)?,
            standby_names: text(3)?,
            standbys: number(4)?,
            synchronous: Some(number(5)?).filter(|_| number(6) == Some(0)),
            is_pooled,
        })
    }

    fn judge(&self) -> Vec<Check> {
        vec![
            self.survives(),
            self.keeps_tokens(),
            self.flushes(),
            self.writes_whole_pages(),
            self.commits(),
            self.is_direct(),
        ]
    }

    /// Checks that a standby could take over.
    fn survives(&self) -> Check {
        let add =
            "add a standby (pg_basebackup --write-recovery-conf), and name it in synchronous_standby_names";
        match (self.standbys, self.standby_names.is_empty()) {
            (0, true) => Check::not(
                Verdict::Warn,
                SURVIVES,
                "no standby is connected",
                "when the server's machine is gone, nobody leads until it is back; and a backup in its place may not have the \
                 latest token",
                add,
            ),
            (0, false) => Check::not(
                Verdict::Fail,
                SURVIVES,
                format!("writes wait for standbys ({}), and none is connected", self.standby_names),
                "no write is answered until one is, and so nobody can lead",
                "start the standby, and look into its log for why it does not connect",
            ),
            (1, false) => Check::not(
                Verdict::Warn,
                SURVIVES,
                format!("one standby is connected, and writes wait for it ({})", self.standby_names),
                "while that standby is away, no write is answered, and so nobody can lead",
                "add a second standby, and let writes wait for one of the two: synchronous_standby_names = 'ANY 1 (*)'",
            ),
            (standbys, _) => Check::pass(SURVIVES, format!("standbys that are connected: {standbys}")),
        }
    }

    /// Checks that a standby that takes over has the latest token.
    fn keeps_tokens(&self) -> Check {
        const NAME: &str = "a failover keeps the latest token";
        let names = &self.standby_names;
        if names.is_empty() {
            let verdict = if self.standbys > 0 { Verdict::Fail } else { Verdict::Warn };
            return Check::not(
                verdict,
                NAME,
                format!("synchronous_standby_names is empty; standbys that are connected: {}", self.standbys),
                "a standby gets writes after they were answered. One that takes over may not have the latest token, and gives it \
                 a second time; a fence cannot tell the two leaders apart",
                "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf(); with two standbys or \
                 more, and promote only one that was synchronous",
            );
        }
        match self.synchronous {
            Some(0) => Check::not(
                Verdict::Warn,
                NAME,
                format!(
                    "synchronous_standby_names is {names}, and no standby that is connected is one of these"
                ),
                "writes wait until one is, and so nobody can lead",
                "compare it with SELECT application_name, sync_state FROM pg_stat_replication",
            ),
            Some(count) => Check::pass(NAME, format!("writes wait for {names}; standbys of these: {count}")),
            None => Check::pass(NAME, format!("writes wait for {names}")),
        }
    }

    fn flushes(&self) -> Check {
        const NAME: &str = "what was answered survives a crash";
        if self.fsync == "on" {
            return Check::pass(NAME, "fsync is on");
        }
        Check::not(
            Verdict::Fail,
            NAME,
            format!("fsync is {}", self.fsync),
            "after a crash of the machine the latest writes are gone, or the whole database; a token is given a second time",
            "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
        )
    }

    fn writes_whole_pages(&self) -> Check {
        const NAME: &str = "a page that was half written is mended";
        if self.full_page_writes == "on" {
            return Check::pass(NAME, "full_page_writes is on");
        }
        Check::not(
            Verdict::Warn,
            NAME,
            format!("full_page_writes is {}", self.full_page_writes),
            "after a crash of the machine a page can be half old and half new, unless the file system writes pages as a whole, as \
             ZFS does",
            "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf();",
        )
    }

    /// Always passes: the store raises this setting for its own writes.
    fn commits(&self) -> Check {
        const NAME: &str = "a write is flushed before it is answered";
        let found = match self.synchronous_commit.as_str() {
            setting @ ("on" | "remote_apply") => format!("synchronous_commit is {setting}"),
            setting => format!("synchronous_commit is {setting}; the writes of elections raise it to on"),
        };
        Check::pass(NAME, found)
    }

    fn is_direct(&self) -> Check {
        const NAME: &str = "the server is connected to directly";
        if !self.is_pooled {
            return Check::pass(NAME, "no pooler stands in between");
        }
        Check::not(
            Verdict::Warn,
            NAME,
            "a pooler stands in between",
            "a new leader is looked for five times a second, and not told at once; and there is one more that can fail",
            "name the server itself in the URL",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let text = |texts: [&str; 7]| texts.map(|text| Some(text.to_owned()));
        let row = text(["on", "on", "on", "ANY 1 (*)", "2", "2", "0"]);
        Seen::of(&row, false).expect("it is whole")
    }

    fn verdicts(seen: &Seen) -> Vec<Verdict> {
        seen.judge().iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn a_server_with_two_synchronous_standbys_passes() {
        assert_eq!(verdicts(&seen()), [Verdict::Pass; 6]);
        // A role that may not see which of them are synchronous sees that writes wait.
        assert_eq!(verdicts(&Seen { synchronous: None, ..seen() }), [Verdict::Pass; 6]);
        let off = Seen { synchronous_commit: "off".to_owned(), ..seen() };
        assert!(off.commits().verdict == Verdict::Pass && off.commits().found.contains("raise it"));
    }

    #[test]
    fn what_can_lose_a_token_or_stop_all_is_told() {
        let asynchronous = Seen { standby_names: String::new(), synchronous: Some(0), ..seen() };
        assert_eq!(asynchronous.survives().verdict, Verdict::Pass);
        assert_eq!(asynchronous.keeps_tokens().verdict, Verdict::Fail);
        let alone = Seen { standbys: 0, ..asynchronous };
        assert_eq!(verdicts(&alone)[..2], [Verdict::Warn; 2]);
        let waiting = Seen { standbys: 0, synchronous: Some(0), ..seen() };
        assert_eq!(verdicts(&waiting)[..2], [Verdict::Fail, Verdict::Warn]);
        assert_eq!(Seen { standbys: 1, ..seen() }.survives().verdict, Verdict::Warn);
        assert_eq!(Seen { fsync: "off".to_owned(), ..seen() }.flushes().verdict, Verdict::Fail);
        let torn = Seen { full_page_writes: "off".to_owned(), ..seen() };
        assert_eq!(torn.writes_whole_pages().verdict, Verdict::Warn);
        assert_eq!(Seen { is_pooled: true, ..seen() }.is_direct().verdict, Verdict::Warn);
    }

    #[test]
    fn who_holds_the_lock_of_an_election_is_named() {
        assert_eq!(judge_holders(&[]).verdict, Verdict::Pass);
        let held = judge_holders(&["e by the process 7 of the role r (psql)".to_owned()]);
        assert!(held.verdict == Verdict::Warn && held.found.contains("role r"), "{held:?}");
    }

    #[test]
    fn a_row_that_is_none_is_not_taken_for_one() {
        assert_eq!(Seen::of(&[], false), None);
        let texts = ["on", "on", "on", "", "x", "0", "0"].map(|text| Some(text.to_owned()));
        assert_eq!(Seen::of(&texts, false), None);
    }
}
