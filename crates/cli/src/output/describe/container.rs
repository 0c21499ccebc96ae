//! The part about containers.

use serde_json::Value;

use super::tabs::Text;
use super::{list, or, text, title_case};
use muster_model::table::NONE;

/// `indent` is two blanks inside a template, nothing in a pod.
pub(crate) fn containers(
    out: &mut Text,
    title: &str,
    containers: &Value,
    statuses: &Value,
    indent: &str,
) {
    out.line(0, format!("{indent}{title}:"));
    for container in list(containers) {
        let status = list(statuses)
            .iter()
            .find(|status| status["name"] == container["name"]);
        let name_indent = if indent.is_empty() { "" } else { " " };
        out.line(1, format!("{name_indent}{}:", text(&container["name"])));
        describe(out, container, status);
    }
}

fn describe(out: &mut Text, container: &Value, status: Option<&Value>) {
    if let Some(status) = status {
        out.line(
            2,
            format!("Container ID:\t{}", text(&status["containerID"])),
        );
    }
    out.line(2, format!("Image:\t{}", text(&container["image"])));
    if let Some(status) = status {
        out.line(2, format!("Image ID:\t{}", text(&status["imageID"])));
    }
    ports(out, "Port", container, "containerPort");
    ports(out, "Host Port", container, "hostPort");
    let seccomp = &container["securityContext"]["seccompProfile"];
    if seccomp.is_object() {
        out.line(2, format!("SeccompProfile:\t{}", text(&seccomp["type"])));
        if seccomp["type"] == "Localhost" {
            out.line(
                3,
                format!("LocalhostProfile:\t{}", text(&seccomp["localhostProfile"])),
            );
        }
    }
    for (title, words) in [
        ("Command", &container["command"]),
        ("Args", &container["args"]),
    ] {
        if !list(words).is_empty() {
            out.line(2, format!("{title}:"));
            for word in list(words) {
                out.line(3, text(word));
            }
        }
    }
    if let Some(status) = status {
        state(out, "State", &status["state"]);
        if status["lastState"]["terminated"].is_object() {
            state(out, "Last State", &status["lastState"]);
        }
        out.line(
            2,
            format!("Ready:\t{}", title_case(status["ready"] == true)),
        );
        out.line(
            2,
            format!("Restart Count:\t{}", or(&status["restartCount"], "0")),
        );
    }
    for (title, amounts) in [
        ("Limits", &container["resources"]["limits"]),
        ("Requests", &container["resources"]["requests"]),
    ] {
        if let Some(amounts) = amounts.as_object().filter(|amounts| !amounts.is_empty()) {
            out.line(2, format!("{title}:"));
            for (name, amount) in amounts {
                out.line(3, format!("{name}:\t{}", text(amount)));
            }
        }
    }
    for (title, field) in [
        ("Liveness", "livenessProbe"),
        ("Readiness", "readinessProbe"),
        ("Startup", "startupProbe"),
    ] {
        if container[field].is_object() {
            out.line(2, format!("{title}:\t{}", probe(&container[field])));
        }
    }
    environment(out, container);
    mounts(out, container);
}

fn ports(out: &mut Text, title: &str, container: &Value, field: &str) {
    let all: Vec<String> = list(&container["ports"])
        .iter()
        .map(|port| format!("{}/{}", or(&port[field], "0"), or(&port["protocol"], "TCP")))
        .collect();
    let plural = if all.len() > 1 { "s" } else { "" };
    let all = if all.is_empty() {
        NONE.to_owned()
    } else {
        all.join(", ")
    };
    out.line(2, format!("{title}{plural}:\t{all}"));
}

fn state(out: &mut Text, title: &str, state: &Value) {
    let fields: &[(&str, &str)] = if state["running"].is_object() {
        out.line(2, format!("{title}:\tRunning"));
        &[("Started", "/running/startedAt")]
    } else if state["terminated"].is_object() {
        out.line(2, format!("{title}:\tTerminated"));
        &[
            ("Reason", "/terminated/reason"),
            ("Message", "/terminated/message"),
            ("Exit Code", "/terminated/exitCode"),
            ("Signal", "/terminated/signal"),
            ("Started", "/terminated/startedAt"),
            ("Finished", "/terminated/finishedAt"),
        ]
    } else {
        out.line(2, format!("{title}:\tWaiting"));
        &[
            ("Reason", "/waiting/reason"),
            ("Message", "/waiting/message"),
        ]
    };
    for (label, pointer) in fields {
        let value = state.pointer(pointer).map(text).unwrap_or_default();
        if !value.is_empty() {
            out.line(3, format!("{label}:\t{}", value.replace('\n', " ")));
        }
    }
}

