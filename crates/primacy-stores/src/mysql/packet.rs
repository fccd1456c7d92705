//! The client/server protocol of MySQL as bytes: packets, and the values in them.
//!
//! All input is untrusted: a missing value is `None`, and never a panic.

/// The maximum length of a packet. The protocol splits longer packets, which this client neither needs nor supports.
pub(super) const LENGTH_MAX: usize = 256 * 1024;

/// The capabilities that this client uses (`CLIENT_…` in the protocol's documentation).
pub(super) mod capability {
    pub(crate) const LONG_PASSWORD: u32 = 1;
    /// An update reports the rows that it found, even if it did not change them.
    pub(crate) const FOUND_ROWS: u32 = 1 << 1;
    pub(crate) const LONG_FLAG: u32 = 1 << 2;
    pub(crate) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(crate) const PROTOCOL_41: u32 = 1 << 9;
    pub(crate) const SSL: u32 = 1 << 11;
    pub(crate) const TRANSACTIONS: u32 = 1 << 13;
    pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(crate) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(crate) const MULTI_RESULTS: u32 = 1 << 17;
    pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
}

/// The status flag of an answer that is followed by another one.
const MORE_RESULTS: u16 = 1 << 3;

/// The unread bytes of a packet.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, length: usize) -> Option<u64> {
        let bytes = self.bytes(length)?;
        Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn short(&mut self) -> Option<u16> {
        u16::try_from(self.number(2)?).ok()
    }

    /// Reads a length-encoded integer, whose first byte states how many bytes follow.
    fn length_encoded(&mut self) -> Option<u64> {
        match self.byte()? {
            small @ 0..=0xfa => Some(u64::from(small)),
            0xfc => self.number(2),
            0xfd => self.number(3),
            0xfe => self.number(8),
            0xfb | 0xff => None,
        }
    }

    /// Reads a length-prefixed value; `Some(None)` is NULL.
    fn value(&mut self) -> Option<Option<&'a [u8]>> {
        if self.0.first() == Some(&0xfb) {
            self.byte()?;
            return Some(None);
        }
        let length = usize::try_from(self.length_encoded()?).ok()?;
        self.bytes(length).map(Some)
    }

    /// Reads a text up to a zero byte, or to the end.
    pub(super) fn text(&mut self) -> String {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(&self.0[..length]).into_owned();
        self.0 = self.0.get(length + 1..).unwrap_or_default();
        text
    }
}

/// The first packet of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) capabilities: u32,
    pub(super) challenge: Vec<u8>,
    /// The authentication plugin that it proposes.
    pub(super) plugin: String,
}

impl Greeting {
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        const PROTOCOL: u8 = 10;
        let mut fields = Fields(packet);
        if fields.byte()? != PROTOCOL {
            return None;
        }
        let _version = fields.text();
        let _connection = fields.bytes(4)?;
        let mut challenge = fields.bytes(8)?.to_vec();
        fields.byte()?;
        let low = u32::from(fields.short()?);
        let _charset = fields.byte()?;
        let _status = fields.short()?;
        let capabilities = low | (u32::from(fields.short()?) << 16);
        let length = usize::from(fields.byte()?).saturating_sub(8).max(13);
        let _reserved = fields.bytes(10)?;
        challenge.extend(fields.bytes(length)?);
        // The last byte is a zero that ends the text.
        challenge.truncate(20);
        Some(Self { capabilities, challenge, plugin: fields.text() })
    }
}

/// An error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerError {
    pub(super) code: u16,
    pub(super) message: String,
}

impl ServerError {
    /// Parses a packet that begins with 0xff.
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let mut fields = Fields(packet.strip_prefix(&[0xff])?);
        let code = fields.short()?;
        // Before a connection is made there is no SQLSTATE.
        if fields.0.first() == Some(&b'#') {
            fields.bytes(6)?;
        }
        Some(Self { code, message: String::from_utf8_lossy(fields.0).into_owned() })
    }
}

/// The answer to a statement that returns no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) affected: u64,
    pub(super) is_more: bool,
}

impl Done {
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let mut fields = Fields(packet.strip_prefix(&[0])?);
        let affected = fields.length_encoded()?;
        let _inserted = fields.length_encoded()?;
        Some(Self { affected, is_more: fields.short()? & MORE_RESULTS != 0 })
    }
}

