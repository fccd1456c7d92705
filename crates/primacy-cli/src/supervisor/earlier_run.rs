//! The stop command of an earlier run of this node, whose supervisor and guardian were killed before the command
//! succeeded.

use std::time::Instant as StdInstant;

use primacy::core::Duration;

use super::{Supervisor, start_guardian, too_late};
use crate::exit::{Exit, Failure};
use crate::guardian::handle::Notice;
use crate::guardian::message::{GuardianCommand, GuardianConfig, Report};
use crate::notify;
use crate::report::{Event, Lead};
use crate::stop_record::StopRecord;

impl StopRecord {
    /// Returns the configuration of a guardian that runs only this command.
    pub(super) fn config(&self, config: &GuardianConfig) -> GuardianConfig {
        let stop_command = Some(self.command.clone());
        let (on_elected, on_deposed, death_notice, watchdog) = (None, None, None, None);
        GuardianConfig { stop_command, on_elected, on_deposed, death_notice, watchdog, ..config.clone() }
    }
}

impl Supervisor {
    /// Runs the stop command of an earlier run until it has succeeded, if there is one: the work that it is to end may
    /// go on, and must not overlap with the processes that this node starts next. Returns the exit code if a signal or
    /// the end of the wait comes first.
    pub(super) async fn end_earlier_run(&mut self) -> Result<Option<Exit>, Failure> {
        let Some(StopRecord { term, fenced, .. }) = self.settings.owed else { return Ok(None) };
        let message = "an earlier run of this node was killed before its --stop-command has succeeded: the command is run now, and \
                       this node does not campaign before it has succeeded";
        self.reporter.tell(&Event::Warning { message: message.to_owned() });
        self.elector.explain_not_campaigning(Some(self.why_kept(0)));
        let command =
            GuardianCommand::Finish { term, fenced, valid_until: 0, granted: self.settings.config.lease };
        self.guardian.tell(command.clone());
        let too_late = too_late(self.settings.wait, self.began, self.elector.clone());
        tokio::pin!(too_late);
        let exit = loop {
            tokio::select! {
                biased;
                notice = self.guardian.next() => match notice {
                    Notice::Report(Report::Gone { stop_failed: false, .. }) => break None,
                    Notice::Report(Report::Ready { cgroup }) => self.on_guardian_ready(cgroup),
                    Notice::Report(report) => self.tell_of_earlier_run(&report, Lead::new(term, fenced)),
                    Notice::Died => {
                        self.reporter.tell(&Event::GuardianLost);
                        if let Some(signal) = self.replace_guardian().await? {
                            return Ok(Some(Exit::Signal(signal)));
                        }
                        self.elector.explain_not_campaigning(Some(self.why_kept(0)));
                        self.guardian.tell(command.clone());
                    }
                },
                signal = self.signals.next() => {
                    notify::stopping();
                    break Some(Exit::Signal(signal));
                }
                () = &mut too_late => break Some(Exit::NotElected),
            }
        };
        if exit.is_some() {
            self.guardian.tell(GuardianCommand::Kill { term, gives_up: true });
            return Ok(exit);
        }
        self.settings.owed = None;
        self.elector.explain_not_campaigning(None);
        self.disarm_watchdog();
        self.guardian.take_leave().await;
        self.settings.config.death_notice = self.elector.death_notice_spec();
        self.guardian = start_guardian(&self.settings, &self.reporter)?;
        self.guarded_since = StdInstant::now();
        Ok(None)
    }

    /// Returns the reason why this node does not campaign, after this number of failures of the command.
    fn why_kept(&self, failures: u32) -> String {
        let file = self.settings.config.stop_record.as_deref().unwrap_or("".as_ref()).display();
        format!(
            "the --stop-command of an earlier run has not succeeded, and has failed {failures} time(s); it is run until it succeeds: make \
             it succeed, or, where you know that what it ends has ended, stop this node and remove {file}"
        )
    }

    fn tell_of_earlier_run(&self, report: &Report, lead: Lead) {
        match report {
            Report::HookEnded { hook, ended, .. } => {
                self.reporter.tell(&Event::HookEnded { lead, hook: hook.option(), ended: *ended });
            }
            Report::StopFailed { failures, pause, .. } => {
                let pause = Duration::from_nanos(*pause);
                let file = self.settings.config.stop_record.as_deref().unwrap_or("".as_ref()).display();
                let message = format!(
                    "the --stop-command of an earlier run has failed, {failures} time(s), so this node does not campaign; the \
                     command is run again after {pause}; where you know that what it ends has ended, stop this node and remove {file}"
                );
                self.reporter.tell(&Event::Warning { message });
                self.elector.explain_not_campaigning(Some(self.why_kept(*failures)));
            }
            // No job is running.
            Report::Ready { .. }
            | Report::Started { .. }
            | Report::NotStarted { .. }
            | Report::Extended { .. }
            | Report::SlowKill { .. }
            | Report::Stopping { .. }
            | Report::Killing { .. }
            | Report::Exited { .. }
            | Report::Parting { .. }
            | Report::Gone { .. } => {}
        }
    }
}
