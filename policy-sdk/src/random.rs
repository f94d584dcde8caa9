//! Randomness that can be run again: a stream that depends on the context's seed alone.

/// A splitmix64 stream (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014). Good enough to spread retries; not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The seed whose first bits are all 0, so that a first draw is the lowest.
    #[cfg(all(feature = "testing", not(target_arch = "wasm32")))]
    pub(crate) const LOWEST: u64 = 0x61c8_8646_80b5_83eb;

    /// The seed whose first bits are all 1, so that a first draw is the highest.
    #[cfg(all(feature = "testing", not(target_arch = "wasm32")))]
    pub(crate) const HIGHEST: u64 = 0x3162_8af6_7b21_31ab;

    /// The stream of `seed`. A policy takes it from [`Context::random`](crate::Context::random).
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number from `low` to `high`, both included; `low` if they are the wrong way round.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let Some(width) = high.checked_sub(low) else {
            return low;
        };
        match width.checked_add(1) {
            None => self.bits(),
            // The high half of a 128-bit product is uniform up to 2^-64 and needs no division.
            Some(count) => low + ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64,
        }
    }

    /// True with this probability; never for 0 or NaN, always from 1 up.
    pub fn chance(&mut self, probability: f64) -> bool {
        let unit = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        unit < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stream is the published splitmix64, so recorded decisions stay reproducible.
    #[test]
    fn the_stream_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
        assert_eq!(Random::new(Random::LOWEST).bits(), 0);
        assert_eq!(Random::new(Random::HIGHEST).bits(), u64::MAX);
    }

    /// Both ends can come out, nothing outside can, and the widest and emptiest ranges are fine.
    #[test]
    fn between_keeps_its_bounds() {
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..1_000).map(|_| random.between(3, 6)).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&6));
        assert_eq!(random.between(5, 5), 5);
        assert_eq!(random.between(9, 2), 9);
        let _ = random.between(0, u64::MAX);
        assert!(!random.chance(0.0) && !random.chance(f64::NAN) && random.chance(1.0));
    }
}
