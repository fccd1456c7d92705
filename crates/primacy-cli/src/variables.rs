//! The environment variables of this node itself, which the processes that it starts do not inherit.

use std::process::Command;

/// The variables of all settings.
pub(crate) const SETTINGS: &[&str] = &[
    "PRIMACY_CONFIG",
    "PRIMACY_ELECTION",
    "PRIMACY_STORE",
    "PRIMACY_PEERS",
    "PRIMACY_NODE",
    "PRIMACY_ALGORITHM",
    "PRIMACY_CONFIRM",
    "PRIMACY_SEEDS",
    "PRIMACY_SPLIT_BRAIN",
    "PRIMACY_NEIGHBOURS",
    "PRIMACY_DETECTOR",
    "PRIMACY_STABLE_AFTER",
    "PRIMACY_MINIMUM_MEMBERS",
    "PRIMACY_ZONE",
    "PRIMACY_LABELS",
    "PRIMACY_METADATA",
    "PRIMACY_METADATA_QUOTA",
    "PRIMACY_ETCD_API",
    "PRIMACY_ETCD_API_ADVERTISE",
    "PRIMACY_ETCD_API_USERS",
    "PRIMACY_ETCD_API_CERTIFICATE",
    "PRIMACY_ETCD_API_KEY",
    "PRIMACY_ETCD_API_CA",
    "PRIMACY_ALLOW_ADVISORY",
    "PRIMACY_SAFETY",
    "PRIMACY_PRIORITY",
    "PRIMACY_WITNESS",
    "PRIMACY_STATE_DIR",
    "PRIMACY_GROUP",
    "PRIMACY_LEASE",
    "PRIMACY_HEARTBEAT",
    "PRIMACY_DRAIN",
    "PRIMACY_KILL_MARGIN",
    "PRIMACY_DRIFT_MAX",
    "PRIMACY_RANDOM_WAIT_MAX",
    "PRIMACY_CLUSTER",
    "PRIMACY_TLS_CERTIFICATE",
    "PRIMACY_TLS_KEY",
    "PRIMACY_TLS_CA",
    "PRIMACY_INSECURE_CLEARTEXT",
    "PRIMACY_HEALTH",
    "PRIMACY_HEALTH_INTERVAL",
    "PRIMACY_HEALTH_MISSES",
    "PRIMACY_METRICS",
    "PRIMACY_STOP_COMMAND",
    "PRIMACY_ON_ELECTED",
    "PRIMACY_ON_DEPOSED",
    "PRIMACY_WATCHDOG",
    "PRIMACY_JSON",
];

/// The variables for the communication of a process with systemd.
const NOTICES: &[&str] = &["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Removes them from the environment of a process that is to be started.
pub(crate) fn take_from(command: &mut Command) {
    for variable in SETTINGS.iter().chain(NOTICES) {
        command.env_remove(variable);
    }
}
