//! The inspection of a server when it is opened: its faults as a store of elections.

use std::collections::HashMap;

use crate::open_error::OpenError;

/// The answers of a server about itself.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    /// The answer to `INFO`, if this user may ask.
    pub(super) info: Option<String>,
    /// The answer to `CONFIG GET appendfsync`, if this user may ask.
    pub(super) appendfsync: Option<String>,
}

impl Inspection {
    /// Returns warnings for the operator: the ways in which the server can lose acknowledged writes.
    ///
    /// # Errors
    /// [`OpenError::Refused`] for a node of a cluster, [`OpenError::Unavailable`] for a replica.
    pub(super) fn judge(&self) -> Result<Vec<String>, OpenError> {
        let Some(info) = &self.info else {
            return Ok(vec![
                "this user may not ask what keeps its data (INFO); nothing is known of that".to_owned(),
            ]);
        };
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim().split_once(':')).collect();
        let is = |name: &str, value: &str| fields.get(name) == Some(&value);
        if is("cluster_enabled", "1") {
            let why = "it is a node of a Redis Cluster, whose failovers lose writes that were acknowledged; hold \
                       elections on a server of its own";
            return Err(OpenError::Refused { why: why.to_owned() });
        }
        if is("role", "slave") {
            let why = "it is a replica; name the server that takes writes";
            return Err(OpenError::Unavailable { why: why.to_owned() });
        }
        let mut warnings = Vec::new();
        let mut warn = |text: &str| warnings.push(text.to_owned());
        if is("aof_enabled", "0") {
            warn("it keeps no log (`appendonly no`): after a restart a token can be given twice");
        } else {
            match self.appendfsync.as_deref() {
                Some("always") => {}
                Some(_) => warn(
                    "it acknowledges writes before they are on disk (`appendfsync` is not `always`): after a crash \
                     a token can be given twice",
                ),
                None => {
                    warn("this user may not ask whether writes are on disk when acknowledged (CONFIG GET)")
                }
            }
        }
        if fields.get("connected_slaves").is_some_and(|count| *count != "0") {
            warn("it has replicas: if one takes over, a token can be given twice");
        }
        if fields.get("maxmemory_policy").is_some_and(|policy| policy.starts_with("allkeys")) {
            warn("it may throw away any key when its memory is full (`maxmemory-policy`)");
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(info: &str, appendfsync: Option<&str>) -> Result<Vec<String>, OpenError> {
        let (info, appendfsync) = (Some(info.to_owned()), appendfsync.map(str::to_owned));
        Inspection { info, appendfsync }.judge()
    }

    #[test]
    fn what_can_lose_writes_is_told() {
        let safe = "# Server\r\nrole:master\r\ncluster_enabled:0\r\naof_enabled:1\r\nconnected_slaves:0\r\n\
                    maxmemory_policy:noeviction\r\n";
        assert_eq!(judge(safe, Some("always")), Ok(Vec::new()));
        let warning = |info: &str, appendfsync| judge(info, appendfsync).unwrap().join("\n");
        assert!(warning(safe, Some("everysec")).contains("`appendfsync`"));
        assert!(warning(safe, None).contains("CONFIG GET"));
        assert!(warning(&safe.replace("aof_enabled:1", "aof_enabled:0"), None).contains("`appendonly no`"));
        assert!(warning(&safe.replace("slaves:0", "slaves:2"), Some("always")).contains("replicas"));
        assert!(warning(&safe.replace("noeviction", "allkeys-lru"), Some("always")).contains("throw away"));
        assert!(Inspection::default().judge().unwrap().join("").contains("INFO"));
    }

    #[test]
    fn replicas_and_clusters_are_not_used() {
        assert!(matches!(judge("role:slave", None), Err(OpenError::Unavailable { .. })));
        assert!(matches!(judge("role:master\r\ncluster_enabled:1", None), Err(OpenError::Refused { .. })));
    }
}
