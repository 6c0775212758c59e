//! Peers' scalers, each written from the semantics of its own source (cited in `src/rules.rs`) in
//! that source's terms and number types, so that they share nothing with the crate.

/// One peer's scaler. `step` returns false where the peer raises.
pub trait Peer {
    fn step(&mut self, found_inf: bool) -> bool;
    fn scale(&self) -> f32;
}

/// The knobs of a trace: powers of two where a peer keeps its scale as a Python float.
#[derive(Debug, Clone, Copy)]
pub struct Knobs {
    pub init: f32,
    pub growth: f64,
    pub backoff: f64,
    pub interval: u32,
    pub hysteresis: u32,
    pub floor: f32,
}

/// torch: f32 scale, factors in double, tracker compared for equality.
pub struct Torch {
    pub knobs: Knobs,
    pub scale: f32,
    pub tracker: i32,
}

impl Peer for Torch {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.scale = (self.scale as f64 * self.knobs.backoff) as f32;
            self.tracker = 0;
        } else {
            self.tracker += 1;
            if self.tracker == self.knobs.interval as i32 {
                let grown = (self.scale as f64 * self.knobs.growth) as f32;
                if grown.is_finite() {
                    self.scale = grown;
                }
                self.tracker = 0;
            }
        }
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// apex.amp: Python float scale, factor 2 only, optional floor, cap.
pub struct ApexAmp {
    pub knobs: Knobs,
    pub scale: f64,
    pub cap: f64,
    pub unskipped: u32,
}

impl Peer for ApexAmp {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.scale /= 2.0;
            if self.knobs.floor != 0.0 {
                self.scale = self.scale.max(self.knobs.floor as f64);
            }
            self.unskipped = 0;
        } else {
            self.unskipped += 1;
        }
        if self.unskipped == self.knobs.interval {
            self.scale = self.cap.min(self.scale * 2.0);
            self.unskipped = 0;
        }
        true
    }

    fn scale(&self) -> f32 {
        self.scale as f32
    }
}

/// apex fp16_utils: Python float scale, iteration numbers instead of a counter, floor 1.
pub struct Fp16Utils {
    pub knobs: Knobs,
    pub scale: f64,
    pub iter: i64,
    pub last_overflow: i64,
}

impl Peer for Fp16Utils {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.scale = (self.scale / self.knobs.growth).max(1.0);
            self.last_overflow = self.iter;
        } else if (self.iter - self.last_overflow) % self.knobs.interval as i64 == 0 {
            self.scale *= self.knobs.growth;
        }
        self.iter += 1;
        true
    }

    fn scale(&self) -> f32 {
        self.scale as f32
    }
}

/// apex's hysteresis kernel: the tracker falls below zero, a clean step refills it.
pub struct ApexKernel {
    pub knobs: Knobs,
    pub scale: f32,
    pub growth_tracker: i32,
    pub hysteresis_tracker: i32,
}

impl Peer for ApexKernel {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.hysteresis_tracker -= 1;
            self.growth_tracker = 0;
            if self.hysteresis_tracker <= 0 {
                self.scale = (self.scale as f64 * self.knobs.backoff) as f32;
            }
            return true;
        }
        self.growth_tracker += 1;
        if self.growth_tracker == self.knobs.interval as i32 {
            let grown = (self.scale as f64 * self.knobs.growth) as f32;
            if grown.is_finite() {
                self.scale = grown;
            }
            self.growth_tracker = 0;
        }
        self.hysteresis_tracker = self.knobs.hysteresis as i32;
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// Megatron: everything in f32, hysteresis refilled at growth only.
pub struct Megatron {
    pub knobs: Knobs,
    pub scale: f32,
    pub growth_tracker: i32,
    pub hysteresis_tracker: i32,
}

impl Peer for Megatron {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.growth_tracker = 0;
            self.hysteresis_tracker -= 1;
            if self.hysteresis_tracker <= 0 {
                self.scale = (self.scale * self.knobs.backoff as f32).max(self.knobs.floor);
            }
        } else {
            self.growth_tracker += 1;
            if self.growth_tracker == self.knobs.interval as i32 {
                self.growth_tracker = 0;
                self.hysteresis_tracker = self.knobs.hysteresis as i32;
                self.scale *= self.knobs.growth as f32;
            }
        }
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// DeepSpeed's ZeRO scaler: Python float, factor 2, raises at the floor before it counts the step.
pub struct DeepSpeed {
    pub knobs: Knobs,
    pub scale: f64,
    pub hysteresis: u32,
    pub consecutive: bool,
    pub iter: i64,
    pub last_overflow: i64,
}

