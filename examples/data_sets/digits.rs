//! The digits that ship with the examples: CSV, one sample a line.

use std::io::Read;

use flate2::read::GzDecoder;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{CLASSES, DataError, Samples, TrainTest};

const FILE: &str = "digits.csv.gz";
const BYTES: &[u8] = include_bytes!("../data/digits.csv.gz");

const SIDE: usize = 8;
const WHITE: u8 = 16;

/// One seed for every run, so that all of them are judged by the same samples.
const SPLIT_SEED: u64 = 0;

/// The 1,797 digits: four fifths to learn from, one fifth to be judged by.
pub fn load() -> Result<TrainTest, DataError> {
    let all = decompress(FILE, BYTES).and_then(|text| parse(FILE, &text))?;
    let mut positions: Vec<usize> = (0..all.len()).collect();
    positions.shuffle(&mut StdRng::seed_from_u64(SPLIT_SEED));
    let (train, test) = positions.split_at(all.len() * 4 / 5);
    Ok(TrainTest {
        name: "UCI handwritten digits".to_string(),
        train: all.select(train),
        test: all.select(test),
    })
}

fn decompress(file: &str, bytes: &[u8]) -> Result<String, DataError> {
    let mut text = String::new();
    match GzDecoder::new(bytes).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(source) => Err(DataError::Unreadable {
            file: file.to_string(),
            source,
        }),
    }
}

fn parse(file: &str, text: &str) -> Result<Samples, DataError> {
    let mut samples = Samples {
        channels: 1,
        height: SIDE,
        width: SIDE,
        white: WHITE,
        pixels: Vec::new(),
        labels: Vec::new(),
    };
    for (index, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |field: usize, max: u8| {
            let text = fields[field];
            text.parse()
                .ok()
                .filter(|value| *value <= max)
                .ok_or_else(|| DataError::Field {
                    file: file.to_string(),
                    line: index + 1,
                    field: field + 1,
                    found: text.to_string(),
                    max,
                })
        };
        let pixels = SIDE * SIDE;
        if fields.len() != pixels + 1 {
            return Err(DataError::Fields {
                file: file.to_string(),
                line: index + 1,
                found: fields.len(),
                expected: pixels + 1,
            });
        }
        for field in 0..pixels {
            samples.pixels.push(number(field, WHITE)?);
        }
        samples.labels.push(number(pixels, CLASSES as u8 - 1)?);
    }
    match samples.len() {
        0 => Err(DataError::Empty {
            file: file.to_string(),
        }),
        _ => Ok(samples),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn line(pixel: &str, label: &str) -> String {
        format!("{}{label}\n", format!("{pixel},").repeat(64))
    }

    fn message(text: &str) -> String {
        parse("d.csv", text).unwrap_err().to_string()
    }

    #[test]
    fn the_shipped_digits_are_split_four_to_one() {
        let TrainTest { train, test, .. } = load().unwrap();
        assert_eq!((train.len(), test.len()), (1437, 360));
        for samples in [&train, &test] {
            let labels: BTreeSet<u8> = samples.labels.iter().copied().collect();
            assert_eq!(labels, (0..10).collect());
            assert_eq!(samples.pixels.len(), 64 * samples.len());
        }
    }

    #[test]
    fn every_digit_is_on_one_side_of_the_split() {
        let all = parse(FILE, &decompress(FILE, BYTES).unwrap()).unwrap();
        let split = load().unwrap();
        let sorted = |sets: &[&Samples]| {
            let mut images: Vec<(Vec<u8>, u8)> = sets
                .iter()
                .flat_map(|s| {
                    s.pixels
                        .chunks(64)
                        .map(<[u8]>::to_vec)
                        .zip(s.labels.clone())
                })
                .collect();
            images.sort();
            images
        };
        assert_eq!(sorted(&[&all]), sorted(&[&split.train, &split.test]));
    }

    #[test]
    fn a_line_becomes_an_image_and_its_label() {
        let samples = parse("d.csv", &(line("16", "7") + &line("0", "0"))).unwrap();
        assert_eq!(samples.labels, [7, 0]);
        assert_eq!(samples.pixels, [[16; 64], [0; 64]].concat());
    }

    #[test]
    fn an_enlarged_digit_is_itself_in_every_channel() {
        let mut samples = parse("d.csv", &line("0", "7")).unwrap();
        samples.pixels[8 + 3] = 5;
        let large = samples.enlarged_to_colour(2);
        assert_eq!((large.channels, large.height, large.width), (3, 16, 16));
        let lit: Vec<usize> = (0..3 * 256).filter(|&at| large.pixels[at] == 5).collect();
        let square = [2 * 16 + 6, 2 * 16 + 7, 3 * 16 + 6, 3 * 16 + 7];
        let channels = [0, 256, 512].into_iter();
        let expected: Vec<usize> = channels.flat_map(|c| square.map(|at| c + at)).collect();
        assert_eq!(lit, expected);
    }

    #[test]
    fn mistakes_are_named_with_line_and_field() {
        let good = line("1", "2");
        for (text, expected) in [
            (String::new(), "d.csv: no samples in it"),
            (
                good.clone() + "1,2,3\n",
                "d.csv: line 2 has 3 fields, 65 expected",
            ),
            (
                good.clone() + "\n",
                "d.csv: line 2 has 1 fields, 65 expected",
            ),
            (
                good.clone() + &line("1", "2,3"),
                "d.csv: line 2 has 66 fields, 65 expected",
            ),
            (
                good.clone() + &line("17", "2"),
                "d.csv: line 2, field 1 is \"17\": a whole number from 0 to 16 expected",
            ),
            (
                line("1", "10"),
                "d.csv: line 1, field 65 is \"10\": a whole number from 0 to 9 expected",
            ),
            (
                line("-1", "1"),
                "d.csv: line 1, field 1 is \"-1\": a whole number from 0 to 16 expected",
            ),
            (
                line("1", "x"),
                "d.csv: line 1, field 65 is \"x\": a whole number from 0 to 9 expected",
            ),
        ] {
            assert_eq!(message(&text), expected);
        }
    }

    #[test]
    fn a_truncated_archive_is_unreadable() {
        for len in [0, 5, BYTES.len() / 2, BYTES.len() - 1] {
            let error = decompress(FILE, &BYTES[..len]).unwrap_err().to_string();
            assert!(
                error.starts_with("digits.csv.gz: cannot be read: "),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decompress("random", &bytes);
            let _ = parse("random", &String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn a_mutated_line_is_read_or_refused(at in 0usize..400, byte in any::<char>()) {
            let mut chars: Vec<char> = line("12", "3").repeat(2).chars().collect();
            let at = at % chars.len();
            chars[at] = byte;
            let text: String = chars.into_iter().collect();
            if let Ok(samples) = parse("mutated", &text) {
                prop_assert!(samples.pixels.iter().all(|&p| p <= WHITE));
                prop_assert_eq!(samples.pixels.len(), 64 * samples.len());
            }
        }
    }
}
