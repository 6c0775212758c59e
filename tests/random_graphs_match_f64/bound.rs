//! A graph in f64, with a bound beside every value and every gradient.

use std::rc::Rc;

use burn::tensor::activation::sigmoid;
use burn::tensor::module::conv1d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor, TensorData};
use burn_amp::HalfDType;

use crate::support::Plain;

/// An f64 tensor, detached.
pub type T = Tensor<Plain, 2>;
type Operation = Rc<dyn Fn(&[T]) -> T>;

/// A place on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id(usize);

impl Id {
    pub fn index(self) -> usize {
        self.0
    }
}

/// How an operation passes errors on.
enum Rule {
    Leaf,
    /// Forward rounds to the second dtype, backward to the first.
    Cast(DType, DType),
    /// Affine in all its inputs; `magnitude` is the same with every coefficient made positive.
    Affine {
        run: Operation,
        magnitude: Operation,
    },
    /// Linear in each of two inputs, with positive coefficients.
    Bilinear {
        run: Operation,
        backward_terms: f64,
    },
    /// Element by element.
    Pointwise(Box<Slope>),
}

struct Slope {
    value: T,
    /// How far the true slope may be from it within the input's bound.
    error: T,
    /// The largest number in the computation of the slope.
    terms: T,
}

struct Entry {
    value: T,
    bound: T,
    dtype: DType,
    inputs: Vec<Id>,
    rule: Rule,
}

/// Element-wise functions of the graphs.
#[derive(Debug, Clone, Copy)]
pub enum Pointwise {
    Relu,
    Tanh,
    Sigmoid,
    Sqrt,
    Exp,
    Recip,
}

pub struct Tape {
    half: HalfDType,
    entries: Vec<Entry>,
    loss: Vec<Id>,
}

/// Value and bound of a gradient.
pub type Gradient = (T, T);

/// Unit roundoff, and half the spacing of the subnormals.
fn format(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        DType::BF16 => (2f64.powi(-8), 2f64.powi(-134)),
        DType::F32 => (2f64.powi(-24), 2f64.powi(-150)),
        other => panic!("{other:?} is no dtype of these graphs"),
    }
}

/// The error of `roundings` roundings of numbers of this size: (1 + u)^n - 1 < 1.01 n u here.
fn rounding(size: T, dtype: DType, roundings: f64) -> T {
    let (u, subnormal) = format(dtype);
    (size * u + subnormal) * (1.01 * roundings)
}

/// Whether a cast can lose digits or range.
fn narrows(from: DType, to: DType) -> bool {
    from != to && to != DType::F32
}

/// The gradient of `sum(run(inputs) * grad)` with respect to each input.
fn transposed(run: &Operation, inputs: &[T], grad: &T) -> Vec<T> {
    // Each a leaf of its own, also where one tensor is given twice.
    let leaf = |x: &T| Tensor::from_inner(x.clone().inner()).require_grad();
    let inputs: Vec<T> = inputs.iter().map(leaf).collect();
    let grads = (run(&inputs) * grad.clone()).sum().backward();
    let of = |x: &T| Tensor::from_inner(x.grad(&grads).expect("every input is used"));
    inputs.iter().map(of).collect()
}

pub fn flat(tensor: &T) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

fn largest(tensor: &T) -> f64 {
    flat(tensor)
        .into_iter()
        .fold(0.0, |m: f64, x| m.max(x.abs()))
}

/// The number of outputs that share an input element: broadcasting adds so many gradients up.
fn shared(input: &T, output: &T) -> f64 {
    (output.dims().iter().product::<usize>() as f64 / input.dims().iter().product::<usize>() as f64)
        .max(1.0)
}

impl Tape {
    pub fn new(half: HalfDType) -> Self {
        Tape {
            half,
            entries: Vec::new(),
            loss: Vec::new(),
        }
    }

    fn push(&mut self, value: T, bound: T, dtype: DType, inputs: &[Id], rule: Rule) -> Id {
        self.entries.push(Entry {
            value: value.detach(),
            bound: bound.detach(),
            dtype,
            inputs: inputs.to_vec(),
            rule,
        });
        Id(self.entries.len() - 1)
    }

