//! IDX files, the format of MNIST and the sets that took its place.
//!
//! Images: magic 0x803, then count, height and width as big-endian u32, then one byte a pixel.
//! Labels: magic 0x801, then count, then one byte a label.

use std::fs;
use std::path::Path;

use super::{CLASSES, DataError, MIN_SIDE, Samples, TrainTest};

const IMAGES: u32 = 0x0000_0803;
const LABELS: u32 = 0x0000_0801;

/// The four files of a directory: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same
/// with `t10k`; `.idx` in place of `-idx` is accepted.
pub fn load(dir: &Path) -> Result<TrainTest, DataError> {
    if !dir.is_dir() {
        return Err(DataError::NoDirectory {
            path: dir.to_path_buf(),
        });
    }
    let (train, test) = (part(dir, "train")?, part(dir, "t10k")?);
    let size = |samples: &Samples| [samples.height, samples.width];
    if size(&train) != size(&test) {
        return Err(DataError::Sizes {
            dir: dir.to_path_buf(),
            train: size(&train),
            test: size(&test),
        });
    }
    Ok(TrainTest {
        name: dir.display().to_string(),
        train,
        test,
    })
}

fn part(dir: &Path, part: &str) -> Result<Samples, DataError> {
    let images = read(dir, &format!("{part}-images"), "idx3-ubyte")?;
    let labels = read(dir, &format!("{part}-labels"), "idx1-ubyte")?;
    samples(&images, &labels)
}

/// The contents of a file, and its name for messages.
struct File {
    name: String,
    bytes: Vec<u8>,
}

fn read(dir: &Path, stem: &str, kind: &str) -> Result<File, DataError> {
    let names = ['-', '.'].map(|separator| format!("{stem}{separator}{kind}"));
    let Some(path) = names
        .iter()
        .map(|name| dir.join(name))
        .find(|path| path.exists())
    else {
        return Err(DataError::NoFile {
            dir: dir.to_path_buf(),
            names,
        });
    };
    let name = path.display().to_string();
    match fs::read(&path) {
        Ok(bytes) => Ok(File { name, bytes }),
        Err(source) => Err(DataError::Unreadable { file: name, source }),
    }
}

fn samples(images: &File, labels: &File) -> Result<Samples, DataError> {
    let [image_count, height, width] = images.header(IMAGES)?;
    if height < MIN_SIDE || width < MIN_SIDE {
        return Err(DataError::TooSmall {
            file: images.name.clone(),
            height,
            width,
        });
    }
    let pixels = images.body([image_count, height, width])?;
    let [label_count] = labels.header(LABELS)?;
    let labels_read = labels.body([label_count])?;
    if image_count != label_count {
        return Err(DataError::Counts {
            images: images.name.clone(),
            image_count,
            labels: labels.name.clone(),
            label_count,
        });
    }
    if image_count == 0 {
        return Err(DataError::Empty {
            file: images.name.clone(),
        });
    }
    let wrong = |label: &u8| usize::from(*label) >= CLASSES;
    if let Some(sample) = labels_read.iter().position(wrong) {
        return Err(DataError::Label {
            file: labels.name.clone(),
            sample,
            offset: labels.bytes.len() - labels_read.len() + sample,
            label: labels_read[sample],
        });
    }
    Ok(Samples {
        channels: 1,
        height,
        width,
        white: u8::MAX,
        pixels: pixels.to_vec(),
        labels: labels_read.to_vec(),
    })
}

impl File {
    /// The dimensions behind the magic number.
    fn header<const N: usize>(&self, magic: u32) -> Result<[usize; N], DataError> {
        let truncated = || DataError::TruncatedHeader {
            file: self.name.clone(),
            len: self.bytes.len(),
            header: header_len(N),
        };
        let (words, _) = self.bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
        let found = words.next().ok_or_else(truncated)?;
        if found != magic {
            return Err(DataError::Magic {
                file: self.name.clone(),
                found,
                expected: magic,
            });
        }
        let mut dims = [0; N];
        for dim in &mut dims {
            *dim = words.next().ok_or_else(truncated)? as usize;
        }
        Ok(dims)
    }

    /// The bytes behind the header, exactly as many as the dimensions say.
    fn body<const N: usize>(&self, dims: [usize; N]) -> Result<&[u8], DataError> {
        let header = header_len(N);
        let len = self.bytes.len();
        // Three u32 fit in a u128 whatever a damaged header says.
        let promised = header as u128 + dims.iter().map(|&dim| dim as u128).product::<u128>();
        if (len as u128) < promised {
            let sample_size = dims[1..]
                .iter()
                .fold(1, |size: usize, dim| size.saturating_mul(*dim));
            return Err(DataError::Truncated {
                file: self.name.clone(),
                len,
                sample: (len - header) / sample_size,
                promised,
            });
        }
        if len as u128 > promised {
            return Err(DataError::Trailing {
                file: self.name.clone(),
                len,
                promised,
            });
        }
        Ok(&self.bytes[header..])
    }
}

