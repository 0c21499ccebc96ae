//! Whose turn it may be now: what a pause, a failure, waves, a partition, windows and failure domains leave open.
//! The budget comes after that ([`crate::rollout`]).
//!
//! # Invariants
//! 1. A revision that was available everywhere once is held back by nothing but a pause, windows and failure domains: going
//!    back to it is never slowed down by waves, or stopped by a partition.
//! 2. Wave `n` is open when every wave before it was passed: complete (its nodes available, those out of reach left out)
//!    and watched for its pause, or promoted by somebody. Times are the pods' own, so that a restart forgets nothing.
//! 3. A missing pod on a node that is held back comes from the older revision, if there is one that fits. Where none fits, a
//!    shut window alone keeps it from nobody; a wave does, and the node, which only the new template wants, counts for nothing
//!    until its wave is open: or the waves before would wait for it, and it for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::time::Timestamp;

use crate::control::{Control, OnFailure, Pause, WaveNodes};
use crate::facts::{DaemonFacts, Strategy};
use crate::group::Group;
use crate::hold::{Hold, WaveWait};
use crate::place::{Placement, Pulled};
use crate::plan::From;
use crate::rollout::{Budget, Part};
use crate::tally::Placements;

/// What is open at one moment.
#[derive(Debug, Clone)]
pub struct Release<'a> {
    control: &'a Control,
    /// Holds every node.
    all: Option<Hold>,
    /// Position of the wave that is open; the number of waves: all are through.
    stage: usize,
    wait: Option<WaveWait>,
    /// Most nodes of the new revision outside of selected waves.
    count_limit: usize,
    /// Most nodes of the new revision at all.
    limit: usize,
    /// Most nodes whose new pod is not available (blast radius), where there is a revision to fall back to.
    most_unproven: usize,
    budget: Option<Budget>,
    stays: usize,
    closed: u64,
    now: Timestamp,
    /// When more is open by the mere passing of time.
    pub(crate) next: Option<Timestamp>,
    has_stable: bool,
    on_delete: bool,
}

impl<'a> Release<'a> {
    /// What is open for `daemon` at `now`. Costs nothing without controls; with waves that are numbers, a walk over the
    /// nodes that are through.
    pub fn of(daemon: &'a DaemonFacts, placements: &Placements, now: Timestamp) -> Self {
        let (control, course) = (&daemon.control, &daemon.course);
        let tally = placements.tally();
        let (desired, nodes) = (tally.desired, tally.desired + tally.cut_off);
        let budget = Budget::of(daemon.strategy, desired);
        let stays = control
            .partition
            .map_or(0, |partition| partition.scale_up(nodes).min(nodes));
        let mut release = Self {
            control,
            all: whole_hold(daemon),
            stage: control.waves.len(),
            wait: None,
            count_limit: usize::MAX,
            limit: if control.partition.is_some() && !course.proven {
                nodes - stays
            } else {
                usize::MAX
            },
            most_unproven: most_unproven(daemon, budget),
            budget,
            stays,
            closed: 0,
            now,
            next: None,
            has_stable: course.stable.is_some(),
            on_delete: daemon.strategy == Strategy::OnDelete,
        };
        if !course.proven {
            release.pass_waves(course.promoted, placements, now);
        }
        release.look_at_windows(now);
        release
    }

    /// The wave that is open now, from 1, and how many there are; `None` without waves, or when all are through.
    pub fn wave(&self) -> Option<(usize, usize)> {
        let waves = self.control.waves.len();
        (self.stage < waves).then_some((self.stage + 1, waves))
    }

    /// What holds the whole rollout, whatever the node; `None`: nothing does.
    pub fn hold(&self) -> Option<Hold> {
        self.all.clone().or_else(|| match self.wait? {
            WaveWait::Nodes(_) => None,
            wait => self.wave_hold(wait),
        })
    }

    /// What holds the old pod of this node, the budget aside.
    pub fn hold_of(&self, placements: &Placements, placement: &Placement) -> Option<Hold> {
        if self.on_delete {
            return Some(Hold::OnDelete);
        }
        let turns = Turns::begin(self, placements);
        turns
            .closed_to(&placement.group)
            .or_else(|| turns.full(&placement.group))
            .or_else(|| pull_hold(placement))
    }

    /// What keeps a pod that is missing from being made, also of an older revision; `None`: nothing.
    pub fn hold_of_missing(&self, placements: &Placements, placement: &Placement) -> Option<Hold> {
        let mut turns = Turns::for_missing(self, placements);
        if !placement.create || self.source(&mut turns, placement).is_some() {
            return None;
        }
        Some(turns.closed_to(&placement.group).unwrap_or(Hold::Unproven))
    }

