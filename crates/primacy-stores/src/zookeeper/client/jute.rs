//! Jute, the encoding of ZooKeeper's messages: numbers are big-endian; texts, buffers and lists have their lengths before them.
//!
//! All input is untrusted. Each length is compared with the bytes at hand before anything is allocated, and a message that does not fit
//! is an error.

use std::time::Duration;

/// The maximum length of a message from a server. Servers themselves read 1 MiB by default (`jute.maxbuffer`), but may send a longer list
/// of children.
pub(super) const MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// The maximum length of a password of a session; those of ZooKeeper have 16 bytes.
const PASSWORD_MAX: usize = 256;

/// A message that a server of ZooKeeper does not send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

/// The unread bytes of a message.
#[derive(Clone, Debug)]
pub(super) struct JuteReader<'a>(pub(super) &'a [u8]);

impl<'a> JuteReader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| self.too_short(N))?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        let [byte] = self.array()?;
        Ok(byte != 0)
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        let length = self.int()?;
        usize::try_from(length).map_err(|_| Malformed(format!("it has the length {length}")))
    }

    /// Reads a buffer, which is empty if it is null.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        const NULL: [u8; 4] = (-1_i32).to_be_bytes();
        if let Some(rest) = self.0.strip_prefix(&NULL) {
            self.0 = rest;
            return Ok(&[]);
        }
        let length = self.length()?;
        let (buffer, rest) = self.0.split_at_checked(length).ok_or_else(|| self.too_short(length))?;
        self.0 = rest;
        Ok(buffer)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?)
            .map_err(|_| Malformed("it has a text that is not UTF-8".to_owned()))
    }

    /// Reads the whole path of a znode.
    pub(super) fn path(&mut self) -> Result<&'a str, Malformed> {
        let path = self.text()?;
        let is_path = path.starts_with('/');
        is_path.then_some(path).ok_or_else(|| Malformed(format!("it has the path {path:?}")))
    }

    /// Reads the name of a child.
    pub(super) fn name(&mut self) -> Result<&'a str, Malformed> {
        let name = self.text()?;
        let is_name = !name.is_empty() && !name.contains('/');
        is_name.then_some(name).ok_or_else(|| Malformed(format!("it has a child with the name {name:?}")))
    }

    pub(super) fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.length()?;
        // Each item has at least one length.
        if count > self.0.len() / size_of::<i32>() {
            return Err(Malformed(format!("it has a list of {count}, and {} bytes for it", self.0.len())));
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// Checks that the message ends here.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            rest => Err(Malformed(format!("it goes on for {rest} bytes"))),
        }
    }

    fn too_short(&self, needed: usize) -> Malformed {
        Malformed(format!("{needed} bytes must follow, and {} do", self.0.len()))
    }
}

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct JuteWriter(pub(super) Vec<u8>);

impl JuteWriter {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(super) fn buffer(self, bytes: &[u8]) -> Self {
        // A request that is longer is refused before it is sent.
        let mut written = self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        written.0.extend(bytes);
        written
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.buffer(text.as_bytes())
    }

    /// Writes an access control list with one entry.
    pub(super) fn acl(self, acl: &Acl) -> Self {
        self.int(1).int(acl.permissions).text(&acl.scheme).text(&acl.id)
    }

    /// Puts the length before the message.
    pub(super) fn framed(self) -> Vec<u8> {
        Self::default().buffer(&self.0).0
    }
}

/// Takes the first message off the received bytes; `None` if it is not complete.
pub(super) fn message<'a>(received: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Some((length, rest)) = received.split_first_chunk() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    let Some(taken) = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_MAX) else {
        return Err(Malformed(format!("it has {length} bytes, and may have {MESSAGE_MAX}")));
    };
    let Some((message, rest)) = rest.split_at_checked(taken) else { return Ok(None) };
    *received = rest;
    Ok(Some(message))
}

/// The facts about a znode that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created the znode.
    pub(crate) czxid: i64,
    /// The number of changes to its data.
    pub(crate) version: i32,
    /// The session that owns it; zero for a znode that is not ephemeral.
    pub(crate) ephemeral_owner: i64,
}

impl Stat {
    pub(super) fn read(reader: &mut JuteReader<'_>) -> Result<Self, Malformed> {
        let czxid = reader.long()?;
        let [_mzxid, _ctime, _mtime] = [reader.long()?, reader.long()?, reader.long()?];
        let version = reader.int()?;
        let [_cversion, _aversion] = [reader.int()?, reader.int()?];
        let ephemeral_owner = reader.long()?;
        let [_data_length, _num_children] = [reader.int()?, reader.int()?];
        let _pzxid = reader.long()?;
        Ok(Self { czxid, version, ephemeral_owner })
    }
}

/// The permissions of one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    /// The bits of [`permission`].
    pub(crate) permissions: i32,
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// The bits of permissions.
pub(crate) mod permission {
    pub(crate) const READ: i32 = 1;
    pub(crate) const WRITE: i32 = 1 << 1;
    pub(crate) const CREATE: i32 = 1 << 2;
    pub(crate) const DELETE: i32 = 1 << 3;
    pub(crate) const ADMIN: i32 = 1 << 4;
    pub(crate) const ALL: i32 = READ | WRITE | CREATE | DELETE | ADMIN;
}

