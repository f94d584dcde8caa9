//! The listening socket: connections with bounds of number and time, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

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

    /// Serves until `stop` is done, then accepts no more, runs `drain` and lets requests in flight finish, and
    /// `upgraded`, which waits for the connections that speak HTTP no longer.
    pub async fn run(
        self,
        router: Router,
        stop: impl Future<Output = ()>,
        drain: impl Future<Output = ()>,
        upgraded: impl Future<Output = ()>,
    ) {
        let stopping = watch::Sender::new(false);
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
            let service =
                Addressed { inner: TowerToHyperService::new(router.clone()), peer: Peer(address.ip()) };
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            let stopping = stopping.subscribe();
            tokio::spawn(async move {
                serve(connection, stopping).await;
                drop(permit);
            });
        }
        drop(self.listener);
        drain.await;
        stopping.send_replace(true);
        let finished = async { tokio::join!(stopping.closed(), upgraded) };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            tracing::warn!("some requests did not finish in time");
        }
    }
}

/// The API with the address that requests come from.
struct Addressed {
    inner: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for Addressed {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.inner.call(request)
    }
}

/// Serves one connection to its end; once the broker stops, that is behind the request in flight.
async fn serve(
    connection: UpgradeableConnection<TokioIo<TcpStream>, Addressed>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A client that breaks off is its own business.
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stops| *stops) => {}
    }
    connection.as_mut().graceful_shutdown();
    _ = connection.await;
}
