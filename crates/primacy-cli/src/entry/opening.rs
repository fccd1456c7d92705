//! Entering an election whose store cannot be opened yet: the node retries with back-off and reports it, as long as the
//! failure may pass by itself. It ends if only an operator can mend the failure.

use std::time::Duration;

use primacy::stores::url_without_login;
use primacy::{ConnectError, Elector};
use tokio::time::{Instant, timeout_at};

use super::location::{ElectionLocation, failure};
use crate::control::{Responder, Server};
use crate::exit::Failure;
use crate::notify;
use crate::report::{Event, Reporter};
use crate::signals::Signals;
use crate::supervisor::Wait;

/// The first wait; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The outcome of entering.
#[derive(Debug)]
pub(crate) enum Opening {
    Entered(Elector),
    /// A signal came before the store could be opened.
    Asked(i32),
}

/// The wait of a node for its store: its bound, and where it is reported.
pub(crate) struct StoreWait<'a> {
    pub(crate) wait: Wait,
    pub(crate) control: Option<&'a Server>,
    pub(crate) reporter: &'a Reporter,
}

/// Calls `enter` until it succeeds. Gives up on a failure that does not pass by itself, or when the time of `wait` is
/// over. Meanwhile the control socket answers with the reason.
pub(crate) async fn enter_when_open<F>(
    place: &ElectionLocation,
    waiting: &StoreWait<'_>,
    mut enter: impl FnMut() -> F,
) -> Result<Opening, Failure>
where
    F: Future<Output = Result<Elector, ConnectError>>,
{
    let StoreWait { wait, control, reporter } = *waiting;
    let until = match wait {
        Wait::Forever => None,
        Wait::For(time) => Some(Instant::now() + time),
        Wait::AtOnce => Some(Instant::now()),
    };
    let mut signals: Option<Signals> = None;
    let (mut pause, mut said) = (PAUSE_MIN, Vec::new());
    let began = Instant::now();
    loop {
        let entered = match &mut signals {
            None => enter().await,
            Some(signals) => tokio::select! {
                signal = signals.next() => return Ok(asked(signal)),
                entered = enter() => entered,
            },
        };
        let error = match entered {
            Ok(elector) => {
                if !said.is_empty() {
                    let message = format!("the store is open, after {:.1} s", began.elapsed().as_secs_f64());
                    reporter.tell(&Event::Warning { message });
                }
                return Ok(Opening::Entered(elector));
            }
            Err(error) => error,
        };
        let may_pass = error.is_passing() && (place.may_appear() || error.is_shortage());
        if !may_pass || until.is_some_and(|until| Instant::now() >= until) {
            return Err(failure(&error));
        }
        // From now on a signal ends the wait. In a container it would be ignored otherwise.
        let signals = match &mut signals {
            Some(signals) => signals,
            none => none.insert(Signals::listen()?),
        };
        let why = error.to_string();
        let message = format!(
            "{} cannot be opened yet: {why}; it is tried again, every {} s at least",
            place.store_name(),
            PAUSE_MAX.as_secs()
        );
        if let Some(control) = control {
            let since = began.elapsed().as_secs();
            control.answer_by(Responder::Opening(format!("for {since} s, {message}")), reporter)?;
        }
        if !said.contains(&why) {
            reporter.tell(&Event::Warning { message });
            said.push(why);
        }
        let end = until.map_or_else(|| Instant::now() + pause, |until| until.min(Instant::now() + pause));
        if let Ok(signal) = timeout_at(end, signals.next()).await {
            return Ok(asked(signal));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn asked(signal: i32) -> Opening {
    notify::stopping();
    Opening::Asked(signal)
}

impl ElectionLocation {
    /// Returns whether a store that cannot be opened now may appear later by itself. A store on a disk of this machine
    /// does not: its path is wrong, or the disk is full or fails, and an operator must act. A shortage of this machine
    /// is checked elsewhere.
    fn may_appear(&self) -> bool {
        match self {
            Self::Store { url, .. } => !url.starts_with("sqlite:") && !url.starts_with("file:"),
            Self::Local(_) => false,
            Self::Peers(..) => true,
        }
    }

    fn store_name(&self) -> String {
        match self {
            Self::Store { url, .. } => url_without_login(url),
            Self::Local(dir) => format!("the store of this machine in {}", dir.display()),
            Self::Peers(..) => "what this node needs".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_on_a_disk_of_this_machine_is_not_waited_for() {
        let store = |url: &str| ElectionLocation::Store { url: url.to_owned(), dir: None, asked_for: false };
        for here in ["sqlite:/no/such/directory/x.db", "sqlite:x.db", "file:///no/such/directory"] {
            assert!(!store(here).may_appear(), "{here}");
        }
        for elsewhere in ["etcd://h/x", "postgres://h/d"] {
            assert!(store(elsewhere).may_appear(), "{elsewhere}");
        }
    }
}
