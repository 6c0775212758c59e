use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor};
use burn_amp::{Amp, AmpOptimizer, LossScaleError};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::cli::Options;
use crate::gpt::Gpt;
use crate::program::checkpoint::{Checkpoint, CheckpointError};
use crate::program::interrupt::Interrupt;
use crate::program::progress::{self, say};
use crate::text::{Text, batch, pieces};

/// Keeps a transformer's first steps in bounds.
const CLIP_NORM: f64 = 1.0;

/// AdamW, wrapped for mixed precision.
type Optim<B> = AmpOptimizer<OptimizerAdaptor<AdamW, Gpt<B>, B>, B>;

/// A training that has come to the end of an epoch.
pub struct Trained<B: AutodiffBackend> {
    pub model: Gpt<B>,
    pub optim: Optim<B>,
    /// The number of epochs that are done.
    epoch: usize,
}

impl<B: AutodiffBackend> Trained<B> {
    /// A training that has not begun.
    pub fn new(model: Gpt<B>, amp: &Amp) -> Result<Self, LossScaleError> {
        Ok(Trained {
            model,
            optim: AmpOptimizer::new(AdamWConfig::new().init(), amp).with_clip_norm(CLIP_NORM)?,
            epoch: 0,
        })
    }
}

/// What a training has around it.
pub struct Training<'a, B: Backend> {
    pub options: &'a Options,
    pub text: &'a Text,
    pub device: &'a B::Device,
    pub interrupt: &'a Interrupt,
    pub checkpoint: Option<Checkpoint>,
}

/// The checkpoint that the flags ask for.
pub fn checkpoint(options: &Options, text: &Text) -> Option<Checkpoint> {
    let dir = options.checkpoint.save.as_ref()?;
    let same = vec![
        ("text", text.name.clone()),
        ("bytes of text", text.train.len().to_string()),
        ("--batch-size", options.batch_size.to_string()),
        ("--lr", options.lr.to_string()),
        ("--seed", options.seed.to_string()),
        ("--length", options.length.to_string()),
        ("--width", options.width.to_string()),
        ("--heads", options.heads.to_string()),
        ("--layers", options.layers.to_string()),
    ];
    Some(Checkpoint::new(dir, same))
}

impl<B: AutodiffBackend> Training<'_, B> {
    /// From the start, or from the checkpoint that is to be continued.
    pub fn begin(&self, fresh: Trained<B>) -> Result<Trained<B>, CheckpointError> {
        match &self.checkpoint {
            Some(checkpoint) if self.options.checkpoint.resume => {
                let saved = checkpoint.load::<B, _, _, usize>(self.device)?;
                let optim = fresh
                    .optim
                    .try_load_record::<Gpt<B>>(saved.optimizer)
                    .map_err(|source| checkpoint.refused(source))?;
                Ok(Trained {
                    model: fresh.model.load_record(saved.model),
                    optim,
                    epoch: saved.progress,
                })
            }
            Some(checkpoint) => checkpoint.require_empty().map(|()| fresh),
            None => Ok(fresh),
        }
    }

    /// Trains to the last epoch, a line for each. `None` when it was interrupted.
    pub fn run(&self, mut trained: Trained<B>) -> Result<Option<Trained<B>>, CheckpointError> {
        let Options {
            epochs,
            batch_size,
            length,
            ..
        } = *self.options;
        let starts = pieces(&self.text.train, length);
        let steps_per_epoch = starts.len().div_ceil(batch_size);
        let bar = progress::bar(steps_per_epoch * epochs);
        bar.set_position((steps_per_epoch * trained.epoch) as u64);
        for epoch in trained.epoch + 1..=epochs {
            let mut order = starts.clone();
            // Of each epoch by itself, so that a resumed training sees the order it would have seen.
            order.shuffle(&mut StdRng::seed_from_u64(
                self.options.seed ^ (epoch as u64) << 32,
            ));
            let mut sum = 0.0;
            for starts in order.chunks(batch_size) {
                let [tokens, next] = batch(&self.text.train, starts, length, self.device);
                let loss = loss(trained.model.forward(tokens), next);
                sum += loss.clone().into_scalar().elem::<f64>();
                let grads = GradientsParams::from_grads(loss.backward(), &trained.model);
                trained.model = trained.optim.step(self.options.lr, trained.model, grads);
                bar.inc(1);
                if self.interrupt.asked() {
                    bar.finish_and_clear();
                    say(&self.options.checkpoint.left_by_interrupt(epoch));
                    return Ok(None);
                }
            }
            trained.epoch = epoch;
            if let Some(checkpoint) = &self.checkpoint {
                checkpoint.save::<B>(
                    epoch,
                    trained.model.clone().into_record(),
                    Optimizer::<Gpt<B>, B>::to_record(&trained.optim),
                    &epoch,
                )?;
            }
            let train = (sum / steps_per_epoch as f64).exp();
            let test = self.perplexity(&trained.model.valid());
            bar.suspend(|| {
                println!("epoch {epoch}: perplexity {train:.3} in training, {test:.3} on the rest")
            });
        }
        bar.finish_and_clear();
        Ok(Some(trained))
    }

    /// Of a byte of the text that is for testing, 256 being a blind guess: e to the mean loss.
    fn perplexity(&self, model: &Gpt<B::InnerBackend>) -> f64 {
        let length = self.options.length;
        let starts = pieces(&self.text.test, length);
        let losses = starts.chunks(self.options.batch_size).map(|starts| {
            let [tokens, next] = batch(&self.text.test, starts, length, self.device);
            let mean = loss(model.forward(tokens), next);
            mean.into_scalar().elem::<f64>() * starts.len() as f64
        });
        (losses.sum::<f64>() / starts.len() as f64).exp()
    }
}

/// The mean cross-entropy of the bytes that follow, in nats.
fn loss<B: Backend>(logits: Tensor<B, 3>, next: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let [n, length, vocabulary] = logits.dims();
    CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(
            logits.reshape([n * length, vocabulary]),
            next.reshape([n * length]),
        )
}
