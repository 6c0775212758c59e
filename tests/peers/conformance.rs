//! docs/conformance.md: every behaviour that the peers' suites assert, and what we make of it.
//!
//! The table is data here; a test ties it to the tests of this folder by the numbers in their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passes,
    /// We do something else, which the test shows.
    Deviates(&'static str),
    DoesNotApply(&'static str),
}

use Verdict::{Deviates, DoesNotApply, Passes};

type Row = (&'static str, &'static str, Verdict);

const APEX: &[Row] = &[
    (
        "A1",
        "Linear and conv2d return half for f32 and f16 input; the input's gradient has its dtype",
        Passes,
    ),
    (
        "A2",
        "Softmax, group norm and MSE return f32 for both; the input's gradient has its dtype",
        Passes,
    ),
    (
        "A3",
        "Relu and batch norm, training and evaluating, return the input's dtype",
        Passes,
    ),
    (
        "A4",
        "Binary cross entropy refuses half input, unless a switch allows it in f32",
        Deviates(
            "half input is accepted and the logarithms run in f32, which is what the switch does",
        ),
    ),
    (
        "A5",
        "Methods, functions and operators agree: matmul in half, powers in f32",
        Passes,
    ),
    (
        "A6",
        "Half is read to the host as f32; sums are f32",
        Passes,
    ),
    (
        "A7",
        "Binary operations meet in the widest dtype, gradients keep their leaf's",
        Passes,
    ),
    (
        "A8",
        "Cat of mixed tensors meets in the widest dtype, gradients keep their leaf's",
        Passes,
    ),
    (
        "A9",
        "An in-place operation of the f32 list refuses half",
        DoesNotApply("Burn's tensors do not change in place"),
    ),
    (
        "A10",
        "In-place addition keeps the left operand's dtype",
        DoesNotApply("Burn's tensors do not change in place"),
    ),
    (
        "A11",
        "Training, evaluating and training again, with changed weights between, equals casts by hand",
        Passes,
    ),
    (
        "A12",
        "At a static scale of 4 a weight that is used twice gets one true gradient in its dtype",
        Passes,
    ),
    (
        "A13",
        "RNN, GRU and LSTM cells step in half and take a hidden state in f32",
        Deviates(
            "the products are half, the output is f32: Burn's layers collect their steps in an f32 tensor",
        ),
    ),
    (
        "A14",
        "Stacks of recurrent layers in one and both directions, called twice: output half",
        Deviates("as A13: the output is f32"),
    ),
    ("A15", "Packed sequences", DoesNotApply("Burn has none")),
    (
        "A16",
        "A parameter group added later trains as its reference at every level, with and without accumulation",
        Passes,
    ),
    (
        "A17",
        "A saved model is f32 at every level; training goes on from it and the loss falls",
        Passes,
    ),
    (
        "A18",
        "Five epochs, a restart and five more are ten, exactly, with one and two losses",
        Passes,
    ),
    (
        "A19",
        "The scales of several losses fall independently, and the saved state shows it",
        Passes,
    ),
    (
        "A20",
        "Four arrangements of models, losses and optimizers, with a scale per loss or one for all",
        Passes,
    ),
    (
        "A21",
        "Without overflow gradients, masters and models are the reference's; the model is its master rounded",
        Passes,
    ),
    (
        "A22",
        "With one infinity the run equals one that leaves exactly that step out",
        Passes,
    ),
    (
        "A23",
        "Those optimizers skip that the overflowing loss reaches, and no other",
        Passes,
    ),
    (
        "A24",
        "The iteration after an overflow starts clean, however gradients are zeroed",
        Passes,
    ),
    (
        "A25",
        "All of this with a fused SGD, with and without materialised master gradients",
        Deviates(
            "Burn has no fused optimizers; masters and model stay together under the one it has",
        ),
    ),
    (
        "A26",
        "A layer-wise rate (LARC) runs at every level",
        Passes,
    ),
    (
        "A27",
        "Scaling lists of tensors of many sizes and dtypes",
        Passes,
    ),
    (
        "A28",
        "An infinity or NaN at either end or inside, in any tensor, is found",
        Passes,
    ),
    (
        "A29",
        "a x + b y of two lists; overflow is searched in the list of choice",
        Deviates("gradients of two scales add up, and both are always searched"),
    ),
    (
        "A30",
        "The norm over all tensors and of each, accumulated in f32",
        Deviates("the norm over all; a norm per tensor is not offered"),
    ),
    (
        "A31",
        "The norm of unscaled gradients, which stay as they are",
        Passes,
    ),
    (
        "A32",
        "Hysteresis: overflows within the budget hold the scale, a clean step refills it",
        Passes,
    ),
    (
        "A33",
        "A half network keeps batch norms and their buffers in f32, and its output is half",
        Passes,
    ),
    (
        "A34",
        "Two workers have equal masters and models; the model is its master rounded",
        Passes,
    ),
];

const TORCH_AUTOCAST: &[Row] = &[
    (
        "T1",
        "Autocast is off before a region, on inside, off after",
        Passes,
    ),
    ("T2", "Functions and methods give the same bits", Passes),
    (
        "T3",
        "Results are those of casts by hand in a disabled inner region, bit by bit",
        Passes,
    ),
    (
        "T4",
        "The half list runs in the region's half dtype",
        Passes,
    ),
    (
        "T5",
        "The f32 list widens half; a dtype that the caller gives wins",
        Passes,
    ),
    ("T6", "The promote list meets in f32", Passes),
    (
        "T7",
        "Comparisons, arithmetic, cat and stack promote as the framework does",
        Passes,
    ),
    (
        "T8",
        "A banned operation raises in a region",
        Deviates("none is banned: binary cross entropy runs in f32"),
    ),
    (
        "T9",
        "The CPU has lists of its own",
        Deviates("one table holds on every device"),
    ),
    (
        "T10",
        "f64 and integers are left alone; a product of f64 and half raises",
        Deviates("all meet in f64 as soon as one is; integers pass"),
    ),
    (
        "T11",
        "Cat and stack in a function that is called in a region promote",
        Passes,
    ),
    (
        "T12",
        "Every kind of recurrent layer equals a half control",
        Deviates(
            "compared with an f32 control, within the roundings on the path; Burn's layers know no packing and no dropout",
        ),
    ),
    (
        "T13",
        "An LSTM of mixed dtypes works inside a region and not outside",
        Passes,
    ),
    (
        "T14",
        "Regions nest, are left by exceptions too, and work as decorators",
        Passes,
    ),
    (
        "T15",
        "A weight is cast once in a region; the cache can be switched off and is cleared at the end",
        Deviates(
            "the copy belongs to the weight: it lives as long, in any region, and cannot go stale, so there is nothing to clear or switch off",
        ),
    ),
    ("T16", "Untracked passes leave nothing behind", Passes),
    (
        "T17",
        "Recomputed segments run in the dtypes of forward",
        Passes,
    ),
    (
        "T18",
        "A custom operation runs forward and backward in one dtype",
        Passes,
    ),
    (
        "T19",
        "A custom operation may ask for f32; outside of a region nothing happens",
        Passes,
    ),
    (
        "T20",
        "Deprecated names warn and still work",
        DoesNotApply("there are none"),
    ),
    (
        "T21",
        "Each device has a default half dtype; an unsupported one warns and switches off",
        Deviates(
            "f16 unless chosen; an unsupported one is an error, and falling back to f32 is a choice",
        ),
    ),
    (
        "T22",
        "Backward outside of the region gives gradients in the parameter's dtype",
        Passes,
    ),
];

const TORCH_SCALER: &[Row] = &[
    (
        "G1",
        "Unscaling takes contiguous, transposed and sliced gradients",
        Passes,
    ),
    (
        "G2",
        "A non-finite element anywhere sets the flag, which stays until the update",
        Passes,
    ),
    (
        "G3",
        "Gradients of several dtypes are looked at together; f16 ones are refused unless allowed",
        Deviates("f16 gradients are widened; there is nothing to allow"),
    ),
    (
        "G4",
        "The update rule: growth 2, backoff 1/4, interval 2, start 4",
        Passes,
    ),
    (
        "G5",
        "Outputs are scaled as tensors, lists and nested iterables",
        Deviates("each by a call; the factor moves in update only"),
    ),
    (
        "G6",
        "A scaler's state survives; a disabled scaler ignores it, an empty one is refused",
        Passes,
    ),
    (
        "G7",
        "Training in half with an overflow is the f32 control without that step, to 1e-3",
        Passes,
    ),
    (
        "G8",
        "The same with the scaler saved and loaded after every step",
        Passes,
    ),
    ("G9", "A disabled scaler is none", Passes),
    (
        "G10",
        "Clipping scaled gradients by a scaled norm, or unscaled ones by the norm, equals the control",
        Deviates("scaled gradients are not handed out: unscale, then clip"),
    ),
    (
        "G11",
        "Gradient penalty",
        DoesNotApply("Burn has no gradients of gradients"),
    ),
    ("G12", "Micro-batches are one step", Passes),
    (
        "G13",
        "Two models, optimizers and losses: an infinity skips the optimizer it is in, and only that",
        Passes,
    ),
    ("G14", "The same on two devices", Passes),
    (
        "G15",
        "Sparse gradients: duplicate indices whose sum overflows are found",
        Deviates("Burn's are dense: the sum of the duplicates is in the gradient, and found"),
    ),
    ("G16", "The scale never overflows", Passes),
    (
        "G17",
        "Gradients that are tampered with after unscaling are not looked at again",
        Passes,
    ),
    (
        "G18",
        "Optimizers that take scale and flag get them",
        DoesNotApply("Burn's take true gradients, and a skipped step does not reach them"),
    ),
    (
        "G19",
        "Fused optimizers equal the others; a skipped step leaves parameters, moments and step counters",
        Deviates("Burn has no fused ones; the rest holds"),
    ),
    (
        "G21",
        "A scale that was set on the optimizer multiplies with the scaler's",
        DoesNotApply("Burn's optimizers have none"),
    ),
    (
        "G22",
        "Misuse is a defined error: unscaling or stepping twice, an update of nothing, a closure",
        Deviates(
            "the first do not compile, closures are not taken, an update of nothing is an error",
        ),
    ),
    ("G23", "An update may bring a new scale", Passes),
    (
        "G24",
        "Workers that share what they found agree on the scale",
        Passes,
    ),
];

const OTHERS: &[Row] = &[
    ("B1", "JMP: scaling and unscaling return the input", Passes),
    (
        "B2",
        "JMP: the scale grows after its period and divides down to its floor, 0 included",
        Passes,
    ),
    ("B3", "JMP: nothing is finite, one bad leaf is not", Passes),
    (
        "B4",
        "JMP: policies are read from text (p=, c=, o=); only floats are cast",
        Deviates("levels, dtypes, rules and JSON have their own texts, which round-trip"),
    ),
    (
        "B6",
        "Keras: an overflow leaves variables, inner state and step count; the scale halves and doubles",
        Passes,
    ),
    (
        "B7",
        "DeepSpeed: without overflow the scale doubles every window",
        Passes,
    ),
    (
        "B8",
        "DeepSpeed: overflows halve down to the floor, where ZeRO raises and the fused optimizer stays",
        Passes,
    ),
    ("B9", "DeepSpeed: some overflows, and the recovery", Passes),
    (
        "B10",
        "DeepSpeed: bf16 without a scale skips only if it looks",
        Passes,
    ),
];

const SUITES: [(&str, &[Row]); 4] = [
    (
        "Apex: tests/L0/run_amp, multi-tensor kernels, run_fp16util",
        APEX,
    ),
    ("torch: test_autocast", TORCH_AUTOCAST),
    ("torch: GradScaler", TORCH_SCALER),
    ("JMP, Keras, DeepSpeed", OTHERS),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    SUITES.iter().flat_map(|(_, rows)| rows.iter())
}

/// The tests of this folder, by number; one number may have several.
fn tests() -> BTreeMap<String, Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let mut tests = BTreeMap::<String, Vec<String>>::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line != "#[test]" {
                continue;
            }
            let signature = lines.find(|line| line.starts_with("fn ")).unwrap();
            let name = signature[3..].split('(').next().unwrap();
            let (number, _) = name.split_once('_').unwrap_or((name, ""));
            let (suite, number) = number.split_at(1);
            if let Ok(number) = number.parse::<u32>() {
                let id = format!("{}{number}", suite.to_uppercase());
                tests.entry(id).or_default().push(name.to_string());
            }
        }
    }
    tests
}

