//! Bytes for checks that must hold whatever the bytes are.
//!
//! A check is a function of bytes that panics where something does not hold. It is called from a test of the crate that
//! it checks, as the only call of that test:
//!
//! ```no_run
//! primacy_fuzz::hold("my_format", |bytes| {
//!     if let Ok(text) = std::str::from_utf8(bytes) {
//!         assert_eq!(text.as_bytes(), bytes);
//!     }
//! });
//! ```
//!
//! In an ordinary `cargo test` it is given the kept inputs in `corpus/NAME/`, and then [`DRAWN`] that are drawn near
//! them, the same ones each time. Under `cargo xtask fuzz` the same test is given what libFuzzer finds: bytes that reach
//! code that no bytes have reached before. What makes a check fail there is kept as one more input, with a name that
//! says what it was.

mod draw;
#[cfg(fuzzing)]
mod engine;

pub use draw::Draw;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use primacy_core::rng::Rng;

/// The number of inputs drawn near the kept ones in an ordinary test. They take a second or less, without optimisation.
pub const DRAWN: usize = 3_000;

/// The longest input that is kept, in bytes.
pub const KEPT_LENGTH_MAX: usize = 16 * 1024;

/// The environment variable that hands the test to libFuzzer, with its options behind `--`; `cargo xtask fuzz` sets it.
/// It is looked at only where this crate was built with `--cfg fuzzing`.
pub const ENGINE_VARIABLE: &str = "PRIMACY_FUZZ";

/// Runs a check on the kept inputs and on inputs drawn near them. `name` is the folder of the kept inputs; all calls
/// with one name run the same check.
///
/// # Panics
/// Where the check panics, after the failing input was printed; and where the folder has no input, or one that is longer
/// than [`KEPT_LENGTH_MAX`], since then something is missing.
pub fn hold(name: &str, check: impl Fn(&[u8]) + 'static) {
    #[cfg(fuzzing)]
    if std::env::var_os(ENGINE_VARIABLE).is_some() {
        return engine::run(check);
    }
    let kept = kept(name);
    for (path, bytes) in &kept {
        let _report = PanicReport { what: format!("the kept input {}", path.display()), bytes };
        check(bytes);
    }
    let mut random = Rng::new(1);
    let inputs: Vec<&[u8]> = kept.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    for number in 1..=DRAWN {
        let bytes = draw::near(&inputs, &mut random);
        let _report = PanicReport { what: format!("the drawn input {number}"), bytes: &bytes };
        check(&bytes);
    }
}

/// The kept inputs of a check, each with its file, in the order of the files' names.
fn kept(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("the folder can be read").path();
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(bytes.len() <= KEPT_LENGTH_MAX, "{} is too long to be kept; cut it", path.display());
        (path, bytes)
    };
    let mut kept: Vec<_> = entries.map(read).collect();
    assert!(!kept.is_empty(), "{} has no input; put one there", folder.display());
    kept.sort();
    kept
}

/// Prints the bytes for which a check panics.
struct PanicReport<'a> {
    what: String,
    bytes: &'a [u8],
}

impl Drop for PanicReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut hex = String::new();
            for byte in self.bytes {
                // Writing to a text does not fail.
                let _ = write!(hex, "{byte:02x}");
            }
            eprintln!("the check fails for {}: {} bytes, {hex}", self.what, self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_check_sees_the_kept_inputs_and_then_the_same_drawn_ones_each_time() {
        let seen = || {
            let seen = Rc::new(RefCell::new(Vec::new()));
            let to = Rc::clone(&seen);
            hold("lease_record", move |bytes| to.borrow_mut().push(bytes.to_vec()));
            seen.take()
        };
        let first = seen();
        let kept = kept("lease_record");
        assert_eq!(first.len(), kept.len() + DRAWN);
        assert!(first.iter().zip(&kept).all(|(seen, (_, kept))| seen == kept));
        assert!(first == seen(), "it draws other inputs each time");
    }

    #[test]
    fn a_check_that_fails_ends_the_test() {
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            hold("lease_record", move |_| {
                counted.set(counted.get() + 1);
                assert!(counted.get() < 10, "the tenth");
            });
        }));
        assert!(failed.is_err());
        assert_eq!(calls.get(), 10);
    }

    #[test]
    fn a_check_without_inputs_fails() {
        assert!(catch_unwind(|| hold("no_such_check", |_| {})).is_err());
    }
}
