#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "peers"),
    allow(
        dead_code,
        reason = "elections over stores share modules with those among peers, and need less of them"
    )
)]

pub mod clock;
#[cfg(feature = "peers")]
pub(crate) mod codec;
pub mod config;
pub mod connections;
mod cordon;
pub mod death_notice;
pub mod disk;
mod driver;
mod elector;
mod error;
pub mod fence;
mod formats;
pub mod handshake;
mod histogram;
pub mod idle_connections;
pub mod init;
pub mod leader_document;
mod leadership;
mod lease_node;
#[cfg(feature = "peers")]
pub mod log_file;
#[cfg(not(feature = "peers"))]
#[path = "no_log_file.rs"]
mod log_file;
pub mod log_limit;
#[cfg(feature = "peers")]
pub mod metadata;
#[cfg(not(feature = "peers"))]
#[path = "no_metadata.rs"]
mod metadata;
#[cfg(feature = "metrics")]
pub mod metrics;
mod observer;
#[cfg(feature = "peers")]
pub mod partitions;
#[cfg(feature = "peers")]
mod peer_node;
mod peers;
mod progress;
mod request_pace;
mod resign_request;
mod session_node;
mod stats;
pub mod status;
mod store_health;
#[cfg(feature = "peers")]
pub mod transport;
pub mod versions;

pub use config::{ConfigError, SeniorityError, SeniorityOptions, SplitBrain, TimerProblem, Timers};
pub use connections::host_and_port;
pub use elector::{Builder, Confirm, Elector};
pub use error::{AdminError, CampaignError, ConnectError, Kept, PublishError};
pub use init::{Init, InitError, init};
pub use leadership::{Leadership, Lost, WorkGuard, describe};
pub use observer::{ANNOUNCEMENT_MAX, Announcement, Announcements, Change, Members, Membership, Observer};
pub use peers::Peers;
pub use primacy_core::detector::Detection;
pub use primacy_core::election::quorum::Safety;
pub use primacy_core::election::{Algorithm, ElectionDescriptor};
pub use primacy_core::membership::TooFewMembers;
pub use primacy_core::{
    self as core, Drift, ElectionTrigger, FencingToken, Identity, Incarnation, Instant, Leader,
    LeaderSequence, Mandate, NodeId, Reason, Term, Violation,
};
#[cfg(feature = "peers")]
pub use primacy_kv as kv;
pub use primacy_stores as stores;
pub use progress::Progress;
pub use resign_request::{ResignRequestError, ResignRequested, ask_to_resign};
pub use status::Status;
pub use store_health::StoreTrouble;

/// The pages whose code in Rust is compiled as tests of this crate.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/metadata.md")]
    pub mod metadata {}
    #[doc = include_str!("../../../docs/metadata/partitions.md")]
    pub mod partitions {}
}
