//! Small local images for tests and benchmarks, made without a registry.
//!
//! Their file system is Debian's static busybox, its links and a script; the node exporter is Debian's own binary with
//! the libraries it needs. Names and behaviour are those of spec/node-agent.md 30:
//!
//! | image | does |
//! |---|---|
//! | `local/idle:ANY` | idles, ends with 0 on SIGTERM |
//! | `t:ANY` | the same, and is there for its tools; its command is `idle` |
//! | `web:ANY` | HTTP on 8080: `/ok` 200, `/bad` 503 (200 once `/tmp/good` exists), `/redir` 302 to another host |
//! | `trap:ANY` | prints `term` on SIGTERM and ends with 0; goes on with `HARD=1` |
//! | `fluent/fluent-bit:ANY`, `fluent/fluentd:ANY` | follow the log files under `/var/log` to stdout |
//! | `local/monitor:ANY`, `local/guard:ANY`, `local/collector:ANY` | idle too; with the tag `broken` they end with 1 at once |
//! | `prom/node-exporter:ANY` | the Prometheus node exporter |

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use muster_agent::runtime::ImageView;
use muster_agent::runtime::docker::{DockerEngine, LocalImage};

/// The programs of busybox that images offer.
const TOOLS: [&str; 66] = [
    "ash",
    "awk",
    "base64",
    "basename",
    "cat",
    "chmod",
    "chown",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "dirname",
    "du",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "grep",
    "head",
    "hostname",
    "httpd",
    "id",
    "ip",
    "kill",
    "killall",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mkfifo",
    "mount",
    "mv",
    "nc",
    "netstat",
    "nslookup",
    "od",
    "ping",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "rm",
    "sed",
    "seq",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "stty",
    "sync",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "umount",
    "usleep",
    "wc",
    "wget",
    "xargs",
];

const IDLE: &str = r#"#!/bin/sh
trap 'exit 0' TERM INT
echo "idle ${1:-}"
while :; do sleep 3600 & wait $!; done
"#;

const BROKEN: &str = r#"#!/bin/sh
echo "this version is broken"
exit 1
"#;

const WEB: &str = r#"#!/bin/sh
trap 'exit 0' TERM INT
nc -ll -p "${PORT:-8080}" -e /bin/web-answer &
while :; do wait $!; done
"#;

const WEB_ANSWER: &str = r#"#!/bin/sh
cr=$(printf '\r')
answer() {
  printf 'HTTP/1.1 %s\r\n%sContent-Type: text/plain\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s' \
    "$1" "$2" "${#3}" "$3"
}
read -r method path version
while read -r header; do
  [ -n "${header%"$cr"}" ] || break
done
case "${path%%\?*}" in
  /bad) if [ -e /tmp/good ]; then answer '200 OK' '' ok; else answer '503 Service Unavailable' '' bad; fi ;;
  /redir) answer '302 Found' "Location: http://redirected.invalid/$cr
" moved ;;
  / | /ok) answer '200 OK' '' ok ;;
  *) answer '404 Not Found' '' 'not found' ;;
esac
"#;

const TRAP: &str = r#"#!/bin/sh
trap 'echo term; [ "$HARD" = 1 ] || exit 0' TERM
echo started
while :; do sleep 3600 & wait $!; done
"#;

