//! What lies on disk: one record per key, and one record about all of them.
//!
//! ```text
//! record    version(1) checksum(4) created(8) modified(8) value(...)
//! summary   version(1) checksum(4) revision(8) reserved(8) count(8) sum(8)
//! ```
//! Numbers are little-endian. The checksum is CRC-32C over the key and everything but itself, so a record that was
//! moved to another key is noticed too. Version and checksum stay where they are in every later version.

use crate::{Key, Revision};
use bytes::Bytes;

/// The version this code writes, and the newest it reads.
pub(crate) const VERSION: u8 = 1;
/// The key of the summary, in the engine's own name space.
pub(crate) const SUMMARY_KEY: &[u8] = b"msummary";
/// What every stored key starts with there.
pub(crate) const KEY_PREFIX: u8 = b'k';

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

/// The bytes of a key in the engine.
pub(crate) fn disk_key(key: &Key) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + key.as_str().len());
    out.push(KEY_PREFIX);
    out.extend(key.as_str().as_bytes());
    out
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
