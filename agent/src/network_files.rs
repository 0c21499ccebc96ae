//! `/etc/hosts` and `/etc/resolv.conf` of pods, as text (spec/node-agent.md 13).

use crate::facts::PodFacts;

/// Most name servers of a resolver.
const MAX_SERVERS: usize = 3;
/// Most search domains, and their length together.
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

/// `/etc/hosts` of a pod. `host_file` is the node's own, for pods with its network.
pub fn hosts(pod: &PodFacts, pod_ip: &str, host_file: &str) -> String {
    let mut text = String::new();
    if pod.host_network() {
        text.push_str("# Kubernetes-managed hosts file (host network).\n");
        text.push_str(host_file);
    } else {
        text.push_str(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
        );
        if !pod_ip.is_empty() {
            text.push_str(&format!("{pod_ip}\t{}\n", pod.host_name()));
        }
    }
    let aliases: Vec<String> = pod
        .spec()
        .host_aliases
        .iter()
        .flatten()
        .map(|alias| {
            format!(
                "{}\t{}\n",
                alias.ip,
                alias.hostnames.clone().unwrap_or_default().join("\t")
            )
        })
        .collect();
    if !aliases.is_empty() {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str("\n# Entries added by HostAliases.\n");
        text.extend(aliases);
    }
    text
}

/// A resolver's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolver {
    /// Servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl Resolver {
    /// Reads a `resolv.conf`. As in the resolver itself the last `search` line counts.
    pub fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
                Some("search") => resolver.searches = words.map(str::to_owned).collect(),
                Some("options") => resolver.options.extend(words.map(str::to_owned)),
                _ => {}
            }
        }
        resolver
    }

    /// As the file's text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for server in &self.servers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.searches.is_empty() {
            text.push_str(&format!("search {}\n", self.searches.join(" ")));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("options {}\n", self.options.join(" ")));
        }
        text
    }
}

/// What the node gives for names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDns {
    /// The node's own resolver.
    pub resolver: Resolver,
    /// Servers of the cluster's own DNS; empty: there is none.
    pub cluster_dns: Vec<String>,
    /// Its domain.
    pub cluster_domain: String,
}

/// The resolver of a pod, and what had to be left out (messages of `DNSConfigForming`).
pub fn resolver(pod: &PodFacts, node: &NodeDns) -> (Resolver, Vec<String>) {
    let spec = pod.spec();
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let cluster = match policy {
        "ClusterFirst" => !pod.host_network(),
        "ClusterFirstWithHostNet" => true,
        _ => false,
    };
    let mut resolver = match policy {
        "None" => Resolver::default(),
        _ if cluster && !node.cluster_dns.is_empty() => {
            let domain = &node.cluster_domain;
            let mut searches = vec![
                format!("{}.svc.{domain}", pod.namespace),
                format!("svc.{domain}"),
                domain.clone(),
            ];
            searches.extend(node.resolver.searches.iter().cloned());
            Resolver {
                servers: node.cluster_dns.clone(),
                searches,
                options: vec!["ndots:5".to_owned()],
            }
        }
        _ => {
            let mut own = node.resolver.clone();
            if !pod.host_network() {
                own.servers.retain(|server| !is_loopback(server));
            }
            own
        }
    };
    if let Some(config) = &spec.dns_config {
        let append = |list: &mut Vec<String>, more: Option<&Vec<String>>| {
            for item in more.into_iter().flatten() {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
        };
        append(&mut resolver.servers, config.nameservers.as_ref());
        append(&mut resolver.searches, config.searches.as_ref());
        for option in config.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            resolver
                .options
                .retain(|known| known.split(':').next() != Some(name));
            resolver.options.push(
                match option.value.as_deref().filter(|value| !value.is_empty()) {
                    Some(value) => format!("{name}:{value}"),
                    None => name.clone(),
                },
            );
        }
    }
    let warnings = cut(&mut resolver);
    (resolver, warnings)
}

fn is_loopback(server: &str) -> bool {
    server
        .parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.is_loopback())
}

fn cut(resolver: &mut Resolver) -> Vec<String> {
    let mut warnings = Vec::new();
    if resolver.servers.len() > MAX_SERVERS {
        resolver.servers.truncate(MAX_SERVERS);
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            resolver.servers.join(" ")
        ));
    }
    let before = resolver.searches.len();
    resolver.searches.truncate(MAX_SEARCHES);
    while resolver.searches.join(" ").len() > MAX_SEARCH_CHARS {
        resolver.searches.pop();
    }
    if resolver.searches.len() < before {
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            resolver.searches.join(" ")
        ));
    }
    warnings
}

#[cfg(test)]
#[path = "network_files_tests.rs"]
mod tests;
