//! The queue: a value that is read from `queue.json`, changed by [`Mutation`]s, and written back.
//!
//! The format is that of osqueue, and what it does not know is kept: fields of the file and of each job that are not named
//! here come back as they were. What is ours beside it: `claim` in a job, and `pushed`.

use std::collections::{BTreeMap, VecDeque};

use primacy::leader_document::Stamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The number of times a job is given out where it states no number of its own.
pub(crate) const ATTEMPTS: u64 = 3;

/// The number of remembered keys of pushes: a push that is repeated after this many others makes a second job.
pub(crate) const KEYS_MAX: usize = 10_000;

/// The whole queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Queue {
    /// The address of the leader, for clients that read the document.
    pub(crate) broker: Option<String>,
    /// The time of the leader's last write, in milliseconds since 1970; 0 without a leader. Only brokers of osqueue read it.
    pub(crate) broker_heartbeat: u64,
    /// In the order in which they were pushed.
    pub(crate) jobs: VecDeque<Job>,
    /// The number of jobs ever completed.
    pub(crate) completed_total: u64,
    /// The keys of the last pushes, the oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) pushed: VecDeque<Pushed>,
    /// Fields of the file that this version does not know.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Job {
    /// Never used for another job.
    pub(crate) id: String,
    /// Whether a worker has it.
    pub(crate) status: Status,
    /// The job's content, opaque to the broker.
    pub(crate) payload: Value,
    /// The kind of work, for workers that do not do every kind.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The last heartbeat of its worker, in milliseconds since 1970 by the clock of the broker at that time; for people
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heartbeat: Option<u64>,
    /// The worker that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker_id: Option<String>,
    /// The time at which it was pushed, in milliseconds since 1970.
    pub(crate) created_at: u64,
    /// The number of times it was given out.
    pub(crate) attempts: u64,
    /// The number of times it may be given out; [`ATTEMPTS`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u64>,
    /// The number of the claim under which it is worked at: no other claim of any job ever has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// Fields of the job that this version does not know.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// It waits.
    Unclaimed,
    /// A worker has it.
    InProgress,
}

/// A push that was done, and what it made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pushed {
    /// The client's key for the push.
    pub(crate) key: String,
    /// The job.
    pub(crate) job_id: String,
}

/// A client's request to change the queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mutation {
    /// A new job.
    Push {
        /// The name that it gets.
        id: String,
        /// The job's content.
        payload: Value,
        /// The kind of work.
        kind: Option<String>,
        /// The number of times it may be given out.
        max_attempts: Option<u64>,
        /// A key: a second push with the same one makes no second job.
        key: Option<String>,
    },
    /// The first job that waits.
    Claim {
        /// The worker that claims it.
        worker_id: String,
        /// The kinds that the worker does; every kind if empty. A job without a kind is given only to workers that name no
        /// kinds.
        kinds: Vec<String>,
        /// The number that the claim gets.
        claim: String,
    },
    /// The worker is at it still.
    Heartbeat(Held),
    /// The work is done.
    Complete(Held),
    /// The worker gives it back.
    Release(Held),
    /// These were not heard of in time, under these claims.
    Expire(Vec<(String, String)>),
}

/// A job that a worker claims to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The job.
    pub(crate) id: String,
    /// The worker.
    pub(crate) worker_id: String,
    /// Under which claim; a client of osqueue knows none, and then the worker's name must do.
    pub(crate) claim: Option<String>,
}

/// The outcome of a mutation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Done {
    /// The job with this name is in the queue, or was when the same push was done before.
    Pushed(String),
    /// The job is the worker's, or there was none.
    Claimed(Option<Box<Job>>),
    /// It is so.
    Yes,
    /// Another claim has it, or none: what this worker has done since counts for nothing.
    Stale,
    /// There is no such job: it was completed, or given out too often.
    Gone,
}

impl Queue {
    /// Records the leader, right before the queue is written.
    pub(crate) fn stamp(&mut self, stamp: &Stamp) {
        self.broker.clone_from(&stamp.address);
        self.broker_heartbeat = if stamp.address.is_some() { stamp.millis } else { 0 };
    }

