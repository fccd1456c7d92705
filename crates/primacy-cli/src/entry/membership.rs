//! The settings of an election by seniority.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use primacy::{Detection, NodeId, SeniorityOptions, SplitBrain};

use crate::duration;

/// The membership settings of a cluster; each has a meaning with `--algorithm seniority` only.
#[derive(Debug, Default, Args)]
pub(crate) struct Membership {
    /// By seniority, the peers that are asked to join, as in b,a; the first one founds the cluster. All nodes must agree [default:
    /// all peers by name, the first 16 of them]
    #[arg(long, value_name = "LIST", env = "PRIMACY_SEEDS", value_parser = str::parse::<Seeds>)]
    pub(crate) seeds: Option<Seeds>,

    /// By seniority, the policy for parts of the cluster that have lost each other: keep-majority,
    /// static-quorum:NUMBER, keep-oldest, lease:URL, where a store decides, or available, where each part goes on;
    /// env:NAME reads it from the environment [default: keep-majority]
    // No parser looks at it, for a value that a parser refuses is shown, and there may be a password in it.
    #[arg(long, value_name = "POLICY", env = "PRIMACY_SPLIT_BRAIN", hide_env_values = true)]
    pub(crate) split_brain: Option<String>,

    /// By seniority, the number of members next to it on the ring of ages to which a member shows itself, at
    /// least 2 unless each part goes on: as many cut links make others take it for lost. All nodes must agree
    /// [default: all]
    #[arg(long, value_name = "NUMBER", env = "PRIMACY_NEIGHBOURS")]
    pub(crate) neighbours: Option<u32>,

    /// By seniority, the failure detector: missed:COUNT, deadline:TIME, or
    /// phi-accrual:THRESHOLD,PAUSE,DEVIATION, as in phi-accrual:8,1s,100ms [default: missed:4]
    #[arg(long, value_name = "DETECTOR", env = "PRIMACY_DETECTOR", value_parser = parse_detector)]
    pub(crate) detector: Option<Detection>,

    /// By seniority, the time for which the same members must have been lost before they are removed [default: the
    /// lease]
    #[arg(long, value_name = "TIME", env = "PRIMACY_STABLE_AFTER", value_parser = duration::parse)]
    pub(crate) stable_after: Option<Duration>,

    /// By seniority, the members that the cluster must have for /leader of --metrics to report that this node
    /// leads [default: 1]
    #[arg(long, value_name = "NUMBER", env = "PRIMACY_MINIMUM_MEMBERS")]
    pub(crate) minimum_members: Option<u32>,

    /// By seniority, the zone of this node, which the others see
    #[arg(long, value_name = "ZONE", env = "PRIMACY_ZONE")]
    pub(crate) zone: Option<String>,

    /// By seniority, further labels of this node: rack=7,disk=ssd; at most 8
    #[arg(long, value_name = "LIST", env = "PRIMACY_LABELS", value_parser = str::parse::<Labels>)]
    pub(crate) labels: Option<Labels>,
}

/// Names of peers, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(Vec<NodeId>);

/// Texts by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels(BTreeMap<String, String>);

impl std::str::FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = |name: &str| {
            name.trim().parse::<NodeId>().map_err(|error| format!("{name:?} is no node's name: {error}"))
        };
        text.split(',').map(name).collect::<Result<_, _>>().map(Self)
    }
}

impl std::str::FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut labels = BTreeMap::new();
        for label in text.split(',') {
            let (key, value) = label
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| format!("{label:?} is no label: write key=value, separated by commas"))?;
            if labels.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("the label {key:?} is there twice; write each once"));
            }
        }
        Ok(Self(labels))
    }
}

impl Membership {
    /// Each setting, and whether it is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 8] {
        [
            ("seeds", self.seeds.is_some()),
            ("split-brain", self.split_brain.is_some()),
            ("neighbours", self.neighbours.is_some()),
            ("detector", self.detector.is_some()),
            ("stable-after", self.stable_after.is_some()),
            ("minimum-members", self.minimum_members.is_some()),
            ("zone", self.zone.is_some()),
            ("labels", self.labels.is_some()),
        ]
    }

    /// Returns the name of the variable, if a variable has the whole policy: other users cannot read its value.
    pub(super) fn split_brain_variable(&self) -> Option<&str> {
        self.split_brain.as_deref().and_then(variable)
    }

    /// Converts the settings to the library's options. The URL of a store is passed on as it was given.
    ///
    /// # Errors
    /// If the policy is unknown. The error does not contain its value.
    pub(super) fn options(&self) -> Result<SeniorityOptions, String> {
        let split_brain = self.split_brain.as_deref().map_or(Ok(SplitBrain::default()), policy)?;
        let minimum = self.minimum_members.map(|minimum| usize::try_from(minimum).unwrap_or(usize::MAX));
        Ok(SeniorityOptions {
            seeds: self.seeds.clone().map_or_else(Vec::new, |Seeds(seeds)| seeds),
            neighbours: self.neighbours,
            detection: self.detector,
            stable_after: self.stable_after,
            minimum_members: minimum,
            split_brain,
            zone: self.zone.clone().unwrap_or_default(),
            labels: self.labels.clone().map_or_else(BTreeMap::new, |Labels(labels)| labels),
        })
    }
}