    fn value(&self, id: Id) -> T {
        self.entries[id.0].value.clone()
    }

    fn bound(&self, id: Id) -> T {
        self.entries[id.0].bound.clone()
    }

    /// The largest that the decorated value can be.
    fn size(&self, id: Id) -> T {
        self.value(id).abs() + self.bound(id)
    }

    /// Value and bound of an entry.
    pub fn data(&self, id: Id) -> (Vec<f64>, Vec<f64>) {
        (flat(&self.value(id)), flat(&self.bound(id)))
    }

    /// The interval that holds every element.
    pub fn range(&self, id: Id) -> (f64, f64) {
        let (value, bound) = (self.value(id), self.bound(id));
        let low = flat(&(value.clone() - bound.clone()));
        let high = flat(&(value + bound));
        (
            low.into_iter().fold(f64::INFINITY, f64::min),
            high.into_iter().fold(f64::NEG_INFINITY, f64::max),
        )
    }

    /// Values that the graph starts from, exact in the dtype they have.
    pub fn leaf(&mut self, data: TensorData) -> Id {
        let dtype = data.dtype;
        let value = T::from_data(
            data.convert_dtype(DType::F64),
            (&Default::default(), DType::F64),
        );
        let bound = value.zeros_like();
        self.push(value, bound, dtype, &[], Rule::Leaf)
    }

    pub fn cast(&mut self, x: Id, from: DType, to: DType) -> Id {
        if from == to {
            return x;
        }
        let bound = match narrows(from, to) {
            true => self.bound(x) + rounding(self.size(x), to, 1.0),
            false => self.bound(x),
        };
        self.push(self.value(x), bound, to, &[x], Rule::Cast(from, to))
    }

    /// An operation that is affine in its inputs; `terms` numbers are added up, each rounded.
    fn affine(
        &mut self,
        inputs: &[Id],
        dtype: DType,
        terms: f64,
        run: impl Fn(&[T]) -> T + 'static,
        magnitude: impl Fn(&[T]) -> T + 'static,
    ) -> Id {
        let of = |part: fn(&Tape, Id) -> T| -> Vec<T> {
            inputs.iter().map(|id| part(self, *id)).collect()
        };
        let value = run(&of(Tape::value));
        let passed_on = magnitude(&of(Tape::bound));
        let size = magnitude(&of(Tape::size)).max_pair(value.clone().abs() + passed_on.clone());
        let bound = passed_on + rounding(size, dtype, terms);
        let rule = Rule::Affine {
            run: Rc::new(run),
            magnitude: Rc::new(magnitude),
        };
        self.push(value, bound, dtype, inputs, rule)
    }

    /// An operation that is linear in each of two inputs. `terms` and `backward_terms` are the
    /// roundings of one element in the dtype, `f32_terms` those of a sum that is taken in f32.
    fn bilinear(
        &mut self,
        [a, b]: [Id; 2],
        dtype: DType,
        [terms, f32_terms, backward_terms]: [f64; 3],
        run: impl Fn(&[T]) -> T + 'static,
    ) -> Id {
        let value = run(&[self.value(a), self.value(b)]);
        let passed_on =
            run(&[self.value(a).abs(), self.bound(b)]) + run(&[self.bound(a), self.size(b)]);
        let size = run(&[self.size(a), self.size(b)]);
        let bound = passed_on
            + rounding(size.clone(), dtype, terms)
            + rounding(size, DType::F32, f32_terms);
        let rule = Rule::Bilinear {
            run: Rc::new(run),
            backward_terms,
        };
        self.push(value, bound, dtype, &[a, b], rule)
    }

    pub fn add(&mut self, a: Id, b: Id, dtype: DType) -> Id {
        let add = |x: &[T]| x[0].clone() + x[1].clone();
        self.affine(&[a, b], dtype, 1.0, add, add)
    }

    pub fn sub(&mut self, a: Id, b: Id, dtype: DType) -> Id {
        let add = |x: &[T]| x[0].clone() + x[1].clone();
        let sub = |x: &[T]| x[0].clone() - x[1].clone();
        self.affine(&[a, b], dtype, 1.0, sub, add)
    }

