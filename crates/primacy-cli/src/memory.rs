//! Giving back what only the start needed. A node and its guardian do little for months; what they have read of their
//! program in order to get ready need not stay in their memory. Nor is it free to have: the kernel takes a process
//! apart before it tells the guardian that it is dead, some 60 µs for each MiB.

use std::ffi::c_void;

use primacy::core::Duration;
use rustix::mm::{Advice, madvise};

/// How long after its start a process has connected to all peers that are there.
pub(crate) const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Lets go of the pages of program text that this process has touched. They are the files' own, unchanged: what is
/// needed again is mapped again, mostly from the kernel's cache, in about a microsecond for every 64 KiB.
///
/// Pages that were written to, relocations among them, are not touched.
pub(crate) fn let_go_of_program_text() {
    // Where it cannot be known, nothing is done.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(program_text) {
        let start = std::ptr::without_provenance_mut::<c_void>(start);
        // SAFETY: the range is a private mapping of a file, executable and not writable now. The map does not show
        // whether it was writable once, and what was written then would be lost; but this process maps its text so by
        // the loader alone, and neither the loader (without relocations in text, which Rust does not make) nor anything
        // in this program writes to it. So every page is the file's, and reading it again gives the same bytes.
        #[allow(unsafe_code)] // No safe wrapper can know what a range of addresses holds.
        let advised = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
        // It is an advice; a kernel that refuses it keeps the pages.
        let _ = advised;
    }
}

/// The range of a line of `/proc/PID/maps`, if it is program text of a file.
fn program_text(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (Some("r-xp"), Some(_offset), Some(_device), Some(_inode), Some(file)) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return None;
    };
    if !file.starts_with('/') {
        return None; // The kernel's own pages.
    }
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_program_text_of_files_is_let_go_of() {
        let text = "55ecb5a2d000-55ecb5e5f000 r-xp 000e3000 fe:00 3154  /usr/bin/primacy";
        assert_eq!(program_text(text), Some((0x55ec_b5a2_d000, 0x43_2000)));
        for other in [
            "7ffd3a5f2000-7ffd3a5f4000 r-xp 00000000 00:00 0  [vdso]",
            "55ecb5e5f000-55ecb5e79000 r--p 00514000 fe:00 3154  /usr/bin/primacy",
            "55ecb5e79000-55ecb5e7e000 rw-p 0052d000 fe:00 3154  /usr/bin/primacy",
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(program_text(other), None, "{other}");
        }
    }

    #[test]
    fn what_was_let_go_of_is_there_again_when_it_is_needed() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.lines().filter_map(program_text).count() > 0);
        let_go_of_program_text();
        assert_eq!("7".parse::<u32>(), Ok(7));
    }
}
