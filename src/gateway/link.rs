//! The bytes of one connection, as they can be watched from beside the library that reads and writes them.

use std::io::{self, Read};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at a time of what nobody wants.
const WASTE_BYTES: usize = 4 * 1024;

/// One TCP connection. A clone is another handle to the same; the last one closes it.
#[derive(Debug, Clone)]
pub(super) struct Link(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TcpStream,
    written: AtomicU64,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Inner { stream, written: AtomicU64::new(0) }))
    }

    /// How many bytes the system has taken so far. While it grows, the client reads.
    pub(super) fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Says that nothing more will be written, and throws away what the client still sends, until it ends too. Were that
    /// left unread, the system would reset the connection, and the client might never see what was written last.
    pub(super) async fn run_out(&self) -> io::Result<()> {
        self.shut()?;
        let mut waste = [0; WASTE_BYTES];
        loop {
            self.0.stream.readable().await?;
            match self.0.stream.try_read(&mut waste) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Reads once. Where that takes all there was, the next reader waits for the system to say that there is more, instead
    /// of asking it in vain.
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        let (room, mut taken) = (into.len(), None);
        let outcome = self.0.stream.try_io(Interest::READABLE, || {
            let count = (&*SockRef::from(&self.0.stream)).read(into)?;
            taken = Some(count);
            if (1..room).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        taken.map_or_else(|| outcome.map(|()| 0), Ok)
    }

    /// Waits until there may be something to read, the end included.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.stream.poll_read_ready(cx).map(drop)
    }

    fn shut(&self) -> io::Result<()> {
        SockRef::from(&self.0.stream).shutdown(Shutdown::Write)
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(cx))?;
            match self.read_some(buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(cx))?;
            match self.0.stream.try_write(bytes) {
                Ok(count) => {
                    self.0.written.fetch_add(count as u64, Ordering::Relaxed);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shut())
    }
}
