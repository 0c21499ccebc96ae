//! Resource requests and limits, and references to them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::node::check_quantity;
use super::super::view::{Faults, View};
use crate::field_path::FieldError;
use crate::names;
use crate::quantity::Quantity;

const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";

pub(super) fn check(resources: &View, faults: &mut Faults) {
    let (limits, requests) = (resources.child("limits"), resources.child("requests"));
    let limit_amounts = check_amounts(&limits, faults);
    let request_amounts = check_amounts(&requests, faults);
    for (name, request) in &request_amounts {
        match limit_amounts.get(name) {
            Some(limit) if !may_overcommit(name) && request != limit => {
                faults.push(against_limit(&requests, *request, "equal to", name, *limit));
            }
            Some(limit) if request > limit => {
                faults.push(against_limit(
                    &requests,
                    *request,
                    "less than or equal to",
                    name,
                    *limit,
                ));
            }
            None if !may_overcommit(name) && !limits.child(name).is_present() => {
                faults.push(limits.required("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
    }
    let named = |wanted: &dyn Fn(&str) -> bool| {
        limit_amounts
            .keys()
            .chain(request_amounts.keys())
            .any(|name| wanted(name))
    };
    if named(&|name| name.starts_with(HUGE_PAGES))
        && !named(&|name| name == "cpu" || name == "memory")
    {
        faults.push(resources.forbidden("HugePages require cpu or memory"));
    }
}

/// The readable amounts of a resource list.
pub(super) fn check_amounts<'a>(
    list: &View<'a>,
    faults: &mut Faults,
) -> BTreeMap<&'a str, Quantity> {
    let mut amounts = BTreeMap::new();
    for (name, amount) in list.entries() {
        check_name(name, &amount, faults);
        let Some(quantity) = check_quantity(&amount, faults) else {
            continue;
        };
        if name.contains('/') && !quantity.is_whole() {
            faults.push(FieldError::invalid(
                amount.path(),
                &quantity.to_string().into(),
                "must be an integer",
            ));
        }
        amounts.insert(name, quantity);
    }
    amounts
}

fn check_name(name: &str, amount: &View, faults: &mut Faults) {
    let shown = Value::from(name);
    let before = faults.len();
    let details = names::check_qualified_name(name);
    faults.extend(
        details
            .iter()
            .map(|detail| FieldError::invalid(amount.path(), &shown, detail)),
    );
    let plain_and_unknown =
        !name.contains('/') && !STANDARD.contains(&name) && !name.starts_with(HUGE_PAGES);
    if faults.len() == before && plain_and_unknown {
        faults.push(FieldError::invalid(
            amount.path(),
            &shown,
            "must be a standard resource for containers",
        ));
    }
}

/// Whether the limit may exceed the request: huge pages and devices are handed out exactly.
fn may_overcommit(name: &str) -> bool {
    !name.contains('/') && !name.starts_with(HUGE_PAGES)
}

fn against_limit(
    requests: &View,
    request: Quantity,
    must_be: &str,
    name: &str,
    limit: Quantity,
) -> FieldError {
    let detail = format!("must be {must_be} {name} limit of {limit}");
    FieldError::invalid(requests.path(), &request.to_string().into(), &detail)
}

/// A `resourceFieldRef`.
pub(super) fn check_reference(reference: &View, in_volume: bool, faults: &mut Faults) {
    const SUPPORTED: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let (resource, divisor) = (reference.child("resource"), reference.child("divisor"));
    if in_volume && reference.child("containerName").is_empty() {
        faults.push(reference.child("containerName").required(""));
    } else if resource.is_empty() {
        faults.push(resource.required(""));
    } else {
        let huge = ["limits.hugepages-", "requests.hugepages-"];
        if !huge
            .iter()
            .any(|prefix| resource.text().starts_with(prefix))
        {
            resource.check_one_of(&SUPPORTED, faults);
        }
    }
    if !divisor.is_present() {
        return;
    }
    let Some(amount) = check_quantity(&divisor, faults) else {
        return;
    };
    let (values, kind) = if resource.text().ends_with(".cpu") {
        (&["1m", "1"][..], "cpu")
    } else {
        (
            &[
                "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
            ][..],
            "memory",
        )
    };
    let allowed = values.iter().any(|value| value.parse() == Ok(amount));
    if !amount.is_zero() && !allowed {
        let detail = format!(
            "only divisor's values {} are supported with the {kind} resource",
            values.join(", ")
        );
        faults.push(divisor.invalid(&detail));
    }
}
