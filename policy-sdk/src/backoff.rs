//! How long to wait: delays that grow with the number of failures.
//!
//! The step is [`Context::failures`], so a released attempt changes nothing. Every computation
//! saturates: the delay for `u32::MAX` failures is the cap. Without jitter a delay never shrinks from
//! one failure to the next; jitter draws from the context's seed alone and stays within the cap.
//!
//! ```
//! use reprise_policy::prelude::*;
//!
//! fn delay(cx: &Context) -> Duration {
//!     backoff::exponential(secs(1)).factor(3.0).cap(mins(10)).equal_jitter(cx)
//! }
//! ```

use core::time::Duration;

use crate::Context;
use crate::duration::whole_millis;

/// Factors closer to 1 than this count as 1: the delays would not grow by a millisecond in a
/// lifetime, and rounding could make them shrink.
const SMALLEST_FACTOR: f64 = 1.000_001;

/// The same delay every time.
pub fn fixed(delay: Duration) -> Backoff {
    Backoff::new(Shape::Fixed, delay)
}

/// `step`, twice `step`, three times `step`...
pub fn linear(step: Duration) -> Backoff {
    Backoff::new(Shape::Linear, step)
}

/// `base`, then twice as long each time; see [`Backoff::factor`].
pub fn exponential(base: Duration) -> Backoff {
    Backoff::new(Shape::Exponential(2.0), base)
}

/// A random delay between `base` and three times the last one, which spreads well without
/// remembering a step (Brooker, "Exponential Backoff And Jitter", 2015). The last delay is read from
/// the history, so it starts anew at `base` after a replay.
pub fn decorrelated(base: Duration) -> Decorrelated {
    Decorrelated { base: whole_millis(base), cap: u64::MAX }
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Fixed,
    Linear,
    Exponential(f64),
}

/// A growing delay. Ends in one of [`no_jitter`](Self::no_jitter),
/// [`equal_jitter`](Self::equal_jitter) or [`full_jitter`](Self::full_jitter).
#[derive(Clone, Copy, Debug)]
#[must_use = "a backoff becomes a delay by choosing its jitter"]
pub struct Backoff {
    shape: Shape,
    base: u64,
    cap: u64,
}

impl Backoff {
    fn new(shape: Shape, base: Duration) -> Self {
        Self { shape, base: whole_millis(base), cap: u64::MAX }
    }

    /// What an exponential delay is multiplied by each time; below 1, or NaN, counts as 1. Others
    /// have no factor and stay as they are.
    pub fn factor(mut self, factor: f64) -> Self {
        if let Shape::Exponential(own) = &mut self.shape {
            *own = if factor >= SMALLEST_FACTOR { factor } else { 1.0 };
        }
        self
    }

    /// The longest delay.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = whole_millis(cap);
        self
    }

    /// The delay after this many failures, without jitter. 0 counts as 1.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        Duration::from_millis(self.millis_after(failures))
    }

    fn millis_after(self, failures: u32) -> u64 {
        let steps = failures.max(1) - 1;
        let delay = match self.shape {
            Shape::Fixed => self.base,
            Shape::Linear => self.base.saturating_mul(u64::from(steps) + 1),
            // A float turned into an integer saturates, infinity included; 0 x infinity is NaN,
            // which becomes 0.
            Shape::Exponential(factor) => (self.base as f64 * power(factor, steps)) as u64,
        };
        delay.min(self.cap)
    }

    /// The delay itself.
    #[must_use]
    pub fn no_jitter(self, cx: &Context) -> Duration {
        self.after(cx.failures())
    }

    /// Anything from half the delay to the delay: spreads, and still waits.
    #[must_use]
    pub fn equal_jitter(self, cx: &Context) -> Duration {
        let delay = self.millis_after(cx.failures());
        Duration::from_millis(cx.random().between(delay.div_ceil(2), delay))
    }

    /// Anything from zero to the delay: spreads most.
    #[must_use]
    pub fn full_jitter(self, cx: &Context) -> Duration {
        let delay = self.millis_after(cx.failures());
        Duration::from_millis(cx.random().between(0, delay))
    }
}

/// `factor` to the `steps`, by squaring. Not `f64::powi`: its last bits differ between targets, and
/// a decision must give the same bits everywhere.
fn power(factor: f64, mut steps: u32) -> f64 {
    let (mut result, mut square) = (1.0, factor);
    while steps > 0 {
        if steps & 1 == 1 {
            result *= square;
        }
        square *= square;
        steps >>= 1;
    }
    result
}

/// A random delay that depends on the last one; see [`decorrelated`].
#[derive(Clone, Copy, Debug)]
#[must_use = "ends in `delay`"]
pub struct Decorrelated {
    base: u64,
    cap: u64,
}

