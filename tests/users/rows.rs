//! The rows themselves: what went wrong, where it was reported, what this library does.

use std::collections::BTreeMap;

/// One thing that hurt users.
struct Row {
    number: usize,
    /// Threads in which users reported it: repository as in [`REPOSITORIES`], and number.
    threads: &'static str,
    went_wrong: &'static str,
    here: &'static str,
    /// Tests in other files: `path::function`, the path below the repository's root.
    also: &'static [&'static str],
}

const fn row(
    number: usize,
    threads: &'static str,
    went_wrong: &'static str,
    here: &'static str,
) -> Row {
    Row {
        number,
        threads,
        went_wrong,
        here,
        also: &[],
    }
}

impl Row {
    const fn also(self, also: &'static [&'static str]) -> Row {
        Row { also, ..self }
    }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(1, "apex#93 apex#1052 apex#1105 lerobot#710 keras#17571",
        "a mask's -1e9 is -inf in f16, and a row that is masked whole becomes NaN",
        "a number beyond the range that is written into a half tensor becomes the last finite one; in arithmetic it \
         counts as an f32 operand; the additive mask of a single sequence is added in f32; only `slice_fill`, whose \
         number Burn rounds on the host, is out of reach")
        .also(&["tests/scalars_keep_their_meaning.rs::a_number_that_half_cannot_hold_acts_as_in_f32",
                "tests/attention_keeps_scores_in_f32.rs::it_is_as_accurate_as_its_roundings_let_it_be"]),
    row(2, "gpt-neox#25",
        "the lowest number of a dtype, added to a negative score, is -inf",
        "a boolean mask replaces scores and is what the documentation advises; `HalfDType::lowest` is the number to \
         fill with"),
    row(3, "torch#119131 torch#60939 ultralytics#24990",
        "products of queries and keys leave f16 before they are divided by the root of the head's width",
        "attention keeps its scores in f32 and scales most of them away before the product; `MultiHeadAttention` of \
         burn-nn, which is made of a plain matmul and a division, is out of its sight: take bf16, \
         or that block in `scope::full`")
        .also(&["tests/attention_keeps_scores_in_f32.rs::scores_beyond_the_half_range_pick_the_largest"]),
    row(4, "torch#40497 apex#651",
        "the loss becomes NaN after some epochs, with the scale at next to nothing",
        "a floor (1 by default, any other by setting), growth from there, and a warning with the parameter's name; the overflow tracer names the operation that overflowed first")
        .also(&["tests/the_first_overflow_is_named.rs::on_skip_the_step_after_a_skipped_one_is_traced_and_told"]),
    row(5, "burn#315",
        "log_softmax of large logits is not finite",
        "log_softmax, softmax and softmin run in f32 with the maximum taken off"),
    row(6, "transformers#11076 transformers#12225 candle#2480",
        "models trained in bf16 overflow in f16, and a lower loss scale is tried in vain",
        "the warning says that the overflow is in the forward pass, and names bf16 and `scope::full` as remedies"),
    row(7, "torch#61098 apex#504",
        "binary cross entropy of half probabilities is infinite, or refused",
        "logarithms run in f32, Burn's loss bounds them, and from logits the loss is exact"),
    row(8, "torch#29429 torch#61523 segmentation_models#463",
        "the mean of a loss over many elements is infinite in half",
        "sums and means are computed and returned in f32"),
    row(9, "burn#4769 cubek#80 burn#5211",
        "means and norms of f16 tensors overflow in some backends",
        "mean, variance and sums of squares run in f32 on every backend"),
    row(10, "onnxruntime#31626",
        "a variance overflows to infinity and the normalised output is silently 0",
        "every norm has its statistics in f32"),
    row(11, "efficientdet#291 glide-finetune#6",
        "an epsilon of 1e-8 is 0 in f16, and what it should have guarded divides by zero",
        "a number that half would round to zero counts as an f32 operand; where a half tensor is created of it, a \
         warning")
        .also(&["tests/scalars_keep_their_meaning.rs::gradients_pass_through_as_in_f32"]),
    row(12, "torch#88474 torch#90342 torch#96798 torch#115500",
        "a skipped step has already poisoned BatchNorm's running statistics, which shows at validation only",
        "a skipped step never happened: the statistics go back too")
        .also(&["tests/overflow_skips_the_step.rs::a_forward_overflow_does_not_poison_batch_norm"]),
    row(13, "torch#61924 apex#133 apex#301 apex#122 apex#614 apex#1635 apex#798",
        "\"expected Half but found Float\": a layer gets inputs and parameters of different dtypes",
        "every layer and loss of burn-nn runs on every mix of f32, f16 and bf16, forward and backward, in training and \
         in evaluation")
        .also(&["tests/every_module_runs.rs::every_mix_of_input_and_weight_dtypes",
                "tests/every_module_is_accurate.rs::every_layer"]),
    row(14, "torch#126053 apex#849 warp-rnnt#3 DCNv2#42",
        "a third-party kernel gets two dtypes and refuses",
        "`custom::run` casts the inputs of any operation by a rule"),
    row(15, "tensorflow#38357 apex#452",
        "some models need a loss scale below 1",
        "the floor is a setting, down to 2^-126"),
    row(16, "apex#834 apex#318 apex#635 apex#715 apex#1135",
        "the scale decays to zero while training silently does nothing",
        "the scale stops at its floor, and every overflow there is an event of its own"),
    row(17, "torch#99640 torch#101569",
        "a gradient is finite while scaled and infinite afterwards",
        "true gradients are what is checked"),
    row(18, "torch#98828 torch#98876",
        "the scale grows to infinity",
        "a cap of 2^24, and without one growth to infinity is refused"),
    row(19, "torch#111739 lightning#9799",
        "65536 times a half loss is infinite",
        "the loss is widened to f32 before it is scaled, by `backward`, by `GradScaler` and by `mul_scalar`"),
    row(20, "DeepSpeedExamples#418 DeepSpeed#5426 DeepSpeed#697",
        "a run aborts or idles at the smallest scale without saying why",
        "continue, warn or stop with an error, as configured; the message names the parameters"),
    row(21, "DeepSpeed#2911",
        "a bf16 run is told about loss scales, and infinities and NaNs are not told apart",
        "both are counted apart, and bf16 has advice of its own"),
    row(22, "DeepSpeed#8415 DeepSpeed#8035",
        "in bf16, steps with infinite gradients were applied, or later skipped without a word",
        "the check is on without any scaling, can be switched off, and skips are counted"),
    row(23, "swav#47 MS-G3D#9 BVAE-TTS#3",
        "the first few skipped steps are taken for a failure",
        "the search of the scale is no warning; ten skips in a row are one"),
    row(24, "apex#179 apex#114 apex#616 accelerate#174",
        "with two optimizers and several losses one network skips and the other does not",
        "a scale for each loss; who skips is whom the loss reaches, or all together if linked")
        .also(&["tests/several_losses_and_optimizers.rs::linked_optimizers_skip_together"]),
    row(25, "apex#114",
        "a batch that overflowed is lost, where it could be repeated at a lower scale",
        "`Fp16Optimizer::replay`, bounded"),
    row(26, "Megatron-Bridge#5591 torch#136009 torch#90057",
        "ranks disagree about an overflow or about the scale, and diverge or dead-lock",
        "the scale is a function of what all found; ranks agree on the verdict and on the scale before anything is applied, and a missing one is an error")
        .also(&["tests/learner_trains_in_mixed_precision/several_devices.rs::step_multi_is_step_on_the_sum",
                "tests/ranks_step_together.rs::all_ranks_skip_when_one_overflows",
                "tests/ranks_step_together.rs::a_rank_with_another_scale_is_noticed_before_anything_is_applied",
                "tests/ranks_step_together.rs::a_missing_rank_is_an_error_in_the_place_of_a_dead_lock"]),
    row(27, "torch#76282",
        "a skipped step also skips the communication that an optimizer does at each",
        "what has to happen at every step wraps `AmpOptimizer`, what belongs to applied steps is wrapped by it"),
    row(28, "lightning#9599 torch#40907 Pytorch-UNet#470",
        "scaled gradients were clipped",
        "gradients are true as soon as anybody sees them, so any clipping acts on true ones"),
    row(29, "lightning#4151 lightning#9205",
        "the logged gradient norm contains the scale",
        "`StepOutcome::grad_norm` is of true gradients"),
    row(30, "torch#44511 torch#55585 torch#67590 lightning#18828",
        "the learning rate advances on skipped steps, and no one can tell that a step was skipped",
        "`AmpScheduler` waits; `last_step` says applied, skipped or nothing to do"),
    row(31, "accelerate#139",
        "the flag of a skipped step is stale or another optimizer's",
        "it belongs to the step, and each optimizer has its own"),
    row(32, "accelerate#1714",
        "asking for the scale makes the host wait",
        "the scale lives on the host; a step reads once, and not at all without a check"),
    row(33, "accelerate#641 diffusers#721 Swin#311",
        "with accumulation gradients are unscaled twice, or a dropped window leaves the scaler in a state",
        "scaled and unscaled gradients are types of their own; a dropped window leaves nothing behind"),
    row(34, "neural_sp#136",
        "the scale changes between two micro-batches of one step",
        "it changes with a step only; and gradients of two scales add up rightly all the same"),
    row(35, "GOF#2 nerfstudio#1919 lightning#4524",
        "an optimizer without gradients trips an assertion",
        "no gradients: no step, no error, nothing learnt about the scale"),
    row(36, "bitsandbytes#945 diffusers#6119",
        "f16 gradients of f16 parameters are refused",
        "they are unscaled in f32 and go to the masters"),
    row(37, "lightning#15501 torch#98620 torch#97415",
        "optimizer and framework both unscale",
        "one owner unscales, once, whoever asks first"),
    row(38, "imageclassification#1 refiners#290",
        "scaled gradients are stepped without unscaling",
        "does not compile: `ScaledGradients` is not what an optimizer takes")
        .also(&["crates/burn-grad-scaler/src/scaled.rs::compile_fail"]),
    row(39, "lightning#1561",
        "one loop for both, with and without mixed precision, is wanted",
        "switched off, all of it is the plain loop bit by bit")
        .also(&["tests/policy_off_is_transparent.rs::twenty_steps_of_training_give_the_same_parameters"]),
    row(40, "thinc#552",
        "infinite gradients leak into code outside",
        "unscaled gradients are shown only if they are finite"),
    row(41, "torch#112583 torch#105211 torch#65766 apex#132",
        "a forward pass without gradients fills the cast cache, and training loses its gradient path",
        "a copy knows whether its weight is tracked"),
    row(42, "torch#48049",
        "evaluation fills memory with casts",
        "one copy per weight, which dies with it"),
    row(43, "lightning#19950 torch#63552 apex#327",
        "weights are cast again at every use, frozen ones at every step",
        "once per update, frozen ones once; `measure` counts")
        .also(&["tests/casts_are_cached.rs::an_lstm_of_fifty_steps_makes_one_cast_per_weight"]),
    row(44, "torch#61173 torch#85698 torch#188955",
        "autocast takes more memory than f32: both copies are kept, or a broadcast tensor is cast in full",
        "tensors that agree are not cast; a weight and its copy are kept once; a tensor that the program has expanded \
         by hand is cast as it is"),
    row(45, "fairchem#397 diffusers#511 diffusers#2568",
        "at inference the casts cost more than half precision gains",
        "a half model infers without any cast; `benches/gpu` and docs/performance.md say when it pays"),
    row(46, "torch#71169 torch#141896 fairscale#1199 TransformerEngine#787",
        "recomputed activations come back in another dtype",
        "casts are part of the graph: recomputation repeats them"),
    row(47, "torch#125186 torch#133938 torch#50170",
        "another thread does not know the region",
        "backward needs none; forward finds the policy by its device on every thread")
        .also(&["tests/regions_nest_and_restore.rs::threads_do_not_inherit_a_region",
                "tests/devices_have_their_own_settings.rs::a_device_is_initialised_once_for_all_threads"]),
    row(48, "torch#117832 apex#658",
        "users want to see the lists of operations and to change them",
        "the table is data: asked for, overridden, for a block or for all")
        .also(&["tests/casts_follow_the_op_table.rs::every_operation_casts_as_an_override_says"]),
    row(49, "torch#137033 torch#145588 torch-harmonics#202",
        "custom operations ignore autocast",
        "`custom::run`, forward and backward"),
    row(50, "torch#42605 apex#202 apex#667 keras#15140",
        "recurrent cells refuse a state in f32, and so does a concatenation",
        "any state and any mix; the outputs have one dtype"),
    row(51, "apex#199 apex#818 torch#86548",
        "a model trained at a level is to be used at it, without an optimizer",
        "the policy does not need one, and `valid()` keeps it"),
    row(52, "apex#1121 accelerate#134 accelerate#382",
        "losses and metrics outside break on half outputs; others want to keep these",
        "a setting; and half tensors are read to the host as f32"),
    row(53, "ultralytics#25931 dreamer4#14 transformers#13207",
        "one option for fp32, fp16 and bf16 is wanted, with a scaler for fp16 only",
        "`AmpConfig` from a string; an error that names what is allowed"),
    row(54, "Open-Rig3R#35",
        "f16 without a scaler: small gradients vanish silently",
        "one warning at the first backward pass"),
    row(55, "torchao#1124 torch#120376 torch#37967",
        "pure bf16 weights do not move under small updates",
        "f32 masters at O2, f32 weights at O1; without masters, rounding at random by setting"),
    row(56, "torch#147437 optax#1754 torch#8860",
        "Adam's epsilon is 0 in f16, and a zero gradient gives NaN",
        "the optimizer computes in f32 at every level"),
    row(57, "transformers#11663 detectron2#3686 lightning#2555",
        "the scaler is not saved, and a resumed run is another one",
        "it is part of the optimizer's record")
        .also(&["tests/training_resumes_exactly.rs::with_a_full_precision_recorder_nothing_else_is_needed"]),
    row(58, "apex#180 apex#250 apex#480",
        "after a resume at O2 the loss jumps, since masters were rebuilt from half weights",
        "masters are saved; a record of any level goes on at any other with its f32 values")
        .also(&["tests/training_resumes_exactly.rs::a_record_of_another_level_keeps_the_f32_values"]),
    row(59, "apex#964",
        "only the model of a checkpoint is to be loaded",
        "the model's record is plain f32 and needs no crate of ours")
        .also(&["tests/training_resumes_exactly.rs::a_model_record_loads_without_this_crate"]),
    row(60, "transformers#34053 fairseq2#1346",
        "a scale that is created at first use is missing from an early checkpoint",
        "it is there from the beginning"),
    row(61, "lightning#16303",
        "half parameters give the optimizer a half state",
        "its state is f32 at every level"),
    row(62, "fairseq#1739 fairseq#512 fairseq#515",
        "an f32 checkpoint overflows when it is continued in f16",
        "a dry run in f32, `DryRun`, lists the weights and operations that each level would overflow or flush")
        .also(&["tests/dry_runs_find_what_would_overflow.rs::a_checkpoint_with_activations_beyond_65504_overflows_at_every_level_in_f16_alone"]),
    row(63, "torch#163519 torchtitan#1735",
        "sharded training needs a scaler that knows of shards",
        "ranks skip together, whatever part of the parameters each has; not run on several GPUs, which were not at hand")
        .also(&["tests/ranks_step_together.rs::all_ranks_skip_when_one_overflows"]),
    row(64, "lightning#20619",
        "tiny values in inputs and parameters vanish in a cast without a word",
        "`NumericsReport` counts what each cast flushes, of inputs, of parameters and of gradients")
        .also(&["tests/numerics_are_reported.rs::a_cast_to_f16_of_1e_8_and_1_and_1e5_flushes_one_and_overflows_one"]),
    row(65, "transformers#11274 transformers#12225",
        "which layer overflowed first?",
        "the overflow tracer names operation and module, with what the calls before it span")
        .also(&["tests/the_first_overflow_is_named.rs::an_overflow_of_attention_scores_is_named_in_its_module"]),
    row(66, "torch#182156 MS-G3D#40",
        "anomaly detection fires on the infinities that a loss scale is there to find",
        "scaled gradients that overflow while the scale can go down are told apart: no fault")
        .also(&["tests/the_first_overflow_is_named.rs::an_overflow_of_scaled_gradients_is_no_fault_while_the_scale_can_go_down"]),
    row(67, "OneTrainer#1154",
        "training should stop on a NaN loss, but not on an overflow of scaled gradients",
        "`Trace::fault` is nothing for the latter")
        .also(&["tests/the_first_overflow_is_named.rs::an_overflow_of_scaled_gradients_is_no_fault_while_the_scale_can_go_down",
                "tests/the_first_overflow_is_named.rs::an_overflow_of_gradients_at_the_floor_of_the_scale_is_a_fault"]),
    row(68, "torch#38958",
        "a region does not reach into decorated or compiled functions",
        "it reaches into whatever runs in it, on its thread"),
    row(69, "burn#5696",
        "Burn has no automatic mixed precision: wanted are a check of what a device can, f32 weights, bf16 first",
        "this library; a device without the half dtype is an error or f32, as configured")
        .also(&["crates/burn-mixed-precision/src/config.rs::a_strict_configuration_is_refused_without_its_half_dtype",
                "crates/burn-mixed-precision/src/config.rs::a_fallback_configuration_trains_in_f32_and_keeps_its_number_of_losses"]),
    row(70, "burn#4332",
        "can one train in fp16 or bf16 with Burn, and with which operations?",
        "docs/op-table.md; its tests run on whatever backend the tests are built for")
        .also(&["tests/casts_follow_the_op_table.rs::every_operation_casts_as_its_level_says",
                "tests/casts_follow_the_op_table.rs::the_documented_table_is_the_one_in_force"]),
    row(71, "cubecl#1053",
        "bf16 training does not converge, since sums are in bf16",
        "sums of ours are in f32; those inside matrix products are the backend's, and tested"),
    row(72, "burn#4235 burn#4949 burn#5202",
        "training in plain f16 gives NaN from the first batch, and NaNs stay in the parameters",
        "a step with an infinity or a NaN is skipped, with the parameter's name"),
    row(73, "cubecl#1629",
        "devices round differently",
        "casts round to nearest, ties to even; results are compared within derived bounds"),
    row(74, "candle#2141",
        "which accumulator does a half product use?",
        "Burn neither says nor lets one choose; a test measures it"),
    row(75, "tch-rs#328 tch-rs#249",
        "autocast without a gradient scaler",
        "`GradScaler`, with torch's names")
        .also(&["tests/grad_scaler_by_hand.rs::unscaling_divides_by_the_scale"]),
    row(76, "dfdx#696",
        "f16 tests fail on tolerances",
        "each tolerance is a number of roundings times that of the format (docs/numerics.md)")
        .also(&["tests/every_module_is_accurate.rs::every_loss"]),
];

