//! Without any server: pipes, completion scripts, exit codes.

use std::process::{Command, Stdio};

const MUSTER: &str = env!("CARGO_BIN_EXE_muster");

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(MUSTER)
        .args(["completion", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The script is longer than a pipe holds: the program meets the closed end whatever the order.
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(0));
}

#[test]
fn bash_completes_after_sourcing_the_script() {
    let script = "source <(\"$0\" completion bash) || exit 1
        COMP_WORDS=(muster roll) COMP_CWORD=1
        _muster muster roll muster
        echo \"${COMPREPLY[*]}\"";
    let ended = Command::new("bash")
        .args(["-c", script, MUSTER])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "rollout\n");
}

#[test]
fn zsh_and_fish_get_scripts_of_their_own() {
    for (shell, first) in [("zsh", "#compdef muster"), ("fish", "#")] {
        let ended = Command::new(MUSTER)
            .args(["completion", shell])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(text.starts_with(first), "{text:.80}");
        assert!(text.contains("rollout"), "{shell}");
    }
}

#[test]
fn exit_codes_tell_bad_command_lines_from_failures() {
    for (line, code) in [
        ("--version", 0),
        ("get --help", 0),
        ("gett", 2),
        ("coverage -o xml", 2),
        ("--kubeconfig /does/not/exist get ds", 1),
        ("--kubeconfig /does/not/exist diff -f /does/not/exist", 2),
    ] {
        let ended = Command::new(MUSTER)
            .args(line.split(' '))
            .env_remove("MUSTER_SERVER")
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(code), "{line}");
    }
}
