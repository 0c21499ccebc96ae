//! The pure step, played in a small world.

mod adopting;
mod crashing;
mod ending;
mod histories;
mod running;

use crate::testing::pod;
use crate::worker::world::World;

fn world() -> World {
    World::new(pod("p"))
}

fn running() -> World {
    let mut world = world();
    world.settle();
    assert!(world.is_up("c"));
    world
}
