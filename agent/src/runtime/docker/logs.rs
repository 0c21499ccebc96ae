//! Container logs: the engine's pieces joined to lines (spec/node-agent.md 23).

use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};
use muster_model::time::Timestamp;

use super::client::{DockerEngine, runtime_error};
use crate::runtime::{ContainerId, LogOptions, RuntimeError};

/// A line longer than this is passed on in parts, so that output without line ends cannot fill the memory.
const LONGEST_LINE: usize = 1 << 20;

/// Opens a log. The existence of the container is checked first, so that a missing one is an error, not an empty log.
pub(super) async fn open(
    engine: &DockerEngine,
    id: &ContainerId,
    options: &LogOptions,
) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
    let connection = engine
        .call("inspect container", async |connection| {
            connection
                .docker
                .inspect_container(&id.0, None)
                .await
                .map(|_| connection)
        })
        .await?;
    let pieces = connection.docker.logs(&id.0, Some(query(options))).boxed();
    let lines = futures::stream::unfold(
        Some((LineJoiner::new(options), pieces)),
        |state| async move {
            let (mut joiner, mut pieces) = state?;
            loop {
                match pieces.next().await {
                    Some(Ok(piece)) => {
                        if let Some(line) = joiner.push(&piece) {
                            return Some((Ok(line), Some((joiner, pieces))));
                        }
                    }
                    Some(Err(error)) => return Some((Err(runtime_error(error)), None)),
                    None => return joiner.finish().map(|rest| (Ok(rest), None)),
                }
            }
        },
    );
    Ok(lines.boxed())
}

fn query(options: &LogOptions) -> LogsOptions {
    LogsOptions {
        follow: options.follow,
        stdout: true,
        stderr: true,
        // Whole seconds only: lines of the same second before `since` are dropped by their stamps.
        since: options.since.map_or(0, |since| {
            i32::try_from(since.as_second()).unwrap_or(i32::MAX)
        }),
        until: 0,
        timestamps: options.timestamps || options.since.is_some(),
        tail: options
            .tail_lines
            .map_or_else(|| "all".to_owned(), |lines| lines.max(0).to_string()),
    }
}

/// Joins the pieces of one log. The engine cuts lines at 16 KiB and stamps each piece; a line carries one stamp.
struct LineJoiner {
    stamped: bool,
    keep_stamps: bool,
    since: Option<Timestamp>,
    /// One for stdout (and a terminal), one for stderr: their pieces may alternate.
    streams: [OpenLine; 2],
}

#[derive(Default)]
struct OpenLine {
    text: BytesMut,
    open: bool,
    dropped: bool,
}

impl LineJoiner {
    fn new(options: &LogOptions) -> Self {
        Self {
            stamped: options.timestamps || options.since.is_some(),
            keep_stamps: options.timestamps,
            since: options.since,
            streams: Default::default(),
        }
    }

    /// Takes a piece; gives a line back when it completes one.
    fn push(&mut self, piece: &LogOutput) -> Option<Bytes> {
        let line = &mut self.streams[usize::from(matches!(piece, LogOutput::StdErr { .. }))];
        let mut text = piece.as_ref();
        if self.stamped {
            let (stamp, rest) = split_stamp(text);
            if !line.open {
                line.dropped = self
                    .since
                    .is_some_and(|since| stamp.is_some_and(|(_, at)| at < since));
            }
            if line.open || !self.keep_stamps {
                text = rest;
            }
        }
        line.open = !text.ends_with(b"\n");
        if !line.dropped {
            line.text.extend_from_slice(text);
        }
        let complete = !line.open || line.text.len() >= LONGEST_LINE;
        (complete && !line.text.is_empty()).then(|| line.text.split().freeze())
    }

    /// What is left of lines that never ended.
    fn finish(mut self) -> Option<Bytes> {
        let mut rest = self.streams[0].text.split();
        rest.unsplit(self.streams[1].text.split());
        (!rest.is_empty()).then(|| rest.freeze())
    }
}

/// Splits `2026-01-31T10:00:00.123456789Z text` after the blank; nothing is split off where there is no stamp.
fn split_stamp(text: &[u8]) -> (Option<(&[u8], Timestamp)>, &[u8]) {
    let blank = text.iter().take(40).position(|byte| *byte == b' ');
    let stamp = blank.and_then(|at| {
        let time = std::str::from_utf8(&text[..at]).ok()?.parse().ok()?;
        Some((&text[..=at], time))
    });
    match stamp {
        Some((prefix, time)) => (Some((prefix, time)), &text[prefix.len()..]),
        None => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(text: &str) -> LogOutput {
        LogOutput::StdOut {
            message: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn err(text: &str) -> LogOutput {
        LogOutput::StdErr {
            message: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn joined(options: &LogOptions, pieces: &[LogOutput]) -> Vec<String> {
        let mut joiner = LineJoiner::new(options);
        let mut lines: Vec<_> = pieces
            .iter()
            .filter_map(|piece| joiner.push(piece))
            .collect();
        lines.extend(joiner.finish());
        lines
            .into_iter()
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn na_088_pieces_of_a_line_are_joined_and_streams_kept_apart() {
        let pieces = [
            out("a"),
            err("x"),
            out("b\n"),
            err("y\n"),
            out("c\n"),
            out("no end"),
        ];
        assert_eq!(
            joined(&LogOptions::default(), &pieces),
            ["ab\n", "xy\n", "c\n", "no end"]
        );
    }

    #[test]
    fn na_087_a_joined_line_carries_the_stamp_of_its_first_piece() {
        let options = LogOptions {
            timestamps: true,
            ..LogOptions::default()
        };
        let pieces = [
            out("2026-01-31T10:00:00.123456789Z a"),
            out("2026-01-31T10:00:00.223456789Z b\n"),
        ];
        assert_eq!(
            joined(&options, &pieces),
            ["2026-01-31T10:00:00.123456789Z ab\n"]
        );
    }

    #[test]
    fn lines_before_since_are_dropped_to_the_nanosecond_with_all_their_pieces() {
        let since = "2026-01-31T10:00:00.5Z".parse().ok();
        let options = LogOptions {
            since,
            ..LogOptions::default()
        };
        let pieces = [
            out("2026-01-31T10:00:00.400000000Z ol"),
            out("2026-01-31T10:00:00.600000000Z d\n"),
            out("2026-01-31T10:00:00.500000000Z new\n"),
        ];
        assert_eq!(joined(&options, &pieces), ["new\n"]);
        assert_eq!(query(&options).since, 1_769_853_600);
    }

    #[test]
    fn output_without_line_ends_is_passed_on_in_parts() {
        let piece = out(&"x".repeat(LONGEST_LINE / 2));
        let lines = joined(
            &LogOptions::default(),
            &[piece.clone(), piece, out("end\n")],
        );
        assert_eq!(
            lines.iter().map(String::len).collect::<Vec<_>>(),
            [LONGEST_LINE, 4]
        );
    }

    #[test]
    fn the_query_asks_for_what_the_options_say() {
        let options = LogOptions {
            follow: true,
            tail_lines: Some(2),
            ..LogOptions::default()
        };
        let asked = query(&options);
        assert!(asked.follow && asked.stdout && asked.stderr && !asked.timestamps);
        assert_eq!(asked.tail, "2");
        assert_eq!(query(&LogOptions::default()).tail, "all");
    }
}
