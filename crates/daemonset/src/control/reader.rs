//! The reader of the annotations under `muster.dev/`.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use muster_model::field_path::{FieldError, FieldPath};
use muster_model::int_or_percent::IntOrPercent;
use muster_model::names;
use muster_model::reason::annotation;
use muster_model::selector::Selector;
use muster_model::time::{SHORTEST_RESTART_DELAY, parse_duration};
use serde_json::Value;

use super::{
    Control, DomainLimit, MOST_WAVES, MOST_WINDOWS, OnFailure, Pause, Wave, WaveNodes, WindowRule,
};
use crate::window::Window;

/// Reads all annotations, and says what is wrong with them, by field.
pub(super) fn read(annotations: &BTreeMap<String, String>) -> (Control, Vec<FieldError>) {
    let mut reader = Reader {
        annotations,
        faults: Vec::new(),
    };
    let mut control = Control {
        paused: reader.yes(annotation::PAUSED),
        on_failure: reader.on_failure(),
        failure_threshold: reader.amount(annotation::FAILURE_THRESHOLD),
        progress_deadline: reader.deadline(),
        waves: reader.waves(),
        partition: reader.amount(annotation::PARTITION),
        pre_pull: reader.yes(annotation::PRE_PULL),
        windows: reader.windows(),
        domain: reader.domain(),
        count_offline: reader.count_offline(),
        unreadable: None,
    };
    control.unreadable = reader
        .faults
        .first()
        .map(|fault| format!("{}: {}", fault.field, fault.body));
    (control, reader.faults)
}

/// What is wrong with the annotations of a template.
pub(super) fn check_template(annotations: &BTreeMap<String, String>) -> Option<FieldError> {
    let key = annotation::MAX_RESTART_DELAY;
    let text = annotations.get(key)?;
    let detail = match parse_duration(text.trim()) {
        Ok(delay) if delay >= SHORTEST_RESTART_DELAY => return None,
        Ok(_) => format!("must be at least {}s", SHORTEST_RESTART_DELAY.as_secs()),
        Err(error) => error.to_string(),
    };
    let field = FieldPath::of("spec.template.metadata.annotations").key(key);
    Some(FieldError::invalid(
        field,
        &Value::from(text.as_str()),
        &detail,
    ))
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    faults: Vec<FieldError>,
}

