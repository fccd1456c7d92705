#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[allow(dead_code, reason = "a program may have only stores that do not try again by themselves")]
mod attempts;
#[cfg(feature = "az")]
pub mod az;
#[cfg(any(feature = "mysql", feature = "nats", feature = "postgres", feature = "redis"))]
#[allow(dead_code, reason = "not every store both hears of changes and reads for them")]
mod changes;
#[cfg(any(feature = "consul", feature = "postgres", feature = "zookeeper"))]
mod clock;
#[cfg(feature = "consul")]
pub mod consul;
pub mod contained;
pub mod descriptor;
pub mod diagnostics;
pub mod document;
pub mod election_name;
pub mod error_text;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod faulty;
#[cfg(feature = "file")]
pub mod file;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod file_system;
#[cfg(feature = "gs")]
pub mod gs;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod login;
pub mod memory;
mod mutex;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "object")]
pub mod object;
pub mod open;
pub mod open_error;
pub mod opening;
#[cfg(feature = "ownership")]
pub mod ownership;
mod passing;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod read_limit;
#[cfg(any(feature = "nats", feature = "postgres", feature = "redis"))]
#[allow(dead_code, reason = "not every store gives up a connection before it breaks")]
mod reconnecting;
pub mod record;
#[cfg(feature = "redis")]
pub mod redis;
pub mod register;
pub mod replaced_files;
#[cfg(feature = "network")]
mod runtime;
#[cfg(feature = "s3")]
pub mod s3;
#[allow(dead_code, reason = "a program may have only stores without tokens")]
mod secrets;
#[cfg(any(feature = "consul", feature = "etcd", feature = "postgres"))]
mod session_users;
pub mod sessions;
#[cfg(feature = "network")]
mod shared_connections;
#[cfg(any(feature = "consul", feature = "postgres"))]
mod singleflight;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store_id;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod store_thread;
#[cfg(feature = "network")]
mod store_url;
#[cfg(feature = "network")]
#[allow(dead_code, reason = "a program may have only stores without TLS")]
mod tls;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "nats",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod version_number;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod watch;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

#[path = "az/descriptor.rs"]
mod az_descriptor;
#[path = "consul/descriptor.rs"]
mod consul_descriptor;
#[path = "etcd/descriptor.rs"]
mod etcd_descriptor;
#[path = "file/descriptor.rs"]
mod file_descriptor;
#[path = "gs/descriptor.rs"]
mod gs_descriptor;
#[path = "kubernetes/descriptor.rs"]
mod kubernetes_descriptor;
#[path = "memory/descriptor.rs"]
mod memory_descriptor;
#[path = "memory/sessions/descriptor.rs"]
mod memory_sessions_descriptor;
#[path = "mysql/descriptor.rs"]
mod mysql_descriptor;
#[path = "nats/descriptor.rs"]
mod nats_descriptor;
#[path = "postgres/descriptor.rs"]
mod postgres_descriptor;
#[path = "redis/descriptor.rs"]
mod redis_descriptor;
#[path = "s3/descriptor.rs"]
mod s3_descriptor;
#[path = "sqlite/descriptor.rs"]
mod sqlite_descriptor;
#[path = "zookeeper/descriptor.rs"]
mod zookeeper_descriptor;

/// Every store that there is, also those that are not built into this program.
pub const STORES: &[&StoreDescriptor] = &[
    &memory_descriptor::DESCRIPTOR,
    &memory_sessions_descriptor::DESCRIPTOR,
    &file_descriptor::DESCRIPTOR,
    &sqlite_descriptor::DESCRIPTOR,
    &postgres_descriptor::DESCRIPTOR,
    &mysql_descriptor::DESCRIPTOR,
    &etcd_descriptor::DESCRIPTOR,
    &zookeeper_descriptor::DESCRIPTOR,
    &consul_descriptor::DESCRIPTOR,
    &kubernetes_descriptor::DESCRIPTOR,
    &s3_descriptor::DESCRIPTOR,
    &gs_descriptor::DESCRIPTOR,
    &az_descriptor::DESCRIPTOR,
    &nats_descriptor::DESCRIPTOR,
    &redis_descriptor::DESCRIPTOR,
];

pub use attempts::Attempts;
pub use descriptor::StoreDescriptor;
pub use diagnostics::{Check, Verdict};
pub use document::Document;
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
pub use open::object_store_at;
pub use open::{check_scheme, examine, open, open_any, open_existing, open_existing_any, url_without_login};
pub use open_error::OpenError;
pub use opening::Opened;
pub use passing::is_passing;
pub use record::RecordError;
pub use register::{Pending, ReadError, Register, SetError};
pub use sessions::{Begun, SessionError, Sessions};
pub use store_id::{StoreId, StoreIdError};
