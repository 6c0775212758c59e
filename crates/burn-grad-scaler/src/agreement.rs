//! What ranks make of a step together.

use crate::check::{Checked, LossCheck};
use crate::{LossScale, Ranks, RanksError};

/// The numbers by which ranks agree about one loss.
const NUMBERS: usize = 7;

/// Makes of what one rank has found what all ranks have found, loss by loss.
///
/// `scales` are this rank's before the step, one per loss; they must be those of all ranks.
pub(crate) fn agree(
    ranks: &dyn Ranks,
    checked: &mut Checked,
    scales: &[LossScale],
) -> Result<(), RanksError> {
    let mut numbers: Vec<f64> = scales
        .iter()
        .enumerate()
        .flat_map(|(loss_id, scale)| numbers(loss_id, checked, scale))
        .collect();
    ranks.max(&mut numbers)?;
    for (loss_id, numbers) in numbers.chunks_exact(NUMBERS).enumerate() {
        let &[
            counts,
            overflowed,
            square,
            scale,
            least_scale,
            steps,
            least_steps,
        ] = numbers
        else {
            unreachable!("chunks are of this size");
        };
        same("the number of updates", loss_id, -least_steps, steps)?;
        same("the value", loss_id, -least_scale, scale)?;
        take_over(
            loss_id,
            checked,
            counts > 0.0,
            overflowed > 0.0,
            match overflowed > 0.0 {
                true => f64::INFINITY,
                false => square,
            },
        );
    }
    checked.norm = checked.losses.iter().map(|l| l.square).sum::<f64>().sqrt();
    Ok(())
}

/// Makes one number the largest of those that all ranks have.
pub(crate) fn largest(ranks: &dyn Ranks, number: f64) -> Result<f64, RanksError> {
    let mut numbers = [number];
    ranks.max(&mut numbers)?;
    Ok(numbers[0])
}

/// Of a number that must be the same the negative is compared as well: the largest of both are then
/// the most and the least.
fn numbers(loss_id: usize, checked: &Checked, scale: &LossScale) -> [f64; NUMBERS] {
    let of_loss = || checked.losses.iter().filter(|l| l.loss_id == loss_id);
    let overflowed = of_loss().any(|loss| loss.overflowed);
    let square = match overflowed {
        true => 0.0, // NaN perhaps, and of no use.
        false => of_loss().map(|loss| loss.square).sum(),
    };
    let (value, steps) = (f64::from(scale.scale()), scale.state().steps as f64);
    [
        f64::from(of_loss().any(|loss| loss.counts)),
        f64::from(overflowed),
        square,
        value,
        -value,
        steps,
        -steps,
    ]
}

fn same(what: &str, loss_id: usize, least: f64, most: f64) -> Result<(), RanksError> {
    if least == most {
        return Ok(());
    }
    Err(RanksError::Disagree {
        what: format!("{what} of the scale of loss {loss_id}"),
        least,
        most,
    })
}

/// A loss may have several entries here, one per model, or none: its scale moves all the same.
fn take_over(
    loss_id: usize,
    checked: &mut Checked,
    counts: bool,
    overflowed: bool,
    mut square: f64,
) {
    if counts && !checked.losses.iter().any(|l| l.loss_id == loss_id) {
        checked.losses.push(LossCheck {
            loss_id,
            gradients: 0,
            counts,
            overflowed,
            non_finite: None,
            square: 0.0,
        });
    }
    for loss in checked.losses.iter_mut().filter(|l| l.loss_id == loss_id) {
        loss.counts = counts;
        loss.overflowed = overflowed;
        // The square of the whole loss, in its first entry.
        loss.square = core::mem::take(&mut square);
    }
}
