//! The queue: read from `queue.json`, changed by [`Mutation`]s, and written back.
//!
//! The format is osqueue's. Unknown fields of the file and of each job are kept. Additions to the format: `claim` in a
//! job, and `pushed`.

use std::collections::{BTreeMap, VecDeque};

use primacy::leader_document::Stamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The default number of attempts of a job.
pub(crate) const ATTEMPTS: u64 = 3;

/// The number of remembered push keys: a push that is repeated after this many others creates a second job.
pub(crate) const KEYS_MAX: usize = 10_000;

/// The whole queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Queue {
    /// The address of the leader, for clients that read the document.
    pub(crate) broker: Option<String>,
    /// The time of the leader's last write, in milliseconds since 1970; 0 without a leader. Only brokers of osqueue read it.
    pub(crate) broker_heartbeat: u64,
    /// The jobs, in the order of their pushes.
    pub(crate) jobs: VecDeque<Job>,
    /// The number of jobs ever completed.
    pub(crate) completed_total: u64,
    /// The keys of the last pushes, oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) pushed: VecDeque<Pushed>,
    /// Unknown fields of the file.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Job {
    /// The job's id, never used for another job.
    pub(crate) id: String,
    /// Whether a worker has the job.
    pub(crate) status: Status,
    /// The job's content, opaque to the broker.
    pub(crate) payload: Value,
    /// The kind of work, for workers that do only some kinds.
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
    /// The number of times that it was claimed.
    pub(crate) attempts: u64,
    /// The number of times that it may be claimed; [`ATTEMPTS`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u64>,
    /// The id of its present claim, which no other claim of any job ever has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// Unknown fields of the job.
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

/// A push that was done, and the job that it created.
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
    /// Add a job.
    Push {
        /// The id of the new job.
        id: String,
        /// The job's content.
        payload: Value,
        /// The kind of work.
        kind: Option<String>,
        /// The number of times that it may be claimed.
        max_attempts: Option<u64>,
        /// A key for idempotence: a second push with the same key creates no second job.
        key: Option<String>,
    },
    /// Claim the first waiting job.
    Claim {
        /// The worker that claims it.
        worker_id: String,
        /// The kinds that the worker does; every kind if empty. A job without a kind is only given to workers that name no
        /// kinds.
        kinds: Vec<String>,
        /// The id of the claim.
        claim: String,
    },
    /// The worker is still working on it.
    Heartbeat(Held),
    /// The work is done.
    Complete(Held),
    /// The worker returns the job unfinished.
    Release(Held),
    /// No heartbeat arrived in time for these jobs, with these claims.
    Expire(Vec<(String, String)>),
}

/// A worker's claim of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The job.
    pub(crate) id: String,
    /// The worker.
    pub(crate) worker_id: String,
    /// The id of the claim; `None` for clients of osqueue, which are identified by the worker's name.
    pub(crate) claim: Option<String>,
}

/// The outcome of a mutation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Done {
    /// The job with this id is in the queue, or was when the same push was first done.
    Pushed(String),
    /// The job is claimed; `None` if there was none.
    Claimed(Option<Box<Job>>),
    /// The mutation was done.
    Yes,
    /// Another claim has the job, or none has: this worker's later work does not count.
    Stale,
    /// There is no such job: it was completed, or attempted too often.
    Gone,
}

impl Queue {
    /// Records the leader right before the queue is written.
    pub(crate) fn stamp(&mut self, stamp: &Stamp) {
        self.broker.clone_from(&stamp.address);
        self.broker_heartbeat = if stamp.address.is_some() { stamp.millis } else { 0 };
    }

    /// Applies a mutation; `now` is in milliseconds since 1970, for people who read the file.
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

    /// Returns the claimed jobs, by id and claim, each with its worker's latest heartbeat.
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

    /// Returns the job to its place in the queue; or removes it, if it was attempted too often.
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

    /// The claim of a job that is in progress. A claim from a broker of osqueue has no id, and is identified by its
    /// worker.
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
        // Its worker does not know its claim.
        assert_eq!(queue.apply(6, Mutation::Complete(held("1", "w", None))), Done::Yes);
        let empty: Queue =
            serde_json::from_str(r#"{"broker":null,"brokerHeartbeat":0,"jobs":[],"completedTotal":0}"#)
                .unwrap();
        assert!(empty.jobs.is_empty());
    }
}
