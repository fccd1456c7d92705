//! The elections: this list is their one home.
//!
//! | file | elects | guarantee |
//! |---|---|---|
//! | [`appointed`] | the node that the configuration names | advisory: two configurations, two leaders |
//! | [`quorum`] | by a majority of voters | a token; with `Safety::Lease` also one leader at a time |
//! | [`lease`] | over an expiring record in any compare-and-set store | a token, and one leader at a time |

pub mod appointed;
pub mod lease;
pub mod quorum;
