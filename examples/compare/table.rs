//! The table, written once for the terminal and for the page.

use crate::run::Run;

/// The title of each column, unit included.
pub const TITLES: [&str; 9] = [
    "level",
    "half",
    "last loss (nats)",
    "accuracy (%)",
    "step (ms)",
    "peak heap (MB)",
    "casts/step",
    "skipped",
    "loss scale",
];

/// The cells of one training.
pub type Row = [String; TITLES.len()];

/// A row for each training.
pub fn rows(runs: &[Run]) -> Vec<Row> {
    runs.iter().map(row).collect()
}

fn row(run: &Run) -> Row {
    [
        run.precision.level.to_string(),
        run.precision.half_dtype(),
        format!("{:.4}", run.last_loss()),
        format!("{:.2}", 100.0 * run.correct as f64 / run.tested as f64),
        format!("{:.1}", run.median_step().as_secs_f64() * 1e3),
        format!("{:.2}", run.peak_bytes as f64 / 1e6),
        run.casts().to_string(),
        run.skipped().to_string(),
        run.last_scale().to_string(),
    ]
}

/// The table as aligned columns, words to the left and numbers to the right.
pub fn text(rows: &[Row]) -> String {
    let titles = TITLES.map(str::to_string);
    let lines = || [&titles].into_iter().chain(rows);
    let mut text = String::new();
    for line in lines() {
        for (column, cell) in line.iter().enumerate() {
            let width = lines().map(|line| line[column].len()).max().unwrap_or(0);
            match column {
                0 | 1 => text += &format!("{cell:<width$}  "),
                _ => text += &format!("{cell:>width$}  "),
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
