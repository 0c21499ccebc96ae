//! Compiles the sandbox's program, `pause/pause.rs`, for the target and leaves it in `OUT_DIR/pause`, from where
//! `runtime/docker/pause.rs` embeds it.

fn main() {
    muster_freestanding::compile("pause/pause.rs", "pause");
}