    /// From which revision a pod that `placement`'s node lacks is made now; `None`: it is held back, and no older revision
    /// fits the node.
    pub(crate) fn source(&self, turns: &mut Turns<'_>, placement: &Placement) -> Option<From> {
        // A node out of reach since before the rollout is updated within the limits when it is back.
        let is_late = placement.part == Part::Skipped && self.most_unproven < usize::MAX;
        let held = is_late || turns.room() == 0 || turns.closed_to(&placement.group).is_some();
        if held && self.has_stable && placement.fits_stable {
            return Some(From::Stable);
        }
        let is_only_shut =
            !is_late && turns.room() > 0 && turns.closed_at_any_hour(&placement.group).is_none();
        if held && self.has_stable && !is_only_shut {
            return None;
        }
        turns.take(placement);
        Some(From::Current)
    }

    /// On how many nodes the revision is tried at most before others have to be available.
    pub(crate) fn most_tried(&self, placements: &Placements) -> usize {
        let let_through = match self.wave() {
            None => usize::MAX,
            Some(_) => self.count_limit.max(placements.selected_up_to(self.stage)),
        };
        let tally = placements.tally();
        // Without a revision to fall back to nothing but the strategy slows it down, where there are older pods at all.
        let in_turn = match (self.has_stable || tally.with_old == 0, self.budget) {
            (false, Some(budget)) => budget.most().max(tally.with_new),
            _ => self.most_unproven,
        };
        in_turn.min(let_through).min(tally.desired).max(1)
    }

    fn pass_waves(&mut self, promoted: usize, placements: &Placements, now: Timestamp) {
        let tally = placements.tally();
        self.count_limit = 0;
        for (position, wave) in self.control.waves.iter().enumerate() {
            if let WaveNodes::Count(amount) = wave.nodes {
                self.count_limit = self.count_limit.max(amount.scale_up(tally.desired));
            }
            if promoted > position {
                continue;
            }
            let through = match &wave.nodes {
                WaveNodes::Selected(_) => placements.wave_through(position),
                WaveNodes::Count(amount) => placements.through(amount.scale_up(tally.desired)),
            };
            let is_selected = matches!(wave.nodes, WaveNodes::Selected(_));
            let wait = match (through, wave.pause) {
                (Err(missing), _) => Some(WaveWait::Nodes(missing)),
                // A label that no node has, or the only canary out of reach: that is not a canary that went well.
                (Ok(_), _) if tally.through == 0 => Some(WaveWait::Nobody),
                // Whoever has tried it meanwhile was not the canary that is to be watched.
                (Ok(_), _)
                    if position == 0 && is_selected && placements.is_wave_empty(position) =>
                {
                    Some(WaveWait::Nobody)
                }
                (Ok(_), Pause::UntilPromoted) => Some(WaveWait::Promotion),
                (Ok(since), Pause::For(pause)) => since
                    .and_then(|since| since.checked_add(pause).ok())
                    .filter(|until| *until > now)
                    .map(WaveWait::Until),
            };
            if wait.is_some() {
                self.stage = position;
                self.wait = wait;
                if let Some(WaveWait::Until(at)) = wait {
                    self.next = Some(at);
                }
                return;
            }
        }
        self.count_limit = usize::MAX;
    }

    fn look_at_windows(&mut self, now: Timestamp) {
        for (position, rule) in self.control.windows.iter().enumerate() {
            match rule.window.stretch(now) {
                Some((opens, closes)) => {
                    let turn = if opens > now {
                        self.closed |= 1 << position;
                        opens
                    } else {
                        closes
                    };
                    self.next = Some(self.next.map_or(turn, |next| next.min(turn)));
                }
                None => self.closed |= 1 << position,
            }
        }
    }

    fn wave_hold(&self, wait: WaveWait) -> Option<Hold> {
        let wave = self.control.waves.get(self.stage)?;
        Some(Hold::Wave {
            wave: self.stage + 1,
            waves: self.control.waves.len(),
            nodes: wave.text.clone(),
            wait,
        })
    }

    fn opens_at(&self, windows: u64) -> Option<Timestamp> {
        let rules = self.control.windows.iter().enumerate();
        rules
            .filter(|(position, _)| windows & (1 << position) != 0)
            .filter_map(|(_, rule)| Some(rule.window.stretch(self.now)?.0))
            .min()
    }
}

fn whole_hold(daemon: &DaemonFacts) -> Option<Hold> {
    let control = &daemon.control;
    if let Some(why) = control.unreadable.clone() {
        return Some(Hold::Unreadable { why });
    }
    if control.paused {
        return Some(Hold::Paused);
    }
    let why = Arc::clone(daemon.failed()?);
    Some(Hold::Halted { why })
}

/// With `on-failure` no more nodes run an unproven pod that is not available than the budget has room for, also where
/// pods were lost for other reasons or do not work. `OnDelete` has no budget: who deletes pods there asks for the new
/// revision. Without a revision to fall back to there is nothing better than the new one.
fn most_unproven(daemon: &DaemonFacts, budget: Option<Budget>) -> usize {
    let (control, course) = (&daemon.control, &daemon.course);
    if control.on_failure == OnFailure::Off || course.proven || course.stable.is_none() {
        return usize::MAX;
    }
    budget.map_or(usize::MAX, Budget::most)
}

