//! One request, one answer.
//!
//! Invariants: a request's body is never read, and its headers are not heeded.

use crate::looks::Looks;
use crate::{Look, Source};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use platform::sync::Mutex;
use std::sync::Arc;

/// The type of Prometheus' text format.
const METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const TEXT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Where the server is.
#[derive(Clone)]
pub(crate) enum Stage {
    Starting,
    Serving(Arc<dyn Source>),
    Stopping,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) stage: Mutex<Stage>,
    pub(crate) looks: Arc<Looks>,
}

/// A part of a look, as it is sent: without a copy.
struct Part(Arc<Look>, fn(&Look) -> &str);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        let Self(look, part) = self;
        part(look).as_bytes()
    }
}

fn response(status: StatusCode, kind: HeaderValue, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, TEXT_TYPE, Bytes::from_static(text.as_bytes()))
}

impl Shared {
    /// Answers a request.
    pub(crate) async fn answer<Body>(&self, request: &Request<Body>) -> Response<Full<Bytes>> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refused =
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let stage = self.stage.lock().clone();
        match (request.uri().path(), stage) {
            ("/metrics", Stage::Serving(source)) => {
                self.show(source, METRICS_TYPE, |look| &look.metrics).await
            }
            ("/healthz", Stage::Serving(source)) => {
                self.show(source, TEXT_TYPE, |look| &look.health).await
            }
            ("/readyz", Stage::Serving(_)) => text(StatusCode::OK, "ready\n"),
            ("/healthz", Stage::Starting) => text(StatusCode::OK, "starting\n"),
            ("/healthz", Stage::Stopping) => text(StatusCode::OK, "stopping\n"),
            ("/metrics" | "/readyz", Stage::Starting) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the server is starting\n")
            }
            ("/metrics" | "/readyz", Stage::Stopping) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n")
            }
            _ => text(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz\n"),
        }
    }

    async fn show(
        &self,
        source: Arc<dyn Source>,
        kind: HeaderValue,
        part: fn(&Look) -> &str,
    ) -> Response<Full<Bytes>> {
        match self.looks.look(source).await {
            Some(look) => response(StatusCode::OK, kind, Bytes::from_owner(Part(look, part))),
            None => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the server does not answer; see its log\n")
            }
        }
    }
}
