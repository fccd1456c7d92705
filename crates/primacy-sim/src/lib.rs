//! primacy-sim
