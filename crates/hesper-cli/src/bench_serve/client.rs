//! A minimal HTTP/1.1 client over a plain socket, for JSON and server-sent events. One request per
//! connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The longest line of a response.
const MAX_LINE: u64 = 1 << 20;
/// The longest body that is read as a whole.
const MAX_BODY: u64 = 1 << 22;
/// The most header lines of a response.
const MAX_HEADERS: usize = 256;

/// The address of a server, and the settings of requests to it.
#[derive(Debug, Clone)]
pub struct Target {
    host: String,
    port: u16,
    base: String,
    /// Sent as bearer token.
    pub api_key: Option<String>,
    /// The timeout of each connect, read and write.
    pub timeout: Duration,
}

/// A response whose body has not been read yet.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The seconds of the header `Retry-After`.
    pub retry_after: Option<u64>,
    body: BufReader<Body>,
}

impl Target {
    /// Parses `http://host[:port][/base]`.
    pub fn parse(url: &str, timeout: Duration) -> Result<Self, String> {
        let refuse = |why: &str| format!("--url {url}: {why}; expected http://HOST:PORT");
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err(refuse("https is not supported, since encryption would be measured too"));
            }
            Some(_) => return Err(refuse("unknown scheme")),
            None => url,
        };
        let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A colon in brackets belongs to an IPv6 address.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| refuse(&format!("{port:?} is not a port")))?)
            }
            _ => (authority, 80),
        };
        if host.is_empty() || authority.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@') {
            return Err(refuse("no host"));
        }
        let base = base.trim_end_matches('/').to_string();
        if base.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(refuse("white space in the path"));
        }
        Ok(Target { host: host.to_string(), port, base, api_key: None, timeout })
    }

    /// Sends a request and reads the head of the response. A request with a body is a POST of JSON.
    pub fn send(&self, path: &str, body: Option<&str>) -> Result<Response, String> {
        let mut stream = self.connect()?;
        let Target { host, port, base, .. } = self;
        let method = if body.is_some() { "POST" } else { "GET" };
        let mut head =
            format!("{method} {base}{path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n");
        if let Some(key) = &self.api_key {
            head += &format!("Authorization: Bearer {key}\r\n");
        }
        if let Some(body) = body {
            head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        head += body.unwrap_or_default();
        stream.write_all(head.as_bytes()).map_err(|error| format!("cannot send the request: {error}"))?;
        Response::read(BufReader::new(stream))
    }

    fn connect(&self) -> Result<TcpStream, String> {
        let Target { host, port, .. } = self;
        let fail = |error: std::io::Error| format!("cannot connect to {host}:{port}: {error}");
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let mut last = std::io::Error::other("no address");
        for address in (name, *port).to_socket_addrs().map_err(fail)? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(fail)?;
                    stream.set_read_timeout(Some(self.timeout)).map_err(fail)?;
                    stream.set_write_timeout(Some(self.timeout)).map_err(fail)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(fail(last))
    }
}

impl Response {
    fn read(mut stream: BufReader<TcpStream>) -> Result<Self, String> {
        let line = line(&mut stream)?.ok_or("the server closed the connection without an answer")?;
        let status = line
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| format!("the server does not speak HTTP/1.1: {:?}", shorten(&line)))?;
        let (mut framing, mut retry_after) = (Framing::ToEnd, None);
        for _ in 0..MAX_HEADERS {
            let Some(line) = self::line(&mut stream)? else { break };
            let Some((name, value)) = line.split_once(':') else {
                return Ok(Response { status, retry_after, body: BufReader::new(Body { stream, framing }) });
            };
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("transfer-encoding", value) if value.eq_ignore_ascii_case("chunked") => {
                    framing = Framing::Chunked { left: 0, first: true };
                }
                ("content-length", value) if framing == Framing::ToEnd => {
                    framing =
                        Framing::Length(value.parse().map_err(|_| format!("Content-Length {value:?}"))?);
                }
                ("retry-after", value) => retry_after = value.parse().ok(),
                _ => {}
            }
        }
        Err(format!("the head of the response is incomplete or has more than {MAX_HEADERS} headers"))
    }

    /// The whole body.
    pub fn text(self) -> Result<String, String> {
        let mut text = Vec::new();
        self.body.take(MAX_BODY).read_to_end(&mut text).map_err(read_error)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The data of the next event. `None` at the end of the stream.
    pub fn next_event(&mut self) -> Result<Option<String>, String> {
        let mut data: Option<String> = None;
        while let Some(line) = line(&mut self.body)? {
            if line.is_empty() && data.is_some() {
                break;
            }
            if let Some(rest) = line.strip_prefix("data:") {
                let rest = rest.strip_prefix(' ').unwrap_or(rest);
                match &mut data {
                    Some(data) => *data = format!("{data}\n{rest}"),
                    None => data = Some(rest.to_string()),
                }
            }
        }
        Ok(data)
    }
}

/// How the end of a body is found.
#[derive(Debug, PartialEq)]
enum Framing {
    Chunked { left: u64, first: bool },
    Length(u64),
    ToEnd,
}

struct Body {
    stream: BufReader<TcpStream>,
    framing: Framing,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Body { stream, framing } = self;
        if let Framing::Chunked { left: left @ 0, first } = framing {
            let invalid = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_string());
            if !std::mem::take(first) {
                line(stream).map_err(|error| invalid(&error))?;
            }
            let size =
                line(stream).map_err(|error| invalid(&error))?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            let size = size.split(';').next().unwrap_or_default().trim();
            *left =
                u64::from_str_radix(size, 16).map_err(|_| invalid("the size of a chunk is not a number"))?;
            if *left == 0 {
                *framing = Framing::Length(0);
            }
        }
        let left = match framing {
            Framing::ToEnd => return stream.read(buffer),
            Framing::Length(left) | Framing::Chunked { left, .. } => left,
        };
        let most = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let count = stream.read(&mut buffer[..most])?;
        if count == 0 && most > 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        *left -= count as u64;
        Ok(count)
    }
}

/// A line without its end. `None` at the end of the stream.
fn line(stream: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    stream.take(MAX_LINE).read_until(b'\n', &mut bytes).map_err(read_error)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.pop_if(|byte| *byte == b'\n').is_none() && bytes.len() as u64 == MAX_LINE {
        return Err(format!("the server sent a line of more than {MAX_LINE} bytes"));
    }
    bytes.pop_if(|byte| *byte == b'\r');
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn read_error(error: std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            "the server did not answer in time".into()
        }
        std::io::ErrorKind::InvalidData => error.to_string(),
        _ => format!("the connection was lost: {error}"),
    }
}

/// The first 200 characters of a text, for messages.
pub fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}
