//! The bytes of one connection, as they can be watched from beside the library that reads and writes them.

use std::cell::RefCell;
use std::io::{self, Read};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::poll_proceed;

/// How much is read at a time of what nobody wants.
const WASTE_BYTES: usize = 4 * 1024;

/// The most that is taken from the system at once. A client that has much to say is read in one call instead of one for
/// each bufferful of the library, whose buffer every idle connection pays for.
const SCOOP_BYTES: usize = 16 * 1024;

thread_local! {
    /// Where that goes first: one for all connections of a thread.
    static SCOOP: RefCell<[u8; SCOOP_BYTES]> = const { RefCell::new([0; SCOOP_BYTES]) };
}

/// One TCP connection. A clone is another handle to the same; the last one closes it.
#[derive(Debug, Clone)]
pub(super) struct Link(Arc<Inner>);

/// The bytes of a link, for the one that reads and writes them.
#[derive(Debug)]
pub(super) struct LinkStream {
    link: Link,
    ahead: Ahead,
}

/// What was read and had no room in the reader's buffer yet: at most a scoop, and no memory while there is none.
#[derive(Debug, Default)]
struct Ahead {
    bytes: Vec<u8>,
    given: usize,
}

impl Ahead {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Gives as much as there is room for.
    fn give(&mut self, into: &mut ReadBuf<'_>) {
        let rest = &self.bytes[self.given..];
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        self.given += count;
        if self.given == self.bytes.len() {
            *self = Self::default();
        }
    }
}

#[derive(Debug)]
struct Inner {
    stream: TcpStream,
    written: AtomicU64,
}

impl Link {
    /// The link, and what reads and writes it.
    pub(super) fn new(stream: TcpStream) -> (Self, LinkStream) {
        let link = Self(Arc::new(Inner { stream, written: AtomicU64::new(0) }));
        (link.clone(), LinkStream { link, ahead: Ahead::default() })
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

impl LinkStream {
    /// Reads once: what there is room for, and the rest ahead.
    fn scoop(&mut self, into: &mut ReadBuf<'_>) -> io::Result<()> {
        SCOOP.with_borrow_mut(|scoop| {
            let count = self.link.read_some(scoop)?;
            let (now, later) = scoop[..count].split_at(count.min(into.remaining()));
            into.put_slice(now);
            if !later.is_empty() {
                self.ahead = Ahead { bytes: later.to_vec(), given: 0 };
            }
            Ok(())
        })
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            // Who has said much takes turns with the others: a reader may go through all of this without an end, such as
            // through the pieces of a message. What waits for its turn is not what waits for the system.
            let turn = ready!(poll_proceed(cx));
            self.ahead.give(into);
            turn.made_progress();
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.link.0.stream.poll_read_ready(cx))?;
            match self.scoop(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.link.0.stream.poll_write_ready(cx))?;
            match self.link.0.stream.try_write(bytes) {
                Ok(count) => {
                    self.link.0.written.fetch_add(count as u64, Ordering::Relaxed);
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
        Poll::Ready(self.link.shut())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The server's end of a connection, and the client's.
    async fn pair() -> (LinkStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Link::new(listener.accept().await.unwrap().0).1, client)
    }

    /// All that comes to the end, read so much at a time.
    async fn read_all(stream: &mut LinkStream, at_a_time: usize) -> Vec<u8> {
        let (mut all, mut some) = (Vec::new(), vec![0; at_a_time]);
        loop {
            match stream.read(&mut some).await.unwrap() {
                0 => return all,
                count => all.extend_from_slice(&some[..count]),
            }
        }
    }

    #[tokio::test]
    async fn what_is_read_ahead_comes_in_order_up_to_the_end_and_leaves_nothing_behind() {
        for bytes in [0, 1, 1_023, 1_024, SCOOP_BYTES - 1, SCOOP_BYTES, SCOOP_BYTES + 1, 3 * SCOOP_BYTES + 7] {
            let (mut stream, mut client) = pair().await;
            let sent: Vec<u8> = (0..bytes).map(|place| (place % 251) as u8).collect();
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            assert!(read_all(&mut stream, 1_024).await == sent, "{bytes}");
            assert_eq!((stream.ahead.is_empty(), stream.ahead.bytes.capacity()), (true, 0));
        }
    }

    #[tokio::test]
    async fn what_was_read_ahead_is_given_in_turns() {
        const BYTES: usize = 2_000;
        let (mut stream, mut client) = pair().await;
        client.write_all(&[0; BYTES]).await.unwrap();
        client.shutdown().await.unwrap();
        stream.link.0.stream.readable().await.unwrap();
        let one_turn = poll_fn(|cx| {
            let mut given = 0;
            while Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready() {
                given += 1;
            }
            Poll::Ready(given)
        });
        let given = one_turn.await;
        assert!((1..BYTES / 2).contains(&given), "{given}");
        assert_eq!(read_all(&mut stream, 1).await.len(), BYTES - given);
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_loses_nothing() {
        let (mut stream, mut client) = pair().await;
        let mut some = [0; 4];
        let read = tokio::time::timeout(std::time::Duration::from_millis(5), stream.read(&mut some)).await;
        assert!(read.is_err(), "nothing has come");
        client.write_all(b"one and two").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut stream, 4).await, b"one and two");
    }
}
