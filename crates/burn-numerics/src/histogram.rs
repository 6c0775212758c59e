use core::ops::RangeInclusive;
use std::collections::BTreeMap;

use burn_mixed_precision::HalfDType;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::{ScaleRange, Shares};

/// How many numbers have each power of two, with zeros, infinities and NaN counted apart.
///
/// A number's exponent is `floor(log2 |x|)`.
///
/// # Numerics
///
/// [`shares`](Histogram::shares) and [`clean_scales`](Histogram::clean_scales) are exact, not estimates
/// from whole bins: within its bin a number is also filed by the places where f16 and bf16 round to
/// zero, to the smallest normal number and to infinity, ties to even.
///
/// # Example
///
/// ```
/// use burn_mixed_precision::HalfDType;
/// use burn_numerics::Histogram;
///
/// let numbers = Histogram::of(&[1e-8, 1.0, 1e5, 0.0]);
/// let shares = numbers.shares(HalfDType::F16, 0);
/// assert_eq!((shares.flushed, shares.overflowed), (1.0 / 3.0, 1.0 / 3.0));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    cells: BTreeMap<Cell, u64>,
    zeros: u64,
    positive_infinities: u64,
    negative_infinities: u64,
    nans: u64,
}

/// A part of a bin: the numbers of one exponent between two edges, at which a half dtype rounds
/// another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    exponent: i32,
    part: u8,
}

/// The power of two itself, which at the lower end is a tie and goes to zero.
const POWER: u8 = 0;

/// Where the parts after the second begin, as significands in [1, 2).
const EDGES: [f64; 4] = [
    2.0 - 1.0 / 128.0, // rounds up to the next power of two in bf16 with one digit less: subnormals
    2.0 - 1.0 / 256.0, // rounds up to the next power of two in bf16
    2.0 - 1.0 / 1024.0, // as the first, in f16
    2.0 - 1.0 / 2048.0, // as the second, in f16
];

/// The cells where a half dtype's ranges end.
struct Ends {
    /// The largest that becomes zero.
    zero: Cell,
    /// The smallest that becomes a normal number.
    normal: Cell,
    /// The smallest that is near overflow.
    near: Cell,
    /// The smallest that becomes infinite.
    infinite: Cell,
}

impl Cell {
    const fn new(exponent: i32, part: u8) -> Self {
        Cell { exponent, part }
    }

    /// The cell of a finite number that is not zero.
    fn of(number: f64) -> Self {
        // Subnormal f64 numbers become normal ones.
        let (number, shift) = match number.is_normal() {
            true => (number, 0),
            false => (number * 2f64.powi(64), 64),
        };
        let bits = number.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i32 - 1023 - shift;
        let significand = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
        let part = match significand {
            1.0 => POWER,
            _ => 1 + EDGES.iter().filter(|edge| significand >= **edge).count() as u8,
        };
        Cell { exponent, part }
    }

    /// The cell whose numbers come to lie in this one when multiplied by `2^shift`.
    const fn before(self, shift: i32) -> Self {
        Cell::new(self.exponent - shift, self.part)
    }
}

impl Ends {
    const fn of(half: HalfDType) -> Self {
        // f16: 2^-25 is halfway to the smallest subnormal 2^-24; 65520 is halfway from 65504 to 2^16.
        match half {
            HalfDType::F16 => Ends {
                zero: Cell::new(-25, POWER),
                normal: Cell::new(-15, 4),
                near: Cell::new(16 - Histogram::NEAR, POWER),
                infinite: Cell::new(15, 5),
            },
            HalfDType::Bf16 => Ends {
                zero: Cell::new(-134, POWER),
                normal: Cell::new(-127, 2),
                near: Cell::new(128 - Histogram::NEAR, POWER),
                infinite: Cell::new(127, 3),
            },
        }
    }
}

impl Histogram {
    /// A number is near overflow within this many powers of two of the end: a dynamic loss scale
    /// doubles, and the largest number of a batch is a few times that of another.
    pub const NEAR: i32 = 3;

    /// The exponents of these numbers.
    pub fn of(numbers: &[f64]) -> Self {
        let mut histogram = Histogram::default();
        for number in numbers {
            histogram.add(*number);
        }
        histogram
    }

