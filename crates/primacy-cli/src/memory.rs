//! Giving back what only the start needed. A node and its guardian do little for months; what they have read of their
//! program in order to get ready need not stay in their memory. Nor is it free to have: the kernel takes a process
//! apart before it tells the guardian that it is dead, some 60 µs for each MiB.
//!
//! The same goes for large data that is made once in a while: a snapshot of the replicated state.
//!
//! And keeping in memory what must be there at once: see the guardian's [`warmup`](crate::guardian).

use std::ffi::c_void;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use primacy::core::Duration;
use rustix::mm::{Advice, madvise, mlock};

/// The time after its start by which a process has connected to all peers that are there.
pub(crate) const SETTLING_TIME: Duration = Duration::from_secs(1);

/// From how many bytes on a piece of memory is given back to the kernel at once when it is let go of. It is above what messages
/// between nodes have, which are made all the time: 256 KiB, unless a single request is longer.
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
const LARGE: i32 = 1 << 20;

/// Where the program's files were before anything but the loader had run.
static LOADED: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// Remembers where the program's files are. To be called before there is another thread: from then on something may be
/// loaded and unloaded at any time, for a name that is looked up for example.
pub(crate) fn remember_what_is_loaded() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    // Where it cannot be known, nothing is let go of.
    let _ = LOADED.set(unchanged(&maps));
}

/// Has large pieces of memory given back at once. The C library's allocator does so from 128 KiB on, until the first large
/// piece is let go of: from then on it keeps all that are no larger, and smaller ones in between hold them fast
/// (`mallopt(3)`, on `M_MMAP_THRESHOLD`). A node with 16 MiB of history had 77 MiB after its first snapshot, and has 45 so.
pub(crate) fn give_back_what_is_large() {
    #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
    // SAFETY: it sets a number of the allocator, under the allocator's own lock.
    #[allow(unsafe_code)] // For it is the C library's.
    let set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
    debug_assert_eq!(set, 1, "a threshold below the largest is taken");
}

/// The memory that is kept.
#[derive(Debug, Default)]
struct Kept {
    /// In order.
    runs: Vec<(usize, usize)>,
    /// Something was to be kept and is not.
    lacks: bool,
}

static KEPT: OnceLock<Kept> = OnceLock::new();

/// Keeps in memory, for good, whatever of this process's memory is in it now: of the program, of its libraries, and of its
/// data. Nothing of it is let go of or read from a disk after this. What a process started by this one has is not kept.
///
/// # Errors
/// If not all of it can be kept: the kernel does not allow that much (`ulimit -l`), or does not tell what is there. The rest
/// is in memory for as long as the kernel likes; to be of some use, [`let_go_of_program_text`] does nothing any more.
pub(crate) fn keep_what_is_here() -> io::Result<()> {
    let (mut kept, mut outcome) = (Kept::default(), Ok(()));
    match what_is_here() {
        Ok(runs) => {
            for run in runs {
                let start = std::ptr::without_provenance_mut::<c_void>(run.0);
                // SAFETY: no content changes by it, and the kernel looks itself whether something is there.
                #[allow(unsafe_code)] // For it takes an address.
                match unsafe { mlock(start, run.1) } {
                    Ok(()) => kept.runs.push(run),
                    Err(error) => outcome = Err(error.into()),
                }
            }
        }
        Err(error) => outcome = Err(error),
    }
    kept.lacks = outcome.is_err();
    // Done once; of a second time nothing would be known, and nothing is let go of wrongly: the kernel refuses.
    let _ = KEPT.set(kept);
    outcome
}

/// The runs of pages that are in this process's memory.
fn what_is_here() -> io::Result<Vec<(usize, usize)>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let pages = std::fs::File::open("/proc/self/pagemap")?;
    Ok(maps.lines().filter_map(readable).flat_map(|range| present(&pages, range)).collect())
}

/// The runs of pages of this range that are in this process's memory.
fn present(pages: &std::fs::File, (start, length): (usize, usize)) -> Vec<(usize, usize)> {
    /// See the kernel's `pagemap.rst`: eight bytes for each page, and the highest bit.
    const PRESENT: u64 = 1 << 63;
    let size = rustix::param::page_size();
    let mut entries = vec![0; length / size * 8];
    if pages.read_exact_at(&mut entries, (start / size * 8) as u64).is_err() {
        return Vec::new(); // The kernel's own, or gone meanwhile.
    }
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, entry) in entries.as_chunks().0.iter().enumerate() {
        if u64::from_ne_bytes(*entry) & PRESENT == 0 {
            continue;
        }
        let page = start + index * size;
        match runs.last_mut() {
            Some((start, length)) if *start + *length == page => *length += size,
            _ => runs.push((page, size)),
        }
    }
    runs
}

