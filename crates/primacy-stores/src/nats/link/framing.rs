//! The client protocol of NATS: the operations of a server, as far as this store uses them, and those that it writes.
//!
//! Other clients choose the subject, the headers and the payload of a message. So these are taken as they are; only a server that breaks
//! the framing itself causes an error. A message longer than [`MESSAGE_MAX`] is skipped, and at most that much is buffered.

use std::fmt::Write as _;

use serde::Deserialize;

/// The maximum length of a line, in bytes. The longest is `INFO` with the addresses of a cluster.
const LINE_MAX: usize = 64 * 1024;

/// The maximum length of a message with its headers, in bytes: more than the answer with the longest record.
const MESSAGE_MAX: usize = 512 * 1024;

const END: &[u8] = b"\r\n";

/// An operation of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerOp {
    Info(ServerInfo),
    Message(NatsMessage),
    Ping,
    Pong,
    Ok,
    Error(String),
}

/// The part of a server's `INFO` that this store uses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(in super::super) struct ServerInfo {
    pub(in super::super) version: String,
    /// The maximum length of a message with its headers, in bytes; 0 if the server does not state it.
    pub(super) max_payload: usize,
    pub(super) tls_required: bool,
    /// The text that a client with a key signs.
    pub(super) nonce: String,
    /// The addresses of the servers of the cluster.
    pub(super) connect_urls: Vec<String>,
}

/// A message of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NatsMessage {
    pub(super) subject: String,
    /// The number of the subscription.
    pub(super) sid: u64,
    /// The headers with their first line, as the sender has written them.
    pub(super) headers: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl NatsMessage {
    /// Returns the status in the first line of the headers.
    pub(super) fn status(&self) -> Option<u16> {
        let line = text(&self.headers).lines().next()?.strip_prefix("NATS/1.0")?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// Returns the first value of a header; `headers` begin with their version.
pub(super) fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    let fields = text(headers).lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim())
}

/// Returns the bytes before the first one that is not UTF-8.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Bytes of a server that have not been decoded yet.
#[derive(Debug, Default)]
pub(super) struct OpDecoder {
    bytes: Vec<u8>,
    /// The number of `bytes` that have been decoded.
    taken: usize,
    /// The number of bytes to come that belong to a message that is too long.
    skipped: usize,
}

impl OpDecoder {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let skipped = self.skipped.min(bytes.len());
        self.skipped -= skipped;
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(&bytes[skipped..]);
    }

    /// Returns the next operation; `None` until more bytes are fed.
    ///
    /// # Errors
    /// A description of bytes that a server does not send.
    pub(super) fn next(&mut self) -> Result<Option<ServerOp>, String> {
        loop {
            let rest = &self.bytes[self.taken..];
            let searched = &rest[..rest.len().min(LINE_MAX + END.len())];
            let Some(length) = searched.windows(END.len()).position(|window| window == END) else {
                return if rest.len() >= LINE_MAX + END.len() {
                    Err(format!("a line is longer than {LINE_MAX} bytes"))
                } else {
                    Ok(None)
                };
            };
            let (line, rest) = (String::from_utf8_lossy(&rest[..length]), &rest[length + END.len()..]);
            let line_length = length + END.len();
            let (verb, arguments) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
            let op = match verb {
                "MSG" | "HMSG" => {
                    let frame = Frame::parse(verb == "HMSG", arguments).ok_or_else(|| malformed(&line))?;
                    let whole = frame.length.checked_add(END.len()).ok_or_else(|| malformed(&line))?;
                    if frame.length > MESSAGE_MAX {
                        let present = whole.min(rest.len());
                        self.skipped = whole - present;
                        self.taken += line_length + present;
                        continue;
                    }
                    let Some(message) = rest.get(..whole) else { return Ok(None) };
                    let Some(message) = message.strip_suffix(END) else {
                        return Err(format!("a message does not end where `{line}` states"));
                    };
                    let (headers, payload) = message.split_at(frame.headers);
                    let message = NatsMessage {
                        subject: frame.subject,
                        sid: frame.sid,
                        headers: headers.to_vec(),
                        payload: payload.to_vec(),
                    };
                    self.taken += whole;
                    ServerOp::Message(message)
                }
                "INFO" => ServerOp::Info(serde_json::from_str(arguments).map_err(|_| malformed(&line))?),
                "PING" => ServerOp::Ping,
                "PONG" => ServerOp::Pong,
                "+OK" => ServerOp::Ok,
                "-ERR" => ServerOp::Error(arguments.trim().trim_matches('\'').to_owned()),
                _ => return Err(malformed(&line)),
            };
            self.taken += line_length;
            return Ok(Some(op));
        }
    }
}

