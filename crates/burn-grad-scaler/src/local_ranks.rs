use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex};

use crate::{Ranks, RanksError};

/// Ranks that are threads of one process, as those of Burn's data-parallel `Learner` are.
///
/// Clones meet one another: every rank has one, or they share one through clones of an optimizer.
///
/// A rank that does not come within ten minutes (torch's time-out for NCCL) is given up, and so is
/// the group: the ranks that wait, and whoever comes later, get [`RanksError::Missing`] rather than a
/// dead-lock.
///
/// # Example
///
/// ```
/// use burn_grad_scaler::{LocalRanks, Ranks};
///
/// let ranks = LocalRanks::new(2);
/// std::thread::scope(|threads| {
///     for rank in [1.0, 2.0] {
///         let ranks = ranks.clone();
///         threads.spawn(move || {
///             let mut numbers = [rank, -rank];
///             ranks.max(&mut numbers).unwrap();
///             assert_eq!(numbers, [2.0, -1.0]);
///         });
///     }
/// });
/// ```
#[derive(Clone)]
pub struct LocalRanks {
    ranks: usize,
    timeout: Duration,
    meeting: Arc<Meeting>,
}

#[derive(Default)]
struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The meetings that are over.
    round: u64,
    arrived: usize,
    /// The largest numbers of those who have arrived.
    largest: Vec<f64>,
    /// The result of the last meeting that is over: each rank reads it before it can come again.
    agreed: Vec<f64>,
    /// Why there will be no more meetings.
    over: Option<RanksError>,
}

impl LocalRanks {
    /// A group of so many ranks.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn new(ranks: usize) -> Self {
        assert!(ranks > 0, "a group of 0 ranks: allowed is at least 1");
        LocalRanks {
            ranks,
            timeout: Duration::from_secs(600),
            meeting: Arc::default(),
        }
    }

    /// Waits so long for ranks that are late: longer than validation, saving or compiling takes.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl Ranks for LocalRanks {
    fn max(&self, numbers: &mut [f64]) -> Result<(), RanksError> {
        let Meeting { state, changed } = &*self.meeting;
        let mut state = state.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        if state.arrived == 0 {
            state.largest = numbers.to_vec();
        } else if state.largest.len() != numbers.len() {
            let (one, other) = (state.largest.len() as f64, numbers.len() as f64);
            let error = RanksError::Disagree {
                what: "how many numbers to compare".to_string(),
                least: one.min(other),
                most: one.max(other),
            };
            state.over = Some(error.clone());
            changed.notify_all();
            return Err(error);
        } else {
            for (largest, number) in state.largest.iter_mut().zip(&*numbers) {
                *largest = largest.max(*number);
            }
        }
        state.arrived += 1;
        if state.arrived == self.ranks {
            state.agreed = core::mem::take(&mut state.largest);
            state.arrived = 0;
            state.round += 1;
            changed.notify_all();
        } else {
            let round = state.round;
            let waiting = |state: &mut State| state.round == round && state.over.is_none();
            state = changed
                .wait_timeout_while(state, self.timeout, waiting)
                .unwrap_or_else(|e| e.into_inner())
                .0;
            if state.round == round {
                let error = state.over.clone().unwrap_or(RanksError::Missing {
                    arrived: state.arrived,
                    ranks: self.ranks,
                    waited: self.timeout,
                });
                state.over = Some(error.clone());
                changed.notify_all();
                return Err(error);
            }
        }
        numbers.copy_from_slice(&state.agreed);
        Ok(())
    }
}

impl fmt::Debug for LocalRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRanks")
            .field("ranks", &self.ranks)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_meeting_is_of_all_ranks() {
        for ranks in [1, 2, 4] {
            let group = LocalRanks::new(ranks);
            thread::scope(|threads| {
                for rank in 0..ranks {
                    let group = group.clone();
                    threads.spawn(move || {
                        for round in 0..500 {
                            let mut numbers = [(round + rank) as f64, -(rank as f64)];
                            group.max(&mut numbers).unwrap();
                            assert_eq!(numbers, [(round + ranks - 1) as f64, 0.0]);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_missing_rank_is_an_error_for_all_who_came() {
        let group = LocalRanks::new(3).with_timeout(Duration::from_millis(50));
        let missing = RanksError::Missing {
            arrived: 2,
            ranks: 3,
            waited: Duration::from_millis(50),
        };
        thread::scope(|threads| {
            for _ in 0..2 {
                let (group, missing) = (group.clone(), missing.clone());
                threads.spawn(move || assert_eq!(group.max(&mut [0.0]), Err(missing)));
            }
        });
        assert_eq!(
            group.max(&mut [0.0]),
            Err(missing),
            "and for who comes late"
        );
    }

    #[test]
    fn ranks_that_compare_other_things_are_noticed() {
        let group = LocalRanks::new(2);
        let results = thread::scope(|threads| {
            [1, 2]
                .map(|count| {
                    let group = group.clone();
                    threads.spawn(move || group.max(&mut vec![0.0; count]))
                })
                .map(|rank| rank.join().unwrap())
        });
        for result in results {
            let Err(RanksError::Disagree { least, most, .. }) = result else {
                panic!("{result:?}");
            };
            assert_eq!((least, most), (1.0, 2.0));
        }
    }
}
