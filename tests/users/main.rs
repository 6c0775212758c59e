//! What users of other mixed-precision systems ran into, one test a row.
//!
//! The rows, with the threads they come from, stand in `rows.rs`; docs/user-failures.md is written
//! from them: `UPDATE_DOCS=1 cargo test --test users`.

#[path = "../support/mod.rs"]
mod support;

mod burn_and_rust;
mod casting;
mod debugging;
mod log_capture;
mod loss_scale;
mod one_weight;
mod range;
mod rows;
mod stepping;
mod weights;