fn pull_hold(placement: &Placement) -> Option<Hold> {
    match &placement.pulled {
        Pulled::Unneeded | Pulled::Unasked | Pulled::Ready => None,
        Pulled::Asked => Some(Hold::Pulling),
        Pulled::Failed(why) => Some(Hold::PullFailed { why: why.clone() }),
    }
}

/// The turns that are given in one plan.
pub(crate) struct Turns<'a> {
    release: &'a Release<'a>,
    placements: &'a Placements,
    /// Nodes that have, or are about to have, the new revision.
    made: usize,
    /// Nodes whose new pod is not available, or that are about to have one.
    unproven: usize,
    /// Nodes that had their turn, by failure domain.
    taken: BTreeMap<Arc<str>, usize>,
}

impl<'a> Turns<'a> {
    pub(crate) fn begin(release: &'a Release<'a>, placements: &'a Placements) -> Self {
        let tally = placements.tally();
        Self {
            release,
            placements,
            made: tally.cut_off_new + tally.desired.saturating_sub(tally.only_old),
            unproven: tally.unproven + tally.bare,
            taken: BTreeMap::new(),
        }
    }

    /// The same, for pods that are missing: only nodes that have a new pod count as made.
    pub(crate) fn for_missing(release: &'a Release<'a>, placements: &'a Placements) -> Self {
        Self {
            made: placements.tally().with_new + placements.tally().cut_off_new,
            unproven: placements.tally().unproven,
            ..Self::begin(release, placements)
        }
    }

    /// The same, without so many nodes that only wait for their wave.
    pub(crate) fn without(mut self, withheld: usize) -> Self {
        self.unproven = self.unproven.saturating_sub(withheld);
        self
    }

    /// Whether the whole rollout is held, whatever the node.
    pub(crate) fn is_stopped(&self) -> bool {
        self.release.all.is_some()
    }

    /// How many more nodes may have a new pod that is not available.
    pub(crate) fn room(&self) -> usize {
        self.release.most_unproven.saturating_sub(self.unproven)
    }

    /// What closes a group altogether, or is used up.
    pub(crate) fn closed_to(&self, group: &Group) -> Option<Hold> {
        let release = self.release;
        let is_shut = group.windows != 0 && group.windows & !release.closed == 0;
        if release.all.is_none() && is_shut {
            let opens_at = release.opens_at(group.windows);
            return Some(Hold::Window { opens_at });
        }
        self.closed_at_any_hour(group)
    }

    /// The same, windows aside.
    pub(crate) fn closed_at_any_hour(&self, group: &Group) -> Option<Hold> {
        let release = self.release;
        if release.all.is_some() {
            return release.all.clone();
        }
        if self.made >= release.limit {
            let stays = release.stays;
            return Some(Hold::Partition { stays });
        }
        let selected = group.wave <= release.stage;
        if !selected && self.made >= release.count_limit {
            return release.wait.and_then(|wait| release.wave_hold(wait));
        }
        None
    }

    /// Whether a node without a pod waits for its wave, and for nothing else.
    pub(crate) fn awaits_wave(&self, placement: &Placement) -> bool {
        let hold = self.closed_at_any_hour(&placement.group);
        placement.part != Part::Skipped && matches!(hold, Some(Hold::Wave { .. }))
    }

    /// No room in the group's failure domain.
    pub(crate) fn full(&self, group: &Group) -> Option<Hold> {
        let most = self.release.control.domain.as_ref()?.most;
        let domain = group.domain.as_ref()?;
        let count =
            |busy: &BTreeMap<Arc<str>, usize>| busy.get(domain).copied().unwrap_or_default();
        let busy = count(self.placements.busy_domains()) + count(&self.taken);
        (busy >= most).then(|| Hold::Domain {
            domain: Arc::clone(domain),
        })
    }

    /// A node has its turn.
    pub(crate) fn take(&mut self, placement: &Placement) {
        self.made += usize::from(placement.counts.desired);
        self.unproven += usize::from(placement.counts.desired);
        if let (Some(domain), false) = (&placement.group.domain, is_busy(placement.part)) {
            *self.taken.entry(Arc::clone(domain)).or_default() += 1;
        }
    }
}

/// Parts of nodes that are being updated, or are out: they use up their failure domain.
pub(crate) fn is_busy(part: Part) -> bool {
    match part {
        Part::Out { .. }
        | Part::OldDown
        | Part::OldWarm
        | Part::SurgeNow
        | Part::Surging { .. }
        | Part::SurgeHeld { .. }
        | Part::Done { available: false } => true,
        Part::Outside
        | Part::Skipped
        | Part::Done { available: true }
        | Part::OldServing
        | Part::SurgeTurn
        | Part::LeftoverDown
        | Part::LeftoverWarm
        | Part::Leftover => false,
    }
}