    /// Changes the queue; `now` is in milliseconds since 1970, for people who read the file.
    pub(crate) fn apply(&mut self, now: u64, mutation: Mutation) -> Done {
        match mutation {
            Mutation::Push { id, payload, kind, max_attempts, key } => {
                if let Some(before) =
                    key.as_ref().and_then(|key| self.pushed.iter().find(|pushed| pushed.key == *key))
                {
                    return Done::Pushed(before.job_id.clone());
                }
                if let Some(key) = key {
                    self.pushed.push_back(Pushed { key, job_id: id.clone() });
                    while self.pushed.len() > KEYS_MAX {
                        self.pushed.pop_front();
                    }
                }
                self.jobs.push_back(Job::new(id.clone(), payload, kind, max_attempts, now));
                Done::Pushed(id)
            }
            Mutation::Claim { worker_id, kinds, claim } => {
                let is_wanted = |job: &&mut Job| job.status == Status::Unclaimed && job.is_of(&kinds);
                let found = self.jobs.iter_mut().find(is_wanted);
                Done::Claimed(found.map(|job| {
                    job.status = Status::InProgress;
                    job.attempts += 1;
                    (job.worker_id, job.claim, job.heartbeat) = (Some(worker_id), Some(claim), Some(now));
                    Box::new(job.clone())
                }))
            }
            Mutation::Heartbeat(held) => match self.held(&held) {
                Ok(at) => {
                    self.jobs[at].heartbeat = Some(now);
                    Done::Yes
                }
                Err(done) => done,
            },
            Mutation::Complete(held) => match self.held(&held) {
                Ok(at) => {
                    self.jobs.remove(at);
                    self.completed_total += 1;
                    Done::Yes
                }
                Err(done) => done,
            },
            Mutation::Release(held) => match self.held(&held) {
                Ok(at) => {
                    self.give_up(at);
                    Done::Yes
                }
                Err(done) => done,
            },
            Mutation::Expire(claims) => {
                for (id, claim) in claims {
                    let is_it = |job: &Job| job.id == id && job.claim_name() == Some(&claim);
                    if let Some(at) = self.jobs.iter().position(is_it) {
                        self.give_up(at);
                    }
                }
                Done::Yes
            }
        }
    }

    /// Returns the jobs at work, by name and claim, each with its worker's latest heartbeat.
    pub(crate) fn signs_of_life(&self) -> BTreeMap<(String, String), Option<u64>> {
        let sign = |job: &Job| Some(((job.id.clone(), job.claim_name()?.to_owned()), job.heartbeat));
        self.jobs.iter().filter_map(sign).collect()
    }

    /// Returns the index of the job, if this claim has it.
    fn held(&self, held: &Held) -> Result<usize, Done> {
        let at = self.jobs.iter().position(|job| job.id == held.id).ok_or(Done::Gone)?;
        let job = &self.jobs[at];
        let is_claim = match &held.claim {
            Some(claim) => job.claim.as_ref() == Some(claim),
            None => job.status == Status::InProgress,
        };
        if is_claim && job.worker_id.as_ref() == Some(&held.worker_id) { Ok(at) } else { Err(Done::Stale) }
    }

    /// The job waits again, at its place; or goes, if it was given out too often.
    fn give_up(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        if job.attempts >= job.max_attempts.unwrap_or(ATTEMPTS) {
            self.jobs.remove(at);
            return;
        }
        job.status = Status::Unclaimed;
        (job.worker_id, job.claim, job.heartbeat) = (None, None, None);
    }
}

impl Job {
    fn new(
        id: String,
        payload: Value,
        kind: Option<String>,
        max_attempts: Option<u64>,
        created_at: u64,
    ) -> Self {
        Self {
            id,
            status: Status::Unclaimed,
            payload,
            kind,
            heartbeat: None,
            worker_id: None,
            created_at,
            attempts: 0,
            max_attempts,
            claim: None,
            others: Map::new(),
        }
    }

    fn is_of(&self, kinds: &[String]) -> bool {
        kinds.is_empty() || self.kind.as_ref().is_some_and(|kind| kinds.contains(kind))
    }