impl Decorrelated {
    /// The longest delay.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = whole_millis(cap);
        self
    }

    /// The delay.
    #[must_use]
    pub fn delay(self, cx: &Context) -> Duration {
        let last = cx
            .history()
            .rev()
            .find(|past| past.cause().is_failure())
            .and_then(|past| past.delay())
            .map_or(self.base, whole_millis);
        let high = last.saturating_mul(3).max(self.base);
        let delay = cx.random().between(self.base, high);
        Duration::from_millis(delay.min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::{millis, mins, secs};
    use crate::testing::ContextBuilder;
    use proptest::prelude::*;

    /// The first delays of each shape.
    #[test]
    fn shapes_grow_as_named() {
        let first = |backoff: Backoff| [1, 2, 3, 4].map(|failures| backoff.after(failures).as_millis());
        assert_eq!(first(fixed(secs(2))), [2_000, 2_000, 2_000, 2_000]);
        assert_eq!(first(linear(secs(2))), [2_000, 4_000, 6_000, 8_000]);
        assert_eq!(first(exponential(secs(2))), [2_000, 4_000, 8_000, 16_000]);
        assert_eq!(first(exponential(secs(2)).factor(1.5)), [2_000, 3_000, 4_500, 6_750]);
        assert_eq!(first(exponential(secs(2)).cap(secs(5))), [2_000, 4_000, 5_000, 5_000]);
        assert_eq!(first(exponential(secs(2)).factor(0.5)), [2_000; 4]);
        assert_eq!(first(exponential(secs(2)).factor(f64::NAN)), [2_000; 4]);
        assert_eq!(exponential(secs(2)).after(0), secs(2));
    }

    /// Absurd numbers of failures end at the cap, or at the end of what can be counted (s13).
    #[test]
    fn s13_saturates_at_any_number_of_failures() {
        let steps = [1, 63, 64, 310, 1_100, u32::MAX];
        for base in [millis(0), millis(1), secs(2), Duration::MAX] {
            for backoff in [
                fixed(base),
                linear(base),
                exponential(base),
                exponential(base).factor(1.1),
                exponential(base).factor(f64::INFINITY),
            ] {
                for backoff in [backoff, backoff.cap(mins(10))] {
                    let delays = steps.map(|failures| backoff.millis_after(failures));
                    assert!(delays.is_sorted(), "{backoff:?} {delays:?}");
                    assert!(delays.iter().all(|delay| *delay <= backoff.cap));
                }
            }
        }
        assert_eq!(exponential(secs(2)).cap(mins(10)).after(u32::MAX), mins(10));
        assert_eq!(exponential(secs(2)).after(u32::MAX).as_millis(), u128::from(u64::MAX));
        assert_eq!(exponential(millis(0)).factor(f64::INFINITY).after(9), millis(0));
    }

    /// Jitter spreads over its window and is exact where the window is empty (s17).
    #[test]
    fn s17_jitter_spreads() {
        let drawn = |jitter: fn(Backoff, &Context) -> Duration, base| -> Vec<u64> {
            (0..10_000)
                .map(|seed| {
                    let cx = ContextBuilder::new().seed(seed).build();
                    whole_millis(jitter(fixed(base), &cx))
                })
                .collect()
        };
        let full = drawn(Backoff::full_jitter, secs(1));
        for tenth in 0..10 {
            let inside = full.iter().filter(|delay| **delay / 100 == tenth).count();
            assert!((800..1_200).contains(&inside), "{inside} in tenth {tenth}");
        }
        let equal = drawn(Backoff::equal_jitter, secs(1));
        assert!(equal.iter().all(|delay| (500..=1_000).contains(delay)));
        assert!(drawn(Backoff::no_jitter, secs(1)).iter().all(|delay| *delay == 1_000));
        assert!(drawn(Backoff::full_jitter, millis(0)).iter().all(|delay| *delay == 0));
        assert!(drawn(Backoff::equal_jitter, millis(1)).iter().all(|delay| *delay == 1));
    }

    /// Releases do not move the step (s10).
    #[test]
    fn s10_releases_leave_the_step_alone() {
        let cx = ContextBuilder::new().failures(1).releases(100_000).build();
        assert_eq!(exponential(secs(1)).no_jitter(&cx), secs(1));
    }

    /// The decorrelated delay starts at the base, follows the last failure and keeps its bounds.
    #[test]
    fn decorrelated_follows_the_last_delay() {
        let backoff = decorrelated(secs(1)).cap(secs(20));
        for seed in 0..500 {
            let first = backoff.delay(&ContextBuilder::new().seed(seed).build());
            assert!((secs(1)..=secs(3)).contains(&first));
            let cx = ContextBuilder::new().seed(seed).past("timeout", secs(5)).build();
            assert!((secs(1)..=secs(15)).contains(&backoff.delay(&cx)));
            let cx = ContextBuilder::new().seed(seed).past("timeout", Duration::MAX).build();
            assert!((secs(1)..=secs(20)).contains(&backoff.delay(&cx)));
        }
    }

    proptest! {
        /// Whatever the setting, delays never shrink, never pass the cap, and jitter stays below the
        /// plain delay.
        #[test]
        fn monotone_and_bounded(
            base in any::<u64>(), factor in 0.0_f64..1e6, near in 0.0_f64..1e-3, cap in any::<u64>(),
            failures in any::<u32>(), seed in any::<u64>(),
        ) {
            let base = Duration::from_millis(base);
            for backoff in [
                fixed(base), linear(base), exponential(base).factor(factor),
                exponential(base).factor(1.0 + near),
            ] {
                let backoff = backoff.cap(Duration::from_millis(cap));
                let here = backoff.after(failures);
                prop_assert!(here <= backoff.after(failures.saturating_add(1)));
                prop_assert!(here <= Duration::from_millis(cap));
                let cx = ContextBuilder::new().failures(failures).seed(seed).build();
                prop_assert!(backoff.full_jitter(&cx) <= here);
                prop_assert!(backoff.equal_jitter(&cx) <= here);
                prop_assert!(backoff.equal_jitter(&cx) >= here / 2);
            }
        }
    }
}
