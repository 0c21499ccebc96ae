use serde_json::json;

use super::*;
use crate::testing::{pod, pod_with};

fn node() -> NodeDns {
    NodeDns {
        resolver: Resolver::parse(
            "nameserver 127.0.0.1\nnameserver 10.0.0.2\nsearch corp.example\noptions timeout:1\n",
        ),
        cluster_dns: Vec::new(),
        cluster_domain: "cluster.local".into(),
    }
}

fn with(spec: serde_json::Value) -> PodFacts {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "c", "image": "t:1"}]);
    pod_with("p", spec)
}

#[test]
fn hosts_of_a_pod_with_a_network_of_its_own() {
    assert_eq!(
        hosts(&pod("p"), "172.17.0.2", ""),
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
         172.17.0.2\tp\n"
    );
}

#[test]
fn na_045_with_the_hosts_network_the_hosts_file_is_kept() {
    let text = hosts(
        &with(json!({"hostNetwork": true})),
        "10.0.0.1",
        "127.0.0.1 localhost\n",
    );
    assert_eq!(
        text,
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
    );
}

#[test]
fn na_047_aliases_follow_their_comment() {
    let pod = with(json!({"hostAliases": [{"ip": "10.1.1.1", "hostnames": ["a", "b"]}]}));
    let text = hosts(&pod, "172.17.0.2", "");
    assert!(
        text.ends_with("\n\n# Entries added by HostAliases.\n10.1.1.1\ta\tb\n"),
        "{text}"
    );
}

#[test]
fn na_048_without_a_policy_only_the_pods_own_settings_count() {
    let config = json!({"nameservers": ["9.9.9.9"], "searches": ["x.y"], "options": [{"name": "ndots", "value": "2"}]});
    let (resolver, warnings) = resolver(
        &with(json!({"dnsPolicy": "None", "dnsConfig": config})),
        &node(),
    );
    assert_eq!(
        resolver.to_text(),
        "nameserver 9.9.9.9\nsearch x.y\noptions ndots:2\n"
    );
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn policies_choose_between_cluster_and_node() {
    let mut with_dns = node();
    with_dns.cluster_dns = vec!["10.96.0.10".into()];
    let text = |spec: serde_json::Value, node: &NodeDns| resolver(&with(spec), node).0.to_text();
    let own = "nameserver 10.0.0.2\nsearch corp.example\noptions timeout:1\n";
    let cluster = "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local \
                   corp.example\noptions ndots:5\n";
    let host =
        "nameserver 127.0.0.1\nnameserver 10.0.0.2\nsearch corp.example\noptions timeout:1\n";
    assert_eq!(text(json!({}), &node()), own);
    assert_eq!(text(json!({}), &with_dns), cluster);
    assert_eq!(text(json!({"dnsPolicy": "Default"}), &with_dns), own);
    assert_eq!(text(json!({"hostNetwork": true}), &with_dns), host);
    assert_eq!(
        text(
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            &with_dns
        ),
        cluster
    );
}

#[test]
fn a_resolver_is_cut_to_its_limits_and_says_so() {
    let config = json!({"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]});
    let (cut, warnings) = resolver(
        &with(json!({"dnsPolicy": "None", "dnsConfig": config})),
        &node(),
    );
    assert_eq!(cut.servers.len(), 3);
    assert_eq!(
        warnings,
        [
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3"
        ]
    );
}
