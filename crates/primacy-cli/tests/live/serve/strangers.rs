//! Clients in another language.
