use std::collections::HashSet;

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Int, Tensor};
use burn_mixed_precision::scope;

/// Where the gradients of one step stopped being finite.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NonFinite {
    /// Elements that are plus or minus infinity.
    pub inf: u64,
    /// Elements that are NaN.
    pub nan: u64,
    /// Paths of the parameters concerned, such as `conv1.weight`, in the module's order.
    pub parameters: Vec<String>,
}

/// The gradients of one loss, looked at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LossCheck {
    pub loss_id: usize,
    /// The number of gradients this loss has.
    pub gradients: usize,
    /// Whether there is a gradient to learn from, on any rank.
    pub counts: bool,
    /// Whether a gradient is not finite, on any rank.
    pub overflowed: bool,
    /// What is not finite on this rank, if anything.
    pub non_finite: Option<NonFinite>,
    /// The 2-norm squared over the gradients of this loss.
    pub square: f64,
}

/// Looks at gradients: are they finite, how large are they.
///
/// One sum of squares in f32 per loss, taken on the device and read to the host with those of the
/// other losses. A sum of squares is finite unless an element is not, or squares are beyond 3.4e38;
/// only then a second look goes over the parameters one by one.
pub(crate) struct GradCheck<B: AutodiffBackend> {
    losses: Vec<(usize, Vec<Entry<B>>)>,
}

struct Entry<B: AutodiffBackend> {
    path: String,
    /// The gradient, flattened and in f32.
    grad: Tensor<B::InnerBackend, 1>,
}

/// What a [`GradCheck`] found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checked {
    pub losses: Vec<LossCheck>,
    /// The 2-norm over all gradients of all losses looked at; NaN or infinite if one of them is.
    pub norm: f64,
}

impl<B: AutodiffBackend> GradCheck<B> {
    pub fn new() -> Self {
        GradCheck { losses: Vec::new() }
    }

    /// Adds the gradients that a module has for one loss.
    pub fn add<M: AutodiffModule<B>>(
        &mut self,
        loss_id: usize,
        module: &M,
        grads: &GradientsParams,
    ) {
        let mut collector = Collector::<B> {
            grads,
            path: Vec::new(),
            entries: Vec::new(),
            seen: HashSet::new(),
        };
        scope::bare(|| module.visit(&mut collector));
        self.losses.push((loss_id, collector.entries));
    }

    /// One device-to-host read; up to two more for each loss with a gradient that is not finite.
    pub fn read(self) -> Checked {
        scope::bare(|| self.read_full())
    }

    fn read_full(self) -> Checked {
        let sums: Vec<Vec<Tensor<B::InnerBackend, 1>>> = self
            .losses
            .iter()
            .map(|(_, entries)| sums_of_squares::<B>(entries.iter().map(|e| e.grad.clone())))
            .collect();
        let counts: Vec<usize> = sums.iter().map(|s| s.iter().map(elements).sum()).collect();
        let mut numbers = read_together::<B>(sums.into_iter().flatten()).into_iter();
        let losses: Vec<LossCheck> = self
            .losses
            .iter()
            .zip(counts)
            .map(|((loss_id, entries), count)| {
                let mut square: f64 = numbers.by_ref().take(count).sum();
                let mut non_finite = None;
                if !square.is_finite() {
                    non_finite = find_non_finite::<B>(entries);
                    if non_finite.is_none() {
                        square = sum_of_large_squares::<B>(entries);
                    }
                }
                LossCheck {
                    loss_id: *loss_id,
                    gradients: entries.len(),
                    counts: !entries.is_empty(),
                    overflowed: non_finite.is_some(),
                    non_finite,
                    square,
                }
            })
            .collect();
        Checked {
            norm: losses.iter().map(|loss| loss.square).sum::<f64>().sqrt(),
            losses,
        }
    }
}

/// The most elements that are laid behind one another at a time, 256 MB of f32.
const ELEMENTS_TOGETHER: usize = 1 << 26;

/// The most partial sums they are reduced to: enough for a GPU to read memory at full speed, as a
/// sum to a single number does not.
const PARTIAL_SUMS: usize = 4096;

/// The least elements that are worth a partial sum of their own.
const ELEMENTS_PER_SUM: usize = 256;

/// The squares of all gradients, summed up to a few vectors, whose sum is the one looked for.
///
/// Gradients are laid behind one another first. A step with many parameters is short of time to
/// launch kernels, not to copy memory: this is one copy per parameter, and one reduction for all.
fn sums_of_squares<B: AutodiffBackend>(
    grads: impl Iterator<Item = Tensor<B::InnerBackend, 1>>,
) -> Vec<Tensor<B::InnerBackend, 1>> {
    let mut parts: Vec<Vec<Tensor<B::InnerBackend, 1>>> = Vec::new();
    let mut filled = 0;
    for grad in grads {
        let fits = |part: &Vec<Tensor<_, 1>>| {
            filled + elements(&grad) <= ELEMENTS_TOGETHER
                && part[0].dtype() == grad.dtype()
                && part[0].device() == grad.device()
        };
        match parts.last_mut().filter(|part| fits(part)) {
            Some(part) => {
                filled += elements(&grad);
                part.push(grad);
            }
            None => {
                filled = elements(&grad);
                parts.push(vec![grad]);
            }
        }
    }
    parts.into_iter().map(partial_sums).collect()
}

