//! The models under test, written as a user of Burn writes them: nothing here knows of precision.

mod cnn;
mod lm;
mod lstm;
mod mlp;
mod resnet;

pub use cnn::Cnn;
pub use lm::Lm;
pub use lstm::Lstm;
pub use mlp::Mlp;
pub use resnet::ResNet;