#[test]
fn every_behaviour_that_passes_or_deviates_has_a_test() {
    let tests = tests();
    let mut listed = BTreeSet::new();
    for (id, _, verdict) in rows() {
        assert!(listed.insert(id.to_string()), "{id} is listed twice");
        let applies = !matches!(verdict, DoesNotApply(_));
        assert_eq!(tests.contains_key(*id), applies, "{id}: {verdict:?}");
    }
    let unlisted: Vec<_> = tests.keys().filter(|id| !listed.contains(*id)).collect();
    assert!(
        unlisted.is_empty(),
        "tests of numbers that are not listed: {unlisted:?}"
    );
}

#[test]
fn no_number_is_missing() {
    // G20 and B5 were never given.
    let numbers = |suite: char, last: u32, gaps: &'static [u32]| {
        (1..=last)
            .filter(|n| !gaps.contains(n))
            .map(move |n| format!("{suite}{n}"))
    };
    let expected: Vec<String> = numbers('A', 34, &[])
        .chain(numbers('T', 22, &[]))
        .chain(numbers('G', 24, &[20]))
        .chain(numbers('B', 10, &[5]))
        .collect();
    let listed: Vec<&str> = rows().map(|(id, _, _)| *id).collect();
    assert_eq!(listed, expected);
}