impl<'a> Reader<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.annotations.get(key).map(|text| text.trim())
    }

    fn fault(&mut self, key: &str, detail: impl fmt::Display) {
        let value = self.annotations.get(key).map_or("", String::as_str);
        let field = FieldPath::of("metadata.annotations").key(key);
        let value = Value::from(value);
        self.faults
            .push(FieldError::invalid(field, &value, &detail.to_string()));
    }

    /// An annotation that makes no sense without another one.
    fn needs(&mut self, key: &str, other: &str) {
        if self.text(key).is_some() && self.text(other).is_none() {
            self.fault(key, format!("means nothing without {other}"));
        }
    }

    fn yes(&mut self, key: &str) -> bool {
        match self.text(key) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                self.fault(key, "must be \"true\" or \"false\"");
                false
            }
        }
    }

    fn count_offline(&mut self) -> bool {
        match self.text(annotation::OFFLINE_NODES) {
            None => false,
            Some("count") => true,
            Some(_) => {
                self.fault(
                    annotation::OFFLINE_NODES,
                    "must be \"count\" (nodes out of reach use up the budget); leave it out otherwise",
                );
                false
            }
        }
    }

    fn on_failure(&mut self) -> OnFailure {
        self.needs(annotation::FAILURE_THRESHOLD, annotation::ON_FAILURE);
        self.needs(annotation::PROGRESS_DEADLINE, annotation::ON_FAILURE);
        match self.text(annotation::ON_FAILURE) {
            None => OnFailure::Off,
            Some("halt") => OnFailure::Halt,
            Some("rollback") => OnFailure::Rollback,
            Some(_) => {
                self.fault(
                    annotation::ON_FAILURE,
                    "must be \"halt\" (stop the rollout) or \"rollback\" (stop it and go back)",
                );
                OnFailure::Off
            }
        }
    }

    fn amount(&mut self, key: &str) -> Option<IntOrPercent> {
        let text = self.text(key)?;
        let amount = parse_amount(text);
        if amount.is_none() {
            self.fault(
                key,
                "must be a number of nodes (3) or a percentage of at most 100%",
            );
        }
        amount
    }

    fn span(&mut self, key: &str) -> Option<SignedDuration> {
        let text = self.text(key)?;
        match parse_duration(text).map(SignedDuration::try_from) {
            Ok(Ok(span)) => Some(span),
            Ok(Err(_)) => {
                self.fault(key, "is longer than can be counted");
                None
            }
            Err(error) => {
                self.fault(key, error);
                None
            }
        }
    }

    fn deadline(&mut self) -> Option<SignedDuration> {
        let deadline = self.span(annotation::PROGRESS_DEADLINE)?;
        if deadline.is_zero() {
            let detail = "must be longer than nothing: no pod is available at once";
            self.fault(annotation::PROGRESS_DEADLINE, detail);
        }
        Some(deadline)
    }

    fn waves(&mut self) -> Vec<Wave> {
        self.needs(annotation::CANARY_PAUSE, annotation::CANARY);
        self.needs(annotation::WAVE_PAUSE, annotation::WAVES);
        let canary_pause = self
            .span(annotation::CANARY_PAUSE)
            .map_or(Pause::UntilPromoted, Pause::For);
        let wave_pause = Pause::For(self.span(annotation::WAVE_PAUSE).unwrap_or_default());
        let mut waves = Vec::new();
        if let Some(text) = self.text(annotation::CANARY) {
            waves.extend(self.wave(annotation::CANARY, text, canary_pause));
        }
        let texts = self.text(annotation::WAVES).into_iter();
        for text in texts.flat_map(|text| text.split(';')).map(str::trim) {
            waves.extend(self.wave(annotation::WAVES, text, wave_pause));
        }
        if waves.len() > MOST_WAVES {
            self.fault(
                annotation::WAVES,
                format!("at most {MOST_WAVES} waves are possible"),
            );
            waves.truncate(MOST_WAVES);
        }
        waves
    }

    fn wave(&mut self, key: &str, text: &str, pause: Pause) -> Option<Wave> {
        let what = "must be a number of nodes (2), a percentage (10%) or a label selector (zone=a)";
        let starts_as_number = text.starts_with(|c: char| c.is_ascii_digit());
        let nodes = match (parse_amount(text), Selector::parse(text)) {
            (Some(amount), _) if amount.is_zero() => {
                self.fault(key, "a wave of no nodes tells nothing");
                return None;
            }
            (Some(amount), _) => WaveNodes::Count(amount),
            (None, Ok(selector)) if !starts_as_number && !selector.is_empty() => {
                WaveNodes::Selected(selector)
            }
            (None, Err(error)) if !starts_as_number => {
                self.fault(key, format!("{what}; {text:?}: {error}"));
                return None;
            }
            _ => {
                self.fault(key, format!("{what}, not {text:?}"));
                return None;
            }
        };
        Some(Wave {
            nodes,
            pause,
            text: text.to_owned(),
        })
    }

    fn windows(&mut self) -> Vec<WindowRule> {
        let key = annotation::MAINTENANCE_WINDOWS;
        let lines = self.text(key).into_iter().flat_map(str::lines);
        let mut rules = Vec::new();
        for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
            let Some((nodes, window)) = line.split_once(':') else {
                self.fault(
                    key,
                    format!("line {line:?} is not SELECTOR: DAYS HH:MM-HH:MM [ZONE]"),
                );
                continue;
            };
            let nodes = match nodes.trim() {
                "*" => Ok(Selector::everything()),
                selector => Selector::parse(selector),
            };
            match (nodes, Window::parse(window)) {
                (Ok(nodes), Ok(window)) => rules.push(WindowRule { nodes, window }),
                (Err(error), _) => self.fault(key, format!("line {line:?}: {error}")),
                (_, Err(error)) => self.fault(key, error),
            }
        }
        if rules.len() > MOST_WINDOWS {
            self.fault(key, format!("at most {MOST_WINDOWS} lines are possible"));
            rules.truncate(MOST_WINDOWS);
        }
        rules
    }

    fn domain(&mut self) -> Option<DomainLimit> {
        let (label, most) = (
            annotation::FAILURE_DOMAIN,
            annotation::MAX_UPDATING_PER_DOMAIN,
        );
        self.needs(most, label);
        let limit = match self.text(most).map(str::parse) {
            None => 1,
            Some(Ok(number)) if number > 0 => number,
            Some(_) => {
                self.fault(most, "must be a number of nodes, at least 1");
                1
            }
        };
        let name = self.text(label)?;
        if !names::check_qualified_name(name).is_empty() {
            self.fault(label, "must be the name of a node label");
            return None;
        }
        Some(DomainLimit {
            label: name.to_owned(),
            most: limit,
        })
    }
}

fn parse_amount(text: &str) -> Option<IntOrPercent> {
    let value = match text.parse::<i32>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(text),
    };
    match IntOrPercent::from_value(&value).ok()? {
        IntOrPercent::Int(number) if number < 0 => None,
        IntOrPercent::Percent(percent) if percent > 100 => None,
        amount => Some(amount),
    }
}