/// What the rows found in this library, the change that mended it, and the test that holds it.
#[rustfmt::skip]
const FAULTS: &[[&str; 3]] = &[
    ["a mask's -1e9 was -inf in every fill, clamp and creation of a half tensor",
     "numbers have a `ScalarRole`; fills saturate",
     "tests/scalars_keep_their_meaning.rs::a_number_that_half_cannot_hold_acts_as_in_f32"],
    ["`x + 1e-8`, `x.clamp_min(1e-8)` and `x < 1e-8` took 1e-8 for 0 in f16; layer norm at O3 its epsilon of 1e-12",
     "such a number is an f32 operand",
     "tests/users/range.rs::row_11_an_epsilon_that_half_has_not_still_guards"],
    ["the gradient of `x / 1e-5` in f16 was infinite, whatever arrived: backends round 1e5 to f16",
     "a divisor's reciprocal counts too",
     "tests/scalars_keep_their_meaning.rs::gradients_pass_through_as_in_f32"],
    ["the additive mask of a single sequence counted as a channel vector and became -inf",
     "not along the last dimension of rank four or more",
     "tests/users/range.rs::row_01_an_additive_mask_of_a_single_sequence_is_finite"],
    ["attention in f16 under autodiff overflowed before its scores were scaled, had its softmax in half, and rounded a \
      bias of -1e9 to -inf",
     "the decorator composes it with scores in f32",
     "tests/attention_keeps_scores_in_f32.rs::scores_beyond_the_half_range_pick_the_largest"],
    ["`deform_conv2d` ran in half, where torchvision has it in f32: f16 has few positions between two pixels",
     "full_then_lower",
     "tests/casts_follow_the_op_table.rs::every_operation_casts_as_its_level_says"],
    ["f16 without a scaler lost small gradients without a word",
     "a warning at the first backward pass",
     "tests/users/casting.rs::row_54_f16_without_a_scaler_warns_and_with_one_keeps_small_gradients"],
];

