//! A layer of tower that limits the active requests of a service over all its instances. A request without a
//! permit waits in line. If none came in time, the answer is 429 with `Retry-After`. Copy this file into your
//! service.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use luagate::errors::{AcquireError, Lost};
use luagate::{Permit, Semaphore};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tower::{Layer, Service};

/// Limits the routes to which it is added. Clones share the limit.
#[derive(Clone)]
pub struct Limit {
    requests: Semaphore,
    wait: Duration,
    usual: Duration,
    active: Sender<()>,
}

impl Limit {
    /// `wait` is the longest wait for a permit, and `usual` the usual duration of a request, for
    /// `Retry-After`. When the service has stopped, the receiver tells that all permits were dropped.
    pub fn new(requests: Semaphore, wait: Duration, usual: Duration) -> (Limit, Receiver<()>) {
        let (active, all_ended) = mpsc::channel(1);
        (Limit { requests, wait, usual, active }, all_ended)
    }

    fn refuse(&self, why: AcquireError) -> Response {
        match why {
            AcquireError::TimedOut(denied) | AcquireError::LineFull(denied) => {
                let seconds = denied.retry_after(self.usual).as_millis().div_ceil(1_000); // the header has whole seconds
                (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds.to_string())], "busy\n")
                    .into_response()
            }
            why => unavailable(&why),
        }
    }
}

/// The answer if the limit cannot be kept. The client needs no details.
fn unavailable(why: &dyn std::error::Error) -> Response {
    eprintln!("a request was refused: {why}");
    (StatusCode::SERVICE_UNAVAILABLE, "try again later\n").into_response()
}

impl<S> Layer<S> for Limit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, limit: self.clone() }
    }
}

/// A service under a [`Limit`].
#[derive(Clone)]
pub struct Limited<S> {
    inner: S,
    limit: Limit,
}

impl<S> Service<Request> for Limited<S>
where
    S: Service<Request, Response = Response, Future: Send> + Clone + Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    /// If the client disconnects, the future is dropped: a request in line leaves it, and an active one
    /// releases its permit.
    fn call(&mut self, request: Request) -> Self::Future {
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next); // the one that is ready
        let limit = self.limit.clone();
        Box::pin(async move {
            let permit = match limit.requests.acquire_timeout_async(limit.wait).await {
                Ok(permit) => permit,
                Err(why) => return Ok(limit.refuse(why)),
            };
            let mut lost = Box::pin(Held { permit, _active: limit.active }.until_lost());
            let response = tokio::select! {
                response = inner.call(request) => response?,
                // Another request may have the permit now, so the work ends.
                lost = &mut lost => return Ok(unavailable(&lost)),
            };
            Ok(response.map(|body| Body::new(LimitedBody { body, permit: Some(lost) })))
        })
    }
}

/// A permit, and the sign that it is held.
struct Held {
    permit: Permit,
    _active: Sender<()>,
}

impl Held {
    /// Dropping this future releases the permit.
    async fn until_lost(self) -> Lost {
        self.permit.lost_async().await
    }
}

/// A body that is sent under a permit. The permit is released at its end, and when the client disconnects.
struct LimitedBody {
    body: Body,
    permit: Option<Pin<Box<dyn Future<Output = Lost> + Send>>>,
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Some(Poll::Ready(lost)) = self.permit.as_mut().map(|permit| permit.as_mut().poll(cx)) {
            self.permit = None;
            return Poll::Ready(Some(Err(lost.into()))); // the client sees that the response is not complete
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.permit = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(axum::BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
