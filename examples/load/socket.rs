//! One connection of the generator: what is on its way in and out, and how far it has come.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use rustix::io::Errno;

use crate::ws;

/// How much may wait to be written before messages are dropped, in bytes.
const MOST_WAITING: usize = 4 << 20;

/// The receive buffer of one that stops reading, in bytes: little, so that the server notices.
const SLOW_BUFFER: usize = 4_096;

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is not there yet, or not any more.
    Away,
    /// The TCP connection is being made.
    Dialing,
    /// The request was sent.
    Upgrading,
    /// The greeting was sent.
    Greeting,
    /// It had its welcome.
    Open,
}

/// One connection. Idle, it holds no buffers of its own.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: Option<TcpStream>,
    pub(crate) stage: Stage,
    /// When it was meant to be dialled, in ns since the start of the process.
    pub(crate) dialed: u64,
    /// Nothing is read.
    pub(crate) paused: bool,
    /// The beginning of a frame whose end is not here yet.
    pub(crate) partial: Vec<u8>,
    /// The beginning of a message whose end is in a frame to come.
    pub(crate) cut: Vec<u8>,
    out: Vec<u8>,
}

impl Socket {
    /// One that is not there yet.
    pub(crate) fn new() -> Self {
        Self {
            stream: None,
            stage: Stage::Away,
            dialed: 0,
            paused: false,
            partial: Vec::new(),
            cut: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Begins to connect.
    pub(crate) fn dial(&mut self, address: SocketAddr, slow: bool, at: u64) -> io::Result<&mut TcpStream> {
        let stream = if slow { dial_slow(address)? } else { TcpStream::connect(address)? };
        (self.stage, self.dialed) = (Stage::Dialing, at);
        Ok(self.stream.insert(stream))
    }

    /// Whether the TCP connection is there; an error where it will not come.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => stream.set_nodelay(true).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads once. None where nothing is here; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        loop {
            return match stream.read(buffer) {
                Ok(count) => Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Queues bytes as they are.
    pub(crate) fn queue_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Queues a frame. False where too much waits already.
    pub(crate) fn queue(&mut self, kind: ws::Kind, payload: &[u8], mask: u32) -> bool {
        let fits = self.out.len() < MOST_WAITING;
        if fits {
            ws::encode(&mut self.out, kind, payload, mask);
        }
        fits
    }

    /// Writes what it can of what is queued.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while !self.out.is_empty() {
            match stream.write(&self.out) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) if count == self.out.len() => self.out.clear(),
                Ok(count) => _ = self.out.drain(..count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes it and gives its buffers back. Answers how far it had come.
    pub(crate) fn leave(&mut self) -> Stage {
        let stage = self.stage;
        *self = Self::new();
        stage
    }
}

fn dial_slow(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_recv_buffer_size(SLOW_BUFFER)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
