//! primacy-stores
