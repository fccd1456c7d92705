//! The way to libFuzzer, which is linked in only for a run of the fuzzer.
//!
//! libFuzzer's own `main` is not used, because the test binary already has one. The arguments after `--` on the command
//! line are its options. Where it starts itself again (to merge corpora, or to make an input smaller), it uses everything
//! before them as its program name, and so returns to the same test.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

// Nothing of its Rust side is used; naming it has it linked.
use libfuzzer_sys as _;

type Check = Box<dyn Fn(&[u8])>;

thread_local! {
    /// The check that the callback runs, because the callback takes no argument of its own. libFuzzer calls back on the
    /// thread that started it.
    static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
}

#[allow(unsafe_code)] // libFuzzer is a library of C++.
unsafe extern "C" {
    /// Runs libFuzzer as its `main` would (LLVM's documentation, "Using libFuzzer as a library").
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// Hands the check to libFuzzer, which ends the process: with zero unless the check has failed.
pub(crate) fn run(check: impl Fn(&[u8]) + 'static) {
    CHECK.set(Some(Box::new(check)));
    let arguments: Vec<String> = std::env::args().collect();
    let options = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len() - 1);
    let (program, options) = arguments.split_at(options + 1);
    let arguments: Vec<CString> = std::iter::once(program.join(" "))
        .chain(options.iter().cloned())
        .map(|argument| CString::new(argument).expect("an argument has no zero byte"))
        .collect();
    let mut pointers: Vec<*mut c_char> =
        arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    let mut count = c_int::try_from(pointers.len()).expect("there are few arguments");
    pointers.push(ptr::null_mut());
    let mut pointers = pointers.as_mut_ptr();
    // SAFETY: both pointers are valid until the process exits: libFuzzer does not write to the arguments, and `arguments`
    // is not dropped, because `exit` follows.
    #[allow(unsafe_code)]
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut pointers, call) };
    std::process::exit(code);
}

/// Called back for each input.
extern "C" fn call(data: *const u8, length: usize) -> c_int {
    let bytes = if length == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer hands over that many bytes, and leaves them alone until this returns.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(data, length)
        }
    };
    let held = catch_unwind(AssertUnwindSafe(|| {
        CHECK.with_borrow(|check| check.as_ref().expect("set before the run")(bytes));
    }));
    if held.is_err() {
        // libFuzzer sees the signal, and keeps the input.
        std::process::abort();
    }
    0
}
