//! The numerics report as a table, as JSON and as a page says the same, the worst first; the page shows
//! in a browser, where there is one, without errors.
#![cfg(feature = "flex")]

#[path = "support/browser.rs"]
mod browser;
#[path = "support/example.rs"]
mod example;

use std::fs;
use std::path::Path;
use std::process::Command;

use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_amp::{AmpBackend, AmpConfig, NumericsReport, OptLevel, scope};

type B = AmpBackend<Flex>;

/// An overflow in a block with a hostile name, a small tensor and a healthy one.
fn report() -> NumericsReport {
    let amp = AmpConfig::new(OptLevel::O1).build().unwrap();
    let full = |value: f32| Tensor::<B, 2>::full([4, 4], value, &Default::default());
    let pass = |_| {
        let large = scope::module("a<b>&\"c\"", || full(1e3).matmul(full(1e3)));
        let small = scope::module("small", || full(1e-9).matmul(full(1.0)));
        let healthy = scope::module("healthy", || full(0.5).matmul(full(0.5)));
        (large + small + healthy).mean()
    };
    amp.scope(|| NumericsReport::of(1, pass)).1
}

#[test]
fn the_table_is_aligned_and_begins_with_the_worst() {
    let report = report();
    let text = report.to_string();
    let (advice, table) = text.split_once("\n\n").expect("two parts");
    assert!(
        advice.lines().nth(1).unwrap().contains("infinite"),
        "{text}"
    );
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("module"), "{text}");
    assert!(lines[1].starts_with("a<b>&\"c\""), "{text}");
    let ends = |line: &str, title: &str| {
        lines[0].find(title).map(|at| {
            let end = at + title.len();
            line.as_bytes()[end - 1] != b' ' && line.as_bytes().get(end).is_none_or(|c| *c == b' ')
        })
    };
    for line in &lines[1..] {
        assert_eq!(ends(line, "elements"), Some(true), "{text}");
        assert_eq!(ends(line, "to zero"), Some(true), "{text}");
    }
    assert!(lines[2].starts_with("small"), "{text}");
}

#[test]
fn the_json_holds_what_the_value_holds() {
    let report = report();
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["steps"], 1);
    assert_eq!(
        json["entries"].as_array().unwrap().len(),
        report.entries.len()
    );
    let found = json["recommendations"].as_array().unwrap();
    assert_eq!(found.len(), report.recommendations.len());
    assert_eq!(found[0]["fault"], "overflows");
    assert_eq!(found[0]["op"], "float_matmul");
    let entries = json["entries"].as_array().unwrap();
    let small = entries
        .iter()
        .find(|entry| {
            entry["op"] == "float_matmul"
                && entry["cast"]["flushed"] != 0
                && entry["place"] == "small"
        })
        .unwrap();
    assert_eq!(small["cast"]["flushed"], 16);
    // floor(log2 1e-9) is -30.
    assert_eq!(small["before"]["bins"], serde_json::json!([[-30, 16]]));
    assert_eq!(
        (&small["dtype"], &small["cast_to"]),
        (&"f32".into(), &"f16".into())
    );
}

#[test]
fn the_page_shows_what_the_report_says() {
    let report = report();
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numerics.html");
    fs::write(&page, report.page()).unwrap();
    let dom = browser::dom(&page);
    assert!(!dom.contains("{{"), "a place was not filled");
    let table = browser::between(&dom, "<table id=\"tensors\">", "</table>");
    let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), report.by_severity().len());
    assert!(rows[0].contains("a&lt;b&gt;&amp;"), "{}", rows[0]);
    let list = browser::between(&dom, "<ul id=\"recommendations\">", "</ul>");
    assert_eq!(list.matches("<li>").count(), report.recommendations.len());
    let plots: Vec<&str> = dom.split("<figure>").skip(1).collect();
    assert_eq!(plots.len(), report.by_severity().len().min(12));
    assert!(plots[0].contains("class=\"lost\""), "{}", plots[0]);
    assert!(
        plots
            .iter()
            .all(|plot| plot.contains("<rect class=\"band\""))
    );
    assert!(plots.iter().any(|plot| plot.contains("class=\"fits\"")));
    // It needs nothing but itself.
    for outside in ["http:", "https:", "<script", "src="] {
        assert!(!dom.contains(outside), "{outside}");
    }
}

#[test]
fn the_example_prints_its_reports_and_writes_its_page() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numerics_example");
    fs::create_dir_all(&dir).unwrap();
    let output = Command::new(example::example("numerics"))
        .current_dir(&dir)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    for part in [
        "O1 in f16, loss scale dynamic: fits",
        "3 steps, loss scale",
        "nothing to recommend",
        "casts made that wrote",
        "wrote numerics.html",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    let dom = browser::dom(&dir.join("numerics.html"));
    assert_eq!(dom.matches("<figure>").count(), 12);
}
