//! primacy
