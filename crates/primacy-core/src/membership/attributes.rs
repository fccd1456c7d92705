//! The attributes of a member, for observers: a small set, so that a view of a large cluster stays small.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

/// The limit on the bytes of all texts of a member's attributes together.
const BYTES_MAX: usize = 512;

/// The highest number of labels of a member.
const LABELS_MAX: usize = 8;

/// The attributes that a member reports when it joins. They are the same for as long as it belongs to the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    address: String,
    zone: String,
    version: String,
    labels: BTreeMap<String, String>,
}

/// The reason why attributes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributesError {
    /// The texts have too many bytes together; this many.
    Bytes(usize),
    /// There are too many labels; this many.
    Labels(usize),
    /// A text has a control character. Attributes are shown on terminals, and must not move the cursor or begin a line.
    Control,
}

impl Attributes {
    /// The attributes of a member: its address, its zone, the version of its program, and the labels that its operator
    /// gives it. Each may be empty.
    ///
    /// # Errors
    /// [`AttributesError`] if there are more than 8 labels, or if all texts have more than 512 bytes together.
    pub fn new(
        address: String,
        zone: String,
        version: String,
        labels: BTreeMap<String, String>,
    ) -> Result<Self, AttributesError> {
        let of_labels: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = address.len() + zone.len() + version.len() + of_labels;
        if bytes > BYTES_MAX {
            return Err(AttributesError::Bytes(bytes));
        }
        if labels.len() > LABELS_MAX {
            return Err(AttributesError::Labels(labels.len()));
        }
        let of_labels = labels.iter().flat_map(|(key, value)| [key, value]);
        if of_labels.chain([&address, &zone, &version]).any(|text| text.contains(char::is_control)) {
            return Err(AttributesError::Control);
        }
        Ok(Self { address, zone, version, labels })
    }

    /// The address at which clients reach it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The zone that it is in.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The version of its program.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The labels that its operator gives it.
    #[must_use]
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

impl fmt::Display for AttributesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(
                f,
                "the address, zone, version and labels of a member have at most {BYTES_MAX} bytes together; these have {bytes}"
            ),
            Self::Labels(count) => {
                write!(f, "a member has at most {LABELS_MAX} labels; this one has {count}")
            }
            Self::Control => f.write_str(
                "the address, zone, version and labels of a member are shown to people: leave out control characters",
            ),
        }
    }
}

impl core::error::Error for AttributesError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn attributes_are_few_and_short() {
        let text = |length: usize| "x".repeat(length);
        let labels = |count: usize| {
            (0..count).map(|number| (format!("k{number}"), text(1))).collect::<BTreeMap<_, _>>()
        };
        assert!(Attributes::new(text(200), text(200), text(88), labels(8)).is_ok());
        assert_eq!(
            Attributes::new(text(200), text(200), text(89), labels(8)),
            Err(AttributesError::Bytes(513))
        );
        assert_eq!(Attributes::new(text(0), text(0), text(0), labels(9)), Err(AttributesError::Labels(9)));
        let shown = Attributes::new(text(1), "east\u{1b}[2J".into(), text(1), labels(1));
        assert_eq!(shown, Err(AttributesError::Control));
    }
}
