//! Samples as lines of a file, and a file of them as Markdown tables.

use crate::measure::{LOSS_AFTER, Sample};

/// The columns of a line that are compared with f32.
pub const STEP: usize = 2;
const LIVE: usize = 4;

/// One sample as tab-separated values; `peer.py` writes the same.
pub fn line(model: &str, row: &str, sample: &Sample) -> String {
    let millis = |time: std::time::Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
    [
        model.to_string(),
        row.to_string(),
        millis(sample.step),
        format!("{}..{}", millis(sample.range[0]), millis(sample.range[1])),
        format!("{:.3}", sample.live as f64 / 1e9),
        sample.casts.to_string(),
        sample.host_reads.to_string(),
        format!("{:.1}", sample.update * 1e2),
        format!("{:.4}", sample.loss),
    ]
    .join("\t")
}

/// The lines of a file.
pub struct Rows(Vec<Vec<String>>);

impl Rows {
    /// Those of a model together, models in the order in which they come.
    pub fn read(lines: impl Iterator<Item = String>) -> Self {
        let rows = lines.map(|line| line.split('\t').map(str::to_string).collect());
        let mut rows: Vec<Vec<String>> = rows.filter(|row: &Vec<_>| row.len() == 9).collect();
        let mut models: Vec<String> = Vec::new();
        for row in &rows {
            if !models.contains(&row[0]) {
                models.push(row[0].clone());
            }
        }
        rows.sort_by_key(|row| models.iter().position(|model| *model == row[0]));
        Rows(rows)
    }

    pub fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> = self.0.iter().map(|row| row[0].as_str()).collect();
        models.dedup();
        models
    }

    /// What a row has in a column, in parts of what the f32 row of its program and model has there.
    pub fn ratio(&self, model: &str, row: &str, column: usize) -> Option<f64> {
        let program = |row: &str| row.split(' ').next().map(str::to_string);
        let mut of_model = self.0.iter().filter(|other| other[0] == model);
        let this = of_model.clone().find(|other| other[1] == row)?;
        let full = of_model
            .find(|other| program(&other[1]) == program(row) && other[1].ends_with("32"))?;
        Some(this[column].parse::<f64>().ok()? / full[column].parse::<f64>().ok()?)
    }

    /// Prints every row, and what O1 gains beside what PyTorch gains.
    pub fn print(&self) {
        println!(
            "| model | row | step ms | range | x f32 | live GB | x f32 | casts | host reads | \
             update % | loss after {LOSS_AFTER} |"
        );
        println!("|{}", "---|".repeat(11));
        for row in &self.0 {
            let ratio = |column| match self.ratio(&row[0], &row[1], column) {
                Some(ratio) => format!("{ratio:.2}"),
                None => String::new(),
            };
            let (step, live) = (ratio(STEP), ratio(LIVE));
            println!(
                "| {} | {} | {} | {} | {step} | {} | {live} | {} | {} | {} | {} |",
                row[0],
                row[1],
                row[2],
                row[3].replace("..", " to "),
                row[4],
                row[5],
                row[6],
                row[7],
                row[8]
            );
        }
        println!();
        println!("| model | O1-f16 gains | PyTorch gains | one over the other |");
        println!("|{}", "---|".repeat(4));
        for model in self.models() {
            let gain = |row| Some(1.0 / self.ratio(model, row, STEP)?);
            if let (Some(ours), Some(torch)) = (gain("burn O1-f16"), gain("torch f16")) {
                println!("| {model} | {ours:.2} | {torch:.2} | {:.2} |", ours / torch);
            }
        }
    }
}
