use super::*;
use crate::identity::{identity_of_pem, peer_identity};
use x509_parser::prelude::X509Certificate;

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    "2026-01-31T10:00:00Z".parse().unwrap()
}

fn ca() -> CertificateAuthority {
    CertificateAuthority::generate("lab", now()).unwrap()
}

/// Hands the parsed certificate to `look`, after its signature was checked against the CA.
fn look<T>(
    ca: &CertificateAuthority,
    cert_pem: &str,
    look: impl FnOnce(&X509Certificate<'_>) -> T,
) -> T {
    let der = pem::certificates(cert_pem).unwrap().swap_remove(0);
    let (rest, parsed) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let (_, root) = X509Certificate::from_der(ca.cert_der()).unwrap();
    parsed
        .verify_signature(Some(root.public_key()))
        .expect("signed by the CA");
    assert_eq!(parsed.issuer().as_raw(), root.subject().as_raw());
    look(&parsed)
}

#[test]
fn a_server_certificate_names_what_was_asked_and_the_fixed_names() {
    let ca = ca();
    let issued = issue_server(
        &ca,
        &["cp.example".into(), "192.0.2.7".into(), "localhost".into()],
        now(),
    )
    .unwrap();
    issued.key().unwrap();
    look(&ca, &issued.cert_pem, |cert| {
        let san = cert.subject_alternative_name().unwrap().unwrap();
        let names: Vec<String> = san
            .value
            .general_names
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names.len(), 6, "each once: {names:?}");
        let text = names.join(" ");
        for wanted in ["cp.example", "muster-server", "localhost"] {
            assert!(text.contains(wanted), "{text}");
        }
        let usage = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth);
        assert!(!cert.is_ca());
    });
}

#[test]
fn server_names_that_are_no_names_are_refused() {
    for name in [
        "https://cp.example",
        "cp.example:6443",
        "",
        "a b",
        "-x",
        "a..b",
    ] {
        let error = issue_server(&ca(), &[name.to_owned()], now()).unwrap_err();
        assert!(
            matches!(
                error,
                PkiError::InvalidName {
                    what: "server name",
                    ..
                }
            ),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_client_certificate_carries_user_and_every_group() {
    let ca = ca();
    let groups = [
        "system:masters".to_owned(),
        "ops".to_owned(),
        "Gärtner".to_owned(),
    ];
    let issued = issue_client(&ca, "ana", &groups, now(), HOUR).unwrap();
    issued.key().unwrap();
    let peer = identity_of_pem(&issued.cert_pem).unwrap();
    assert_eq!(peer.user, "ana");
    assert_eq!(peer.groups, groups);
    assert_eq!(peer.not_after, "2026-01-31T11:00:00Z".parse().unwrap());
    assert_eq!(peer.issued_at, now());
    assert_eq!(peer.node_name(), None);
    look(&ca, &issued.cert_pem, |cert| {
        let begins = cert.validity().not_before.timestamp();
        assert_eq!(
            begins,
            now().as_second() - 10 * 365 * 86_400,
            "ten years before"
        );
        let usage = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
    });
}

#[test]
fn a_client_without_groups_is_fine_and_without_a_name_is_not() {
    let ca = ca();
    let issued = issue_client(&ca, "ana", &[], now(), HOUR).unwrap();
    assert_eq!(
        identity_of_pem(&issued.cert_pem).unwrap().groups,
        Vec::<String>::new()
    );
    assert!(issue_client(&ca, "", &[], now(), HOUR).is_err());
    assert!(issue_client(&ca, "ana", &[String::new()], now(), HOUR).is_err());
}

#[test]
fn a_node_gets_its_name_from_the_server_and_not_from_its_request() {
    let ca = ca();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "admin");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let request = params.serialize_request(&key).unwrap().pem().unwrap();

    let cert_pem = sign_node_csr(&ca, &request, "pi-3", now(), NODE_VALIDITY).unwrap();
    look(&ca, &cert_pem, |cert| {
        assert!(!cert.is_ca());
        assert!(cert.subject_alternative_name().unwrap().is_none());
        let usage = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(
            cert.public_key().subject_public_key.data.as_ref(),
            key.der_bytes()
        );
    });
    let peer = identity_of_pem(&cert_pem).unwrap();
    assert_eq!(
        (peer.user.as_str(), peer.groups.as_slice()),
        ("system:node:pi-3", &["system:nodes".to_owned()][..])
    );
}

#[test]
fn a_request_that_was_tampered_with_is_refused() {
    let ca = ca();
    let (request, _key) = make_csr().unwrap();
    let der = pem::request(&request).unwrap().to_vec();
    let mut outcomes = BTreeSet::new();
    // The signed part; what follows it is the signature's own wrapping.
    let (_, parsed) = X509CertificationRequest::from_der(&der).unwrap();
    let signed = parsed.certification_request_info.raw;
    let start = signed.as_ptr().addr() - der.as_ptr().addr();
    for at in start..start + signed.len() {
        let mut broken = der.clone();
        broken[at] ^= 0x01;
        let text = pem::write_certificate(&broken).replace("CERTIFICATE", "CERTIFICATE REQUEST");
        match sign_node_csr(&ca, &text, "pi-3", now(), HOUR) {
            Ok(_) => panic!("accepted a request with byte {at} changed"),
            Err(error) => outcomes.insert(
                std::mem::discriminant(&error)
                    == std::mem::discriminant(&PkiError::BadRequestSignature),
            ),
        };
    }
    assert!(outcomes.contains(&true), "some must fail on the signature");
}

#[test]
fn node_names_follow_the_rule_of_objects() {
    let ca = ca();
    let (request, _key) = make_csr().unwrap();
    for name in [
        "",
        "A",
        "a_b",
        "a:b",
        "a/b",
        "-a",
        "a-",
        "a..b",
        &"a".repeat(254),
    ] {
        let error = sign_node_csr(&ca, &request, name, now(), HOUR).unwrap_err();
        assert!(
            matches!(
                error,
                PkiError::InvalidName {
                    what: "node name",
                    ..
                }
            ),
            "{name}: {error}"
        );
    }
    for name in ["a", "pi-3.lab.example", "10"] {
        sign_node_csr(&ca, &request, name, now(), HOUR).unwrap();
    }
}

#[test]
fn renewal_with_the_same_key_gives_another_serial() {
    let ca = ca();
    let (request, _key) = make_csr().unwrap();
    let serial = |pem: &str| look(&ca, pem, |cert| cert.raw_serial().to_vec());
    let first = sign_node_csr(&ca, &request, "a", now(), HOUR).unwrap();
    let second = sign_node_csr(&ca, &request, "a", now(), HOUR).unwrap();
    assert_ne!(serial(&first), serial(&second));
}

#[test]
fn a_long_validity_stops_at_the_last_year_x509_can_write() {
    let ca = ca();
    let issued = issue_client(&ca, "ana", &[], now(), Duration::from_secs(u64::MAX)).unwrap();
    assert_eq!(
        identity_of_pem(&issued.cert_pem)
            .unwrap()
            .not_after
            .as_second(),
        LAST_SECOND
    );
}

#[test]
fn noise_never_panics_the_readers() {
    let ca = ca();
    let issued = issue_client(&ca, "ana", &["ops".to_owned()], now(), HOUR).unwrap();
    let der = pem::certificates(&issued.cert_pem).unwrap().swap_remove(0);
    for at in 0..der.len() {
        for bit in [0x01, 0x80] {
            let mut broken = der.to_vec();
            broken[at] ^= bit;
            let _ = peer_identity(&broken);
        }
        let _ = peer_identity(&der[..at]);
    }
}
