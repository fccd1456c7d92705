//! The elections: this list is their one home.
//!
//! | file | elects | guarantee |
//! |---|---|---|
//! | [`appointed`] | the node that the configuration names | advisory: two configurations, two leaders |
//! | [`bully`] | the highest name that is alive | advisory: a partition, two leaders |
//! | [`quorum`] | by a majority of voters | a token; with `Safety::Lease` also one leader at a time |
//! | [`ranked`] | by a majority of votes, each for the best claim | a token |
//! | [`ring`] | the highest name on a ring | advisory: a partition, two leaders |
//! | [`ring_bidirectional`] | the same, with fewer messages on large rings | advisory |
//! | [`seniority`] | the oldest member of a cluster | advisory: a partition may have two, as its policy says |
//! | [`lease`] | over an expiring record in any compare-and-set store | a token, and one leader at a time |
//!
//! Beside them, [`errand`] writes into the record of a lease for somebody who does not stand.

pub mod appointed;
pub mod bully;
pub mod errand;
pub mod lease;
pub mod on_a_ring;
pub mod quorum;
pub mod ranked;
pub mod ring;
pub mod ring_bidirectional;
pub mod seniority;
