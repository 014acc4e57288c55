//! Durations of one interval, counted in logarithmic buckets.
//!
//! A bucket is at most 12.5 % wide, so a quantile is off by at most 7 %.

use longshore_api::system::Quantiles;

/// Buckets per doubling, as a power of two.
const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;
/// The last bucket begins at 186 days and has all longer durations.
const BUCKETS: usize = 256;

/// Counts of durations. An open interval has one; it is allocated with its first duration.
#[derive(Clone, Debug, Default)]
pub(super) struct DurationCounts(Option<Box<[u32; BUCKETS]>>);

/// The counts of a closed interval: pairs of a bucket and its count as a LEB128 number.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedCounts(Option<Box<[u8]>>);

/// Returns the bucket of a duration. Durations below 8 ms have buckets of their own.
#[expect(clippy::cast_possible_truncation, reason = "at most the number of buckets")]
fn bucket_of(millis: u64) -> usize {
    if millis < SUB {
        return millis as usize;
    }
    let shift = millis.ilog2() - SUB_BITS;
    let within = (millis >> shift) & (SUB - 1);
    let bucket = (u64::from(shift) + 1) * SUB + within;
    bucket.min(BUCKETS as u64 - 1) as usize
}

/// Returns the shortest duration of a bucket, in milliseconds.
fn lower_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = bucket / SUB - 1;
    (SUB + bucket % SUB) << shift
}

impl DurationCounts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn add(&mut self, millis: u64) {
        self.add_many(bucket_of(millis), 1);
    }

    fn add_many(&mut self, bucket: usize, count: u32) {
        let counts = self.0.get_or_insert_with(|| Box::new([0; BUCKETS]));
        if let Some(own) = counts.get_mut(bucket) {
            *own = own.saturating_add(count);
        }
    }

    /// Adds the counts of another open interval.
    pub(super) fn merge(&mut self, other: &Self) {
        let counts = other.0.iter().flat_map(|counts| counts.iter().enumerate());
        counts.filter(|(_, count)| **count > 0).for_each(|(bucket, count)| self.add_many(bucket, *count));
    }

    /// Adds the counts of a closed interval.
    pub(super) fn merge_packed(&mut self, packed: &PackedCounts) {
        let mut bytes = packed.0.iter().flat_map(|bytes| bytes.iter().copied());
        while let Some(bucket) = bytes.next() {
            let (mut count, mut shift) = (0_u32, 0);
            for byte in bytes.by_ref() {
                count |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            self.add_many(bucket.into(), count);
        }
    }

    /// Returns the counts in their small form and clears them.
    #[expect(clippy::cast_possible_truncation, reason = "a bucket is below 256, a byte has seven bits")]
    pub(super) fn pack(&mut self) -> PackedCounts {
        let Some(counts) = self.0.take() else { return PackedCounts(None) };
        let mut bytes = Vec::new();
        for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            bytes.push(bucket as u8);
            let mut rest = *count;
            while rest >= 0x80 {
                bytes.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        PackedCounts(Some(bytes.into()))
    }

    /// Returns the quantiles in seconds; `None` without durations.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let counts = self.0.as_ref()?;
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let quantile = |hundredths: u64| quantile(counts, (total * hundredths).div_ceil(100).max(1));
        (total > 0).then(|| Quantiles { p50: quantile(50), p95: quantile(95), p99: quantile(99) })
    }
}

/// Returns the duration with this rank, in seconds: its place within the bucket is interpolated.
fn quantile(counts: &[u32; BUCKETS], rank: u64) -> f64 {
    let mut before = 0;
    for (bucket, count) in counts.iter().enumerate() {
        let count = u64::from(*count);
        if before + count >= rank {
            let (lower, upper) = (lower_bound(bucket), lower_bound(bucket + 1) - 1);
            let place = (to_float(rank - before) - 0.5) / to_float(count);
            return (to_float(lower) + to_float(upper - lower) * place).round() / 1_000.0;
        }
        before += count;
    }
    0.0
}

#[expect(clippy::cast_precision_loss, reason = "a duration of a chart")]
fn to_float(number: u64) -> f64 {
    number as f64
}

impl PackedCounts {
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |bytes| bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        for bucket in 0..BUCKETS - 1 {
            let (lower, upper) = (lower_bound(bucket), lower_bound(bucket + 1));
            assert_eq!((bucket_of(lower), bucket_of(upper - 1), bucket_of(upper)), (bucket, bucket, bucket + 1));
            assert!(upper - lower <= 1 + lower / 8, "{bucket}: {lower}-{upper}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_close_and_survive_packing() {
        let mut counts = DurationCounts::default();
        assert!(counts.quantiles().is_none() && counts.is_empty());
        (1..=1_000).for_each(|millis| counts.add(millis * 10));
        let near = |found: f64, exact: f64| assert!((found / exact - 1.0).abs() < 0.07, "{found} is not {exact}");
        let open = counts.quantiles().unwrap();
        near(open.p50, 5.0);
        near(open.p95, 9.5);
        near(open.p99, 9.9);
        let packed = counts.pack();
        assert!(packed.bytes() < 200 && counts.is_empty(), "{}", packed.bytes());
        let mut merged = DurationCounts::default();
        merged.merge_packed(&packed);
        assert_eq!(merged.quantiles(), Some(open));
        merged.merge_packed(&packed);
        let mut twice = DurationCounts::default();
        twice.merge(&merged);
        near(twice.quantiles().unwrap().p50, 5.0);
        let mut single = DurationCounts::default();
        single.add(3);
        assert_eq!(single.quantiles(), Some(Quantiles { p50: 0.003, p95: 0.003, p99: 0.003 }));
    }
}