/// What the rows found in Burn 0.21, which this library cannot mend.
const FAULTS_OF_BURN: &[&str] = &[
    "the CPU backend adds up f16 products with a single row or column in f16, in some layouts: 4096 ones \
     give 2048 (gemm 0.19)",
    "`slice_fill` and `from_data` round their numbers to half on the host",
    "`MultiHeadAttention` and `CrossAttention` divide scores after the product, which overflows in f16",
    "`powf_scalar` panics for a whole exponent beyond i64, and `GroupNorm` for inputs of one or two elements",
    "`topk`, `rfft` and `irfft` have no gradient",
];

const REPOSITORIES: &[(&str, &str)] = &[
    ("accelerate", "huggingface/accelerate"),
    ("apex", "NVIDIA/apex"),
    ("bitsandbytes", "bitsandbytes-foundation/bitsandbytes"),
    ("burn", "tracel-ai/burn"),
    ("BVAE-TTS", "LEEYOONHYUNG/BVAE-TTS"),
    ("candle", "huggingface/candle"),
    ("cubecl", "tracel-ai/cubecl"),
    ("cubek", "tracel-ai/cubek"),
    ("DCNv2", "CharlesShang/DCNv2"),
    ("DeepSpeed", "deepspeedai/DeepSpeed"),
    ("DeepSpeedExamples", "deepspeedai/DeepSpeedExamples"),
    ("detectron2", "facebookresearch/detectron2"),
    ("dfdx", "chelsea0x3b/dfdx"),
    ("diffusers", "huggingface/diffusers"),
    ("dreamer4", "lucidrains/dreamer4"),
    ("efficientdet", "rwightman/efficientdet-pytorch"),
    ("fairchem", "facebookresearch/fairchem"),
    ("fairscale", "facebookresearch/fairscale"),
    ("fairseq", "facebookresearch/fairseq"),
    ("fairseq2", "facebookresearch/fairseq2"),
    ("glide-finetune", "afiaka87/glide-finetune"),
    ("GOF", "SheldonTsui/GOF_NeurIPS2021"),
    ("gpt-neox", "EleutherAI/gpt-neox"),
    ("imageclassification", "FlyEgle/imageclassification"),
    ("keras", "keras-team/keras"),
    ("lerobot", "huggingface/lerobot"),
    ("lightning", "Lightning-AI/pytorch-lightning"),
    ("Megatron-Bridge", "NVIDIA-NeMo/Megatron-Bridge"),
    ("MS-G3D", "kenziyuliu/MS-G3D"),
    ("nerfstudio", "nerfstudio-project/nerfstudio"),
    ("neural_sp", "hirofumi0810/neural_sp"),
    ("OneTrainer", "Nerogar/OneTrainer"),
    ("onnxruntime", "microsoft/onnxruntime"),
    ("Open-Rig3R", "engichang1467/Open-Rig3R"),
    ("optax", "google-deepmind/optax"),
    ("Pytorch-UNet", "milesial/Pytorch-UNet"),
    ("refiners", "finegrain-ai/refiners"),
    (
        "segmentation_models",
        "qubvel-org/segmentation_models.pytorch",
    ),
    ("swav", "facebookresearch/swav"),
    ("Swin", "microsoft/Swin-Transformer"),
    ("tch-rs", "LaurentMazare/tch-rs"),
    ("tensorflow", "tensorflow/tensorflow"),
    ("thinc", "explosion/thinc"),
    ("torch", "pytorch/pytorch"),
    ("torch-harmonics", "NVIDIA/torch-harmonics"),
    ("torchao", "pytorch/ao"),
    ("torchtitan", "pytorch/torchtitan"),
    ("TransformerEngine", "NVIDIA/TransformerEngine"),
    ("transformers", "huggingface/transformers"),
    ("ultralytics", "ultralytics/ultralytics"),
    ("warp-rnnt", "1ytic/warp-rnnt"),
];

