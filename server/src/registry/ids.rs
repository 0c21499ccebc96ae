//! Chance, in one place: uids and name suffixes. Seeded, so that a simulation can be run again.

use std::sync::Arc;

use muster_model::names;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

/// The server's source of chance. Cheap to clone.
#[derive(Clone)]
pub struct Ids {
    rng: Arc<Mutex<StdRng>>,
}

impl Ids {
    /// From the operating system.
    pub fn from_os() -> Self {
        Self {
            rng: Arc::new(Mutex::new(StdRng::from_os_rng())),
        }
    }

    /// The same ids at each run.
    pub fn seeded(seed: u64) -> Self {
        Self {
            rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
        }
    }

    /// A random UUID.
    pub fn uid(&self) -> String {
        let mut bytes = [0; 16];
        self.rng.lock().fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }

    /// A name of this prefix: cut to 58 characters, plus 5 random ones.
    pub fn name(&self, prefix: &str) -> String {
        names::generate_name(prefix, &mut *self.rng.lock())
    }

    /// A number below `bound`, for jitter.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.rng.lock().random_range(0..bound)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_is_its_prefix_and_five_letters() {
        let ids = Ids::seeded(1);
        let name = ids.name("web-");
        assert_eq!(name.len(), 9);
        assert!(name.starts_with("web-"));
        assert_eq!(ids.name(&"x".repeat(80)).len(), 63);
        assert_ne!(ids.uid(), ids.uid());
    }
}
