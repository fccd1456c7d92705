//! Giving memory back to the system.

/// Gives free memory back, as far as the C library's allocator can: it keeps what many small pieces had.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory only, under the allocator's own locks.
    #[allow(unsafe_code)] // For it is the C library's.
    let _is_released = unsafe { libc::malloc_trim(0) };
}