    pub fn add_scalar(&mut self, a: Id, by: f64, dtype: DType) -> Id {
        let run = move |x: &[T]| x[0].clone() + by;
        // 1.5 and 0.25 are exact in every dtype.
        self.affine(&[a], dtype, 1.0, run, |x| x[0].clone())
    }

    /// The factor is rounded to the dtype, and so is the product.
    pub fn mul_scalar(&mut self, a: Id, by: f64, dtype: DType) -> Id {
        let run = move |x: &[T]| x[0].clone() * by;
        let magnitude = move |x: &[T]| x[0].clone() * by.abs();
        self.affine(&[a], dtype, 2.0, run, magnitude)
    }

    pub fn transpose(&mut self, a: Id, dtype: DType) -> Id {
        let run = |x: &[T]| x[0].clone().transpose();
        self.affine(&[a], dtype, 0.0, run, run)
    }

    pub fn cat_and_slice(&mut self, a: Id, b: Id, dtype: DType) -> Id {
        let run = |x: &[T]| Tensor::cat(x.to_vec(), 0).slice([2..6, 0..4]);
        self.affine(&[a, b], dtype, 0.0, run, run)
    }

    pub fn sum_dim(&mut self, a: Id, dim: usize, dtype: DType) -> Id {
        let terms = self.value(a).dims()[dim] as f64;
        let run = move |x: &[T]| x[0].clone().sum_dim(dim);
        self.affine(&[a], dtype, terms, run, run)
    }

    pub fn mean_dim(&mut self, a: Id, dim: usize, dtype: DType) -> Id {
        let terms = self.value(a).dims()[dim] as f64 + 1.0;
        let run = move |x: &[T]| x[0].clone().mean_dim(dim);
        self.affine(&[a], dtype, terms, run, run)
    }

    pub fn mul(&mut self, a: Id, b: Id, dtype: DType) -> Id {
        let run = |x: &[T]| x[0].clone() * x[1].clone();
        self.bilinear([a, b], dtype, [1.0, 0.0, 2.0], run)
    }

    /// Burn's CPU backend adds products of matrices up in f32, and those of a vector and a matrix in
    /// half: see "Sums in f16 on the CPU" in docs/numerics.md.
    pub fn matmul(&mut self, a: Id, b: Id, dtype: DType) -> Id {
        let [rows, terms] = self.value(a).dims();
        let [_, columns] = self.value(b).dims();
        let terms = terms as f64;
        let run = |x: &[T]| x[0].clone().matmul(x[1].clone());
        let with_vector = rows == 1 || terms == 1.0 || columns == 1;
        // Gradients are products of vectors too, over as many as 4 terms.
        let terms = match with_vector {
            true => [terms, 0.0, 5.0],
            false => [1.0, terms, 2.0],
        };
        self.bilinear([a, b], dtype, terms, run)
    }

    /// Burn's CPU backend may add the 12 products of this convolution up in half, and those of its
    /// gradients: see "Sums in f16 on the CPU" in docs/numerics.md.
    pub fn conv1d(&mut self, a: Id, b: Id, dtype: DType) -> Id {
        let run = |x: &[T]| {
            let weight = Tensor::cat(vec![x[1].clone(); 3], 1).reshape([4, 4, 3]);
            let options = ConvOptions::new([1], [1], [1], 1);
            conv1d(x[0].clone().reshape([1, 4, 4]), weight, None, options).reshape([4, 4])
        };
        self.bilinear([a, b], dtype, [12.0, 0.0, 12.0], run)
    }

