//! Making a failing scenario smaller.

use crate::play::{Outcome, play};
use crate::scenario::{Act, Scenario};

/// Drops steps, largest pieces first, as long as the scenario still breaks something. Gives the smaller scenario and what
/// came of it; `tell` hears how many steps are left.
pub fn shrink(scenario: &Scenario, tell: impl Fn(usize)) -> (Scenario, Outcome) {
    let mut best = (scenario.clone(), play(scenario));
    if best.1.faults.is_empty() {
        return best;
    }
    let mut piece = best.0.steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < best.0.steps.len() {
            let mut smaller = best.0.clone();
            let end = (at + piece).min(smaller.steps.len());
            smaller.steps.drain(at..end);
            let outcome = play(&smaller);
            if outcome.faults.is_empty() {
                at += piece;
            } else {
                best = (smaller, outcome);
                tell(best.0.steps.len());
            }
        }
        piece /= 2;
    }
    // A step may matter for the time it lets pass alone.
    for at in 0..best.0.steps.len() {
        let mut quieter = best.0.clone();
        quieter.steps[at].act = Act::Nothing;
        let outcome = play(&quieter);
        if !outcome.faults.is_empty() {
            best = (quieter, outcome);
        }
    }
    best
}
