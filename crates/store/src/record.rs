//! What lies on disk: one record per key, and one record about all of them.
//!
//! ```text
//! record    version(1) checksum(4) created(8) modified(8) value(...)
//! summary   version(1) checksum(4) revision(8) reserved(8) count(8) sum(8)
//! ```
//! Numbers are little-endian. The checksum is CRC-32C over the key and everything but itself, so a record that was
//! moved to another key is noticed too. Version and checksum stay where they are in every later version.
//!
//! A record longer than [`PART_BYTES`] is kept in parts, each under a key of its own: the engine would put what is larger
//! into files that it does not flush.

use crate::{Key, Revision};
use bytes::Bytes;

/// The version this code writes, and the newest it reads.
pub(crate) const VERSION: u8 = 1;
/// The key of the summary, in the engine's own name space.
pub(crate) const SUMMARY_KEY: &[u8] = b"msummary";
/// What a stored key starts with there, for a record or its first part.
pub(crate) const KEY_PREFIX: u8 = b'k';
/// What the keys of a record's further parts start with. Before the other in order, so that a reader has them in hand.
pub(crate) const PART_PREFIX: u8 = b'c';
/// How long a record, or a part of one, may be. The engine gathers up to 17 of them in a page, and a page must stay
/// below a quarter of a segment.
pub(crate) const PART_BYTES: usize = 8 * 1024;

const HEADER: usize = 5;
const RECORD_HEADER: usize = HEADER + 16;
const SUMMARY_LENGTH: usize = HEADER + 32;

/// A key's durable value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    pub(crate) value: Bytes,
}

/// How many records there are, and the sum of their checksums: whether any is missing or is an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) count: u64,
    pub(crate) sum: u64,
}

/// Written with every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    /// The newest revision of the batch it was written with.
    pub(crate) revision: Revision,
    /// Revisions up to this one may have been given out, written to disk or not.
    pub(crate) reserved: Revision,
    pub(crate) totals: Totals,
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("it is cut short")]
    Short,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it is of format {0}")]
    Newer(u8),
}

impl Totals {
    pub(crate) fn add(&mut self, checksum: u32) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(u64::from(checksum));
    }

    pub(crate) fn remove(&mut self, checksum: u32) {
        self.count = self.count.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(u64::from(checksum));
    }
}

impl Record {
    /// The record's bytes under this key, and their checksum.
    pub(crate) fn encode(&self, key: &Key) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(RECORD_HEADER + self.value.len());
        out.extend([VERSION, 0, 0, 0, 0]);
        out.extend(self.created.0.to_le_bytes());
        out.extend(self.modified.0.to_le_bytes());
        out.extend(&self.value);
        let checksum = seal(key.as_str().as_bytes(), &mut out);
        (out, checksum)
    }

    /// Reads a record, and returns its checksum too.
    pub(crate) fn decode(key: &Key, bytes: &[u8]) -> Result<(Self, u32), RecordError> {
        let checksum = open(key.as_str().as_bytes(), bytes)?;
        if bytes.len() < RECORD_HEADER {
            return Err(RecordError::Short);
        }
        let record = Self {
            created: Revision(number(bytes, HEADER)),
            modified: Revision(number(bytes, HEADER + 8)),
            value: Bytes::copy_from_slice(&bytes[RECORD_HEADER..]),
        };
        Ok((record, checksum))
    }
}

impl Summary {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, 0, 0, 0, 0];
        for number in [
            self.revision.0,
            self.reserved.0,
            self.totals.count,
            self.totals.sum,
        ] {
            out.extend(number.to_le_bytes());
        }
        seal(SUMMARY_KEY, &mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        open(SUMMARY_KEY, bytes)?;
        if bytes.len() != SUMMARY_LENGTH {
            return Err(RecordError::Short);
        }
        Ok(Self {
            revision: Revision(number(bytes, HEADER)),
            reserved: Revision(number(bytes, HEADER + 8)),
            totals: Totals {
                count: number(bytes, HEADER + 16),
                sum: number(bytes, HEADER + 24),
            },
        })
    }
}

/// A record as it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnDisk {
    pub(crate) checksum: u32,
    /// In how many parts.
    pub(crate) parts: u32,
}

impl OnDisk {
    pub(crate) fn new(checksum: u32, record_bytes: usize) -> Self {
        let parts = record_bytes.div_ceil(PART_BYTES).max(1);
        // A record of 2^32 parts would be of 32 TiB.
        Self {
            checksum,
            parts: u32::try_from(parts).unwrap_or(u32::MAX),
        }
    }
}