    pub fn pointwise(&mut self, function: Pointwise, x: Id, dtype: DType) -> Id {
        let (v, e) = (self.value(x), self.bound(x));
        // The number of the interval that is nearest to zero, as a magnitude.
        let nearest = (v.clone().abs() - e.clone()).clamp_min(0.0);
        let (y, slope, slope_error, slope_terms) = match function {
            Pointwise::Relu => {
                let uncertain = v
                    .clone()
                    .abs()
                    .lower_equal(e.clone())
                    .float()
                    .cast(DType::F64);
                let slope = v.clone().greater_elem(0.0).float().cast(DType::F64);
                // Zero is exact and has one slope.
                (v.clone().clamp_min(0.0), slope, uncertain, v.zeros_like())
            }
            // The second derivatives' largest values: 4 / (3 sqrt 3) and 1 / (6 sqrt 3).
            Pointwise::Tanh => {
                let y = v.clone().tanh();
                let slope = y.clone().powi_scalar(2).neg() + 1.0;
                (y, slope, e.clone() * 0.77, v.ones_like())
            }
            Pointwise::Sigmoid => {
                let y = sigmoid(v.clone());
                let slope = y.clone() * (y.clone().neg() + 1.0);
                (y, slope, e.clone() * 0.0963, v.ones_like())
            }
            Pointwise::Sqrt => {
                let y = v.clone().sqrt();
                let slope = y.clone().recip() * 0.5;
                let curve = nearest.powf_scalar(-1.5) * 0.25;
                (y, slope.clone(), curve * e.clone(), slope)
            }
            Pointwise::Exp => {
                let y = v.clone().exp();
                let error = y.clone() * (e.clone().exp() - 1.0);
                (y.clone(), y.clone(), error, y)
            }
            Pointwise::Recip => {
                let slope = v.clone().powi_scalar(2).recip().neg();
                let curve = nearest.powi_scalar(3).recip() * 2.0;
                (
                    v.clone().recip(),
                    slope.clone(),
                    curve * e.clone(),
                    slope.abs(),
                )
            }
        };
        let passed_on = (slope.clone().abs() + slope_error.clone()) * e;
        let size = y.clone().abs() + passed_on.clone();
        // One rounding, and the f32 functions are good to 4 of theirs.
        let bound =
            passed_on + rounding(size.clone(), dtype, 1.0) + rounding(size, DType::F32, 4.0);
        let slope = Slope {
            value: slope,
            error: slope_error,
            terms: slope_terms,
        };
        self.push(y, bound, dtype, &[x], Rule::Pointwise(Box::new(slope)))
    }

    /// Softmax over the last dimension. The largest element is taken out, which changes nothing in
    /// exact arithmetic and its gradient neither.
    pub fn softmax(&mut self, x: Id, dtype: DType) -> Id {
        let largest = self.value(x).max_dim(1);
        let shift = move |x: &[T]| x[0].clone() - largest.clone();
        let shifted = self.affine(&[x], dtype, 2.0, shift, |x| x[0].clone());
        let exp = self.pointwise(Pointwise::Exp, shifted, dtype);
        let sum = self.sum_dim(exp, 1, dtype);
        let inverse = self.pointwise(Pointwise::Recip, sum, dtype);
        self.mul(exp, inverse, dtype)
    }

    /// Layer norm over the last dimension, with gamma 1 and beta 0.
    pub fn layer_norm(&mut self, x: Id, epsilon: f64, dtype: DType) -> Id {
        let mean = self.mean_dim(x, 1, dtype);
        let centered = self.sub(x, mean, dtype);
        let square = self.mul(centered, centered, dtype);
        let variance = self.mean_dim(square, 1, dtype);
        let variance = self.add_scalar(variance, epsilon, dtype);
        let deviation = self.pointwise(Pointwise::Sqrt, variance, dtype);
        let inverse = self.pointwise(Pointwise::Recip, deviation, dtype);
        self.mul(centered, inverse, dtype)
    }

    /// Adds the elements of an entry to the loss.
    pub fn add_to_loss(&mut self, x: Id) {
        self.loss.push(x);
    }

    /// The gradient of every entry that the loss depends on.
    pub fn gradients(&self) -> Vec<Option<Gradient>> {
        let mut gradients: Vec<Option<Gradient>> = vec![None; self.entries.len()];
        for id in &self.loss {
            let ones = self.value(*id).ones_like();
            self.accumulate(&mut gradients, *id, (ones.clone(), ones.zeros_like()));
        }
        for (n, entry) in self.entries.iter().enumerate().rev() {
            let Some((g, h)) = gradients[n].clone() else {
                continue;
            };
            for (input, gradient) in self.pull_back(entry, g, h) {
                self.accumulate(&mut gradients, input, gradient);
            }
        }
        gradients
    }