const SOURCES: &[(&str, &str)] = &[
    ("range", include_str!("range.rs")),
    ("loss_scale", include_str!("loss_scale.rs")),
    ("stepping", include_str!("stepping.rs")),
    ("casting", include_str!("casting.rs")),
    ("weights", include_str!("weights.rs")),
    ("debugging", include_str!("debugging.rs")),
    ("burn_and_rust", include_str!("burn_and_rust.rs")),
];

/// The tests of each row: `module::row_01_...`.
fn tests() -> BTreeMap<usize, Vec<String>> {
    let mut tests: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (module, source) in SOURCES {
        for rest in source.split("fn row_").skip(1) {
            let name = rest.split('(').next().unwrap();
            let number = name
                .split('_')
                .next()
                .unwrap()
                .parse()
                .expect("row_NN_promise");
            tests
                .entry(number)
                .or_default()
                .push(format!("users::{module}::row_{name}"));
        }
    }
    tests
}

fn link(thread: &str) -> String {
    let (short, number) = thread.split_once('#').expect("repository#number");
    let found = REPOSITORIES.iter().find(|(name, _)| *name == short);
    let (_, repository) = found.unwrap_or_else(|| panic!("{short} is not in the list"));
    format!("[{thread}](https://github.com/{repository}/issues/{number})")
}