impl Acl {
    /// All permissions for every client.
    pub(crate) fn anyone() -> Self {
        Self { permissions: permission::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }
    }

    /// All permissions for the identities of the client that creates the znode.
    pub(crate) fn creator() -> Self {
        Self { permissions: permission::ALL, scheme: "auth".to_owned(), id: String::new() }
    }

    pub(super) fn read(reader: &mut JuteReader<'_>) -> Result<Self, Malformed> {
        let permissions = reader.int()?;
        let (scheme, id) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        Ok(Self { permissions, scheme, id })
    }
}

/// The session that a server has begun or continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// Zero if the requested session does not exist any more.
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
    pub(super) timeout: Duration,
}

impl Grant {
    pub(super) fn read(reader: &mut JuteReader<'_>) -> Result<Self, Malformed> {
        let _protocol = reader.int()?;
        let milliseconds = reader.int()?;
        let milliseconds = u64::try_from(milliseconds)
            .map_err(|_| Malformed(format!("it has a session timeout of {milliseconds} ms")))?;
        let session = reader.long()?;
        let password = reader.buffer()?;
        if password.len() > PASSWORD_MAX {
            return Err(Malformed(format!("it has a password of {} bytes", password.len())));
        }
        // Old servers do not send whether they are read-only, and this client does not ask for such a server.
        Ok(Self { session, password: password.to_vec(), timeout: Duration::from_millis(milliseconds) })
    }
}

/// A change of a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZnodeChange {
    Created,
    Deleted,
    Data,
    Children,
}

impl ZnodeChange {
    /// Reads the kind of a change, and the znode's path.
    pub(super) fn read<'a>(reader: &mut JuteReader<'a>) -> Result<(Self, &'a str), Malformed> {
        let change = match reader.int()? {
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::Data,
            4 => Self::Children,
            other => return Err(Malformed(format!("it has the unknown kind of change {other}"))),
        };
        let _state = reader.int()?;
        Ok((change, reader.path()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let acl = Acl { permissions: permission::READ, scheme: "digest".to_owned(), id: "ann:x".to_owned() };
        let written =
            JuteWriter::default().int(-7).long(i64::MIN).flag(true).text("/é").buffer(&[0xff]).acl(&acl);
        let mut reader = JuteReader(&written.0);
        assert_eq!(reader.int(), Ok(-7));
        assert_eq!(reader.long(), Ok(i64::MIN));
        assert_eq!(reader.flag(), Ok(true));
        assert_eq!(reader.path(), Ok("/é"));
        assert_eq!(reader.buffer(), Ok(&[0xff][..]));
        assert_eq!(reader.list(Acl::read), Ok(vec![acl]));
        assert_eq!(reader.end(), Ok(()));
        assert!(reader.flag().is_err());
    }

    /// Returns the error of reading a list of names from a message that has a few bytes.
    fn list_error(message: JuteWriter) -> String {
        let read = JuteReader(&message.0).list(|reader| reader.name().map(str::to_owned));
        read.expect_err("no list").0
    }

    #[test]
    fn no_length_is_believed() {
        let start = JuteWriter::default;
        assert!(list_error(start().int(i32::MAX)).contains("list of 2147483647, and 0 bytes"));
        assert!(list_error(start().int(-1)).contains("length -1"));
        assert!(list_error(start().int(1).int(i32::MAX)).contains("2147483647 bytes must follow, and 0 do"));
        assert!(list_error(start().int(1).int(-2)).contains("length -2"));
        assert!(list_error(start().int(1).text("")).contains("name \"\""));
        assert!(list_error(start().int(1).text("a/b")).contains("name \"a/b\""));
        assert!(list_error(start().int(1).buffer(&[0xff])).contains("not UTF-8"));
        assert!(JuteReader(&start().text("").0).path().is_err_and(|error| error.0.contains("path \"\"")));
        assert_eq!(JuteReader(&start().int(-1).0).buffer(), Ok(&[][..]), "null");
        for length in [-1, i32::MIN, i32::MAX, 4 * 1024 * 1024 + 1] {
            let error = message(&mut &start().int(length).0[..]).expect_err("too long").0;
            assert!(error.contains(&format!("it has {length} bytes")), "{error}");
        }
    }

    #[test]
    fn a_message_is_taken_when_it_is_complete() {
        let bytes = [JuteWriter::default().int(1).framed(), JuteWriter::default().framed()].concat();
        for cut in 0..8 {
            assert_eq!(message(&mut &bytes[..cut]), Ok(None));
        }
        let mut rest = &bytes[..];
        assert_eq!(message(&mut rest), Ok(Some(&[0, 0, 0, 1][..])));
        assert_eq!(message(&mut rest), Ok(Some(&[][..])));
        assert_eq!(message(&mut rest), Ok(None));
    }
}
