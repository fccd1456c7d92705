//! A death that is played before there is a job, so that whatever a real one needs is in memory, and can be kept there.
//!
//! A guardian sleeps for months, and acts within milliseconds or too late. What it has not used for long the kernel may
//! have taken back, and its program's text is read from the disk again; a disk that is busy lets it wait for longer than
//! the kill margin. (Chaos has found this: jobs outlived their leases by up to two seconds while builds kept the disk busy.)

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

use primacy::clock;
use primacy::core::Duration;

use super::{Guardian, Program, Wire};
use crate::boot_timer::BootTimer;
use crate::guardian::message::{Duty, Order, Stopping};

/// Plays all that a guardian does between the start of a job and its death, with a job that does nothing, and with nobody
/// who listens. Returns when nothing of it is left.
///
/// To be called while this process has no child, for all of them are ended.
pub(super) fn rehearse(duty: &Duty) -> io::Result<()> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let (child_signals, _silent) = UnixStream::pair()?;
    child_signals.set_nonblocking(true)?;
    // Without what may be long: nobody reads while this is written.
    let (election, node, mark) = (duty.election.clone(), duty.node.clone(), duty.mark.clone());
    let Duty { supervisor, drain, kill_margin, lease, .. } = *duty;
    let (on_elected, on_deposed, witness) = (None, None, None);
    let duty =
        Duty { supervisor, election, node, mark, drain, kill_margin, lease, on_elected, on_deposed, witness };
    writeln!(theirs, "{}", serde_json::to_string(&duty)?)?;
    let (wire, duty) = Wire::open(ours)?;
    let mut played = Guardian {
        wire,
        supervisor: None,
        child_signals,
        timer: BootTimer::new()?,
        witness: None,
        duty,
        job: Some(Program::shell("sleep 60 & wait")),
        charge: None,
        supervisor_lost: false,
        leave_taken: false,
        settled_at: None,
    };
    let outcome = play(&mut played, &mut theirs);
    // Nothing of it is left, whatever went wrong.
    played.end_now();
    outcome
}

fn play(played: &mut Guardian, supervisor: &mut UnixStream) -> io::Result<()> {
    let valid_until = clock::now().after(Duration::from_nanos(played.duty.lease)).as_nanos();
    let start = Order::Start { token: 0, term: 0, valid_until };
    writeln!(supervisor, "{}", serde_json::to_string(&start)?)?;
    played.take_orders();
    played.start_if_due();
    writeln!(supervisor, "{}", serde_json::to_string(&Order::Extend { token: 0, valid_until })?)?;
    played.wait()?;
    played.take_orders();
    played.reap();
    played.on_time(clock::now());
    played.drain(Stopping::Deadline);
    Ok(())
}
