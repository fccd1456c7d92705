//! The token of a long request: of a stream, or of a request that waits for other clients.
//!
//! A token is checked when a request arrives. The token of a long request is checked again with each message of the
//! client, and the request ends when the token is no longer valid: because the users have changed, or because it has
//! expired. A client that is still a user then logs in and opens its streams again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use primacy_kv::command::Secret;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::errors::Known;
use super::users::{self, UserList, Users};

/// A token that was valid when its request arrived.
#[derive(Clone)]
pub(super) struct Pass {
    users: Arc<Users>,
    /// The users at that time.
    list: Arc<UserList>,
    /// The token's expiry, in seconds of the wall clock.
    until: u64,
}

impl Pass {
    /// Checks the token that a request presents.
    ///
    /// # Errors
    /// As [`UserList::check`].
    pub(super) fn of(
        users: &Arc<Users>,
        secret: Option<&Secret>,
        headers: &HeaderMap,
    ) -> Result<Self, Known> {
        let list = users.current();
        let until = list.check(secret, headers)?;
        Ok(Self { users: Arc::clone(users), list, until })
    }

    fn is_good(&self) -> bool {
        users::now() < self.until && self.users.current().has_tokens_of(&self.list)
    }

    /// Resolves when the token is no longer valid.
    async fn ended(self) {
        let mut looks = self.users.looks();
        while self.is_good() && looks.changed().await.is_ok() {}
    }
}

/// Waits for an answer, as long as the token is valid; without a limit if none is required.
///
/// # Errors
/// The answer's error, or [`Known::INVALID_TOKEN`].
pub(super) async fn while_good<A>(
    pass: Option<Pass>,
    answering: impl Future<Output = Result<A, Status>>,
) -> Result<A, Status> {
    let Some(pass) = pass else { return answering.await };
    tokio::select! {
        biased;
        answer = answering => answer,
        () = pass.ended() => Err(Known::INVALID_TOKEN.into()),
    }
}

/// The messages of a stream, each of which needs a valid token.
pub(super) struct Messages<Q> {
    messages: Streaming<Q>,
    pass: Option<Pass>,
}

impl<Q> Messages<Q> {
    pub(super) fn new(messages: Streaming<Q>, pass: Option<Pass>) -> Self {
        Self { messages, pass }
    }
}

impl<Q> Stream for Messages<Q> {
    type Item = Result<Q, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let message = ready!(Pin::new(&mut self.messages).poll_next(context));
        if message.is_some() && self.pass.as_ref().is_some_and(|pass| !pass.is_good()) {
            return Poll::Ready(Some(Err(Known::TOKEN_ENDED.into())));
        }
        Poll::Ready(message)
    }
}

/// The answers of a stream, as long as its token is valid.
pub(super) struct WhileGood<S> {
    answers: Pin<Box<S>>,
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> WhileGood<S> {
    pub(super) fn new(answers: S, pass: Option<Pass>) -> Self {
        let ended = pass.map(|pass| -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(pass.ended()) });
        Self { answers: Box::pin(answers), ended }
    }
}

impl<A, S: Stream<Item = Result<A, Status>>> Stream for WhileGood<S> {
    type Item = Result<A, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended.as_mut().is_some_and(|ended| ended.as_mut().poll(context).is_ready()) {
            self.ended = None;
            return Poll::Ready(Some(Err(Known::TOKEN_ENDED.into())));
        }
        self.answers.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_ends_when_the_time_of_its_token_is_over() {
        let users = Arc::new(users::tests::users("a:1\n"));
        let _looks = tokio::spawn(Arc::clone(&users).look_again());
        // The wall clock is not paused in this test.
        let pass = Pass { list: users.current(), until: users::now() + 2, users };
        let waits = || std::future::pending::<Result<(), Status>>();
        assert!(pass.is_good());
        let stream = tokio_stream::pending::<Result<(), Status>>();
        let ended = WhileGood::new(stream, Some(pass.clone())).next().await.expect("it says why it ends");
        assert_eq!(ended.unwrap_err().message(), "etcdserver: invalid auth token");
        assert!(!pass.is_good());
        assert!(while_good(Some(pass), waits()).await.is_err());
    }
}