    /// Counts a number.
    pub fn add(&mut self, number: f64) {
        if number == 0.0 {
            self.zeros += 1;
        } else if number.is_nan() {
            self.nans += 1;
        } else if number == f64::INFINITY {
            self.positive_infinities += 1;
        } else if number == f64::NEG_INFINITY {
            self.negative_infinities += 1;
        } else {
            *self.cells.entry(Cell::of(number)).or_default() += 1;
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
        self.zeros += other.zeros;
        self.positive_infinities += other.positive_infinities;
        self.negative_infinities += other.negative_infinities;
        self.nans += other.nans;
    }

    /// All numbers that were counted.
    pub fn total(&self) -> u64 {
        self.nonzero() + self.zeros + self.infinities() + self.nans
    }

    /// The finite numbers other than zero.
    pub fn nonzero(&self) -> u64 {
        self.cells.values().sum()
    }

    /// The zeros.
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// The infinities of both signs.
    pub fn infinities(&self) -> u64 {
        self.positive_infinities + self.negative_infinities
    }

    /// The NaN.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// The counts of finite numbers other than zero, by exponent.
    pub fn bins(&self) -> BTreeMap<i32, u64> {
        let mut bins = BTreeMap::new();
        for (cell, count) in &self.cells {
            *bins.entry(cell.exponent).or_default() += count;
        }
        bins
    }

    /// The smallest and the largest exponent; `None` without a finite number other than zero.
    pub fn span(&self) -> Option<RangeInclusive<i32>> {
        let (first, last) = (self.cells.first_key_value()?, self.cells.last_key_value()?);
        Some(first.0.exponent..=last.0.exponent)
    }

    /// What a half dtype would make of the finite numbers other than zero, multiplied by `2^shift`
    /// before: as shares of their count.
    ///
    /// An exact zero is no loss, so it counts nowhere.
    pub fn shares(&self, half: HalfDType, shift: i32) -> Shares {
        let ends = Ends::of(half);
        let flushed = self.up_to(ends.zero.before(shift));
        let overflowed = self.from(ends.infinite.before(shift));
        let below_normal = self.nonzero() - self.from(ends.normal.before(shift));
        let near = self.from(ends.near.before(shift)) - overflowed;
        let share = |count: u64| count as f64 / self.nonzero().max(1) as f64;
        Shares {
            flushed: share(flushed),
            subnormal: share(below_normal - flushed),
            near_overflow: share(near),
            overflowed: share(overflowed),
        }
    }

    /// The factors 2^k at which no number overflows a half dtype and at most the share `tolerated`
    /// becomes zero; `None` if there is none.
    ///
    /// Overflow is not tolerated at all, since one infinite gradient costs the step. Looked for among
    /// the powers of two that are normal in f32, where loss scales live.
    pub fn clean_scales(&self, half: HalfDType, tolerated: f64) -> Option<ScaleRange> {
        let clean = |shift: &i32| {
            let shares = self.shares(half, *shift);
            shares.flushed <= tolerated && shares.overflowed == 0.0
        };
        let low = ScaleRange::ALL.exponents().find(clean)?;
        let high = ScaleRange::ALL.exponents().rev().find(clean)?;
        Some(ScaleRange { low, high })
    }

    /// About what rounding these numbers, multiplied by `2^shift` before, costs as a whole: the sum of
    /// errors over the sum of magnitudes, of the finite numbers.
    ///
    /// # Numerics
    ///
    /// An estimate bin by bin: a number of exponent e counts as 1.5 * 2^e; what becomes zero loses all
    /// of it, anything else a quarter of the dtype's step there.
    pub fn relative_error(&self, half: HalfDType, shift: i32) -> f64 {
        let (ends, digits) = match half {
            HalfDType::F16 => (Ends::of(half), 10),
            HalfDType::Bf16 => (Ends::of(half), 7),
        };
        let smallest_normal = ends.normal.exponent + 1;
        let (mut error, mut magnitude) = (0.0, 0.0);
        for (cell, count) in &self.cells {
            let size = *count as f64 * 1.5 * 2f64.powi(cell.exponent);
            magnitude += size;
            error += match *cell <= ends.zero.before(shift) {
                true => size,
                false => {
                    let step = (cell.exponent + shift).max(smallest_normal) - digits - shift;
                    *count as f64 * 0.25 * 2f64.powi(step)
                }
            };
        }
        match magnitude {
            0.0 => 0.0,
            magnitude => error / magnitude,
        }
    }

    fn up_to(&self, cell: Cell) -> u64 {
        self.cells.range(..=cell).map(|(_, count)| count).sum()
    }

    fn from(&self, cell: Cell) -> u64 {
        self.cells.range(cell..).map(|(_, count)| count).sum()
    }
}

/// The bins as pairs of exponent and count, in order.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Histogram", 5)?;
        fields.serialize_field("bins", &self.bins().into_iter().collect::<Vec<_>>())?;
        fields.serialize_field("zeros", &self.zeros)?;
        fields.serialize_field("positive_infinities", &self.positive_infinities)?;
        fields.serialize_field("negative_infinities", &self.negative_infinities)?;
        fields.serialize_field("nans", &self.nans)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What rounding to the dtype makes of a number: what the shares claim without rounding.
    fn rounded(numbers: &[f64], half: HalfDType, shift: i32) -> Shares {
        let smallest_normal = match half {
            HalfDType::F16 => 2f64.powi(-14),
            HalfDType::Bf16 => 2f64.powi(-126),
        };
        let near = half.max() / (2.0 - half_ulp_below_two(half)) / 4.0;
        let nonzero: Vec<(f64, f64)> = numbers
            .iter()
            .filter(|x| x.is_finite() && **x != 0.0)
            .map(|x| x.abs() * 2f64.powi(shift))
            .map(|x| (x, half.round(x)))
            .collect();
        let share = |is: &dyn Fn(f64, f64) -> bool| {
            let count = nonzero.iter().filter(|(x, y)| is(*x, *y)).count();
            count as f64 / nonzero.len().max(1) as f64
        };
        Shares {
            flushed: share(&|_, y| y == 0.0),
            subnormal: share(&|_, y| y != 0.0 && y < smallest_normal),
            near_overflow: share(&|x, y| x >= near && y.is_finite()),
            overflowed: share(&|_, y| y.is_infinite()),
        }
    }

