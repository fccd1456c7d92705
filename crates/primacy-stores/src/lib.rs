//! The stores that an election can be held in.
//!
//! A store is one file, one feature and one line in [`mod@open`]; it implements [`Register`], a cell with
//! compare-and-set, or [`Sessions`], a queue of entries that go with their owners. Stores know no algorithm: what a record
//! means is the business of [`primacy_core::election::lease`], and what a queue means that of
//! [`primacy_core::election::session`].
//!
//! | URL | feature | shared by | page |
//! |---|---|---|---|
//! | `memory:NAME` | none needed | the tasks of one process | [`memory`] |
//! | `memory-sessions:NAME` | none needed | the tasks of one process | [`memory`] |
//! | `file:DIRECTORY` | `file` | the processes of one machine | `docs/stores/file.md` |
//! | `postgres://HOST/DATABASE` | `postgres` | all who reach the server | `docs/stores/postgres.md` |
//! | `kubernetes://NAMESPACE` | `kubernetes` | all who reach the API server | `docs/stores/kubernetes.md` |
//! | `nats://HOST/BUCKET` | `nats` | all who reach the servers | `docs/stores/nats.md` |
//! | `redis://HOST/PREFIX` | `redis` | all who reach the server | `docs/stores/redis.md` |
//! | `sqlite:PATH` | `sqlite` | the processes of one machine | `docs/stores/sqlite.md` |
//! | `s3://BUCKET/PREFIX` | `s3` | all who reach the bucket | `docs/stores/s3.md` |
//! | `gs://BUCKET/PREFIX` | `gs` | all who reach the bucket | `docs/stores/gs.md` |
//! | `az://CONTAINER/PREFIX` | `az` | all who reach the container | `docs/stores/az.md` |
//! | `etcd://HOST/PREFIX` | `etcd` | all who reach the cluster | `docs/stores/etcd.md` |
//! | `consul://HOST/PREFIX` | `consul` | all who reach the cluster | `docs/stores/consul.md` |
//! | `zookeeper://HOST/PATH` | `zookeeper` | all who reach the servers, also with other programs | `docs/stores/zookeeper.md` |
//!
//! Every store passes the same laws, which are in the crate `primacy-conformance`.

mod attempts;
#[cfg(feature = "az")]
pub mod az;
#[cfg(feature = "network")]
mod background;
pub mod checkup;
#[cfg(any(feature = "consul", feature = "postgres", feature = "zookeeper"))]
mod clock;
#[cfg(feature = "consul")]
pub mod consul;
pub mod document;
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
#[cfg(any(feature = "consul", feature = "postgres"))]
mod joint;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "network")]
mod location;
pub mod login;
pub mod mark;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "object")]
pub mod object;
pub mod open;
#[cfg(feature = "ownership")]
pub mod ownership;
mod passing;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod read_limit;
pub mod record;
#[cfg(feature = "redis")]
pub mod redis;
pub mod register;
pub mod replaced_files;
#[cfg(feature = "s3")]
pub mod s3;
pub mod sessions;
#[cfg(feature = "network")]
mod shared;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "network")]
#[allow(dead_code, reason = "a program may have only stores without TLS")]
mod tls;
#[cfg(any(feature = "consul", feature = "etcd", feature = "postgres"))]
mod users;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod watch;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use attempts::Attempts;
pub use checkup::{Check, Verdict};
pub use document::Document;
pub use mark::{MarkError, StoreMark};
pub use open::{
    OpenError, Opened, check_scheme, examine, open, open_any, open_existing, open_existing_any,
    url_without_login,
};
pub use passing::is_passing;
pub use record::RecordError;
pub use register::{Pending, ReadError, Register, SetError};
pub use sessions::{Begun, SessionError, Sessions};
