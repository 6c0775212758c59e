//! Burn's seven operation traits, one file each, in Burn's order of methods.
//!
//! Every method is written out, those with a default body too: an inherited default would bypass
//! the inner backend's own kernel and apply the policy to the pieces. Clippy keeps it so. What
//! stands in `forward!`, or comes from [`delegate`](crate::delegate), is passed on; a body means that
//! policy happens there.

#![deny(clippy::missing_trait_methods)]

/// Passes operations on to the inner backend, which is `B` unless named.
macro_rules! forward {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        $(fn $name($($arg: $ty),*) $(-> $ret)? { B::$name($($arg),*) })*
    };
    ($inner:ty => $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        $(fn $name($($arg: $ty),*) $(-> $ret)? { <$inner>::$name($($arg),*) })*
    };
}

pub(crate) use forward;

mod activation;
mod attention;
mod bool_tensor;
mod created;
mod host_read;
mod int_tensor;
mod module;
mod qtensor;
mod tensor;
mod transaction;
