//! Ports of the loopback address that tests ask for, and that no other process comes by in the meantime.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpSocket;

/// Below the ports that the system hands out by itself (32768 and up, unless it was told otherwise).
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// Processes that start together begin their searches this far apart.
const APART: u32 = 61;

/// A port that is free now. It is outside the range of those the system gives to whoever names none, so that it is
/// still free after it was let go for a while.
///
/// # Panics
/// When none is free.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id() % COUNT * APART;
    let found = (0..COUNT).find_map(|_| {
        let next = begin + TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + next % COUNT).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        Some(port)
    });
    match found {
        Some(port) => port,
        None => panic!("no port of the loopback address is free"),
    }
}

/// A port at which nobody listens, held so that nobody begins to.
#[derive(Debug)]
pub struct DeafPort {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl DeafPort {
    /// A port that the system chooses.
    ///
    /// # Panics
    /// When there is none.
    pub fn new() -> Self {
        let bound = || {
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            std::io::Result::Ok((socket.local_addr()?, socket))
        };
        match bound() {
            Ok((address, socket)) => Self {
                address,
                _socket: socket,
            },
            Err(error) => panic!("no port can be bound: {error}"),
        }
    }

    /// Where nobody listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Default for DeafPort {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_bound() {
        let ports = [free_port(), free_port()];
        assert_ne!(ports[0], ports[1]);
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn a_deaf_port_refuses_connections_and_listeners() {
        let deaf = DeafPort::new();
        let refused = TcpStream::connect(deaf.address()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let taken = TcpListener::bind(deaf.address()).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    }
}
