//! The keys of an election, and the scripts that read and write them.
//!
//! | key | what it is |
//! |---|---|
//! | `PREFIX:record:ELECTION` | a hash: `version`, in decimal digits, and `record`, JSON |
//! | `PREFIX:fence:ELECTION` | a string: the highest token, in decimal digits |
//! | `PREFIX:changed` | a channel: `VERSION ELECTION`, when there is a new holder, a release or a request to resign |
//!
//! Errors are returned and not raised, because a server of version 6 hides the code of a raised error. A script that returns an error has
//! left the record as it was: the record is written last.

use std::sync::LazyLock;

use primacy_core::FencingToken;
use redis::{Cmd, Value};

use crate::record::{self, RecordError};
use crate::register::ReadError;

/// Compares and writes. Tokens are compared as texts, because Lua's numbers hold no more than 53 bits.
const WRITE: &str = r"
local found = redis.pcall('HGET', KEYS[1], 'version')
if type(found) == 'table' then return found end
if (found or '') ~= ARGV[1] then return 0 end
if not found and redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local highest = redis.pcall('GET', KEYS[2])
if type(highest) == 'table' then return highest end
if highest then
  highest = string.match(highest, '^0*(%d+)$')
  if not highest then return redis.error_reply('PRIMACYFENCE it holds no number') end
end
local token = ARGV[4]
if not highest or #highest < #token or (#highest == #token and highest < token) then
  local raised = redis.pcall('SET', KEYS[2], token)
  if raised.err then return raised end
end
local written = redis.pcall('HSET', KEYS[1], 'version', ARGV[2], 'record', ARGV[3])
if type(written) == 'table' then return written end
if ARGV[5] ~= '' then redis.pcall('PUBLISH', ARGV[5], ARGV[2] .. ' ' .. ARGV[6]) end
return 1
";

/// Reads. Of a value that is too long, it returns only enough to detect that. `PERSIST` removes the expiry of a key, which a record does
/// not have: so it changes nothing, but a replica refuses it.
const READ: &str = r"
local kept = redis.pcall('PERSIST', KEYS[1])
if type(kept) == 'table' then return kept end
local found = redis.pcall('HMGET', KEYS[1], 'version', 'record')
for place = 1, 2 do
  if type(found[place]) == 'string' then found[place] = string.sub(found[place], 1, tonumber(ARGV[1])) end
end
return found
";

/// The server's name of a script.
static WRITE_HASH: LazyLock<String> = LazyLock::new(|| redis::Script::new(WRITE).get_hash().to_owned());
static READ_HASH: LazyLock<String> = LazyLock::new(|| redis::Script::new(READ).get_hash().to_owned());

/// The error with which [`WRITE`] reports that the fence's key does not hold a token.
pub(super) const NO_TOKEN: &str = "PRIMACYFENCE";

/// The names of an election's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) record: String,
    pub(super) fence: String,
}

impl Keys {
    /// The election follows the last colon, and the prefix precedes the colon before that one: so no two elections share a key, whatever
    /// their prefixes.
    pub(super) fn new(prefix: &str, election: &str) -> Self {
        let election = election.replace('%', "%25").replace(':', "%3A");
        Self { record: format!("{prefix}:record:{election}"), fence: format!("{prefix}:fence:{election}") }
    }
}

/// A request.
pub(super) struct Request {
    /// The command.
    pub(super) command: Cmd,
    /// The command with the whole script, for a server that does not have it in its cache.
    pub(super) whole: Option<Cmd>,
}

/// A compare-and-set.
pub(super) struct Write {
    pub(super) expect: Option<u64>,
    pub(super) version: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) token: FencingToken,
    /// The channel on which other processes are notified at once.
    pub(super) told: Option<String>,
}

pub(super) fn write(keys: &Keys, election: &str, write: &Write) -> Request {
    call(&WRITE_HASH, WRITE, |command| {
        command.arg(2).arg(&keys.record).arg(&keys.fence);
        command.arg(write.expect.map_or_else(String::new, |version| version.to_string()));
        command.arg(write.version.to_string()).arg(&write.bytes).arg(write.token.0.to_string());
        command.arg(write.told.as_deref().unwrap_or_default()).arg(election);
    })
}

pub(super) fn read(keys: &Keys) -> Request {
    call(&READ_HASH, READ, |command| {
        command.arg(1).arg(&keys.record).arg(record::LENGTH_MAX + 1);
    })
}

