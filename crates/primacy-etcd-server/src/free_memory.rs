//! Returns memory to the system.

/// Returns free memory to the system, as far as the C library's allocator can: it keeps that of many small allocations.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it affects free memory only, under the allocator's own locks.
    #[allow(unsafe_code)] // For it is the C library's.
    let _is_released = unsafe { libc::malloc_trim(0) };
}