impl Peer for DeepSpeed {
    fn step(&mut self, found_inf: bool) -> bool {
        let floor = self.knobs.floor as f64;
        if found_inf {
            if self.knobs.hysteresis == 1 || self.hysteresis == 1 {
                if self.scale == floor {
                    return false;
                }
                self.scale = (self.scale / 2.0).max(floor);
            } else {
                self.hysteresis -= 1;
            }
            self.last_overflow = self.iter;
        } else {
            if self.consecutive {
                self.hysteresis = self.knobs.hysteresis;
            }
            let stable = self.iter - self.last_overflow - 1;
            if stable > 0 && stable % self.knobs.interval as i64 == 0 {
                if !self.consecutive {
                    self.hysteresis = self.knobs.hysteresis;
                }
                self.scale *= 2.0;
            }
        }
        self.iter += 1;
        true
    }

    fn scale(&self) -> f32 {
        self.scale as f32
    }
}

/// DeepSpeed's fused optimizer: the same window, no hysteresis, stays at the floor.
pub struct DeepSpeedFused {
    pub knobs: Knobs,
    pub scale: f64,
    pub iter: i64,
    pub last_overflow: i64,
}

impl Peer for DeepSpeedFused {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.scale = (self.scale / 2.0).max(self.knobs.floor as f64);
            self.last_overflow = self.iter;
        } else {
            let stable = self.iter - self.last_overflow - 1;
            if stable > 0 && stable % self.knobs.interval as i64 == 0 {
                self.scale *= 2.0;
            }
        }
        self.iter += 1;
        true
    }

    fn scale(&self) -> f32 {
        self.scale as f32
    }
}

/// JMP: f32, one whole-number factor that divides, counter modulo period.
pub struct Jmp {
    pub knobs: Knobs,
    pub scale: f32,
    pub counter: u32,
}

impl Peer for Jmp {
    fn step(&mut self, found_inf: bool) -> bool {
        let factor = self.knobs.growth as f32;
        if found_inf {
            self.scale = self.knobs.floor.max(self.scale / factor);
        } else if self.counter == self.knobs.interval - 1 && (self.scale * factor).is_finite() {
            self.scale *= factor;
        }
        self.counter = (self.counter + 1) % self.knobs.interval * u32::from(!found_inf);
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// Keras 3: f32, factor 2, no bound of any kind.
pub struct Keras {
    pub knobs: Knobs,
    pub scale: f32,
    pub step_counter: u32,
}

impl Peer for Keras {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.step_counter = 0;
            self.scale /= 2.0;
        } else if self.step_counter == self.knobs.interval - 1 {
            self.step_counter = 0;
            self.scale *= 2.0;
        } else {
            self.step_counter += 1;
        }
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// tf-keras 2: f32, one multiplier that divides, floor 1, assigned only if finite.
pub struct TfKeras {
    pub knobs: Knobs,
    pub scale: f32,
    pub good_steps: u64,
}

impl Peer for TfKeras {
    fn step(&mut self, found_inf: bool) -> bool {
        let multiplier = self.knobs.growth as f32;
        if found_inf {
            self.good_steps = 0;
            self.scale = (self.scale / multiplier).max(1.0);
        } else if self.good_steps + 1 >= self.knobs.interval as u64 {
            let grown = self.scale * multiplier;
            if grown.is_finite() {
                self.scale = grown;
            }
            self.good_steps = 0;
        } else {
            self.good_steps += 1;
        }
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// Paddle: f32 scale and ratios, counts bad steps upwards and starts over at each decrease.
pub struct Paddle {
    pub knobs: Knobs,
    pub scale: f32,
    pub good: u32,
    pub bad: u32,
}

impl Peer for Paddle {
    fn step(&mut self, found_inf: bool) -> bool {
        if found_inf {
            self.good = 0;
            self.bad += 1;
            if self.bad == self.knobs.hysteresis {
                let lower = self.scale * self.knobs.backoff as f32;
                self.scale = if lower < 1.0 { 1.0 } else { lower };
                self.bad = 0;
            }
        } else {
            self.bad = 0;
            self.good += 1;
            if self.good == self.knobs.interval {
                let grown = self.scale * self.knobs.growth as f32;
                self.scale = if grown.is_finite() { grown } else { self.scale };
                self.good = 0;
            }
        }
        true
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}
