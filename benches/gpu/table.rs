//! Samples as lines of a file, and a file of them as one Markdown table.

use crate::measure::{LOSS_AFTER, Sample};

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

/// Prints the table; times and memory are compared with the f32 row of the same program and model.
pub fn print(lines: impl Iterator<Item = String>) {
    println!(
        "| model | row | step ms | range | x f32 | live GB | x f32 | casts | host reads | \
         update % | loss after {LOSS_AFTER} |"
    );
    println!("|{}", "---|".repeat(11));
    let rows: Vec<Vec<String>> = lines
        .map(|line| line.split('\t').map(str::to_string).collect())
        .filter(|row: &Vec<String>| row.len() == 9)
        .collect();
    for row in &rows {
        let program = |row: &[String]| row[1].split(' ').next().map(str::to_string);
        let full = rows.iter().find(|other| {
            other[0] == row[0] && program(other) == program(row) && other[1].ends_with("32")
        });
        let ratio = |column: usize| {
            let full: f64 = full?[column].parse().ok()?;
            let this: f64 = row[column].parse().ok()?;
            Some(format!("{:.2}", this / full))
        };
        let ratio = |column| ratio(column).unwrap_or_default();
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row[0],
            row[1],
            row[2],
            row[3],
            ratio(2),
            row[4],
            ratio(4),
            row[5],
            row[6],
            row[7],
            row[8]
        );
    }
}
