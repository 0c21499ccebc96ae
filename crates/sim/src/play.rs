//! One run: a scenario is played, and judged.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::heal::Patience;
use crate::panics;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::world::World;

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What happened, a line each.
    pub trace: Vec<String>,
    /// What was broken; empty: nothing.
    pub faults: Vec<String>,
    /// Simulated time.
    pub simulated: Duration,
}

/// Plays a scenario in a runtime of its own, on this thread.
///
/// # Panics
/// When the machine refuses the runtime.
pub fn play(scenario: &Scenario) -> Outcome {
    panics::collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing that can be missing");
    let slot: Arc<Mutex<Option<Trace>>> = Arc::default();
    let begun = {
        let _inside = runtime.enter();
        tokio::time::Instant::now()
    };
    let kept = Arc::clone(&slot);
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(Box::pin(async {
            let trace = Trace::new();
            *kept.lock() = Some(trace.clone());
            run(scenario, &trace).await
        }))
    }));
    let simulated = {
        let _inside = runtime.enter();
        begun.elapsed()
    };
    // What still runs is dropped here, and may panic like anything else.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    let mut faults = match played {
        Ok(Ok(faults)) => faults,
        Ok(Err(error)) => vec![format!("the run broke off: {error:#}")],
        Err(_) => Vec::new(),
    };
    faults.extend(
        panics::take()
            .into_iter()
            .map(|panic| format!("panic: {panic}")),
    );
    if dropped.is_err() {
        faults.push("the runtime could not be dropped".to_owned());
    }
    panics::release();
    let trace = slot
        .lock()
        .take()
        .map(|trace| trace.take())
        .unwrap_or_default();
    Outcome {
        seed: scenario.seed,
        trace,
        faults,
        simulated,
    }
}

async fn run(scenario: &Scenario, trace: &Trace) -> anyhow::Result<Vec<String>> {
    for node in &scenario.nodes {
        trace.say(format_args!("machine {node}"));
    }
    for set in &scenario.sets {
        trace.say(format_args!("daemonset {set}"));
    }
    for (number, image) in scenario.images.iter().enumerate() {
        trace.say(format_args!(
            "image {} {image:?}",
            crate::manifest::image(number)
        ));
    }
    let mut world = World::start(scenario, trace).await?;
    let mut patience = Patience::default();
    for step in &scenario.steps {
        world.perform(&step.act).await;
        world.pass(step.pass).await;
        world.check_verdicts(&mut patience).await;
        world.check_parts().await;
        if !world.seen.lock().faults.is_empty() {
            break;
        }
    }
    if world.seen.lock().faults.is_empty() {
        world.mend().await?;
        world.rest().await;
        world.check_parts().await;
    }
    let faults = std::mem::take(&mut world.seen.lock().faults);
    Ok(faults)
}