/// Lets go of the pages of program files, text and constants, that this process has touched. They are the files' own,
/// unchanged: what is needed again is mapped again, mostly from the kernel's cache, in about a microsecond for every
/// 64 KiB. What is kept stays.
pub(crate) fn let_go_of_program_text() {
    if KEPT.get().is_some_and(|kept| kept.lacks) {
        return;
    }
    let kept = KEPT.get().map_or(&[][..], |kept| &kept.runs);
    for (start, length) in LOADED.get().into_iter().flatten().flat_map(|&range| without(range, kept)) {
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

/// Returns the rest of a range without these, which are in order.
fn without((start, length): (usize, usize), kept: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let (mut from, end) = (start, start + length);
    let mut left = Vec::new();
    for &(kept, length) in kept.iter().filter(|kept| kept.0 < end && kept.0 + kept.1 > start) {
        if kept > from {
            left.push((from, kept - from));
        }
        from = kept + length;
    }
    if from < end {
        left.push((from, end - from));
    }
    left
}

/// The range of a mapping's line, if it can be read, and is no page of the kernel's own.
fn readable(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access, name) = (fields.next()?, fields.next()?, fields.nth(3));
    let is_own = name.is_none_or(|name| !name.starts_with("[v"));
    let (start, end) = range.split_once('-').filter(|_| access.starts_with('r') && is_own)?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
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
        // Of all that is loaded, what this is running in.
        let here = remember_what_is_loaded as fn() as usize;
        let holds = |range: &&(usize, usize)| (range.0..range.0 + range.1).contains(&here);
        let text = *LOADED.get().unwrap().iter().find(holds).unwrap();
        let is_inside =
            |(start, length): (usize, usize)| start >= text.0 && start + length <= text.0 + text.1;
        // What is kept is a mapping of its own from then on.
        let resident = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let (mut is_text, mut sum) = (false, 0);
            for line in maps.lines() {
                if let Some(size) = line.strip_prefix("Rss:").filter(|_| is_text) {
                    sum += size.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024;
                }
                is_text = readable(line).map_or(is_text, is_inside);
            }
            sum
        };
        let before = resident();
        let_go_of_program_text();
        let without_text = resident();
        assert!(without_text < before);
        let locked = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")?.strip_suffix(" kB"));
            locked.unwrap().trim().parse::<usize>().unwrap() * 1024
        };
        assert_eq!(locked(), 0);
        // Other tests' threads come and go meanwhile, with their stacks; so something may be gone before it can be kept.
        let outcome = keep_what_is_here();
        let kept = KEPT.get().unwrap();
        assert!(locked() > 0 && kept.lacks == outcome.is_err(), "{outcome:?}");
        let kept: usize = kept.runs.iter().filter(|kept| is_inside(**kept)).map(|kept| kept.1).sum();
        let_go_of_program_text();
        assert!(kept > 0 && resident() >= kept, "what is kept is not let go of");
    }

    #[test]
    fn what_is_left_of_a_range_is_what_is_not_kept() {
        assert_eq!(without((10, 10), &[]), [(10, 10)]);
        assert_eq!(without((10, 10), &[(0, 10), (20, 5)]), [(10, 10)]);
        assert_eq!(without((10, 10), &[(8, 4), (14, 1), (18, 9)]), [(12, 2), (15, 3)]);
        assert_eq!(without((10, 10), &[(0, 30)]), []);
    }

    #[test]
    fn the_kernels_own_pages_and_what_cannot_be_read_are_not_kept() {
        let range = |line: &str| readable(line).is_some();
        assert!(range("55e0cc12d000-55e0cc96b000 r-xp 000e3000 fe:00 3154  /usr/bin/primacy"));
        assert!(range("55e0e526e000-55e0e528f000 rw-p 00000000 00:00 0  [heap]"));
        assert!(range("7fe3f763e000-7fe3f7640000 rw-p 00000000 00:00 0"));
        assert!(!range("7fff0d5f2000-7fff0d5f4000 r-xp 00000000 00:00 0  [vdso]"));
        assert!(!range("7fe3f77bc000-7fe3f780f000 ---p 00000000 fe:00 3155  /usr/lib/libc.so.6"));
        assert!(!range("nonsense"));
    }
}
