//! Measures how long the machine keeps this process from running, and warns before that costs the lead.

use std::time::Duration;

use primacy::clock;
use primacy::core::Duration as CoreDuration;

use crate::report::{Event, Reporter};

/// The interval at which the clock is read. With a sensible kill margin, a shorter pause than this cannot cost the
/// lead.
const INTERVAL: Duration = Duration::from_millis(100);

/// Warns whenever this process was delayed for longer than ever before and for more than `bearable`; never returns.
pub(crate) async fn watch(bearable: CoreDuration, lease: CoreDuration, reporter: Reporter) {
    let mut worst = bearable;
    loop {
        let before = clock::now();
        tokio::time::sleep(INTERVAL).await;
        let late = clock::now().since(before.after(INTERVAL.into()));
        if late > worst {
            worst = late;
            let message = format!(
                "this process was kept from running for {late}, while the lease is {lease}; \
                 if that happens often, take a longer --lease, or give the machine more room"
            );
            reporter.tell(&Event::Warning { message });
        }
    }
}