/// Reads only the version, also from a replica; a hint only.
pub(super) fn look(keys: &Keys) -> Request {
    let mut command = redis::cmd("HGET");
    command.arg(&keys.record).arg("version");
    Request { command, whole: None }
}

fn call(hash: &str, code: &str, arguments: impl Fn(&mut Cmd)) -> Request {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash);
    arguments(&mut command);
    let mut whole = redis::cmd("EVAL");
    whole.arg(code);
    arguments(&mut whole);
    Request { command, whole: Some(whole) }
}

/// Returns whether [`WRITE`] has written; an error for an invalid answer.
pub(super) fn is_written(reply: &Value) -> Result<bool, String> {
    if *reply == Value::Int(1) {
        Ok(true)
    } else if *reply == Value::Int(0) {
        Ok(false)
    } else {
        Err("the server's answer to a write is not of this store's script".to_owned())
    }
}

/// Interprets the answer of [`READ`].
///
/// # Errors
/// [`ReadError::Malformed`] for content that this store cannot have written.
pub(super) fn found(keys: &Keys, reply: Value) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
    let strange = |_| ReadError::Unavailable {
        why: "the server's answer to a read is not of this store's script".to_owned(),
    };
    let (number, bytes): (Option<Vec<u8>>, Option<Vec<u8>>) =
        redis::from_redis_value(reply).map_err(strange)?;
    match (number, bytes) {
        (None, None) => Ok(None),
        (Some(number), Some(bytes)) => match parse_version(&number) {
            Some(version) => Ok(Some((version, bytes))),
            None => Err(malformed(RecordError::Version {
                found: format!("{:?}", String::from_utf8_lossy(&number).chars().take(24).collect::<String>()),
                allowed: "a whole number from 1 to 18446744073709551615, in decimal digits",
            })),
        },
        (None, Some(_)) | (Some(_), None) => Err(malformed(RecordError::NotJson {
            why: format!("{} has one of the fields `version` and `record` without the other", keys.record),
        })),
    }
}

fn malformed(error: RecordError) -> ReadError {
    ReadError::Malformed { error }
}

/// Returns the version that [`look`] has found, 0 if there is no record; `None` for an invalid answer.
pub(super) fn version(reply: &Value) -> Option<u64> {
    if *reply == Value::Nil {
        return Some(0);
    }
    let Value::BulkString(number) = reply else { return None };
    parse_version(number)
}

/// Parses a version. The script compares texts, so each number has only one valid spelling.
fn parse_version(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse::<u64>().ok().filter(|number| *number > 0 && number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_elections_have_a_key_in_common() {
        let mut known = Vec::new();
        for prefix in ["p", "p:record", "p:fence", "p:record:e"] {
            for election in ["e", "record", "fence", "e:f", "e%3Af", "record:e", "fence:e"] {
                let keys = Keys::new(prefix, election);
                for key in [keys.record, keys.fence] {
                    assert!(!known.contains(&key), "{key}");
                    known.push(key);
                }
            }
        }
    }

    #[test]
    fn strange_answers_are_errors() {
        let keys = Keys::new("p", "e");
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = |fields: [Value; 2]| found(&keys, Value::Array(fields.into()));
        assert_eq!(fields([Value::Nil, Value::Nil]), Ok(None));
        assert_eq!(fields([bulk("7"), bulk("x")]), Ok(Some((7, b"x".to_vec()))));
        for strange in ["0", "-1", "07", "+7", "", "18446744073709551616"] {
            let error = fields([bulk(strange), bulk("x")]).unwrap_err();
            assert!(matches!(&error, ReadError::Malformed { .. }), "{error}");
            assert!(error.to_string().contains(&format!("its version is {strange:?}")), "{error}");
        }
        for half in [[bulk("7"), Value::Nil], [Value::Nil, bulk("x")]] {
            let error = fields(half).unwrap_err();
            assert!(matches!(&error, ReadError::Malformed { .. }), "{error}");
            assert!(error.to_string().contains("p:record:e has one of the fields"), "{error}");
        }
        assert!(found(&keys, Value::Int(3)).is_err());
        assert!(is_written(&Value::Okay).is_err());
        assert_eq!(version(&Value::Okay), None);
    }
}
