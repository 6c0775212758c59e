use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

/// Images of one size, each with its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    /// 1, or 3 for red, green and blue.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// The value of a white pixel: pixels lie from 0 to it.
    pub white: u8,
    /// All images, one after the other; an image is its channels, each row by row.
    pub pixels: Vec<u8>,
    /// One label an image, below [`CLASSES`](super::CLASSES).
    pub labels: Vec<u8>,
}

impl Samples {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// The samples at these positions, in this order.
    ///
    /// # Panics
    ///
    /// If a position is not below [`len`](Samples::len).
    pub fn select(&self, positions: &[usize]) -> Samples {
        Samples {
            pixels: positions
                .iter()
                .flat_map(|&at| self.image(at))
                .copied()
                .collect(),
            labels: positions.iter().map(|&at| self.labels[at]).collect(),
            ..*self
        }
    }

    /// Images `[n, channels, height, width]` with values from 0 to 1, and labels `[n]`.
    ///
    /// # Panics
    ///
    /// If a position is not below [`len`](Samples::len).
    pub fn batch<B: Backend>(
        &self,
        positions: &[usize],
        device: &B::Device,
    ) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
        let samples = self.select(positions);
        let white = f32::from(self.white);
        let images: Vec<f32> = samples
            .pixels
            .iter()
            .map(|&p| f32::from(p) / white)
            .collect();
        let labels: Vec<i32> = samples.labels.iter().copied().map(i32::from).collect();
        let shape = [positions.len(), self.channels, self.height, self.width];
        (
            Tensor::from_data(TensorData::new(images, shape), device),
            Tensor::from_data(TensorData::new(labels, [positions.len()]), device),
        )
    }

    /// Every image as three equal channels, each pixel as a square of `factor` times `factor`.
    ///
    /// # Panics
    ///
    /// If the images are not grey.
    pub fn enlarged_to_colour(&self, factor: usize) -> Samples {
        assert_eq!(self.channels, 1, "grey images");
        let (height, width) = (factor * self.height, factor * self.width);
        let enlarged = |image: usize| {
            let image = self.image(image);
            let place = move |at: usize| {
                let (row, column) = (at / width / factor, at % width / factor);
                image[row * self.width + column]
            };
            (0..3 * height * width).map(move |at| place(at % (height * width)))
        };
        Samples {
            channels: 3,
            height,
            width,
            pixels: (0..self.len()).flat_map(enlarged).collect(),
            labels: self.labels.clone(),
            ..*self
        }
    }

    fn image(&self, position: usize) -> &[u8] {
        let size = self.channels * self.height * self.width;
        &self.pixels[position * size..][..size]
    }
}
