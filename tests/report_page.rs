//! The page of `compare` shows in a browser, without errors, the table that the program printed and
//! three plots with something in them.
#![cfg(feature = "flex")]

#[path = "support/browser.rs"]
mod browser;
#[path = "support/example.rs"]
mod example;

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use browser::{between, program, show};
use example::example;

/// The cells of the page's table, row by row.
fn cells(dom: &str) -> Vec<Vec<String>> {
    let table = between(dom, "<table id=\"runs\">", "</table>");
    let body = between(table, "<tbody>", "</tbody>");
    let rows = body.split("<tr>").skip(1);
    rows.map(|row| {
        let cells = row.split("<td>").skip(1);
        let text = |cell: &str| cell.split("</td>").next().unwrap().to_string();
        cells.map(text).collect()
    })
    .collect()
}

/// The two drawings of a plot, for a desk and for a phone.
fn drawings<'a>(dom: &'a str, plot: &str) -> [&'a str; 2] {
    let figure = between(dom, &format!("<figure id=\"{plot}\">"), "</figure>");
    ["wide", "narrow"].map(|size| between(figure, &format!("<svg class=\"{size}\""), "</svg>"))
}

/// The numbers of points of a drawing's lines.
fn lines(drawing: &str) -> Vec<usize> {
    let lines = drawing.split("<polyline").skip(1);
    lines
        .map(|line| between(line, "points=\"", "\"").split_whitespace().count())
        .collect()
}

/// The numbers that a drawing's elements of a kind have in an attribute.
fn numbers(drawing: &str, element: &str, attribute: &str) -> Vec<f64> {
    let tag = format!("<{element} ");
    let elements = drawing.split(&tag).skip(1);
    elements
        .map(|element| {
            between(element, &format!(" {attribute}=\""), "\"")
                .parse()
                .unwrap()
        })
        .collect()
}

#[test]
fn the_report_shows_what_the_table_says() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html");
    let _ = fs::remove_file(&page);
    let output = Command::new(example("compare"))
        .args(["--quick", "--report"])
        .arg(&page)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    for run in ["O0, half dtype none", "O2, half dtype bf16"] {
        assert!(stderr.contains(run), "{stderr}");
    }
    let stdout = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<Vec<String>> = stdout
        .lines()
        .skip(1)
        .take(7)
        .map(|line| line.split_whitespace().map(str::to_string).collect())
        .collect();
    learned(&printed);

    let dom = browser::dom(&page);
    assert_eq!(cells(&dom), printed);
    for (plot, axes) in [
        ("loss", ["training step", "training loss (nats)"]),
        ("scale", ["training step", "loss scale (factor)"]),
        (
            "exponents",
            ["size of a gradient element", "share of all elements (%)"],
        ),
    ] {
        for drawing in drawings(&dom, plot) {
            assert!(axes.iter().all(|axis| drawing.contains(axis)), "{plot}");
        }
    }
    for drawing in drawings(&dom, "loss") {
        let lines = lines(drawing);
        // A line a training, beside the axes'.
        let long = lines.iter().filter(|points| **points >= 40).count();
        assert_eq!(long, 7, "{lines:?}");
    }
    let skipped: usize = printed
        .iter()
        .map(|row| row[7].parse::<usize>().unwrap())
        .sum();
    for drawing in drawings(&dom, "scale") {
        assert_eq!(
            lines(drawing)
                .iter()
                .filter(|points| **points >= 40)
                .count(),
            2
        );
        // A cross is two lines, in the colours of O1 and O2 in f16.
        let strokes = ["#0969DB", "#BC4C00"];
        let crosses = drawing.split("<line ").skip(1).filter(|line| {
            strokes
                .iter()
                .any(|stroke| between(line, " stroke=\"", "\"") == *stroke)
        });
        assert_eq!(crosses.count(), 2 * skipped);
    }
    for drawing in drawings(&dom, "exponents") {
        let heights = numbers(drawing, "rect", "height");
        // Three bands of f16 and the bars of a distribution that spans many powers of two.
        assert!(
            heights.iter().filter(|height| **height >= 1.0).count() >= 10,
            "{heights:?}"
        );
        assert!(lines(drawing).iter().any(|points| *points >= 40));
    }
}

/// The rows are those of all levels, each of which is far from guessing, like f32.
fn learned(rows: &[Vec<String>]) {
    let names: Vec<String> = rows.iter().map(|row| row[..2].join(" ")).collect();
    assert_eq!(
        names,
        [
            "O0 none", "O1 f16", "O1 bf16", "O2 f16", "O2 bf16", "O3 f16", "O3 bf16"
        ]
    );
    let number = |row: &[String], column: usize| row[column].parse::<f64>().unwrap();
    for row in rows {
        // Chance is ln 10 = 2.3 nats and 10%; how well O3 learns is not promised.
        if row[0] != "O3" {
            assert!(number(row, 2) < 0.8, "{row:?}");
            assert!(number(row, 3) > 80.0, "{row:?}");
        }
        // Casts, skips and scales only where there is something to cast and to scale.
        assert_eq!(number(row, 6) > 0.0, row[0] != "O0", "{row:?}");
        let dynamic = ["O1 f16", "O2 f16"].contains(&row[..2].join(" ").as_str());
        assert_eq!(number(row, 8) > 1.0, dynamic, "{row:?}");
    }
    // Half activations: the heap is smaller at every level.
    for row in &rows[1..] {
        assert!(number(row, 5) < number(&rows[0], 5), "{row:?}");
    }
}

/// The silence of the console means something: an error on a page would be heard.
#[test]
fn an_error_on_a_page_is_heard() {
    let Some(browser) = program() else {
        assert!(env::var_os("CI").is_none(), "no browser on PATH");
        eprintln!("no browser on PATH: nothing to hear with");
        return;
    };
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("error.html");
    fs::write(&page, "<script>nothing.at.all()</script>").unwrap();
    assert_eq!(show(&browser, &page).console.len(), 1);
}
