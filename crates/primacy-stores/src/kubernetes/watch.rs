//! Detection of other processes' writes: a watch on the one Lease.
//!
//! Each watch begins with the present state of the Lease, and is renewed when it ends, so it never resumes from a
//! version that the server may have compacted (410). Without a watch, the Lease is read twice a second.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::sync::watch as channel;
use tokio::time::{sleep, timeout};

use super::api::{Api, REQUEST_TIMEOUT};

/// The duration of a watch, which limits the wait on a connection that is silently lost.
const WATCH_DURATION: Duration = Duration::from_secs(60);

/// The interval of reads while there is no watch.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum length of an event, which contains one Lease.
const LINE_MAX: usize = 4 << 20;

/// The states of the Lease that were received, and those that the handle has seen.
#[derive(Debug)]
pub(super) struct News(channel::Sender<LeaseStates>);

#[derive(Debug, Default)]
struct LeaseStates {
    /// The number of received states that were new to the handle.
    count: u64,
    /// The number of them that the handle has seen since.
    seen: u64,
    /// The last received state: a version, or that there is no Lease.
    latest: Option<Sight>,
    /// The state that the handle saw last.
    known: Option<Sight>,
}

/// The version of a Lease; `None` where there is none.
type Sight = Option<String>;

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// The reason for which a watch has ended.
enum End {
    /// In order, or with a 410: it is renewed at once.
    Over,
    /// It was refused, or broke.
    Failed,
}

impl News {
    pub(super) fn new() -> Self {
        Self(channel::channel(LeaseStates::default()).0)
    }

    /// Returns the count; to be called before a read or a write is sent, for [`saw`](Self::saw).
    pub(super) fn count(&self) -> u64 {
        self.0.borrow().count
    }

    /// Notes that the handle has read or written this state, by a request that was sent when the count was `asked`.
    pub(super) fn saw(&self, sight: Sight, asked: u64) {
        self.0.send_modify(|states| {
            // Events arrive in order: if this state was received last, all earlier ones were received too.
            states.seen =
                states.seen.max(if states.latest.as_ref() == Some(&sight) { states.count } else { asked });
            states.known = Some(sight);
        });
    }

    fn tell(&self, sight: Sight) {
        self.0.send_modify(|states| {
            if states.known.as_ref() == Some(&sight) {
                states.seen = states.count;
            } else if states.latest.as_ref() != Some(&sight) {
                states.count += 1;
            }
            states.latest = Some(sight);
        });
    }

    /// Resolves when a state was received that the handle has not seen.
    pub(super) async fn changed(&self) {
        // The sender exists as long as `self`.
        let _ = self.0.subscribe().wait_for(|states| states.count > states.seen).await;
    }
}

/// Follows the Lease until the future is dropped.
pub(super) async fn follow(api: Api, news: std::sync::Arc<News>) {
    loop {
        let began = Instant::now();
        match watch(&api, &news).await {
            // Otherwise a watch that ends at once would be renewed as fast as the server answers.
            End::Over if began.elapsed() < POLL_INTERVAL => sleep(POLL_INTERVAL).await,
            End::Over => {}
            End::Failed => {
                sleep(POLL_INTERVAL).await;
                look(&api, &news).await;
            }
        }
    }
}

/// Reads the Lease. An error is ignored: the next reader of the record gets it.
async fn look(api: &Api, news: &News) {
    if let Ok(found) = api.read().await {
        news.tell(found.map(|lease| lease.version_text().to_owned()));
    }
}

async fn watch(api: &Api, news: &News) -> End {
    let Ok(mut body) = api.watch(WATCH_DURATION.as_secs()).await else { return End::Failed };
    // No event reports that there is no Lease at the start, so it is read once. From here on, the watch reports all
    // changes.
    look(api, news).await;
    let mut line = Vec::new();
    loop {
        let frame = match timeout(WATCH_DURATION + REQUEST_TIMEOUT, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return End::Over,
            Ok(Some(Err(_))) | Err(_) => return End::Failed,
        };
        let Ok(data) = frame.into_data() else { continue };
        for part in data.split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(part);
            if line.len() > LINE_MAX {
                return End::Failed;
            }
            if part.ends_with(b"\n")
                && let Some(end) = take(&std::mem::take(&mut line), news)
            {
                return end;
            }
        }
    }
}

/// Processes an event; returns how the watch ends, if the event ends it.
fn take(line: &[u8], news: &News) -> Option<End> {
    let event: Event = match serde_json::from_slice(line) {
        Ok(event) => event,
        Err(_) => return Some(End::Failed),
    };
    match event.kind.as_str() {
        "ADDED" | "MODIFIED" => news.tell(Some(event.object.metadata.resource_version)),
        "DELETED" => news.tell(None),
        // The server has compacted the events to send (410); a new watch begins with the present state.
        "ERROR" => return Some(if is_gone(line) { End::Over } else { End::Failed }),
        // A bookmark, or an event type of a later server.
        _ => {}
    }
    None
}

fn is_gone(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Failed {
        object: super::api::Status,
    }
    serde_json::from_slice::<Failed>(line).is_ok_and(|failed| failed.object.code == 410)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_news(news: &News) -> bool {
        let states = news.0.borrow();
        states.count > states.seen
    }

    #[test]
    fn what_the_handle_has_seen_is_no_news() {
        let news = News::new();
        let sight = |version: &str| Some(version.to_owned());
        news.saw(None, news.count());
        news.tell(None);
        assert!(!is_news(&news));
        news.tell(sight("1"));
        assert!(is_news(&news));
        news.saw(sight("1"), 0);
        assert!(!is_news(&news), "told before it was read");
        news.saw(sight("2"), news.count());
        news.tell(sight("2"));
        assert!(!is_news(&news), "told after it was written");
        let asked = news.count();
        news.tell(sight("3"));
        news.saw(sight("2"), asked);
        assert!(is_news(&news), "told while the read was under way, which did not see it");
        news.tell(None);
        news.saw(None, asked);
        assert!(!is_news(&news), "all before it was told, too");
    }

    #[test]
    fn events_are_read_and_what_is_none_ends_the_watch() {
        let news = News::new();
        let event = |text: &str| take(text.as_bytes(), &news);
        assert!(event(r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#).is_none());
        assert_eq!(news.0.borrow().latest, Some(Some("7".to_owned())));
        assert!(event(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}"#).is_none());
        assert_eq!(news.0.borrow().latest, Some(Some("7".to_owned())));
        assert!(event(r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"9"}}}"#).is_none());
        assert_eq!(news.0.borrow().latest, Some(None));
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
        assert!(matches!(event(gone), Some(End::Over)));
        for wrong in [r#"{"type":"ERROR","object":{"kind":"Status","code":500}}"#, "[]", "\u{0}"] {
            assert!(matches!(event(wrong), Some(End::Failed)));
        }
    }
}