fn probe(probe: &Value) -> String {
    let number = |field: &str, default: i64| probe[field].as_i64().unwrap_or(default);
    let attributes = format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        number("initialDelaySeconds", 0),
        number("timeoutSeconds", 1),
        number("periodSeconds", 10),
        number("successThreshold", 1),
        number("failureThreshold", 3),
    );
    let (exec, http, tcp, grpc) = (
        &probe["exec"],
        &probe["httpGet"],
        &probe["tcpSocket"],
        &probe["grpc"],
    );
    let action = if exec.is_object() {
        let words: Vec<String> = list(&exec["command"]).iter().map(text).collect();
        format!("exec [{}]", words.join(" "))
    } else if http.is_object() {
        let scheme = or(&http["scheme"], "HTTP").to_lowercase();
        let path = text(&http["path"]);
        let slash = if path.starts_with('/') { "" } else { "/" };
        format!(
            "http-get {scheme}://{}:{}{slash}{path}",
            text(&http["host"]),
            text(&http["port"])
        )
    } else if tcp.is_object() {
        format!("tcp-socket {}:{}", text(&tcp["host"]), text(&tcp["port"]))
    } else if grpc.is_object() {
        format!(
            "grpc <pod>:{} {}",
            text(&grpc["port"]),
            text(&grpc["service"])
        )
    } else {
        "unknown".to_owned()
    };
    format!("{action} {attributes}")
}

fn environment(out: &mut Text, container: &Value) {
    if !list(&container["envFrom"]).is_empty() {
        out.line(2, "Environment Variables from:");
        for source in list(&container["envFrom"]) {
            let (kind, reference) = if source["configMapRef"].is_object() {
                ("ConfigMap", &source["configMapRef"])
            } else {
                ("Secret", &source["secretRef"])
            };
            let prefix = match text(&source["prefix"]) {
                prefix if prefix.is_empty() => String::new(),
                prefix => format!(" with prefix '{prefix}'"),
            };
            let optional = reference["optional"] == true;
            out.line(
                3,
                format!(
                    "{}\t{kind}{prefix}\tOptional: {optional}",
                    text(&reference["name"])
                ),
            );
        }
    }
    if list(&container["env"]).is_empty() {
        out.line(2, format!("Environment:\t{NONE}"));
        return;
    }
    out.line(2, "Environment:");
    for variable in list(&container["env"]) {
        let name = text(&variable["name"]);
        let from = &variable["valueFrom"];
        let (field, resource, secret, map) = (
            &from["fieldRef"],
            &from["resourceFieldRef"],
            &from["secretKeyRef"],
            &from["configMapKeyRef"],
        );
        let value = if field.is_object() {
            format!(
                " ({}:{})",
                or(&field["apiVersion"], "v1"),
                text(&field["fieldPath"])
            )
        } else if resource.is_object() {
            format!(" ({})", text(&resource["resource"]))
        } else if secret.is_object() {
            let optional = secret["optional"] == true;
            format!(
                "<set to the key '{}' in secret '{}'>\tOptional: {optional}",
                text(&secret["key"]),
                text(&secret["name"])
            )
        } else if map.is_object() {
            let optional = map["optional"] == true;
            format!(
                "<set to the key '{}' of config map '{}'>\tOptional: {optional}",
                text(&map["key"]),
                text(&map["name"])
            )
        } else {
            text(&variable["value"]).replace('\n', "\\n")
        };
        out.line(3, format!("{name}:\t{value}"));
    }
}

fn mounts(out: &mut Text, container: &Value) {
    let mut mounts: Vec<&Value> = list(&container["volumeMounts"]).iter().collect();
    if mounts.is_empty() {
        out.line(2, format!("Mounts:\t{NONE}"));
        return;
    }
    mounts.sort_by_key(|mount| text(&mount["mountPath"]));
    out.line(2, "Mounts:");
    for mount in mounts {
        let mut flags = if mount["readOnly"] == true {
            "ro"
        } else {
            "rw"
        }
        .to_owned();
        if mount["subPath"].is_string() {
            flags.push_str(&format!(",path={:?}", text(&mount["subPath"])));
        }
        out.line(
            3,
            format!(
                "{} from {} ({flags})",
                text(&mount["mountPath"]),
                text(&mount["name"])
            ),
        );
    }
}
