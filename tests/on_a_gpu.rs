//! The numeric promises of the other test files in one binary, for a GPU machine that has no Rust
//! toolchain: `benches/gpu/test` runs it there, a process and a folder of tuned kernels for each.
//!
//! ```sh
//! cargo test --release --no-default-features --features cuda,fusion,autotune --test on_a_gpu --no-run
//! ```

#![allow(
    clippy::duplicate_mod,
    reason = "each file brings its support, as it does alone"
)]

#[path = "attention_keeps_scores_in_f32.rs"]
mod attention_keeps_scores_in_f32;
#[path = "both_stacking_orders_train.rs"]
mod both_stacking_orders_train;
#[path = "casts_are_cached.rs"]
mod casts_are_cached;
#[path = "casts_follow_the_op_table.rs"]
mod casts_follow_the_op_table;
#[path = "conv_gradients_are_products.rs"]
mod conv_gradients_are_products;
#[path = "every_module_is_accurate.rs"]
mod every_module_is_accurate;
#[path = "grad_scaler_by_hand.rs"]
mod grad_scaler_by_hand;
#[path = "gradients_match_f32.rs"]
mod gradients_match_f32;
#[path = "half_models_keep_norms_in_f32.rs"]
mod half_models_keep_norms_in_f32;
#[path = "linear_is_flat.rs"]
mod linear_is_flat;
#[path = "no_gradient_escapes_the_check.rs"]
mod no_gradient_escapes_the_check;
#[path = "one_read_per_step.rs"]
mod one_read_per_step;
#[path = "overflow_skips_the_step.rs"]
mod overflow_skips_the_step;
#[path = "parameters_come_and_go.rs"]
mod parameters_come_and_go;
#[path = "policy_off_is_transparent.rs"]
mod policy_off_is_transparent;
#[path = "scalars_keep_their_meaning.rs"]
mod scalars_keep_their_meaning;
#[path = "scaling_saves_small_gradients.rs"]
mod scaling_saves_small_gradients;
#[path = "several_losses_and_optimizers.rs"]
mod several_losses_and_optimizers;
#[path = "the_alias_trains.rs"]
mod the_alias_trains;
#[path = "training_resumes_exactly.rs"]
mod training_resumes_exactly;

// Some of them look for these at the root.
#[path = "support/models.rs"]
mod models;
#[path = "support/mod.rs"]
mod support;
