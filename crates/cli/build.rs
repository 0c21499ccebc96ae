//! Compiles the demo's log agent, `demo/tail.rs`, for the target and leaves it in `OUT_DIR/tail`.

fn main() {
    muster_freestanding::compile("demo/tail.rs", "tail");
}
