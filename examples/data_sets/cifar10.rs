//! CIFAR-10 in its binary format.
//!
//! Five files `data_batch_1.bin` to `data_batch_5.bin` to train on and `test_batch.bin`. A file is a
//! row of samples of 3073 bytes: the label, then 1024 red, 1024 green and 1024 blue pixels, row by
//! row. The published files have 10000 samples each; any number is read.
//!
//! Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), and the
//! data set's page.

use std::fs;
use std::path::Path;

use super::{CLASSES, DataError, Samples, TrainTest};

const SIDE: usize = 32;
const CHANNELS: usize = 3;
const PIXELS: usize = CHANNELS * SIDE * SIDE;
const SAMPLE: usize = 1 + PIXELS;

/// The six files of a directory.
pub fn load(dir: &Path) -> Result<TrainTest, DataError> {
    if !dir.is_dir() {
        return Err(DataError::NoDirectory {
            path: dir.to_path_buf(),
        });
    }
    let mut train = empty();
    for batch in 1..=5 {
        read(dir, &format!("data_batch_{batch}.bin"), &mut train)?;
    }
    let mut test = empty();
    read(dir, "test_batch.bin", &mut test)?;
    Ok(TrainTest {
        name: format!("CIFAR-10 in {}", dir.display()),
        train,
        test,
    })
}

fn empty() -> Samples {
    Samples {
        channels: CHANNELS,
        height: SIDE,
        width: SIDE,
        white: u8::MAX,
        pixels: Vec::new(),
        labels: Vec::new(),
    }
}

fn read(dir: &Path, name: &str, samples: &mut Samples) -> Result<(), DataError> {
    let path = dir.join(name);
    let file = path.display().to_string();
    if !path.is_file() {
        return Err(DataError::MissingFile { file });
    }
    match fs::read(&path) {
        Ok(bytes) => parse(&file, &bytes, samples),
        Err(source) => Err(DataError::Unreadable { file, source }),
    }
}

/// Appends the samples of a file.
fn parse(file: &str, bytes: &[u8], samples: &mut Samples) -> Result<(), DataError> {
    let (whole, rest) = bytes.as_chunks::<SAMPLE>();
    if !rest.is_empty() {
        return Err(DataError::PartialSample {
            file: file.to_string(),
            len: bytes.len(),
            sample: SAMPLE,
        });
    }
    if whole.is_empty() {
        return Err(DataError::Empty {
            file: file.to_string(),
        });
    }
    for (sample, [label, pixels @ ..]) in whole.iter().enumerate() {
        if usize::from(*label) >= CLASSES {
            return Err(DataError::Label {
                file: file.to_string(),
                sample,
                offset: sample * SAMPLE,
                label: *label,
            });
        }
        samples.labels.push(*label);
        samples.pixels.extend_from_slice(pixels);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Samples whose pixels are all their label, but for the first green one.
    fn file(labels: &[u8]) -> Vec<u8> {
        labels
            .iter()
            .flat_map(|&label| {
                let mut sample = [label; SAMPLE];
                sample[1 + SIDE * SIDE] = 200;
                sample
            })
            .collect()
    }

    fn message(bytes: &[u8]) -> String {
        parse("b.bin", bytes, &mut empty()).unwrap_err().to_string()
    }

    #[test]
    fn six_files_are_read_in_order() {
        let dir = std::env::temp_dir().join(format!("burn-amp-cifar-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for batch in 1..=5 {
            fs::write(
                dir.join(format!("data_batch_{batch}.bin")),
                file(&[batch, 0]),
            )
            .unwrap();
        }
        fs::write(dir.join("test_batch.bin"), file(&[9])).unwrap();
        let TrainTest { train, test, .. } = load(&dir).unwrap();
        assert_eq!(train.labels, [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
        assert_eq!(test.labels, [9]);
        let (images, _) = train.batch::<burn::backend::Flex>(&[2], &Default::default());
        assert_eq!(images.dims(), [1, 3, 32, 32]);
        let values: Vec<f32> = images.into_data().to_vec().unwrap();
        let (red, green) = (values[0], values[SIDE * SIDE]);
        assert_eq!((red, green), (2.0 / 255.0, 200.0 / 255.0));

        fs::remove_file(dir.join("data_batch_4.bin")).unwrap();
        let error = load(&dir).unwrap_err().to_string();
        assert!(error.ends_with("data_batch_4.bin: no such file"), "{error}");
        fs::remove_dir_all(&dir).unwrap();
        let error = load(&dir).unwrap_err().to_string();
        assert!(error.ends_with("not a directory"), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        assert_eq!(message(&[]), "b.bin: no samples in it");
        assert_eq!(
            message(&file(&[1, 2])[1..]),
            "b.bin: 6145 bytes, a multiple of 3073 expected: the size of a sample"
        );
        assert_eq!(
            message(&file(&[1, 10])),
            "b.bin: sample 1 (byte 3073): label 10, 0 to 9 expected"
        );
    }

    proptest! {
        #[test]
        fn damaged_files_are_read_or_refused(at in 0usize..2 * SAMPLE, byte in any::<u8>()) {
            let mut bytes = file(&[1, 2]);
            bytes[at] = byte;
            let mut samples = empty();
            if parse("b.bin", &bytes, &mut samples).is_ok() {
                prop_assert!(samples.labels.iter().all(|&label| usize::from(label) < CLASSES));
                prop_assert_eq!(samples.pixels.len(), 2 * PIXELS);
            }
        }
    }
}
