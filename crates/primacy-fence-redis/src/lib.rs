#![doc = include_str!("../README.md")]

use primacy::fence::{FenceError, FencingToken, count_refused};
pub use redis;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, RedisError, RedisResult, Value};

/// Lua that refuses a stale token, and remembers one that is higher than all before: `KEYS[1]` is the fence's key, `ARGV[1]` the token in
/// decimal digits; leading zeros are ignored. A script that begins with it continues only with a token that is not stale; otherwise it
/// returns the error `STALETOKEN`, followed by the highest token.
///
/// Numbers are compared as texts, because Lua's numbers have only 53 bits.
pub const GUARD: &str = r"
local token, highest = string.match(ARGV[1] or '', '^0*(%d+)$'), redis.call('GET', KEYS[1])
if not token then return redis.error_reply('NOTOKEN what was shown is no number') end
if highest then
  highest = string.match(highest, '^0*(%d+)$')
  if not highest then return redis.error_reply('NOTOKEN it holds no number') end
  if #token < #highest or (#token == #highest and token < highest) then
    return redis.error_reply('STALETOKEN ' .. highest)
  end
end
if token ~= highest then redis.call('SET', KEYS[1], token) end
";

/// Lua that runs commands, each given as the number of its words, and the words.
const RUN: &str = r"
local replies, at = {}, 2
while at <= #ARGV do
  local length, words = tonumber(ARGV[at]), {}
  for word = 1, length do words[word] = ARGV[at + word] end
  local reply = redis.pcall(unpack(words))
  if type(reply) == 'table' and reply.err then return reply end
  replies[#replies + 1] = reply
  at = at + 1 + length
end
return replies
";

/// The reason that some or all of the commands were not run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A later leader has shown a higher token. Nothing was written.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// The value of the fence's key is not a number. Nothing was written.
    #[error("the key {key:?} holds no token; set it to the highest one that was given")]
    NoToken {
        /// The key.
        key: String,
    },
    /// The server has refused a command, or there is no answer. The commands before the refused one were done, as in Redis's own
    /// transactions; without an answer, all may have been done.
    #[error(transparent)]
    Redis(RedisError),
}

/// A fence on a Redis server: the name of the key that keeps the highest token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisFence {
    key: String,
}

impl RedisFence {
    /// Returns a fence under any key. The first token that is shown creates it.
    ///
    /// On a Redis Cluster, the key needs the same hash tag as those that are written.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into() }
    }

    /// Returns the fence of the election `election`, if it is held on this same server and database, with the URL `redis://HOST/PREFIX`. A
    /// node that takes the record raises the fence in the same step: a predecessor is refused before its successor has written anything.
    #[must_use]
    pub fn of_election(prefix: &str, election: &str) -> Self {
        Self::new(primacy::stores::redis::fence_key(prefix, election))
    }

    /// Runs `commands` under `token`, in order and without another client's commands in between; returns their answers.
    ///
    /// A new leader should call this once with no commands: from then on its predecessor is refused. Dropping the future does not cancel
    /// commands that were sent.
    ///
    /// # Errors
    /// [`GuardError`].
    pub async fn run(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        token: FencingToken,
        commands: &[Cmd],
    ) -> Result<Vec<Value>, GuardError> {
        let reply = self.guarded(token, commands).query_async(connection).await;
        self.outcome(token, reply)
    }

    /// Returns the command that [`run`](Self::run) sends, for other clients; [`outcome`](Self::outcome) interprets its reply.
    #[must_use]
    pub fn guarded(&self, token: FencingToken, commands: &[Cmd]) -> Cmd {
        let mut script = redis::cmd("EVAL");
        script.arg([GUARD, RUN].concat()).arg(1).arg(&self.key).arg(token.0.to_string());
        for command in commands {
            script.arg(command.args_iter().len());
            for word in command.args_iter() {
                // The only other kind of argument is a scan's cursor, which starts at 0.
                if let Arg::Simple(word) = word {
                    script.arg(word)
                } else {
                    script.arg(0)
                };
            }
        }
        script
    }

    /// Returns the answers to the commands, or the reason that there are none.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn outcome(&self, token: FencingToken, reply: RedisResult<Value>) -> Result<Vec<Value>, GuardError> {
        let error = match reply {
            Ok(Value::Array(replies)) => return Ok(replies),
            Ok(other) => return Ok(vec![other]),
            Err(error) => error,
        };
        match error.code() {
            Some("STALETOKEN") => {
                count_refused();
                let highest = error.detail().and_then(|highest| highest.trim().parse().ok());
                // A number that is too large for a token is above all tokens.
                let highest = FencingToken(highest.unwrap_or(u64::MAX));
                Err(FenceError::Stale { presented: token, highest }.into())
            }
            Some("NOTOKEN") => Err(GuardError::NoToken { key: self.key.clone() }),
            Some(_) | None => Err(GuardError::Redis(error)),
        }
    }
}
