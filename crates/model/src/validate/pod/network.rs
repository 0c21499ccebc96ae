//! DNS settings, host aliases, addresses.

use std::net::IpAddr;

use super::super::view::{Faults, View};
use crate::names;

const MAX_NAME_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

pub(super) fn check_dns(spec: &View, faults: &mut Faults) {
    let config = spec.child("dnsConfig");
    let servers = config.child("nameservers");
    if spec.child("dnsPolicy").text() == "None" && servers.is_empty() {
        faults.push(
            servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"),
        );
    }
    if servers.items().len() > MAX_NAME_SERVERS {
        faults.push(servers.invalid(&format!(
            "must not have more than {MAX_NAME_SERVERS} nameservers"
        )));
    }
    for server in servers.items() {
        check_ip(&server, faults);
    }
    let searches = config.child("searches");
    let items = searches.items();
    if items.len() > MAX_SEARCHES {
        faults.push(searches.invalid(&format!(
            "must not have more than {MAX_SEARCHES} search paths"
        )));
    }
    let characters: usize = items.iter().map(|item| item.text().len() + 1).sum();
    if characters > MAX_SEARCH_CHARACTERS + 1 {
        faults.push(searches.invalid(&format!(
            "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        )));
    }
    for search in items.iter().filter(|search| search.text() != ".") {
        search.check_text(check_search, faults);
    }
    for option in config.child("options").items() {
        if option.child("name").is_empty() {
            faults.push(option.required("must not be empty"));
        }
    }
}

/// A search domain may end with a dot and, as resolvers allow, have underscores.
fn check_search(text: &str) -> Vec<String> {
    names::check_subdomain(&text.strip_suffix('.').unwrap_or(text).replace('_', "x"))
}

pub(super) fn check_host_aliases(aliases: &View, faults: &mut Faults) {
    for alias in aliases.items() {
        let ip = alias.child("ip");
        if ip.is_empty() {
            faults.push(ip.required(""));
        }
        check_ip(&ip, faults);
        for hostname in alias.child("hostnames").items() {
            hostname.check_text(names::check_subdomain, faults);
        }
    }
}

/// An address that is given.
pub(super) fn check_ip(ip: &View, faults: &mut Faults) {
    if !ip.is_empty() && ip.text().parse::<IpAddr>().is_err() {
        faults.push(ip.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
    }
}
