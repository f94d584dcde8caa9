//! Bodies that nobody read to their end.
//!
//! A request can be refused before its body was read: no token, no such topic, too large. If the connection were
//! closed under a client that is still sending, it would see a broken pipe instead of the answer; so what is left
//! is read and thrown away, within a bound of size and time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};

/// What is thrown away at most; behind it the connection is closed.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// How long that may take.
const MAX_TIME: Duration = Duration::from_secs(30);

/// A body whose rest is read when it is dropped.
pub(super) struct Drained(Body);

impl Drained {
    pub(super) fn new(body: Body) -> Self {
        Self(body)
    }
}

impl HttpBody for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        if self.0.is_end_stream() {
            return;
        }
        let rest = std::mem::take(&mut self.0);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(MAX_TIME, drain(rest)));
        }
    }
}

async fn drain(mut body: Body) {
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
        if length > MAX_BYTES {
            return;
        }
    }
}