    /// The step of the dtype just below 2.
    fn half_ulp_below_two(half: HalfDType) -> f64 {
        match half {
            HalfDType::F16 => 2f64.powi(-10),
            HalfDType::Bf16 => 2f64.powi(-7),
        }
    }

    /// f32 numbers near the ends of both dtypes, where ties and single bits decide.
    fn number() -> impl Strategy<Value = f64> {
        let exponent = prop_oneof![
            -30i32..-10,
            10i32..18,
            -149i32..-120,
            120i32..128,
            Just(0i32)
        ];
        // Few significant bits set: ties are common.
        let significand = prop_oneof![
            Just(0u32),
            (0u32..1 << 12).prop_map(|bits| bits << 11),
            (1u32..1 << 4).prop_map(|bits| (1 << 23) - bits),
            (0u32..12).prop_map(|bit| (1 << 23) - (1 << bit)),
            1u32..4,
            0u32..1 << 23,
        ];
        (exponent, significand, any::<bool>()).prop_map(|(exponent, significand, negative)| {
            let size = (1.0 + f64::from(significand) / f64::from(1 << 23)) * 2f64.powi(exponent);
            f64::from(if negative { -size } else { size } as f32)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn shares_are_what_rounding_does(number in number(), shift in -3i32..4) {
            for half in [HalfDType::F16, HalfDType::Bf16] {
                let shares = Histogram::of(&[number]).shares(half, shift);
                prop_assert_eq!(shares, rounded(&[number], half, shift), "{} {}", half, number);
            }
        }

        #[test]
        fn clean_scales_are_those_at_which_nothing_is_lost(
            numbers in prop::collection::vec(number(), 1..6),
        ) {
            for half in [HalfDType::F16, HalfDType::Bf16] {
                let clean = Histogram::of(&numbers).clean_scales(half, 0.0);
                for shift in ScaleRange::ALL.exponents() {
                    let shares = rounded(&numbers, half, shift);
                    let is_clean = shares.flushed == 0.0 && shares.overflowed == 0.0;
                    let says = clean.is_some_and(|range| range.exponents().contains(&shift));
                    prop_assert_eq!(says, is_clean, "{} 2^{} {:?}", half, shift, clean);
                }
            }
        }

        #[test]
        fn every_number_is_counted_once(
            numbers in prop::collection::vec(any::<f64>(), 0..50), cut in 0usize..50,
        ) {
            let all = Histogram::of(&numbers);
            prop_assert_eq!(all.total(), numbers.len() as u64);
            let (left, right) = numbers.split_at(cut.min(numbers.len()));
            let mut merged = Histogram::of(left);
            merged.merge(&Histogram::of(right));
            prop_assert_eq!(merged, all);
        }
    }

    #[test]
    fn ends_are_exact() {
        let f16 = |number: f64| Histogram::of(&[number]).shares(HalfDType::F16, 0);
        assert_eq!(f16(2f64.powi(-25)).flushed, 1.0, "a tie goes to zero");
        assert_eq!(f16(2f64.powi(-25) * 1.000_001).subnormal, 1.0);
        assert_eq!(f16(65519.99).near_overflow, 1.0);
        assert_eq!(f16(65520.0).overflowed, 1.0);
    }

    #[test]
    fn zeros_infinities_and_nan_are_no_losses() {
        let odd = Histogram::of(&[0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0]);
        assert_eq!((odd.zeros(), odd.infinities(), odd.nans()), (2, 2, 1));
        assert_eq!(odd.shares(HalfDType::F16, 0), Shares::default());
    }
}
