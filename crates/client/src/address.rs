//! The address of a server, as people type it.

use std::fmt;
use std::str::FromStr;

/// Where a server listens. Made from `host:port`, `host` (port 7443), `[::1]:7443` or `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    host: String,
    port: u16,
}

/// The port a server listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7443;

/// Why a text is no server address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a server address: {reason}; write host:port or https://host:port")]
pub struct AddressError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl ServerAddress {
    /// Of both parts. An IPv6 address goes without brackets.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Host name or address; IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As kubeconfig files spell it: `https://host:port`.
    pub fn url(&self) -> String {
        format!("https://{self}")
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let fault = |reason| AddressError {
            text: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let (rest, default_port) = if let Some(rest) = trimmed.strip_prefix("https://") {
            (rest.trim_end_matches('/'), 443)
        } else if trimmed.starts_with("http://") {
            return Err(fault("the server speaks TLS only"));
        } else if trimmed.contains("://") {
            return Err(fault("unknown scheme"));
        } else {
            (trimmed, DEFAULT_PORT)
        };
        if rest.contains(['/', '@', '?', '#', ' ']) {
            return Err(fault("only a host and a port are expected"));
        }
        let (host, port) = if let Some(bracketed) = rest.strip_prefix('[') {
            let (host, after) = bracketed
                .split_once(']')
                .ok_or_else(|| fault("the bracket is not closed"))?;
            match after {
                "" => (host, None),
                _ => (
                    host,
                    Some(
                        after
                            .strip_prefix(':')
                            .ok_or_else(|| fault("a port follows a colon"))?,
                    ),
                ),
            }
        } else if rest.matches(':').count() > 1 {
            (rest, None)
        } else {
            match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            }
        };
        if host.is_empty() {
            return Err(fault("the host is missing"));
        }
        let port = match port {
            None => default_port,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(fault("the port must be a number from 1 to 65535")),
                Ok(port) => port,
            },
        };
        Ok(Self::new(host, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, host, port) in [
            ("10.0.0.1:7443", "10.0.0.1", 7443),
            ("fleet.example.org", "fleet.example.org", 7443),
            ("https://fleet.example.org", "fleet.example.org", 443),
            ("https://fleet.example.org:6443/", "fleet.example.org", 6443),
            ("[::1]:80", "::1", 80),
            ("::1", "::1", 7443),
        ] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!((address.host(), address.port()), (host, port), "{text}");
        }
        assert_eq!(ServerAddress::new("::1", 7443).to_string(), "[::1]:7443");
    }

    #[test]
    fn a_wrong_address_says_why() {
        for (text, reason) in [
            ("http://a:1", "the server speaks TLS only"),
            ("ftp://a", "unknown scheme"),
            ("a:0", "the port must be a number from 1 to 65535"),
            ("a:99999", "the port must be a number from 1 to 65535"),
            (":7443", "the host is missing"),
            ("", "the host is missing"),
            ("a/b", "only a host and a port are expected"),
        ] {
            assert_eq!(
                text.parse::<ServerAddress>().unwrap_err().reason,
                reason,
                "{text}"
            );
        }
    }
}