/// The sum of the squares of some vectors, in rows that are as long as one another.
fn partial_sums<B: Backend>(mut grads: Vec<Tensor<B, 1>>) -> Tensor<B, 1> {
    let n: usize = grads.iter().map(elements).sum();
    let rows = (n / ELEMENTS_PER_SUM).clamp(1, PARTIAL_SUMS);
    let length = n.div_ceil(rows);
    if rows * length > n {
        let options = (&grads[0].device(), grads[0].dtype());
        grads.push(Tensor::zeros([rows * length - n], options));
    }
    let all = match grads.len() {
        1 => grads.remove(0),
        _ => Tensor::cat(grads, 0),
    };
    let all = all.reshape([rows, length]);
    (all.clone() * all).sum_dim(1).reshape([rows])
}

fn elements<B: Backend>(tensor: &Tensor<B, 1>) -> usize {
    tensor.shape().num_elements()
}

/// Which gradients hold infinities and NaNs, and how many; `None` if all are finite.
fn find_non_finite<B: AutodiffBackend>(entries: &[Entry<B>]) -> Option<NonFinite> {
    let mut found = NonFinite::default();
    for (entry, (inf, nan)) in entries.iter().zip(count_non_finite::<B>(entries)) {
        if inf + nan > 0 {
            found.inf += inf;
            found.nan += nan;
            found.parameters.push(entry.path.clone());
        }
    }
    (!found.parameters.is_empty()).then_some(found)
}

/// Reads several vectors one behind the other, in one transfer.
fn read_together<B: AutodiffBackend>(
    numbers: impl Iterator<Item = Tensor<B::InnerBackend, 1>>,
) -> Vec<f64> {
    let numbers: Vec<_> = numbers.collect();
    let Some(device) = numbers.first().map(Tensor::device) else {
        return Vec::new();
    };
    let one_dtype = numbers.iter().all(|n| n.dtype() == numbers[0].dtype());
    let numbers = numbers.into_iter().map(|n| {
        let n = n.to_device(&device);
        if one_dtype {
            n
        } else {
            n.cast(FloatDType::F32)
        }
    });
    Tensor::cat(numbers.collect(), 0)
        .into_data()
        .iter::<f64>()
        .collect()
}

/// Infinities and NaNs of each gradient, in one transfer.
fn count_non_finite<B: AutodiffBackend>(entries: &[Entry<B>]) -> Vec<(u64, u64)> {
    let counts: Vec<Tensor<B::InnerBackend, 1, Int>> = entries
        .iter()
        .flat_map(|entry| {
            let grad = &entry.grad;
            [grad.clone().is_inf(), grad.clone().is_nan()].map(|found| found.int().sum())
        })
        .collect();
    let Some(device) = counts.first().map(Tensor::device) else {
        return Vec::new();
    };
    let counts = counts.into_iter().map(|n| n.to_device(&device)).collect();
    let counts: Vec<u64> = Tensor::cat(counts, 0).into_data().iter::<u64>().collect();
    counts
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}

/// The sum of squares of finite elements whose squares leave f32: scaled by an exact power of two.
fn sum_of_large_squares<B: AutodiffBackend>(entries: &[Entry<B>]) -> f64 {
    // f32 ends below 2^128, so the scaled elements stay below 2^28 and 2^71 of their squares fit.
    let scaled = entries
        .iter()
        .map(|entry| entry.grad.clone().mul_scalar(2f32.powi(-100)));
    let sums = sums_of_squares::<B>(scaled).into_iter();
    read_together::<B>(sums).into_iter().sum::<f64>() * 2f64.powi(200)
}

struct Collector<'a, B: AutodiffBackend> {
    grads: &'a GradientsParams,
    path: Vec<String>,
    entries: Vec<Entry<B>>,
    /// Tied parameters have one id in several places, and one gradient.
    seen: HashSet<ParamId>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collector<'_, B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(grad) = self.grads.get::<B::InnerBackend, D>(param.id) else {
            return;
        };
        if !self.seen.insert(param.id) {
            return;
        }
        let grad = match grad.dtype() {
            DType::F32 | DType::F64 => grad,
            _ => grad.cast(FloatDType::F32),
        };
        let elements = grad.shape().num_elements();
        self.entries.push(Entry {
            path: self.path.join("."),
            grad: grad.reshape([elements]),
        });
    }
}