/// Returns the name of the variable, if a variable has the whole policy.
fn variable(split_brain: &str) -> Option<&str> {
    split_brain.strip_prefix("env:")
}

/// Reads the policy from this text, or from the variable that it names.
fn policy(text: &str) -> Result<SplitBrain, String> {
    if let Some(name) = variable(text) {
        let found = std::env::var(name);
        let found = found.map_err(|error| format!("env:{name}: {error}; set {name} to a policy"))?;
        return policy_of(&found);
    }
    policy_of(text)
}

fn policy_of(text: &str) -> Result<SplitBrain, String> {
    match text.split_once(':') {
        None if text == "keep-majority" => Ok(SplitBrain::KeepMajority),
        None if text == "keep-oldest" => Ok(SplitBrain::KeepOldest),
        None if text == "available" => Ok(SplitBrain::Available),
        Some(("static-quorum", count)) => {
            let count = count.parse().map_err(|_| "static-quorum: takes a number of members")?;
            Ok(SplitBrain::StaticQuorum(count))
        }
        Some(("lease", url)) => Ok(SplitBrain::Lease(url.to_owned())),
        None | Some(_) => {
            Err("write keep-majority, static-quorum:NUMBER, keep-oldest, lease:URL, available or env:NAME"
                .to_owned())
        }
    }
}

/// Returns whether the text names a store, and so may contain a secret.
pub(super) fn names_store(split_brain: &str) -> bool {
    split_brain.starts_with("lease:")
}

/// The default policy, as the setting is written.
pub(super) const SPLIT_BRAIN: &str = "keep-majority";

/// Parses `missed:4`, `deadline:2s` or `phi-accrual:8,1s,100ms`.
fn parse_detector(text: &str) -> Result<Detection, String> {
    let wrong = || {
        format!(
            "write missed:COUNT, deadline:TIME or phi-accrual:THRESHOLD,PAUSE,DEVIATION, as in phi-accrual:8,1s,100ms; not \
             {text:?}"
        )
    };
    match text.split_once(':').ok_or_else(wrong)? {
        ("missed", count) => Ok(Detection::Missed { count: count.parse().map_err(|_| wrong())? }),
        ("deadline", timeout) => Ok(Detection::Deadline { timeout: duration::parse(timeout)?.into() }),
        ("phi-accrual", parts) => {
            let parts: Vec<&str> = parts.split(',').collect();
            let [threshold, pause, deviation] = parts.as_slice() else { return Err(wrong()) };
            Ok(Detection::PhiAccrual {
                threshold_tenths: tenths(threshold).ok_or_else(wrong)?,
                acceptable_pause: duration::parse(pause)?.into(),
                deviation_min: duration::parse(deviation)?.into(),
            })
        }
        (_, _) => Err(wrong()),
    }
}

/// Parses `8` or `8.5` to a number of tenths.
fn tenths(text: &str) -> Option<u32> {
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && digits(tenth) && tenth.len() == 1).then(|| format!("{whole}{tenth}").parse().ok())?
}

/// Formats the setting of the detector that counts missed heartbeats.
pub(super) fn missed(count: u32) -> String {
    format!("missed:{count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_what_is_none_is_not_shown() {
        assert_eq!(policy("static-quorum:3"), Ok(SplitBrain::StaticQuorum(3)));
        assert_eq!(policy("lease:env:URL"), Ok(SplitBrain::Lease("env:URL".into())));
        assert!(names_store("lease:x://y") && !names_store("keep-oldest") && !names_store("env:POLICY"));
        for wrong in
            ["", "leese:postgres://u:hunter2@h/db", "static-quorum:hunter2", "postgres://u:hunter2@h"]
        {
            let error = policy(wrong).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn detectors_seeds_and_labels_are_read_as_people_write_them() {
        assert_eq!(parse_detector(&missed(4)), Ok(Detection::Missed { count: 4 }));
        let phi = parse_detector("phi-accrual:8.5,1s,100ms").unwrap();
        assert!(matches!(phi, Detection::PhiAccrual { threshold_tenths: 85, .. }), "{phi:?}");
        for wrong in
            ["", "missed", "missed:x", "deadline:2", "phi-accrual:8", "phi-accrual:8.55,1s,1s", "phi:8"]
        {
            assert!(parse_detector(wrong).is_err(), "{wrong:?}");
        }
        let seeds: Seeds = "b, a".parse().unwrap();
        assert_eq!(seeds.0.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b", "a"]);
        assert!("a,,b".parse::<Seeds>().is_err());
        let labels: Labels = "rack=7,disk=a=b,empty=".parse().unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(labels.0, [pair("disk", "a=b"), pair("empty", ""), pair("rack", "7")].into());
        for wrong in ["", "rack", "=7", "a=1,a=2", "a=1,"] {
            assert!(wrong.parse::<Labels>().is_err(), "{wrong:?}");
        }
    }
}