/// Returns whether another answer follows the rows that this packet ends; `None` if it does not end any.
pub(super) fn end_of_rows(packet: &[u8]) -> Option<bool> {
    // A row that begins with this byte would have a value longer than this client's longest packet.
    let mut fields = Fields(packet.strip_prefix(&[0xfe]).filter(|rest| rest.len() < 8)?);
    let _warnings = fields.short()?;
    Some(fields.short()? & MORE_RESULTS != 0)
}

/// The maximum number of columns of a row. No statement of the store requests as many; each column takes more memory here than in a packet.
const COLUMNS_MAX: u64 = 16;

/// Parses the number of columns of the rows that follow.
pub(super) fn column_count(packet: &[u8]) -> Option<u64> {
    let mut fields = Fields(packet);
    fields.length_encoded().filter(|count| (1..=COLUMNS_MAX).contains(count) && fields.0.is_empty())
}

/// A row; `None` for a value that is NULL.
pub(super) type Row = Vec<Option<Vec<u8>>>;

pub(super) fn row(packet: &[u8], columns: u64) -> Option<Row> {
    let mut fields = Fields(packet);
    let row: Option<Row> =
        (0..columns).map(|_| fields.value().map(|value| value.map(<[u8]>::to_vec))).collect();
    row.filter(|_| fields.0.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_more_columns_than_any_statement_asks_for_are_refused() {
        assert_eq!([column_count(&[0]), column_count(&[16]), column_count(&[17])], [None, Some(16), None]);
    }

    #[test]
    fn a_greeting_has_the_challenge_and_the_way_to_log_in() {
        let mut packet = b"\x0a10.11.19-MariaDB\0\x01\0\0\0abcdefgh\0".to_vec();
        packet.extend(0xf7fe_u16.to_le_bytes());
        packet.extend(b"\x2d\x02\0");
        packet.extend(0x81ff_u16.to_le_bytes());
        packet.extend(b"\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0");
        let greeting = Greeting::parse(&packet).unwrap();
        assert_eq!(greeting.challenge, b"abcdefghijklmnopqrst");
        assert_eq!((greeting.capabilities, greeting.plugin.as_str()), (0x81ff_f7fe, "mysql_native_password"));
        // Up to the challenge every byte is needed.
        assert!((0..48).all(|length| Greeting::parse(&packet[..length]).is_none()));
        assert_eq!(Greeting::parse(b"\x09old"), None);
    }

    #[test]
    fn no_bytes_of_a_server_make_it_panic() {
        let mut rng = primacy_core::rng::Rng::new(0x5eed);
        for _ in 0..50_000 {
            let length = rng.up_to(70);
            let mut packet: Vec<u8> = (0..length).map(|_| rng.up_to(255).to_le_bytes()[0]).collect();
            if let (Some(first), true) = (packet.first_mut(), rng.up_to(1) == 0) {
                *first = [0, 10, 0xfe, 0xff][usize::from(rng.up_to(3).to_le_bytes()[0])];
            }
            let _ = (Greeting::parse(&packet), ServerError::parse(&packet), Done::parse(&packet));
            let _ = (end_of_rows(&packet), column_count(&packet), row(&packet, rng.up_to(4)));
        }
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(Done::parse(&[0, 1, 0, 8, 0, 0, 0]), Some(Done { affected: 1, is_more: true }));
        assert_eq!(Done::parse(&[0, 1]), None);
        assert_eq!(end_of_rows(&[0xfe, 0, 0, 2, 0]), Some(false));
        assert_eq!(end_of_rows(&[1, b'x']), None);
        let error = ServerError::parse(b"\xff\x15\x04#28000Access denied").unwrap();
        assert_eq!((error.code, error.message.as_str()), (1045, "Access denied"));
        assert_eq!(ServerError::parse(b"\xff\x10\x04Too many").unwrap().message, "Too many");
        assert_eq!((column_count(&[2]), column_count(&[0]), column_count(&[2, 3])), (Some(2), None, None));
        assert_eq!(row(b"\x01a\xfb", 2), Some(vec![Some(b"a".to_vec()), None]));
        assert_eq!(row(b"\x05a", 1), None);
    }
}
