//! Panic hooks, which leave out the panics that become errors of a store's request.

use std::panic::{PanicHookInfo, set_hook};

use primacy::stores::contained::is_contained;

/// Has `report` handle each panic from now on, except those that become errors of a request, which reports them.
pub(crate) fn handle(report: impl Fn(&PanicHookInfo<'_>) + Send + Sync + 'static) {
    set_hook(Box::new(move |panic| {
        if is_contained() {
            tracing::debug!("{panic}");
        } else {
            report(panic);
        }
    }));
}
