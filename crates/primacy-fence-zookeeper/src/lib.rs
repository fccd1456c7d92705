#![doc = include_str!("../README.md")]

use primacy_core::fence::{Fence, FenceError, FencingToken};
pub use zookeeper_client;
use zookeeper_client::{
    Client, CreateMode, CreateOptions, Error, MultiWriteError, MultiWriteResult, MultiWriter,
};

/// The maximum number of retries of a write because the fence was raised meanwhile, each time by a later leader.
const TRIES_MAX: usize = 20;

/// The reason why a guard was not installed, or a guarded write was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// A later leader has shown a higher token. Nothing was written.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// There is no fence at this path. Nothing was written.
    #[error("there is no fence at {path:?}; install it first")]
    NotInstalled {
        /// The path.
        path: String,
    },
    /// The znode at this path is not a fence. Nothing was written.
    #[error("the data of {path:?} is no token in decimal digits, so it is no fence; nothing was changed")]
    Foreign {
        /// The path.
        path: String,
    },
    /// An operation of the application cannot be done, for example because a version is not the expected one. Nothing
    /// was written.
    #[error("operation {index} was refused, and nothing was written: {error}")]
    Operation {
        /// The index of the operation, from 0, in the order in which they were added.
        index: usize,
        /// The error.
        error: Error,
    },
    /// The fence was raised during every attempt. Nothing was written.
    #[error("the fence at {path:?} changes all the time; nothing was written")]
    Busy {
        /// The path.
        path: String,
    },
    /// The servers were not reached, or did not answer, or refuse. The write may have been made, unless the error says that
    /// it was not.
    #[error("whether it was written is not known: {0}")]
    ZooKeeper(Error),
}

/// Makes a fence at `path`, and the znodes above it, all with the ACLs of `options`, whose mode must be persistent. An existing fence is
/// kept: it may be called at every start.
///
/// # Errors
/// [`GuardError::Foreign`] if something else is there; [`GuardError::ZooKeeper`] if the fence may not have been made.
pub async fn install(client: &Client, path: &str, options: &CreateOptions<'_>) -> Result<(), GuardError> {
    if let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
        client.mkdir(parent, options).await.map_err(GuardError::ZooKeeper)?;
    }
    match client.create(path, FencingToken(0).to_string().as_bytes(), options).await {
        Ok(_) => Ok(()),
        Err(Error::NodeExists) => read(client, path).await.map(|_| ()),
        Err(error) => Err(GuardError::ZooKeeper(error)),
    }
}

/// Makes a fence as [`install`] does, open to every client that reaches the servers.
///
/// # Errors
/// Those of [`install`].
pub async fn install_open(client: &Client, path: &str) -> Result<(), GuardError> {
    let options = CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    install(client, path, &options).await
}

/// Makes the writes that `write` adds in one transaction, with `token` shown to the fence at `path`: all of them, or none.
/// Returns the result of each. `write` may be called several times, each time for another transaction.
///
/// A new leader should call this once with nothing to write: from then on its predecessor is refused.
///
/// # Errors
/// [`GuardError`]. The writes may have been made only after [`GuardError::ZooKeeper`], or when the future was dropped.
pub async fn fenced(
    client: &Client,
    path: &str,
    token: FencingToken,
    mut write: impl FnMut(&mut MultiWriter<'_>) -> Result<(), Error>,
) -> Result<Vec<MultiWriteResult>, GuardError> {
    for _ in 0..TRIES_MAX {
        let (highest, version) = read(client, path).await?;
        Fence::new(highest)
            .admit(token)
            .inspect_err(|FenceError::Stale { .. }| primacy::fence::count_refused())?;
        let mut transaction = client.new_multi_writer();
        let guarded = if token > highest {
            transaction.add_set_data(path, token.to_string().as_bytes(), Some(version))
        } else {
            transaction.add_check_version(path, version)
        };
        guarded.map_err(|error| GuardError::Operation { index: 0, error })?;
        write(&mut transaction).map_err(|error| GuardError::Operation { index: 0, error })?;
        match transaction.commit().await {
            Ok(mut results) => return Ok(results.split_off(results.len().min(1))),
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::BadVersion }) => {
                // A majority agreed on the failed transaction, so this server has applied all earlier changes by now.
            }
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }) => {
                return Err(GuardError::NotInstalled { path: path.to_owned() });
            }
            Err(MultiWriteError::OperationFailed { index: 0, source }) => {
                return Err(GuardError::ZooKeeper(source));
            }
            Err(MultiWriteError::OperationFailed { index, source }) => {
                return Err(GuardError::Operation { index: index - 1, error: source });
            }
            Err(MultiWriteError::RequestFailed { source }) => return Err(GuardError::ZooKeeper(source)),
        }
    }
    Err(GuardError::Busy { path: path.to_owned() })
}

/// Returns the highest token that was shown to the fence at `path`, by the state of the connected server, which may lag behind.
///
/// # Errors
/// [`GuardError::NotInstalled`], [`GuardError::Foreign`] or [`GuardError::ZooKeeper`].
pub async fn highest(client: &Client, path: &str) -> Result<FencingToken, GuardError> {
    read(client, path).await.map(|(highest, _)| highest)
}

/// Reads the highest token, and the version of the znode.
async fn read(client: &Client, path: &str) -> Result<(FencingToken, i32), GuardError> {
    match client.get_data(path).await {
        Ok((data, stat)) => match parse(&data) {
            Some(token) => Ok((token, stat.version)),
            None => Err(GuardError::Foreign { path: path.to_owned() }),
        },
        Err(Error::NoNode) => Err(GuardError::NotInstalled { path: path.to_owned() }),
        Err(error) => Err(GuardError::ZooKeeper(error)),
    }
}

fn parse(data: &[u8]) -> Option<FencingToken> {
    let text = std::str::from_utf8(data).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).map(FencingToken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_fence() {
        assert_eq!(parse(b"0"), Some(FencingToken(0)));
        assert_eq!(parse(b"18446744073709551615"), Some(FencingToken(u64::MAX)));
        for other in [&b""[..], b"+1", b"-1", b" 1", b"18446744073709551616", b"1\n", &[0xff]] {
            assert_eq!(parse(other), None);
        }
        assert_eq!(FencingToken(7).to_string(), "7", "what is written can be read");
    }
}
