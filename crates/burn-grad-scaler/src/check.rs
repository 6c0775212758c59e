use burn::module::{AutodiffModule, ModuleVisitor, Param};
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
    /// `None` when every gradient is finite.
    pub non_finite: Option<NonFinite>,
}

/// Looks at gradients: are they finite, how large are they.
///
/// Per parameter one sum of squares in f32 on the device, all read to the host together. A sum of
/// squares is finite unless an element is not, or is beyond 1.8e19; only then a second look counts.
pub(crate) struct GradCheck<B: AutodiffBackend> {
    losses: Vec<(usize, Vec<Entry<B>>)>,
}

/// A [`GradCheck`] that the device is at.
pub(crate) struct PendingCheck<B: AutodiffBackend> {
    losses: Vec<(usize, Vec<Entry<B>>)>,
    /// One sum per gradient; `None` without gradients.
    squares: Option<Tensor<B::InnerBackend, 1>>,
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
        };
        scope::disabled(|| module.visit(&mut collector));
        self.losses.push((loss_id, collector.entries));
    }

    /// One device-to-host read; up to two more if a gradient is not finite.
    pub fn read(self) -> Checked {
        self.begin().read()
    }

    /// Has the device look, without waiting for it.
    pub fn begin(self) -> PendingCheck<B> {
        let entries = self.losses.iter().flat_map(|(_, entries)| entries);
        let squares = entries.map(|entry| entry.grad.clone().powi_scalar(2).sum());
        PendingCheck {
            squares: scope::disabled(|| gather(squares)),
            losses: self.losses,
        }
    }
}

impl<B: AutodiffBackend> PendingCheck<B> {
    /// Waits for what was found.
    pub fn read(self) -> Checked {
        scope::disabled(|| self.read_full())
    }

    fn read_full(self) -> Checked {
        let entries = || self.losses.iter().flat_map(|(_, entries)| entries);
        let mut squares = read::<B>(self.squares);
        let suspects: Vec<&Entry<B>> = entries()
            .zip(&squares)
            .filter(|(_, square)| !square.is_finite())
            .map(|(entry, _)| entry)
            .collect();
        let mut counts = count_non_finite::<B>(&suspects).into_iter();
        let losses = {
            let mut square = squares.iter_mut();
            self.losses
                .iter()
                .map(|(loss_id, entries)| {
                    let mut found = NonFinite::default();
                    for (entry, square) in entries.iter().zip(&mut square) {
                        if square.is_finite() {
                            continue;
                        }
                        let (inf, nan) = counts.next().expect("one count per suspect");
                        if inf + nan == 0 {
                            *square = sum_of_large_squares::<B>(&entry.grad);
                            continue;
                        }
                        found.inf += inf;
                        found.nan += nan;
                        found.parameters.push(entry.path.clone());
                    }
                    LossCheck {
                        loss_id: *loss_id,
                        gradients: entries.len(),
                        non_finite: (!found.parameters.is_empty()).then_some(found),
                    }
                })
                .collect()
        };
        Checked {
            losses,
            norm: squares.iter().sum::<f64>().sqrt(),
        }
    }
}

/// Brings several numbers together on one device.
fn gather<B: Backend>(numbers: impl Iterator<Item = Tensor<B, 1>>) -> Option<Tensor<B, 1>> {
    let numbers: Vec<_> = numbers.collect();
    let device = numbers.first()?.device();
    let numbers = numbers.into_iter().map(|n| n.to_device(&device)).collect();
    Some(Tensor::cat(numbers, 0))
}

/// Reads numbers in one transfer.
fn read<B: AutodiffBackend>(numbers: Option<Tensor<B::InnerBackend, 1>>) -> Vec<f64> {
    numbers.map_or_else(Vec::new, |numbers| numbers.into_data().iter().collect())
}

/// Infinities and NaNs of each gradient, in one transfer.
fn count_non_finite<B: AutodiffBackend>(entries: &[&Entry<B>]) -> Vec<(u64, u64)> {
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
fn sum_of_large_squares<B: AutodiffBackend>(grad: &Tensor<B::InnerBackend, 1>) -> f64 {
    // f32 ends below 2^128, so the scaled elements stay below 2^28 and 2^71 of their squares fit.
    let scaled = grad
        .clone()
        .mul_scalar(2f32.powi(-100))
        .powi_scalar(2)
        .sum();
    read::<B>(Some(scaled))[0] * 2f64.powi(200)
}

struct Collector<'a, B: AutodiffBackend> {
    grads: &'a GradientsParams,
    path: Vec<String>,
    entries: Vec<Entry<B>>,
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
