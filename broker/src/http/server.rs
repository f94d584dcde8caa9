//! The listening socket: connections with bounds of number and time, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::throttle::Peer;

/// Connections at a time; one more waits to be accepted.
const MAX_CONNECTIONS: usize = 4_096;
/// How long the head of a request may take to arrive, idle time between requests included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// The largest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How long requests in flight may take to finish once the broker stops.
const GRACE: Duration = Duration::from_secs(20);
/// How long to wait after the system refused a connection, as when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound socket.
pub struct Server {
    listener: TcpListener,
}

impl Server {
    /// Binds an address; port 0 is any free one.
    ///
    /// # Errors
    /// If the system refuses it.
    pub async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is done, then accepts no more, runs `drain` and lets requests in flight finish.
    pub async fn run(self, router: Router, stop: impl Future<Output = ()>, drain: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = async {
                let permit = Arc::clone(&room).acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was refused by the system");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Answers are small and awaited: waiting to fill a packet only delays them.
            _ = stream.set_nodelay(true);
            let inner = TowerToHyperService::new(router.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Peer(address.ip()));
                inner.call(request)
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                // A client that breaks off is its own business.
                _ = connection.await;
                drop(permit);
            });
        }
        drop(self.listener);
        drain.await;
        if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests did not finish in time");
        }
    }
}
