//! A trained model writes.

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cli::Options;
use crate::gpt::Gpt;

/// The prompt and what the model makes of it, a byte at a time; bytes that are no text are shown as
/// replacement characters.
pub fn write<B: Backend>(model: &Gpt<B>, options: &Options, device: &B::Device) -> String {
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut text = options.prompt.clone().into_bytes();
    for _ in 0..options.write {
        let seen = &text[text.len().saturating_sub(options.length)..];
        let tokens: Vec<i32> = seen.iter().copied().map(i32::from).collect();
        let length = tokens.len();
        let tokens = Tensor::<B, 1, Int>::from_data(tokens.as_slice(), device);
        let logits = model.forward(tokens.unsqueeze());
        let [_, _, vocabulary] = logits.dims();
        let last = logits
            .slice([0..1, length - 1..length])
            .reshape([vocabulary]);
        let chances = softmax(last.div_scalar(options.temperature), 0)
            .into_data()
            .convert::<f32>();
        text.push(draw(chances.iter::<f32>(), random.random()));
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The byte that a number from 0 to 1 falls on, when each byte has its chance in width.
fn draw(chances: impl Iterator<Item = f32>, mut number: f32) -> u8 {
    for (byte, chance) in chances.enumerate() {
        if number < chance {
            return byte as u8;
        }
        number -= chance;
    }
    // Chances that were rounded may add up to a little less than 1.
    b' '
}
