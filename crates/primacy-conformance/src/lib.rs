//! primacy-conformance
