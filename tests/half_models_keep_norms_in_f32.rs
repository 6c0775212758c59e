//! At O2 a model becomes half but for its norm layers, at O3 whole; nothing else about it changes.

mod support;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig,
    InstanceNorm, InstanceNormConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm,
    LstmConfig, PRelu, PReluConfig, RmsNorm, RmsNormConfig,
};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use burn_amp::{AmpConfig, HalfDType, ModelType, OptLevel};
use support::{HALVES, Mixed, amp};

#[derive(Module, Debug)]
struct Model<B: Backend> {
    linear: Linear<B>,
    frozen: Linear<B>,
    conv: Conv2d<B>,
    embedding: Embedding<B>,
    prelu: PRelu<B>,
    lstm: Lstm<B>,
    batch_norm: BatchNorm<B>,
    layer_norm: LayerNorm<B>,
    group_norm: GroupNorm<B>,
    instance_norm: InstanceNorm<B>,
    rms_norm: RmsNorm<B>,
    own: Own<B>,
}

/// A norm of the user's own, made of a parameter and a layer.
#[derive(Module, Debug)]
struct Own<B: Backend> {
    scale: Param<Tensor<B, 1>>,
    inner: Linear<B>,
}

fn model() -> Model<Mixed> {
    let device = Default::default();
    let model = Model {
        linear: LinearConfig::new(4, 4).init(&device),
        frozen: LinearConfig::new(4, 4).init(&device).no_grad(),
        conv: Conv2dConfig::new([2, 2], [3, 3]).init(&device),
        embedding: EmbeddingConfig::new(3, 4).init(&device),
        prelu: PReluConfig::new().init(&device),
        lstm: LstmConfig::new(2, 2, true).init(&device),
        batch_norm: BatchNormConfig::new(4).init(&device),
        layer_norm: LayerNormConfig::new(4).init(&device),
        group_norm: GroupNormConfig::new(2, 4).init(&device),
        instance_norm: InstanceNormConfig::new(4).init(&device),
        rms_norm: RmsNormConfig::new(4).init(&device),
        own: Own {
            scale: Param::from_tensor(Tensor::ones([4], &device)),
            inner: LinearConfig::new(4, 4).init(&device),
        },
    };
    // Burn draws a parameter on first use, and a clone made before draws its own.
    parameters(&model);
    model
}

#[derive(Debug, Clone, PartialEq)]
struct Parameter {
    path: String,
    id: ParamId,
    tracked: bool,
    dtype: DType,
    values: Vec<f32>,
}

#[derive(Default)]
struct Parameters {
    path: Vec<String>,
    found: Vec<Parameter>,
}

impl ModuleVisitor<Mixed> for Parameters {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Mixed, D>>) {
        let tensor = param.val();
        self.found.push(Parameter {
            path: self.path.join("."),
            id: param.id,
            tracked: tensor.is_require_grad(),
            dtype: tensor.dtype(),
            values: tensor.into_data().convert::<f32>().to_vec().unwrap(),
        });
    }
}

fn parameters(model: &Model<Mixed>) -> Vec<Parameter> {
    let mut parameters = Parameters::default();
    model.visit(&mut parameters);
    parameters.found
}

/// Asserts the dtype of every parameter, and that nothing but the dtype has changed.
fn assert_dtypes(before: &Model<Mixed>, after: &Model<Mixed>, dtype: impl Fn(&str) -> DType) {
    let (before, after) = (parameters(before), parameters(after));
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        let expected = dtype(&before.path);
        assert_eq!(after.dtype, expected, "{}", before.path);
        let rounded = |x: f32| match expected {
            DType::F16 => burn::tensor::f16::from_f32(x).to_f32(),
            DType::BF16 => burn::tensor::bf16::from_f32(x).to_f32(),
            _ => x,
        };
        let expected = Parameter {
            dtype: expected,
            values: before.values.iter().copied().map(rounded).collect(),
            ..before.clone()
        };
        assert_eq!(*after, expected, "one rounding, the same id and tracking");
    }
}

fn norms_stay(half: HalfDType) -> impl Fn(&str) -> DType {
    move |path| match path.contains("_norm") {
        true => DType::F32,
        false => half.dtype(),
    }
}

#[test]
fn o2_keeps_every_norm_layer_and_its_running_statistics_in_f32() {
    let model = model();
    let norms: Vec<_> = parameters(&model)
        .into_iter()
        .filter(|p| p.path.contains("_norm"))
        .collect();
    assert_eq!(
        norms.len(),
        4 + 2 + 2 + 2 + 1,
        "batch norm has four, rms norm one"
    );
    for half in HALVES {
        let cast = amp(OptLevel::O2, half).cast_model::<Mixed, _>(model.clone());
        assert_dtypes(&model, &cast, norms_stay(half));
    }
}

