//! `muster rollout promote`: a person lets a rollout pass the wave that it is in.

use clap::Args;
use futures::StreamExt;
use muster_model::kind::CONTROLLER_REVISION;
use muster_model::object::{NamespacedName, Object};
use muster_model::reason::annotation;
use muster_proto::v1;

use super::history::{current, entries};
use super::{OutputArg, Targets, annotate, reference, refused};
use crate::failure::{Failure, Outcome};
use crate::session::{Server, Session};
use crate::targets::Outcomes;

/// What stands for every wave.
const ALL: &str = "all";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout promote ds/web                past the canary, or the wave, that it waits in
  muster rollout promote ds/web --full         past all of them")]
pub(super) struct PromoteArgs {
    #[command(flatten)]
    targets: Targets,
    /// Past every wave there is
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(super) async fn promote(args: PromoteArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, &server, &mut outcomes).await? {
        let promoted = match one(&args, &server, &object).await {
            Ok(()) => args.output.tell(&mut session.console, object, "promoted"),
            Err(failure) => Err(failure),
        };
        outcomes.add(&mut session.console, promoted)?;
    }
    outcomes.end()
}

async fn one(args: &PromoteArgs, server: &Server, object: &Object) -> Outcome {
    let state = present_state(server, object).await?;
    let entries = entries(server, &reference(object)).await?;
    let Some(revision) = current(&entries)? else {
        return Err(refused(
            object,
            "has nothing to promote: its revision is not made yet",
        ));
    };
    let before = revision.annotation(annotation::PROMOTED);
    let through = through(&state, before, args.full).map_err(|why| refused(object, &why))?;
    let name = NamespacedName::new(object.namespace(), revision.name());
    let (kind, promoted) = (&CONTROLLER_REVISION, annotation::PROMOTED);
    annotate(server, kind, &name, &[(promoted, Some(&through))]).await?;
    Ok(())
}

/// How far the rollout is now.
async fn present_state(server: &Server, object: &Object) -> Outcome<v1::RolloutStatusReply> {
    if object.text_at("/spec/updateStrategy/type") == "OnDelete" {
        return Err(refused(
            object,
            "has nothing to promote: with the strategy OnDelete there is no rollout",
        ));
    }
    let request = server.connection.request(v1::RolloutStatusRequest {
        daemonset: Some(reference(object)),
    });
    let fault = |status: &tonic::Status| Failure::from(server.connection.fault(status));
    let mut states = match server.connection.daemonsets().rollout_status(request).await {
        Ok(states) => states.into_inner(),
        Err(status) => return Err(fault(&status)),
    };
    match states.next().await {
        Some(Ok(state)) => Ok(state),
        Some(Err(status)) => Err(fault(&status)),
        None => Err(Failure::new(
            "the server is stopping: try again when it is back",
        )),
    }
}

/// Through how many waves the rollout may pass then, as the annotation says it; or why there is nothing to promote.
fn through(
    state: &v1::RolloutStatusReply,
    before: Option<&str>,
    full: bool,
) -> Result<String, String> {
    let nothing = |why: &str| Err(format!("has nothing to promote: {why}"));
    if state.generation > state.observed_generation {
        return nothing("the controller has not looked at its newest template yet");
    }
    if state.done {
        return nothing("its rollout is complete");
    }
    if state.waves == 0 {
        return nothing(&format!(
            "it has no canary and no waves (annotations {} and {})",
            annotation::CANARY,
            annotation::WAVES
        ));
    }
    if state.wave == 0 {
        return nothing("its rollout has passed every wave");
    }
    if before == Some(ALL) {
        return nothing("its rollout is promoted past every wave already");
    }
    if full {
        return Ok(ALL.to_owned());
    }
    let passed: i32 = before.and_then(|text| text.parse().ok()).unwrap_or(0);
    if passed >= state.wave {
        return nothing(&format!(
            "wave {} of {} is promoted already",
            state.wave, state.waves
        ));
    }
    Ok(state.wave.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(wave: i32, waves: i32) -> v1::RolloutStatusReply {
        v1::RolloutStatusReply {
            wave,
            waves,
            ..v1::RolloutStatusReply::default()
        }
    }

    #[test]
    fn one_wave_is_passed_at_a_time_or_all_of_them() {
        let next = |wave, before, full| through(&state(wave, 3), before, full);
        assert_eq!(next(1, None, false).as_deref(), Ok("1"));
        assert_eq!(next(2, Some("1"), false).as_deref(), Ok("2"));
        assert_eq!(next(3, Some("1"), false).as_deref(), Ok("3"));
        assert_eq!(next(1, None, true).as_deref(), Ok("all"));
        assert_eq!(next(2, Some("2"), true).as_deref(), Ok("all"));
        assert_eq!(next(1, Some("nonsense"), false).as_deref(), Ok("1"));
    }

    #[test]
    fn nothing_to_promote_says_why() {
        for (wave, waves, before, part) in [
            (0, 0, None, "no canary and no waves"),
            (0, 3, None, "has passed every wave"),
            (1, 3, Some("all"), "promoted past every wave already"),
            (2, 3, Some("2"), "wave 2 of 3 is promoted already"),
        ] {
            let why = through(&state(wave, waves), before, false).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let mut complete = state(0, 0);
        complete.done = true;
        let why = through(&complete, None, false).unwrap_err();
        assert!(why.ends_with("its rollout is complete"), "{why}");
        let mut unseen = state(1, 3);
        unseen.generation = 2;
        let why = through(&unseen, None, true).unwrap_err();
        assert!(
            why.ends_with("has not looked at its newest template yet"),
            "{why}"
        );
    }
}