/// Below this line the document is written by hand.
const BY_HAND: &str = "## Faults found by this suite\n";

fn table() -> String {
    let count = |like: fn(&Verdict) -> bool| rows().filter(|(_, _, v)| like(v)).count();
    let passes = count(|v| *v == Passes);
    let deviates = count(|v| matches!(v, Deviates(_)));
    let does_not_apply = count(|v| matches!(v, DoesNotApply(_)));
    let tests = tests();
    let mut text = format!(
        "# What the peers' test suites assert\n\
         \n\
         Written by `UPDATE_DOCS=1 cargo test --test peers conformance`, up to the last section; edit\n\
         `tests/peers/conformance.rs` instead. Each line is one behaviour that a test suite of Apex,\n\
         torch, JMP, Keras or DeepSpeed asserts, in our words. Where it says \"passes\" or \"deviates\",\n\
         a test in `tests/peers` whose name begins with the number shows what we do.\n\
         \n\
         | behaviours | pass | deviate | do not apply |\n\
         |---|---|---|---|\n\
         | {} | {passes} | {deviates} | {does_not_apply} |\n",
        rows().count(),
    );
    for (title, rows) in SUITES {
        text += &format!("\n## {title}\n\n| | behaviour | here | test |\n|---|---|---|---|\n");
        for (id, behaviour, verdict) in rows {
            let here = match verdict {
                Passes => "passes".to_string(),
                Deviates(how) => format!("deviates: {how}"),
                DoesNotApply(why) => format!("does not apply: {why}"),
            };
            let tests = tests.get(*id).into_iter().flatten();
            let tests: Vec<String> = tests.map(|name| format!("`{name}`")).collect();
            let tests = tests.join(", ");
            let tests = if tests.is_empty() {
                "–".to_string()
            } else {
                tests
            };
            text += &format!("| {id} | {behaviour} | {here} | {tests} |\n");
        }
    }
    text
}

#[test]
fn the_documented_conformance_is_the_one_that_is_tested() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/conformance.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let by_hand = written
        .find(BY_HAND)
        .map_or(BY_HAND, |start| &written[start..]);
    let expected = format!("{}\n{by_hand}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &expected).unwrap();
        return;
    }
    assert!(
        written == expected,
        "docs/conformance.md is stale: UPDATE_DOCS=1 cargo test --test peers conformance"
    );
}