const fn header_len(dims: usize) -> usize {
    4 * (1 + dims)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image_file(count: u32, height: u32, width: u32) -> Vec<u8> {
        let pixels = (0..count * height * width).map(|i| i as u8);
        [IMAGES, count, height, width]
            .into_iter()
            .flat_map(u32::to_be_bytes)
            .chain(pixels)
            .collect()
    }

    fn label_file(labels: &[u8]) -> Vec<u8> {
        let header = [LABELS, labels.len() as u32]
            .into_iter()
            .flat_map(u32::to_be_bytes);
        header.chain(labels.iter().copied()).collect()
    }

    fn parse(images: &[u8], labels: &[u8]) -> Result<Samples, DataError> {
        let file = |name: &str, bytes: &[u8]| File {
            name: name.to_string(),
            bytes: bytes.to_vec(),
        };
        samples(&file("images", images), &file("labels", labels))
    }

    #[track_caller]
    fn refused(images: &[u8], labels: &[u8], message: &str) {
        assert_eq!(parse(images, labels).unwrap_err().to_string(), message);
    }

    #[test]
    fn images_and_labels_are_read_in_order() {
        let samples = parse(&image_file(3, 4, 5), &label_file(&[9, 0, 4])).unwrap();
        assert_eq!((samples.height, samples.width, samples.len()), (4, 5, 3));
        assert_eq!(samples.labels, [9, 0, 4]);
        assert_eq!(samples.pixels, (0..60).collect::<Vec<u8>>());
        assert_eq!(samples.select(&[2]).pixels, (40..60).collect::<Vec<u8>>());
    }

    #[test]
    fn mistakes_are_named_with_byte_or_sample() {
        let (images, labels) = (image_file(2, 4, 4), label_file(&[1, 2]));
        refused(
            &labels,
            &labels,
            "images: byte 0: magic number 0x00000801, 0x00000803 expected",
        );
        refused(
            &images,
            &images,
            "labels: byte 0: magic number 0x00000803, 0x00000801 expected",
        );
        refused(
            &images[..15],
            &labels,
            "images: ends at byte 15, inside its header of 16 bytes",
        );
        refused(
            &[],
            &labels,
            "images: ends at byte 0, inside its header of 16 bytes",
        );
        refused(
            &images[..40],
            &labels,
            "images: ends at byte 40, inside sample 1: its header promises 48 bytes",
        );
        refused(
            &images,
            &labels[..9],
            "labels: ends at byte 9, inside sample 1: its header promises 10 bytes",
        );
        refused(
            &[&images[..], &[0]].concat(),
            &labels,
            "images: goes on after byte 48, where its header ends it: it has 49 bytes",
        );
        refused(
            &image_file(2, 3, 4),
            &labels,
            "images: byte 8: images of 3x4 pixels, at least 4x4 expected",
        );
        refused(
            &images,
            &label_file(&[1, 10]),
            "labels: sample 1 (byte 9): label 10, 0 to 9 expected",
        );
        refused(
            &images,
            &label_file(&[1]),
            "images has 2 images, but labels has 1 labels",
        );
        refused(
            &image_file(0, 4, 4),
            &label_file(&[]),
            "images: no samples in it",
        );
    }

    #[test]
    fn a_header_of_huge_numbers_is_refused() {
        let header: Vec<u8> = [IMAGES, u32::MAX, u32::MAX, u32::MAX]
            .into_iter()
            .flat_map(u32::to_be_bytes)
            .collect();
        let error = parse(&header, &label_file(&[])).unwrap_err();
        assert!(
            matches!(error, DataError::Truncated { sample: 0, .. }),
            "{error}"
        );
    }

    #[test]
    fn both_spellings_of_the_names_are_found_and_a_missing_file_is_named() {
        let dir = std::env::temp_dir().join(format!("burn-amp-idx-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (part, separator) in [("train", '-'), ("t10k", '.')] {
            let name = |kind: &str| {
                dir.join(format!(
                    "{part}-{}",
                    kind.replace('|', &separator.to_string())
                ))
            };
            fs::write(name("images|idx3-ubyte"), image_file(2, 4, 4)).unwrap();
            fs::write(name("labels|idx1-ubyte"), label_file(&[1, 2])).unwrap();
        }
        let set = load(&dir).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (2, 2));

        fs::write(dir.join("t10k-images.idx3-ubyte"), image_file(2, 4, 5)).unwrap();
        let error = load(&dir).unwrap_err().to_string();
        assert!(
            error.ends_with("images of 4x4 pixels, but test images of 4x5"),
            "{error}"
        );

        fs::remove_file(dir.join("t10k-labels.idx1-ubyte")).unwrap();
        let error = load(&dir).unwrap_err().to_string();
        assert!(
            error.ends_with("no file t10k-labels-idx1-ubyte or t10k-labels.idx1-ubyte in it"),
            "{error}"
        );

        fs::remove_dir_all(&dir).unwrap();
        let error = load(&dir).unwrap_err().to_string();
        assert!(error.ends_with("not a directory"), "{error}");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            images in prop::collection::vec(any::<u8>(), 0..100),
            labels in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = parse(&images, &labels);
        }

        #[test]
        fn damaged_files_are_read_or_refused(
            at in 0usize..48,
            byte in any::<u8>(),
            len in 0usize..=48,
        ) {
            let labels = label_file(&[1, 2]);
            let mut images = image_file(2, 4, 4);
            images[at] = byte;
            images.truncate(len);
            if let Ok(samples) = parse(&images, &labels) {
                prop_assert_eq!(samples.pixels.len(), samples.height * samples.width * 2);
            }

            let images = image_file(2, 4, 4);
            let mut labels = labels;
            let at = at % labels.len();
            labels[at] = byte;
            labels.truncate(len);
            if let Ok(samples) = parse(&images, &labels) {
                prop_assert!(samples.labels.iter().all(|&label| usize::from(label) < CLASSES));
            }
        }
    }
}
