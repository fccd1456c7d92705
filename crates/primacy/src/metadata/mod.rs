//! Metadata: a state that the leader of an election writes, and all nodes keep. Here is what touches the disk; the machines are
//! in `primacy_core::metadata`.

mod log_file;