    /// The claim under which a worker has it. A claim that a broker of osqueue gave out has no number and is identified by
    /// its worker.
    fn claim_name(&self) -> Option<&str> {
        match self.status {
            Status::InProgress => self.claim.as_deref().or(self.worker_id.as_deref()),
            Status::Unclaimed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn push(queue: &mut Queue, id: &str, kind: Option<&str>, key: Option<&str>) -> Done {
        let (kind, key) = (kind.map(str::to_owned), key.map(str::to_owned));
        queue
            .apply(1, Mutation::Push { id: id.to_owned(), payload: json!(id), kind, max_attempts: None, key })
    }

    fn claim(queue: &mut Queue, worker: &str, claim: &str, kinds: &[&str]) -> Option<String> {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        let mutation = Mutation::Claim { worker_id: worker.to_owned(), kinds, claim: claim.to_owned() };
        let Done::Claimed(job) = queue.apply(2, mutation) else {
            panic!("a claim is answered by a job or none")
        };
        job.map(|job| job.id)
    }

    fn held(id: &str, worker: &str, claim: Option<&str>) -> Held {
        Held { id: id.to_owned(), worker_id: worker.to_owned(), claim: claim.map(str::to_owned) }
    }

    fn expire(queue: &mut Queue, id: &str, claim: &str) {
        queue.apply(3, Mutation::Expire(vec![(id.to_owned(), claim.to_owned())]));
    }

    #[test]
    fn jobs_are_given_out_in_order_and_by_kind() {
        let mut queue = Queue::default();
        for (id, kind) in [("a", None), ("b", Some("mail")), ("c", Some("print"))] {
            push(&mut queue, id, kind, None);
        }
        assert_eq!(claim(&mut queue, "w", "1", &["print"]), Some("c".to_owned()));
        assert_eq!(claim(&mut queue, "w", "2", &["fax"]), None);
        assert_eq!(claim(&mut queue, "w", "3", &[]), Some("a".to_owned()));
        assert_eq!(claim(&mut queue, "w", "4", &[]), Some("b".to_owned()));
        assert_eq!(claim(&mut queue, "w", "5", &[]), None);
    }

    #[test]
    fn a_claim_that_was_lost_completes_nothing_also_for_the_same_worker() {
        let mut queue = Queue::default();
        push(&mut queue, "a", None, None);
        claim(&mut queue, "w", "1", &[]);
        expire(&mut queue, "a", "1");
        assert_eq!(queue.apply(4, Mutation::Complete(held("a", "w", Some("1")))), Done::Stale);
        claim(&mut queue, "w", "2", &[]);
        assert_eq!(queue.apply(4, Mutation::Heartbeat(held("a", "w", Some("1")))), Done::Stale);
        expire(&mut queue, "a", "1");
        assert_eq!(
            queue.apply(4, Mutation::Complete(held("a", "v", Some("2")))),
            Done::Stale,
            "not its claim"
        );
        assert_eq!(queue.apply(4, Mutation::Complete(held("a", "w", Some("2")))), Done::Yes);
        assert_eq!(queue.apply(4, Mutation::Complete(held("a", "w", Some("2")))), Done::Gone);
        assert_eq!(queue.completed_total, 1);
    }

    #[test]
    fn a_job_that_was_given_out_too_often_goes() {
        let mut queue = Queue::default();
        push(&mut queue, "a", None, None);
        for attempt in 1..=ATTEMPTS {
            let name = attempt.to_string();
            assert!(claim(&mut queue, "w", &name, &[]).is_some(), "{attempt}");
            expire(&mut queue, "a", &name);
        }
        assert!(queue.jobs.is_empty());
        assert_eq!(queue.apply(4, Mutation::Complete(held("a", "w", Some("3")))), Done::Gone);
    }

    #[test]
    fn a_repeated_push_makes_no_second_job_also_after_it_was_completed() {
        let mut queue = Queue::default();
        assert_eq!(push(&mut queue, "a", None, Some("k")), Done::Pushed("a".to_owned()));
        assert_eq!(push(&mut queue, "b", None, Some("k")), Done::Pushed("a".to_owned()));
        claim(&mut queue, "w", "1", &[]);
        queue.apply(4, Mutation::Complete(held("a", "w", None)));
        assert_eq!(push(&mut queue, "c", None, Some("k")), Done::Pushed("a".to_owned()));
        assert!(queue.jobs.is_empty());
        for number in 0..KEYS_MAX {
            push(&mut queue, &format!("job {number}"), None, Some(&format!("key {number}")));
        }
        assert_eq!(queue.pushed.len(), KEYS_MAX);
        assert_eq!(push(&mut queue, "d", None, Some("k")), Done::Pushed("d".to_owned()), "forgotten");
    }

    #[test]
    fn a_file_of_osqueue_is_read_and_nothing_of_it_is_lost() {
        let text = json!({
            "broker": "10.0.0.7:8080", "brokerHeartbeat": 1_706_000_000_000_u64, "completedTotal": 7, "theirs": {"x": 1},
            "jobs": [
                {"id": "1", "status": "in_progress", "payload": {"a": [1]}, "type": "mail", "heartbeat": 5, "workerId": "w",
                 "createdAt": 4, "attempts": 1, "maxAttempts": 2, "note": "kept"},
                {"id": "2", "status": "unclaimed", "payload": null, "createdAt": 5, "attempts": 0}
            ]
        });
        let mut queue: Queue = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&queue).unwrap(), text);
        assert_eq!(queue.signs_of_life().keys().collect::<Vec<_>>(), [&("1".to_owned(), "w".to_owned())]);
        // Its worker knows no claim.
        assert_eq!(queue.apply(6, Mutation::Complete(held("1", "w", None))), Done::Yes);
        let empty: Queue =
            serde_json::from_str(r#"{"broker":null,"brokerHeartbeat":0,"jobs":[],"completedTotal":0}"#)
                .unwrap();
        assert!(empty.jobs.is_empty());
    }
}
