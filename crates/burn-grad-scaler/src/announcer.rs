use burn_mixed_precision::{HalfDType, TraceMode, Tracer};

use crate::{AtFloorPolicy, StepOutcome, StepStatus};

/// Says in the log what a user should know about skipped steps, and no more often than useful.
///
/// A few skips belong to a dynamic scale's search and are noted at debug level. The tenth in a row
/// is a warning, as is an overflow at the floor; then the hundredth, the thousandth and so on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announcer {
    in_a_row: u64,
    at_floor: u64,
}

impl Announcer {
    /// `aloud` is false where another rank says it.
    pub fn announce(
        &mut self,
        outcome: &StepOutcome,
        half: HalfDType,
        tracer: &Tracer,
        aloud: bool,
    ) {
        match outcome.status {
            StepStatus::Applied => *self = Announcer::default(),
            StepStatus::NoGradients => {}
            StepStatus::Skipped => self.skipped(outcome, half, tracer, aloud),
        }
    }

    fn skipped(&mut self, outcome: &StepOutcome, half: HalfDType, tracer: &Tracer, aloud: bool) {
        if aloud {
            log::debug!("{outcome}");
        }
        self.in_a_row += 1;
        let at_floor = outcome.scales.iter().any(|(_, update)| {
            update
                .at_floor()
                .is_some_and(|policy| policy != AtFloorPolicy::Continue)
        });
        if at_floor {
            self.at_floor += 1;
            if aloud && is_power_of_ten(self.at_floor) {
                log::warn!("{outcome}. {} {}", advice(outcome, half), origin(tracer));
            }
        } else if aloud && self.in_a_row >= 10 && is_power_of_ten(self.in_a_row) {
            log::warn!(
                "{} steps skipped in a row. {outcome}. {} {}",
                self.in_a_row,
                advice(outcome, half),
                origin(tracer)
            );
        }
    }
}

/// What to do about gradients that stay infinite or NaN.
fn advice(outcome: &StepOutcome, half: HalfDType) -> &'static str {
    let searching = outcome
        .scales
        .iter()
        .any(|(_, update)| update.after < update.before);
    match (searching, half) {
        (true, _) => "The loss scale is still going down: wait, or start it lower.",
        (false, HalfDType::F16) => {
            "A lower loss scale cannot help: something overflows in the forward pass or is NaN \
             already. Take bf16, run the overflowing block in f32 (scope::full), or look for a NaN \
             in the data."
        }
        (false, HalfDType::Bf16) => {
            "bf16 has the range of f32, so this is no matter of precision: lower the learning rate, \
             clip gradients, or look for a NaN in the data."
        }
    }
}

/// Where the infinities come from, or how to find out.
fn origin(tracer: &Tracer) -> String {
    let finding = tracer.last().and_then(|trace| trace.fault().cloned());
    match (finding, tracer.mode()) {
        (Some(finding), _) => format!("It begins here: {finding}."),
        (None, TraceMode::Off) => {
            "AmpConfig::with_trace(TraceMode::OnSkip) names the operation it begins at.".to_string()
        }
        (None, _) => "The overflow tracer has found no fault so far.".to_string(),
    }
}

fn is_power_of_ten(n: u64) -> bool {
    n > 0 && 10u64.checked_pow(n.ilog10()) == Some(n)
}

#[cfg(test)]
mod tests {
    use super::is_power_of_ten;

    #[test]
    fn messages_become_rarer_tenfold() {
        let said: Vec<u64> = (0..=10_000).filter(|n| is_power_of_ten(*n)).collect();
        assert_eq!(said, [1, 10, 100, 1000, 10_000]);
    }
}