    /// Gradients of several uses are added up in the dtype of the tensor, or of its half copy.
    fn accumulate(&self, gradients: &mut [Option<Gradient>], id: Id, (g, h): Gradient) {
        let slot = &mut gradients[id.0];
        *slot = Some(match slot.take() {
            None => (g, h),
            Some((old, old_bound)) => {
                let (sum, bound) = (old + g, old_bound + h);
                let size = sum.clone().abs() + bound.clone();
                let dtypes = [self.entries[id.0].dtype, self.half.dtype()];
                let roundings = dtypes.map(|dtype| rounding(size.clone(), dtype, 1.0));
                let [own, copy] = roundings;
                (sum, bound + own.max_pair(copy))
            }
        });
    }

    fn pull_back(&self, entry: &Entry, g: T, h: T) -> Vec<(Id, Gradient)> {
        let size = g.clone().abs() + h.clone();
        let inputs = || entry.inputs.iter().copied();
        match &entry.rule {
            Rule::Leaf => Vec::new(),
            Rule::Cast(from, to) => {
                let h = match narrows(*to, *from) {
                    true => h + rounding(size, *from, 1.0),
                    false => h,
                };
                vec![(entry.inputs[0], (g, h))]
            }
            Rule::Affine { run, magnitude } => {
                let values: Vec<T> = inputs().map(|id| self.value(id)).collect();
                let gs = transposed(run, &values, &g);
                let hs = transposed(magnitude, &values, &h);
                let sizes = transposed(magnitude, &values, &size);
                let grads = gs.into_iter().zip(hs).zip(sizes);
                let grads = grads.map(|((g, h), size)| {
                    let terms = 2.0 + shared(&g, &entry.value);
                    (g, h + rounding(size, entry.dtype, terms))
                });
                inputs().zip(grads).collect()
            }
            Rule::Bilinear {
                run,
                backward_terms,
            } => {
                let of = |part: fn(&Tape, Id) -> T| -> Vec<T> {
                    inputs().map(|id| part(self, id)).collect()
                };
                let (values, bounds, sizes) = (of(Tape::value), of(Tape::bound), of(Tape::size));
                let gs = transposed(run, &values, &g);
                let passed_on = transposed(run, &sizes, &h);
                let uncertain = transposed(run, &bounds, &g.clone().abs());
                let sizes = transposed(run, &sizes, &size);
                let errors = passed_on.into_iter().zip(uncertain).zip(sizes);
                let grads = gs
                    .into_iter()
                    .zip(errors)
                    .map(|(g, ((h, uncertain), size))| {
                        let terms = backward_terms + shared(&g, &entry.value);
                        (g, h + uncertain + rounding(size, entry.dtype, terms))
                    });
                inputs().zip(grads).collect()
            }
            Rule::Pointwise(slope) => {
                let steepest = slope.value.clone().abs() + slope.error.clone();
                let passed_on = h * steepest.clone() + g.clone().abs() * slope.error.clone();
                // Up to six operations compute the slope, of numbers up to `terms`.
                let computed = size * (slope.terms.clone() * 6.0 + steepest);
                let h = passed_on + rounding(computed, entry.dtype, 1.0);
                vec![(entry.inputs[0], (g * slope.value.clone(), h))]
            }
        }
    }

    /// Whether a value or a scaled gradient may be beyond the largest f16.
    pub fn leaves_half(&self, gradients: &[Option<Gradient>], scale: f64) -> bool {
        let beyond = |size: T, scale: f64| largest(&size) * scale > 6e4;
        (0..self.entries.len()).any(|n| {
            beyond(self.size(Id(n)), 1.0)
                || gradients[n]
                    .as_ref()
                    .is_some_and(|(g, h)| beyond(g.clone().abs() + h.clone(), scale))
        })
    }
}