fn malformed(line: &str) -> String {
    format!("it is no server of NATS, or sends what none sends: `{line}`")
}

/// The arguments of `MSG` and `HMSG`.
struct Frame {
    subject: String,
    sid: u64,
    /// The length of the headers, in bytes.
    headers: usize,
    /// The length of the headers and the payload, in bytes.
    length: usize,
}

impl Frame {
    fn parse(has_headers: bool, arguments: &str) -> Option<Self> {
        let arguments: Vec<&str> =
            arguments.split([' ', '\t']).filter(|argument| !argument.is_empty()).collect();
        // The optional argument is the subject for a reply. This store replies to nothing.
        let (subject, sid, headers, length) = match (has_headers, arguments.as_slice()) {
            (false, [subject, sid, length] | [subject, sid, _, length]) => (subject, sid, "0", length),
            (true, [subject, sid, headers, length] | [subject, sid, _, headers, length]) => {
                (subject, sid, *headers, length)
            }
            (true | false, _) => return None,
        };
        let frame = Self {
            subject: (*subject).to_owned(),
            sid: sid.parse().ok()?,
            headers: headers.parse().ok()?,
            length: length.parse().ok()?,
        };
        (frame.headers <= frame.length).then_some(frame)
    }
}

pub(super) fn subscribe(subject: &str, sid: u64) -> String {
    format!("SUB {subject} {sid}\r\n")
}

pub(super) fn unsubscribe(sid: u64) -> String {
    format!("UNSUB {sid}\r\n")
}