/// A test as the documentation names it.
fn short(path: &str) -> String {
    let (file, name) = path.rsplit_once("::").expect("path::function");
    match file.strip_prefix("tests/") {
        Some(file) => {
            let module = file.trim_end_matches(".rs").replace('/', "::");
            format!("{module}::{name}")
        }
        None => format!("{file}: {name}"),
    }
}

fn document() -> String {
    let tests = tests();
    let mut document = String::from(
        "# What users of mixed precision ran into, and what happens here\n\
         \n\
         Written by `UPDATE_DOCS=1 cargo test --test users`; edit `tests/users/rows.rs` instead. The rows were\n\
         collected from the issue trackers of other systems and of Burn; the tests carry their numbers.\n\
         \n\
         | row | what went wrong | what this library does | test | reported in |\n\
         |---|---|---|---|---|\n",
    );
    for row in ROWS {
        let own = tests.get(&row.number).into_iter().flatten().cloned();
        let also = row.also.iter().map(|path| short(path));
        let shown: Vec<_> = own.chain(also).map(|name| format!("`{name}`")).collect();
        let threads: Vec<_> = row.threads.split(' ').map(link).collect();
        document += &format!(
            "| {} | {} | {} | {} | {} |\n",
            row.number,
            row.went_wrong,
            row.here,
            shown.join(", "),
            threads.join(", ")
        );
    }
    document += "\n## Faults found\n\nBy these rows in this library:\n\n| fault | mended by | test |\n|---|---|---|\n";
    for [fault, change, test] in FAULTS {
        document += &format!("| {fault} | {change} | `{}` |\n", short(test));
    }
    document += "\nIn Burn 0.21, which this library cannot mend:\n\n";
    for fault in FAULTS_OF_BURN {
        document += &format!("- {fault}\n");
    }
    document
}

