//! Giving back memory that only the start needed. A node and its guardian do little for months, so program text that
//! only their start has read need not stay in memory. Keeping it also costs time: at the death of a process the kernel
//! releases its memory before it tells the guardian, some 60 µs for each MiB.
//!
//! Large data that is made once in a while, such as a snapshot of the replicated state, is given back, too.
//!
//! Memory that must be available at once is kept; see the guardian's [`warmup`](crate::guardian).

use std::ffi::c_void;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use primacy::core::Duration;
use rustix::mm::{Advice, madvise, mlock};

/// The time after which a started process has connected to all available peers.
pub(crate) const SETTLING_TIME: Duration = Duration::from_secs(1);

/// The size in bytes from which freed memory is given back to the kernel at once. It is above the size of messages
/// between nodes, which are made all the time: 256 KiB, unless a single request is longer.
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
const LARGE: i32 = 1 << 20;

/// The address ranges of the program's files, recorded before anything but the loader had run.
static LOADED: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// Records the address ranges of the program's files. To be called before there is a second thread: from then on a
/// library may be loaded or unloaded at any time, for example to look up a name.
pub(crate) fn remember_what_is_loaded() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    // If the ranges are unknown, no memory is given back.
    let _ = LOADED.set(unchanged(&maps));
}

/// Has large pieces of freed memory given back at once. The C library's allocator does so from 128 KiB on, until the
/// first large piece is freed: from then on it keeps all pieces up to that size, and smaller ones in between pin them
/// (`mallopt(3)`, on `M_MMAP_THRESHOLD`). A node with 16 MiB of history took 77 MiB after its first snapshot, and takes
/// 45 MiB with this.
pub(crate) fn give_back_what_is_large() {
    #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
    // SAFETY: it sets a number of the allocator, under the allocator's own lock.
    #[allow(unsafe_code)] // For it is the C library's.
    let set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
    debug_assert_eq!(set, 1, "a threshold below the largest is taken");
}

/// The memory that is locked.
#[derive(Debug, Default)]
struct Kept {
    /// The ranges, in order.
    runs: Vec<(usize, usize)>,
    /// True if a range was to be locked and is not.
    lacks: bool,
}

static KEPT: OnceLock<Kept> = OnceLock::new();

/// Locks in memory, for good, all pages of this process that are in memory now: of the program, its libraries, and its
/// data. None of them is given back or read from a disk after this. Processes that this one starts do not inherit the
/// lock.
///
/// # Errors
/// If not all of it can be locked: the kernel does not allow that much (`ulimit -l`), or does not report which pages
/// are there. The rest stays in memory for as long as the kernel likes. To help it, [`let_go_of_program_text`] does
/// nothing from then on.
pub(crate) fn keep_what_is_here() -> io::Result<()> {
    let (mut kept, mut outcome) = (Kept::default(), Ok(()));
    match what_is_here() {
        Ok(runs) => {
            for run in runs {
                let start = std::ptr::without_provenance_mut::<c_void>(run.0);
                // SAFETY: no content changes by it, and the kernel itself checks whether memory is mapped there.
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
    // Called once. A second call would not be recorded, which is safe: the kernel refuses to give back locked pages.
    let _ = KEPT.set(kept);
    outcome
}

/// Returns the runs of pages that are in this process's memory.
fn what_is_here() -> io::Result<Vec<(usize, usize)>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let pages = std::fs::File::open("/proc/self/pagemap")?;
    Ok(maps.lines().filter_map(readable).flat_map(|range| present(&pages, range)).collect())
}

/// Returns the runs of pages of this range that are in this process's memory.
fn present(pages: &std::fs::File, (start, length): (usize, usize)) -> Vec<(usize, usize)> {
    /// The highest bit of the eight bytes for each page; see the kernel's `pagemap.rst`.
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

/// Gives back the pages of program files, text and constants, that this process has touched. They are unchanged pages
/// of files: a page that is needed again is mapped again, mostly from the kernel's cache, in about a microsecond for
/// every 64 KiB. Locked pages stay.
pub(crate) fn let_go_of_program_text() {
    if KEPT.get().is_some_and(|kept| kept.lacks) {
        return;
    }
    let kept = KEPT.get().map_or(&[][..], |kept| &kept.runs);
    for (start, length) in LOADED.get().into_iter().flatten().flat_map(|&range| without(range, kept)) {
        let start = std::ptr::without_provenance_mut::<c_void>(start);
        // SAFETY: at the start the range was a private mapping of a file that cannot be written, without a page of its
        // own in memory or swapped out, as the kernel reported. The loader had relocated by then; it never unloads the
        // files that it loads before `main`; and nothing here changes protections. So every page is still the file's,
        // and reading it again gives the same bytes.
        #[allow(unsafe_code)] // No safe wrapper can know what a range of addresses holds.
        let advised = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
        // This is only advice; a kernel that refuses it keeps the pages.
        let _ = advised;
    }
}

/// Returns the ranges in `/proc/PID/smaps` that are pages of files, not writable, and unchanged.
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

/// Returns the parts of a range that are outside these ranges, which are in order.
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

/// Parses the range of a mapping's line, unless it is one of the kernel's own pages.
fn readable(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access, name) = (fields.next()?, fields.next()?, fields.nth(3));
    let is_own = name.is_none_or(|name| !name.starts_with("[v"));
    let (start, end) = range.split_once('-').filter(|_| access.starts_with('r') && is_own)?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

/// Parses the range of a mapping's first line, if it is a private mapping of a file, readable and not writable.
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
        // The mapping that this code is running in.
        let here = remember_what_is_loaded as fn() as usize;
        let holds = |range: &&(usize, usize)| (range.0..range.0 + range.1).contains(&here);
        let text = *LOADED.get().unwrap().iter().find(holds).unwrap();
        let is_inside =
            |(start, length): (usize, usize)| start >= text.0 && start + length <= text.0 + text.1;
        // A locked range becomes a mapping of its own.
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
        // Threads of other tests end meanwhile, and their stacks with them, so a range may be gone before it can be
        // locked.
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
