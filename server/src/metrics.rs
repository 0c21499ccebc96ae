//! What the server counts about itself, in Prometheus' text form at `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use muster_model::kind::{KINDS, Kind};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry as Families, Unit};

use crate::cache::Cache;

/// Which request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: String,
    resource: String,
    code: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabels {
    name: String,
}

/// All of the server's metrics. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    families: Families,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabels, Histogram, fn() -> Histogram>,
    watchers: Family<ResourceLabels, Gauge>,
    objects: Family<ResourceLabels, Gauge>,
    queues: Family<NameLabels, Gauge>,
    panics: Family<NameLabels, Counter>,
    events_dropped: Counter,
    agents: Gauge,
    revision: Gauge,
    broken: Gauge,
    resident: Gauge,
}

/// Upper bounds of request durations, in seconds: from a memory read to the deadline.
const BUCKETS: [f64; 10] = [0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let mut inner = Inner {
            families: Families::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            watchers: Family::default(),
            objects: Family::default(),
            queues: Family::default(),
            panics: Family::default(),
            events_dropped: Counter::default(),
            agents: Gauge::default(),
            revision: Gauge::default(),
            broken: Gauge::default(),
            resident: Gauge::default(),
        };
        let families = &mut inner.families;
        families.register(
            "apiserver_request",
            "Requests answered, by HTTP code",
            inner.requests.clone(),
        );
        families.register_with_unit(
            "apiserver_request_duration",
            "How long requests took",
            Unit::Seconds,
            inner.durations.clone(),
        );
        families.register("muster_watchers", "Open watches", inner.watchers.clone());
        families.register("muster_objects", "Stored objects", inner.objects.clone());
        families.register(
            "muster_controller_queue_depth",
            "Keys waiting for a controller",
            inner.queues.clone(),
        );
        families.register(
            "muster_worker_panics",
            "Panics caught in workers",
            inner.panics.clone(),
        );
        families.register(
            "muster_events_dropped",
            "Events not recorded for want of room",
            inner.events_dropped.clone(),
        );
        families.register(
            "muster_agents_connected",
            "Agents with an open report stream",
            inner.agents.clone(),
        );
        families.register(
            "muster_store_revision",
            "The newest revision of the store",
            inner.revision.clone(),
        );
        families.register(
            "muster_broken_objects",
            "Stored objects that cannot be read",
            inner.broken.clone(),
        );
        families.register_with_unit(
            "process_resident_memory",
            "Resident memory of this process",
            Unit::Bytes,
            inner.resident.clone(),
        );
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Counts one answered request.
    pub fn request(&self, verb: &str, kind: Option<&Kind>, http_code: u16, took: Duration) {
        let resource = kind.map(|kind| kind.plural).unwrap_or_default().to_owned();
        let labels = VerbLabels {
            verb: verb.to_owned(),
            resource: resource.clone(),
        };
        self.inner
            .durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        let labels = RequestLabels {
            verb: verb.to_owned(),
            resource,
            code: u32::from(http_code),
        };
        self.inner.requests.get_or_create(&labels).inc();
    }

    /// Counts a watch for as long as the guard lives.
    pub fn watcher(&self, kind: &Kind) -> GaugeGuard {
        let labels = ResourceLabels {
            resource: kind.plural.to_owned(),
        };
        GaugeGuard::raise(self.inner.watchers.get_or_create_owned(&labels))
    }

    /// Counts a connected agent for as long as the guard lives.
    pub fn agent(&self) -> GaugeGuard {
        GaugeGuard::raise(self.inner.agents.clone())
    }

    /// How many keys wait for a controller.
    pub fn queue_depth(&self, controller: &str, depth: usize) {
        let labels = NameLabels {
            name: controller.to_owned(),
        };
        self.inner
            .queues
            .get_or_create(&labels)
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Counts a panic that was caught in a worker.
    pub fn panic(&self, worker: &str) {
        self.inner
            .panics
            .get_or_create(&NameLabels {
                name: worker.to_owned(),
            })
            .inc();
    }

    /// Counts an event that was not recorded.
    pub fn event_dropped(&self) {
        self.inner.events_dropped.inc();
    }

    /// The text of `/metrics`, with what is measured on demand.
    pub fn text(&self, cache: &Cache) -> String {
        self.inner
            .revision
            .set(i64::try_from(cache.revision().0).unwrap_or(i64::MAX));
        self.inner
            .broken
            .set(i64::try_from(cache.broken().len()).unwrap_or(i64::MAX));
        for kind in KINDS {
            let labels = ResourceLabels {
                resource: kind.plural.to_owned(),
            };
            let count = i64::try_from(cache.count(kind)).unwrap_or(i64::MAX);
            self.inner.objects.get_or_create(&labels).set(count);
        }
        if let Some(bytes) = resident_bytes() {
            self.inner.resident.set(bytes);
        }
        let mut text = String::new();
        if let Err(error) =
            prometheus_client::encoding::text::encode(&mut text, &self.inner.families)
        {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }
}

/// Lowers a gauge when dropped.
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn raise(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Resident memory of this process; `None` where the system does not tell.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}
