//! The runtime contract over the double.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod contract;

use std::sync::Arc;
use std::time::Duration;

use contract::{Role, World};
use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::memory::{Behaviour, Exit, MemoryEngine, MemoryRuntime};
use muster_model::time::SystemClock;

fn program(role: Role) -> (&'static str, Option<Vec<String>>) {
    let image = match role {
        Role::Idle => "t:1",
        Role::PrintAndExit => "prints:1",
        Role::Stubborn => "stubborn:1",
        Role::CommandMissing => "missing:1",
    };
    (image, None)
}

fn world() -> World {
    let engine = MemoryEngine::new(SystemClock::shared());
    let behaviours = [
        (
            Role::Idle,
            Behaviour {
                log_lines: vec!["idle".to_owned()],
                ..Behaviour::default()
            },
        ),
        (
            Role::PrintAndExit,
            Behaviour {
                log_lines: ["one", "two", "three"].map(str::to_owned).to_vec(),
                exits: vec![Exit::new(Duration::ZERO, 3)],
                ..Behaviour::default()
            },
        ),
        (
            Role::Stubborn,
            Behaviour {
                ignore_term: true,
                ..Behaviour::default()
            },
        ),
        (Role::CommandMissing, Behaviour::command_missing("nosuch")),
    ];
    for (role, behaviour) in behaviours {
        engine.add_image(program(role).0);
        engine.set_behaviour(program(role).0, behaviour);
    }
    let owners = ["n1", "n2"].map(|node| Owner::new(node, "test"));
    let nodes = owners
        .clone()
        .map(|owner| Arc::new(MemoryRuntime::new(engine.clone(), owner)) as Arc<_>);
    World {
        nodes,
        owners,
        program,
    }
}

macro_rules! over_memory {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            contract::$name(&world()).await;
        }
    )*};
}

over_memory!(
    na_028_a_pods_life,
    na_087_exit_codes_and_logs,
    na_050_a_failed_start,
    na_074_a_stubborn_container_is_killed,
    na_100_two_nodes_share_an_engine,
    na_069_an_image_that_is_absent,
    a_name_that_is_taken,
    a_sandbox_that_is_dead,
);