/// Running statistics stay in f32 at every level.
fn all_parameters(half: HalfDType) -> impl Fn(&str) -> DType {
    move |path| match path.contains("running_") {
        true => DType::F32,
        false => half.dtype(),
    }
}

#[test]
fn o3_makes_every_parameter_half_and_leaves_running_statistics_in_f32() {
    let model = model();
    for half in HALVES {
        let cast = amp(OptLevel::O3, half).cast_model::<Mixed, _>(model.clone());
        assert_dtypes(&model, &cast, all_parameters(half));
    }
}

#[test]
fn o0_and_o1_leave_the_model_in_f32() {
    let model = model();
    for level in [OptLevel::O0, OptLevel::O1] {
        let cast = amp(level, HalfDType::F16).cast_model::<Mixed, _>(model.clone());
        assert_dtypes(&model, &cast, |_| DType::F32);
    }
}

#[test]
fn o0_widens_a_model_that_was_half() {
    let half = amp(OptLevel::O3, HalfDType::F16).cast_model::<Mixed, _>(model());
    let wide = amp(OptLevel::O0, HalfDType::F16).cast_model::<Mixed, _>(half.clone());
    assert_dtypes(&half, &wide, |_| DType::F32);
}

#[test]
fn the_set_of_modules_that_stay_can_be_edited() {
    let model = model();
    let amp = AmpConfig::new(OptLevel::O2)
        .with_keep_f32_modules(["Own", "BatchNorm"])
        .build()
        .unwrap();
    let cast = amp.cast_model::<Mixed, _>(model.clone());
    assert_dtypes(&model, &cast, |path| {
        // A module that is kept is kept with the modules inside it.
        match path.starts_with("own") || path.starts_with("batch_norm") {
            true => DType::F32,
            false => DType::F16,
        }
    });

    let all = AmpConfig::new(OptLevel::O2)
        .with_keep_batchnorm_fp32(false)
        .build()
        .unwrap();
    let cast = all.cast_model::<Mixed, _>(model.clone());
    assert_dtypes(&model, &cast, all_parameters(HalfDType::F16));

    let full = AmpConfig::new(OptLevel::O2)
        .with_cast_model_type(ModelType::F32)
        .build()
        .unwrap();
    assert_dtypes(&model, &full.cast_model::<Mixed, _>(model.clone()), |_| {
        DType::F32
    });
}

#[test]
fn a_second_cast_changes_nothing() {
    for level in OptLevel::ALL {
        let amp = amp(level, HalfDType::F16);
        let once = amp.cast_model::<Mixed, _>(model());
        let twice = amp.cast_model::<Mixed, _>(once.clone());
        assert_eq!(parameters(&once), parameters(&twice));
    }
}

#[test]
fn a_loaded_record_is_cast_again() {
    let amp = amp(OptLevel::O2, HalfDType::F16);
    let trained = amp.cast_model::<Mixed, _>(model());
    let record = trained.clone().into_record();
    let loaded = amp.cast_model::<Mixed, _>(model()).load_record(record);
    assert_eq!(parameters(&loaded), parameters(&trained));
}

#[test]
fn a_record_from_a_file_is_cast_again() {
    use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
    let amp = amp(OptLevel::O2, HalfDType::Bf16);
    let trained = amp.cast_model::<Mixed, _>(model());
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<Mixed>::record(&recorder, trained.clone().into_record(), ()).unwrap();
    let record = Recorder::<Mixed>::load(&recorder, bytes, &Default::default()).unwrap();
    let loaded = amp.cast_model::<Mixed, _>(model()).load_record(record);
    assert_eq!(parameters(&loaded), parameters(&trained));
}

#[test]
fn a_half_model_runs_forward_and_backward_with_its_norms_in_f32() {
    for (level, half) in [OptLevel::O2, OptLevel::O3]
        .into_iter()
        .flat_map(|l| HALVES.map(|h| (l, h)))
    {
        let amp = amp(level, half);
        let model = amp.cast_model::<Mixed, _>(model());
        amp.scope(|| {
            let x = Tensor::<Mixed, 2>::ones([3, 4], &Default::default());
            let y = model
                .rms_norm
                .forward(model.layer_norm.forward(model.linear.forward(x)));
            let y = model.batch_norm.forward(y.reshape([3, 4, 1]));
            let grads = y.sum().backward();
            let of = |param: &Param<Tensor<Mixed, 1>>| param.val().grad(&grads).unwrap().dtype();
            assert_eq!(
                of(&model.layer_norm.gamma),
                model.layer_norm.gamma.val().dtype()
            );
            assert_eq!(
                of(&model.batch_norm.gamma),
                model.batch_norm.gamma.val().dtype()
            );
            let weight = model.linear.weight.val().grad(&grads).unwrap();
            assert_eq!(weight.dtype(), half.dtype());
        });
    }
}