/// A message with a subject for its reply.
pub(super) fn publish(subject: &str, reply: &str, headers: &[(&str, String)], payload: &[u8]) -> Vec<u8> {
    let mut head = String::new();
    if !headers.is_empty() {
        head.push_str("NATS/1.0\r\n");
        for (name, value) in headers {
            // Writing to a string cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
    }
    let length = head.len() + payload.len();
    let line = match headers {
        [] => format!("PUB {subject} {reply} {length}\r\n"),
        [_, ..] => format!("HPUB {subject} {reply} {} {length}\r\n", head.len()),
    };
    [line.as_bytes(), head.as_bytes(), payload, END].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    mod fuzz;

    /// Decodes bytes that arrive in pieces of this length.
    fn decode(bytes: &[u8], piece: usize) -> Result<Vec<ServerOp>, String> {
        let (mut decoder, mut found) = (OpDecoder::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.feed(piece);
            while let Some(op) = decoder.next()? {
                found.push(op);
            }
        }
        Ok(found)
    }

    fn message(headers: &[u8], payload: &[u8]) -> ServerOp {
        let (headers, payload) = (headers.to_vec(), payload.to_vec());
        ServerOp::Message(NatsMessage { subject: "a.b".to_owned(), sid: 7, headers, payload })
    }

    #[test]
    fn operations_are_found_wherever_the_bytes_are_cut() {
        let bytes = b"INFO {\"version\":\"2.11.0\",\"max_payload\":9,\"other\":[1]}\r\n+OK\r\nPING\r\nPONG\r\n-ERR 'No Right'\r\n\
            MSG a.b 7 3\r\nx\r\n\r\nMSG a.b\t7 reply 0\r\n\r\nHMSG a.b 7 15 17\r\nNATS/1.0 503\r\n\r\n!\r\nHMSG a.b 7 reply 0 0\r\n\r\n";
        let wanted = [
            ServerOp::Info(ServerInfo {
                version: "2.11.0".to_owned(),
                max_payload: 9,
                ..ServerInfo::default()
            }),
            ServerOp::Ok,
            ServerOp::Ping,
            ServerOp::Pong,
            ServerOp::Error("No Right".to_owned()),
            message(b"", b"x\r\n"),
            message(b"", b""),
            message(b"NATS/1.0 503\r\n\r", b"\n!"),
            message(b"", b""),
        ];
        for piece in 1..=bytes.len() {
            assert_eq!(decode(bytes, piece).as_deref(), Ok(&wanted[..]), "{piece}");
        }
    }

    /// Bytes of faulty servers, and messages that any client may send.
    #[test]
    fn what_no_server_sends_is_an_error_and_what_another_client_sends_is_not() {
        for bytes in [
            "MSG a.b 7 18446744073709551615\r\n",
            "MSG a.b 7 -1\r\n",
            "MSG a.b 7\r\n",
            "MSG\r\n",
            "HMSG a.b 7 2 1\r\nx\r\n",
            "HMSG a.b 7 18446744073709551615 18446744073709551615\r\n",
            "MSG a.b 7 1\r\nxyz",
            "INFO \r\n",
            "INFO {\"max_payload\":-1}\r\n",
            "\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
        ] {
            assert!(decode(bytes.as_bytes(), 3).is_err(), "{bytes}");
        }
        assert_eq!(decode(b"-ERR\r\n", 1), Ok(vec![ServerOp::Error(String::new())]));
        for headers in [&b"NATS/1.0\r\nA: b\rc\r\n\r\n"[..], b"\xff\r\n", b"NATS/9\n:\n\n", b"NATS/1.0 x"] {
            let line = format!("HMSG a.b 7 {0} {0}\r\n", headers.len());
            let found = decode(&[line.as_bytes(), headers, END].concat(), 5);
            assert_eq!(found, Ok(vec![message(headers, b"")]));
            let message = NatsMessage { headers: headers.to_vec(), ..NatsMessage::default() };
            assert_eq!(message.status(), None);
        }
        let subject = decode(b"MSG _INBOX.\xff\xc2\xa0 7 0\r\n\r\n", 4).unwrap().remove(0);
        assert!(matches!(subject, ServerOp::Message(NatsMessage { sid: 7, .. })), "{subject:?}");
    }

    #[test]
    fn what_is_too_long_is_not_buffered() {
        let line = format!("MSG a.b 7 {}\r\n", MESSAGE_MAX + 1);
        let bytes = [line.as_bytes(), &vec![b'x'; MESSAGE_MAX + 1], b"\r\nPING\r\n"].concat();
        for piece in [1000, bytes.len()] {
            assert_eq!(decode(&bytes, piece), Ok(vec![ServerOp::Ping]));
        }
        let mut decoder = OpDecoder::default();
        decoder.feed(format!("MSG a.b 7 {}\r\n", usize::MAX - END.len()).as_bytes());
        for _ in 0..8 {
            assert_eq!(decoder.next(), Ok(None));
            decoder.feed(&[b'x'; MESSAGE_MAX]);
        }
        assert!(decoder.bytes.is_empty());
        assert!(decode(&vec![b'x'; LINE_MAX + END.len()], 1000).unwrap_err().contains("longer"));
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        let sent = publish("a.b", "r", &[("A", "1".to_owned()), ("B-c", "d e".to_owned())], b"xy");
        let headers = b"NATS/1.0\r\nA: 1\r\nB-c: d e\r\n\r\n";
        let wanted = [&b"HPUB a.b r 28 30\r\n"[..], headers, b"xy\r\n"].concat();
        assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(&wanted));
        assert_eq!(publish("a.b", "r", &[], b"xy"), b"PUB a.b r 2\r\nxy\r\n");
        assert_eq!(
            (header(headers, "A"), header(headers, "B-c"), header(headers, "a")),
            (Some("1"), Some("d e"), None)
        );
        assert_eq!(header(b"A: 1\r\n", "A"), None, "the first line is the version");
    }
}