/// Files directly under `/var/log` only: those of pods hold what this very program prints.
const FOLLOW: &str = r#"#!/bin/sh
trap 'exit 0' TERM INT
echo "following the files of /var/log"
known=
while :; do
  for file in /var/log/*.log /var/log/syslog /var/log/messages; do
    [ -f "$file" ] || continue
    case "$known" in *"|$file|"*) continue ;; esac
    known="$known|$file|"
    tail -n 5 -F "$file" | while IFS= read -r line; do echo "$file: $line"; done &
  done
  sleep 1 & wait $!
done
"#;

/// Where the programs that go into images are found on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// A busybox that needs no libraries: Debian's package busybox-static.
    pub busybox: PathBuf,
    /// The node exporter: Debian's package prometheus-node-exporter.
    pub node_exporter: PathBuf,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            busybox: PathBuf::from("/bin/busybox"),
            node_exporter: PathBuf::from("/usr/bin/prometheus-node-exporter"),
        }
    }
}

/// Makes the images of these names unless the engine has them already, from the usual sources.
///
/// # Errors
/// An unknown name, a missing source (its package is named), or the engine's words.
pub async fn ensure_images(
    engine: &DockerEngine,
    references: &[&str],
) -> anyhow::Result<Vec<ImageView>> {
    ensure_images_from(&Sources::default(), engine, references).await
}

/// The same from other sources.
pub async fn ensure_images_from(
    sources: &Sources,
    engine: &DockerEngine,
    references: &[&str],
) -> anyhow::Result<Vec<ImageView>> {
    let mut made = Vec::new();
    for reference in references {
        let image = describe(sources, reference).await?;
        made.push(
            image
                .ensure(engine)
                .await
                .with_context(|| format!("cannot make image {reference}"))?,
        );
    }
    Ok(made)
}

/// What the image of this name consists of. The registry's name before it, if any, does not matter.
pub async fn describe(sources: &Sources, reference: &str) -> anyhow::Result<LocalImage> {
    let Some((repository, tag)) = reference
        .rsplit_once(':')
        .filter(|(_, tag)| !tag.contains('/'))
    else {
        bail!("image {reference:?} has no tag");
    };
    let script = |text: &'static str| -> anyhow::Result<LocalImage> {
        Ok(tools(sources, reference)?.file("bin/main", 0o755, text.as_bytes()))
    };
    let image = match repository.rsplit('/').next().unwrap_or(repository) {
        "idle" => script(IDLE)?.change(format!(r#"ENTRYPOINT ["/bin/main","{tag}"]"#)),
        "monitor" | "guard" | "collector" => script(if tag == "broken" { BROKEN } else { IDLE })?
            .change(format!(r#"ENTRYPOINT ["/bin/main","{tag}"]"#)),
        "t" => script(IDLE)?
            .change(format!(r#"CMD ["/bin/main","{tag}"]"#))
            .change(format!("LABEL version={tag}")),
        "web" => script(WEB)?
            .file("bin/web-answer", 0o755, WEB_ANSWER.as_bytes())
            .change(r#"CMD ["/bin/main"]"#)
            .change("EXPOSE 8080"),
        "trap" => script(TRAP)?.change(r#"CMD ["/bin/main"]"#),
        "fluent-bit" | "fluentd" => script(FOLLOW)?.change(r#"ENTRYPOINT ["/bin/main"]"#),
        "node-exporter" => node_exporter(sources, reference).await?,
        _ => bail!("no test image is called {reference:?}"),
    };
    Ok(image)
}

fn tools(sources: &Sources, reference: &str) -> anyhow::Result<LocalImage> {
    let busybox = read(&sources.busybox, "busybox-static")?;
    let base = LocalImage::new(reference)
        .file("bin/busybox", 0o755, busybox)
        .directory("tmp", 0o1777)
        .directory("var/log", 0o755)
        .file(
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".as_slice(),
        )
        .file(
            "etc/group",
            0o644,
            b"root:x:0:\nnogroup:x:65534:\n".as_slice(),
        )
        .change("ENV PATH=/bin");
    Ok(TOOLS.iter().fold(base, |image, tool| {
        image.link(&format!("bin/{tool}"), "busybox")
    }))
}

/// The exporter with the libraries that the dynamic loader would load.
async fn node_exporter(sources: &Sources, reference: &str) -> anyhow::Result<LocalImage> {
    let program = read(&sources.node_exporter, "prometheus-node-exporter")?;
    let mut image = LocalImage::new(reference)
        .file("bin/node_exporter", 0o755, program)
        .directory("tmp", 0o1777)
        .change(r#"ENTRYPOINT ["/bin/node_exporter"]"#)
        .change("EXPOSE 9100")
        .change("USER 65534");
    let listed = tokio::process::Command::new("ldd")
        .arg(&sources.node_exporter)
        .output()
        .await
        .context("cannot run ldd (Debian's package libc-bin)")?;
    for library in libraries(&String::from_utf8_lossy(&listed.stdout)) {
        let path = library.trim_start_matches('/').to_owned();
        image = image.file(&path, 0o755, read(Path::new(&library), "libc6")?);
    }
    Ok(image)
}

/// The paths in the output of `ldd`: `libc.so.6 => /lib/.../libc.so.6 (0x...)` or `/lib64/ld-linux.so.2 (0x...)`.
/// None for a static program, of which it says so.
fn libraries(listed: &str) -> Vec<String> {
    let of_line = |line: &str| {
        line.split_whitespace()
            .find(|word| word.starts_with('/'))
            .map(str::to_owned)
    };
    listed.lines().filter_map(of_line).collect()
}

fn read(path: &Path, package: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| {
        format!(
            "cannot read {}, which test images are made of (Debian's package {package} has it)",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_busybox_names_its_package() {
        let sources = Sources {
            busybox: "/nonexistent/busybox".into(),
            ..Sources::default()
        };
        let error = describe(&sources, "t:1").await.unwrap_err().to_string();
        assert!(
            error.contains("/nonexistent/busybox") && error.contains("package busybox-static"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn unknown_names_and_names_without_a_tag_are_refused() {
        let sources = Sources::default();
        assert!(describe(&sources, "nosuch:1").await.is_err());
        assert!(describe(&sources, "registry:5000/t").await.is_err());
    }

    #[tokio::test]
    async fn tags_give_different_images_and_the_registry_does_not_matter() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sources = Sources {
            busybox: file.path().to_owned(),
            ..Sources::default()
        };
        let digest = async |name: &str| describe(&sources, name).await.unwrap().digest();
        assert_ne!(digest("local/idle:v1").await, digest("local/idle:v2").await);
        assert_ne!(digest("t:1").await, digest("t:2").await);
        assert_eq!(
            digest("local/idle:v1").await,
            digest("127.0.0.1:5000/x/idle:v1").await
        );
    }

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let listed = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n";
        assert_eq!(libraries(listed), ["/lib/x/libc.so.6", "/lib64/ld.so.2"]);
        assert_eq!(
            libraries("\tnot a dynamic executable\n"),
            Vec::<String>::new()
        );
    }
}