/// The engine's key of a record's part.
pub(crate) fn part_key(key: &Key, part: u32) -> Vec<u8> {
    let text = key.as_str().as_bytes();
    let mut out = Vec::with_capacity(1 + text.len() + 4);
    out.push(if part == 0 { KEY_PREFIX } else { PART_PREFIX });
    out.extend(text);
    if part > 0 {
        out.extend(part.to_be_bytes());
    }
    out
}

/// What [`part_key`] made: the key and the part; `None` for anything else.
pub(crate) fn parse_part_key(bytes: &[u8]) -> Option<(Key, u32)> {
    let (prefix, rest) = bytes.split_first()?;
    let (text, part) = match *prefix {
        KEY_PREFIX => (rest, 0),
        PART_PREFIX => {
            let (text, number) = rest.split_last_chunk::<4>()?;
            (text, u32::from_be_bytes(*number))
        }
        _ => return None,
    };
    Some((Key::new(std::str::from_utf8(text).ok()?), part))
}

fn checksum(key: &[u8], bytes: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(key);
    let checksum = crc32c::crc32c_append(checksum, &bytes[..1]);
    crc32c::crc32c_append(checksum, &bytes[HEADER..])
}

fn seal(key: &[u8], bytes: &mut [u8]) -> u32 {
    let checksum = checksum(key, bytes);
    bytes[1..HEADER].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

fn open(key: &[u8], bytes: &[u8]) -> Result<u32, RecordError> {
    if bytes.len() < HEADER {
        return Err(RecordError::Short);
    }
    let expected = checksum(key, bytes);
    if bytes[1..HEADER] != expected.to_le_bytes() {
        return Err(RecordError::Checksum);
    }
    if bytes[0] != VERSION {
        return Err(RecordError::Newer(bytes[0]));
    }
    Ok(expected)
}

/// The caller has checked the length.
fn number(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(value: &[u8]) -> Record {
        Record {
            created: Revision(3),
            modified: Revision(7),
            value: Bytes::copy_from_slice(value),
        }
    }

    #[test]
    fn the_bytes_of_version_1_stay_readable() {
        let key = Key::new("/k");
        let (bytes, checksum) = record(b"hi").encode(&key);
        let expected = [
            &[1][..],
            &checksum.to_le_bytes(),
            &[3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
            b"hi",
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(
            checksum, 0x0979_b99d,
            "a fixed value: the format must not change unnoticed"
        );
    }

    #[test]
    fn a_record_of_a_later_version_is_newer_and_not_damaged() {
        let key = Key::new("/k");
        let (mut bytes, _) = record(b"hi").encode(&key);
        bytes[0] = 9;
        seal(b"/k", &mut bytes);
        assert_eq!(Record::decode(&key, &bytes), Err(RecordError::Newer(9)));
    }

    #[test]
    fn a_record_under_another_key_is_noticed() {
        let (bytes, _) = record(b"hi").encode(&Key::new("/a"));
        assert_eq!(
            Record::decode(&Key::new("/b"), &bytes),
            Err(RecordError::Checksum)
        );
    }

    proptest! {
        #[test]
        fn records_survive(value: Vec<u8>, key in ".*", created: u64, modified: u64) {
            let key = Key::new(key);
            let record = Record { created: Revision(created), modified: Revision(modified), value: value.into() };
            let (bytes, checksum) = record.encode(&key);
            prop_assert_eq!(Record::decode(&key, &bytes), Ok((record, checksum)));
        }

        #[test]
        fn any_changed_bit_is_noticed(value: Vec<u8>, at: prop::sample::Index, bit in 0_u8..8) {
            let key = Key::new("/k");
            let (mut bytes, _) = record(&value).encode(&key);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::decode(&key, &bytes).is_err());
        }

        #[test]
        fn noise_is_an_error_and_never_a_panic(bytes: Vec<u8>) {
            prop_assert!(Record::decode(&Key::new("/k"), &bytes).is_err());
            prop_assert!(Summary::decode(&bytes).is_err());
        }

        #[test]
        fn part_keys_survive(key in ".*", part: u32) {
            let key = Key::new(key);
            prop_assert_eq!(parse_part_key(&part_key(&key, part)), Some((key, part)));
        }

        #[test]
        fn summaries_survive(revision: u64, reserved: u64, count: u64, sum: u64) {
            let summary = Summary {
                revision: Revision(revision),
                reserved: Revision(reserved),
                totals: Totals { count, sum },
            };
            prop_assert_eq!(Summary::decode(&summary.encode()), Ok(summary));
        }
    }
}
