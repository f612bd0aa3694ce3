//! Connections: limits on their number, TLS, timeouts for slow clients, and shutdown.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::options::ServerOptions;
use super::tls::TlsAcceptor;

/// The most bytes of the head of a request, and the most headers.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 64;

/// Accepts connections until `stop` is set, then waits until they are closed, at most one second longer than
/// [`ServerOptions::drain`].
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    options: &ServerOptions,
    mut stop: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(options.max_connections));
    let client_timeout = options.client_timeout;
    let total = options.max_connections as u32;
    let for_connections = stop.clone();
    {
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        loop {
            let accepted = poll_fn(|context| {
                if stopped.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                listener.poll_accept(context).map(Some)
            });
            let stream = match accepted.await {
                None => break,
                Some(Ok((stream, _))) => stream,
                // Out of file descriptors, or the client has already disconnected.
                Some(Err(_)) => {
                    sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let Ok(permit) = connections.clone().try_acquire_owned() else {
                tokio::spawn(timeout(Duration::from_secs(1), refuse(stream, tls.is_some())));
                continue;
            };
            let (tls, router, stop) = (tls.clone(), router.clone(), for_connections.clone());
            tokio::spawn(async move {
                // Otherwise small events wait until the previous ones are acknowledged.
                let _ = stream.set_nodelay(true);
                match tls {
                    None => connection(stream, router, client_timeout, stop).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = timeout(client_timeout, tls.accept(stream)).await {
                            connection(stream, router, client_timeout, stop).await;
                        }
                    }
                }
                drop(permit);
            });
        }
    }
    drop(listener);
    // All permits are available when all connections are closed.
    let _ = timeout(options.drain + Duration::from_secs(1), connections.acquire_many(total)).await;
}

/// Answers that there are too many connections. With TLS, only closes the connection.
async fn refuse(mut stream: TcpStream, tls: bool) {
    const BODY: &str = r#"{"error":{"message":"too many connections","type":"server_error","param":null,"code":"too_many_connections"}}"#;
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close";
    if !tls {
        let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

/// Answers the requests of a connection. When the server stops, the current request is the last one.
async fn connection<S>(stream: S, router: Router, client_timeout: Duration, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(WriteTimeout::new(stream, client_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(client_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(io, TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    {
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        let ended = poll_fn(|context| match connection.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => stopped.as_mut().poll(context).map(|_| false),
        });
        if ended.await {
            return;
        }
    }
    connection.as_mut().graceful_shutdown();
    // Ignore an error: the client sees that the connection is closed.
    let _ = connection.await;
}

/// A stream whose writes fail if the client accepts no bytes for `limit`.
struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Expires when a waiting write has to fail.
    deadline: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S, limit: Duration) -> Self {
        WriteTimeout { stream, limit, deadline: Box::pin(sleep(limit)), waiting: false }
    }

    /// Replaces the result of a write that has waited too long by an error.
    fn check<T>(&mut self, result: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = false;
            return result;
        }
        if !self.waiting {
            self.waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        self.deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.check(result, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check(result, context)
    }
}