#[test]
fn every_row_has_a_test_or_a_reason_and_every_test_a_row() {
    let numbers: Vec<_> = ROWS.iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=76).collect::<Vec<_>>());
    let tests = tests();
    for row in ROWS {
        let shown = tests.contains_key(&row.number) || !row.also.is_empty();
        assert!(
            shown && !row.here.is_empty(),
            "row {} has nothing to show",
            row.number
        );
    }
    assert!(tests.keys().all(|number| numbers.contains(number)));
}

#[test]
fn tests_of_other_files_exist() {
    let of_rows = ROWS.iter().flat_map(|row| row.also.iter().copied());
    let of_faults = FAULTS.iter().map(|[_, _, test]| *test);
    for path in of_rows.chain(of_faults) {
        let (file, name) = path.rsplit_once("::").unwrap();
        let source = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR")));
        let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
        let found = match name {
            "compile_fail" => source.contains("```compile_fail"),
            name => {
                source.contains(&format!("#[test]\nfn {name}("))
                    || source.contains(&format!("#[test]\n    fn {name}("))
            }
        };
        assert!(found, "{path}");
    }
}

#[test]
fn the_documented_rows_are_these() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/user-failures.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == document(),
        "docs/user-failures.md is stale: UPDATE_DOCS=1 cargo test --test users"
    );
}
