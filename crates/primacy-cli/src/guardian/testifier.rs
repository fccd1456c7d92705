//! The guardian's word to others. Whom to tell is seen to on a thread of its own: that may have to read files, or program text, from a disk,
//! and the end of a job may not wait for one.

use std::io::{self, Write as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy::transport::Limits;
use primacy::witness::{Witness, WitnessSpec};

/// When what could not be done whole is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The thread keeps little on its stack.
const STACK_LENGTH: usize = 256 * 1024;

/// Tells others of the supervisor's death.
pub(super) struct Testifier {
    witness: Arc<Mutex<Option<Witness>>>,
    orders: Sender<String>,
}

impl Testifier {
    /// Gets ready to tell. Without a specification there is nobody to tell, and others find out by silence.
    pub(super) fn new(spec: Option<&WitnessSpec>) -> Self {
        let witness = spec.and_then(|spec| {
            Witness::new(spec, Limits::default())
                .inspect_err(|error| {
                    say(&format!("a crash of this node will be noticed by silence only: {error}"))
                })
                .ok()
        });
        let (testifier, received) = Self::heard_by_nobody();
        *lock(&testifier.witness) = witness;
        let witness = Arc::clone(&testifier.witness);
        let thread = std::thread::Builder::new().name("whom to tell".to_owned()).stack_size(STACK_LENGTH);
        if let Err(error) = thread.spawn(move || obey(&received, &witness)) {
            say(&format!("nodes that vote later will notice a crash of this one by silence only: {error}"));
        }
        testifier
    }

    /// One that does nothing, and the orders that it gets.
    pub(super) fn heard_by_nobody() -> (Self, Receiver<String>) {
        let (orders, received) = mpsc::channel();
        (Self { witness: Arc::default(), orders }, received)
    }

    /// From now on those in this specification are told. Waits for nothing.
    pub(super) fn reach(&self, spec: String) {
        // Without the thread it stays as it was, which was said.
        let _ = self.orders.send(spec);
    }

    /// Tells of the death, for so long at the most.
    pub(super) fn testify(&self, bound: Duration) {
        if let Some(witness) = lock(&self.witness).as_mut() {
            witness.testify(bound);
        }
    }
}

/// Does what is ordered, until nobody can order anything any more.
fn obey(orders: &Receiver<String>, witness: &Mutex<Option<Witness>>) {
    let mut undone = None;
    loop {
        let ordered = match &undone {
            None => orders.recv().map_err(RecvTimeoutError::from),
            Some(_) => orders.recv_timeout(AGAIN),
        };
        let is_new = match ordered {
            Ok(spec) => {
                undone = Some(spec);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(spec) = &undone else { continue };
        let reached = reach(spec, &mut lock(witness));
        // Nothing is said while the witness is locked: nobody may read it, and then the death could not be told.
        match reached {
            Ok(()) => undone = None,
            Err(error) if is_new => {
                say(&format!(
                    "some nodes would notice a crash of this one by silence only, until it is mended: {error}"
                ));
            }
            Err(_) => {} // That was said.
        }
    }
}

fn reach(spec: &str, witness: &mut Option<Witness>) -> Result<(), String> {
    let spec: WitnessSpec = serde_json::from_str(spec).map_err(|error| error.to_string())?;
    match witness {
        Some(witness) => witness.reach(&spec).map_err(|error| error.to_string()),
        // It could not be had before.
        None => {
            *witness = Some(Witness::new(&spec, Limits::default()).map_err(|error| error.to_string())?);
            Ok(())
        }
    }
}

/// Whoever panicked has left a witness that tells whom it knows.
fn lock(witness: &Mutex<Option<Witness>>) -> MutexGuard<'_, Option<Witness>> {
    witness.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(what: &str) {
    let _ = writeln!(io::stderr(), "primacy guardian: {what}");
}
