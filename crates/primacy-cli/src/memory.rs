//! Giving back what only the start needed. A node and its guardian do little for months; what they have read of their
//! program in order to get ready need not stay in their memory. Nor is it free to have: the kernel takes a process
//! apart before it tells the guardian that it is dead, some 60 µs for each MiB.

use std::ffi::c_void;

use std::sync::OnceLock;

use primacy::core::Duration;
use rustix::mm::{Advice, madvise};

/// How long after its start a process has connected to all peers that are there.
pub(crate) const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Where the program's files were before anything but the loader had run.
static LOADED: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// Remembers where the program's files are. To be called before there is another thread: from then on something may be
/// loaded and unloaded at any time, for a name that is looked up for example.
pub(crate) fn remember_what_is_loaded() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    // Where it cannot be known, nothing is let go of.
    let _ = LOADED.set(unchanged(&maps));
}

/// Lets go of the pages of program files, text and constants, that this process has touched. They are the files' own,
/// unchanged: what is needed again is mapped again, mostly from the kernel's cache, in about a microsecond for every
/// 64 KiB.
pub(crate) fn let_go_of_program_text() {
    for &(start, length) in LOADED.get().into_iter().flatten() {
        let start = std::ptr::without_provenance_mut::<c_void>(start);
        // SAFETY: at the start the range was a private mapping of a file that cannot be written, without a page of its own
        // in memory or swapped out, as the kernel says. The loader had relocated by then; what it loads before `main` it
        // never unloads; and nothing here changes protections. So every page is still the file's, and reading it again
        // gives the same bytes.
        #[allow(unsafe_code)] // No safe wrapper can know what a range of addresses holds.
        let advised = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
        // It is an advice; a kernel that refuses it keeps the pages.
        let _ = advised;
    }
}

/// The ranges in `/proc/PID/smaps` that are files' pages, not writable, and none of them changed.
fn unchanged(maps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut range, mut own_pages) = (None, Some(0));
    let mut keep = |range: Option<(usize, usize)>, own_pages| {
        found.extend(range.filter(|_| own_pages == Some(0)));
    };
    for line in maps.lines() {
        match line.split_once(':') {
            Some(("Anonymous" | "Swap", size)) => {
                let size: Option<u64> = size.trim().strip_suffix(" kB").and_then(|size| size.parse().ok());
                own_pages = own_pages.zip(size).map(|(known, more)| known + more);
            }
            // Names of other fields have no blank before the colon; of a mapping's line only the device has a colon.
            Some((name, _)) if !name.contains(' ') => {}
            Some(_) | None => {
                keep(range, own_pages);
                (range, own_pages) = (read_only_file(line), Some(0));
            }
        }
    }
    keep(range, own_pages);
    found
}

/// The range of a mapping's first line, if it is a private one of a file that can be read and not be written.
fn read_only_file(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (Some("r-xp" | "r--p"), Some(_offset), Some(_device), Some(_inode), Some(file)) =
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
    fn only_unchanged_pages_of_files_are_let_go_of() {
        let mapping = |line: &str, anonymous: u32, swap: u32| {
            format!("{line}\nSize: 64 kB\nAnonymous:   {anonymous} kB\nSwap:  {swap} kB\nVmFlags: rd mr\n")
        };
        let text = "55ecb5a2d000-55ecb5e5f000 r-xp 000e3000 fe:00 3154  /usr/bin/primacy";
        let constants = "55ecb5900000-55ecb5a2d000 r--p 00000000 fe:00 3154  /usr/bin/primacy";
        let others = [
            mapping("7ffd3a5f2000-7ffd3a5f4000 r-xp 00000000 00:00 0  [vdso]", 0, 0),
            mapping("55ecb5e5f000-55ecb5e79000 r--p 00514000 fe:00 3154  /usr/bin/primacy", 104, 0),
            mapping("55ecb5e79000-55ecb5e7e000 rw-p 0052d000 fe:00 3154  /usr/bin/primacy", 0, 0),
            mapping("7f0000000000-7f0000001000 r-xp 00000000 00:00 0", 0, 0),
            mapping("7f0000001000-7f0000002000 r--p 00001000 fe:00 3155  /usr/lib/libc.so.6", 0, 4),
        ];
        let maps = mapping(text, 0, 0) + &others.concat() + &mapping(constants, 0, 0);
        let expected = [(0x55ec_b5a2_d000, 0x43_2000), (0x55ec_b590_0000, 0x12_d000)];
        assert_eq!(unchanged(&maps), expected);
        assert_eq!(unchanged("nonsense\nAnonymous: x\n"), []);
    }

    #[test]
    fn what_was_let_go_of_is_there_again_when_it_is_needed() {
        remember_what_is_loaded();
        let resident = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let at = format!("{:x}-", LOADED.get().unwrap().iter().max_by_key(|range| range.1).unwrap().0);
            let lines = maps.lines().skip_while(|line| !line.starts_with(&at));
            let rss =
                lines.map(str::to_owned).find_map(|line| Some(line.strip_prefix("Rss:")?.trim().to_owned()));
            rss.unwrap().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
        };
        let before = resident();
        let_go_of_program_text();
        assert!(resident() < before);
    }
}
