use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use muster_model::object::Object;
use serde_json::{Value, json};

use super::*;
use crate::objects::Lookup;
use crate::testing::{pod_from, pod_with};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_769_853_600 + second).unwrap()
}

fn objects(list: &[(Needed, Value)]) -> ObjectSet {
    let found = |(needed, tree): &(Needed, Value)| {
        (
            needed.clone(),
            Lookup::Found(Arc::new(Object::from_value(tree.clone()).unwrap())),
        )
    };
    ObjectSet(list.iter().map(found).collect())
}

fn with_volume(volume: Value, more: Value) -> PodFacts {
    let mut volume = volume;
    volume["name"] = json!("v");
    let mut spec = json!({"containers": [{"name": "c"}], "volumes": [volume]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    pod_with("p", spec)
}

fn set_up_at(
    dir: &Path,
    pod: &PodFacts,
    objects: &ObjectSet,
    now: Timestamp,
) -> Result<PathBuf, String> {
    let setting = Setting {
        directory: dir,
        objects,
        pod_ip: "172.17.0.2",
        secrets_on_disk: true,
        now,
    };
    let (places, errors) = set_up(pod, &setting);
    match errors.first() {
        Some(error) => Err(error.to_string()),
        None => Ok(places["v"].clone()),
    }
}

fn host_path(path: &Path, type_: &str) -> Result<PathBuf, String> {
    let dir = tempfile::tempdir().unwrap();
    let pod = with_volume(
        json!({"hostPath": {"path": path, "type": type_}}),
        json!({}),
    );
    set_up_at(dir.path(), &pod, &ObjectSet::default(), at(0))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn failure(path: &Path, what: &str) -> String {
    format!(
        "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} is not a {what}",
        path.display()
    )
}

#[test]
fn na_051_case_b59_directory_or_create_makes_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/c");
    assert_eq!(
        host_path(&path, "Directory"),
        Err(failure(&path, "directory"))
    );
    assert_eq!(host_path(&path, "DirectoryOrCreate"), Ok(path.clone()));
    assert_eq!(mode(&path), 0o755);
    assert_eq!(host_path(&path, "Directory"), Ok(path));
}

#[test]
fn na_052_case_b57_file_or_create_makes_an_empty_file_and_no_parent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f1");
    assert_eq!(host_path(&path, "File"), Err(failure(&path, "file")));
    assert_eq!(host_path(&path, "FileOrCreate"), Ok(path.clone()));
    assert!(path.is_file());
    assert_eq!(mode(&path), 0o644);
    assert_eq!(
        host_path(dir.path(), "File"),
        Err(failure(dir.path(), "file"))
    );
    let orphan = dir.path().join("no/f");
    assert!(
        host_path(&orphan, "FileOrCreate")
            .unwrap_err()
            .contains("cannot create file")
    );
    assert!(!dir.path().join("no").exists());
}

#[test]
fn na_053_sockets_and_devices_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(host_path(&socket, "Socket"), Ok(socket.clone()));
    let file = dir.path().join("f");
    fs::write(&file, "").unwrap();
    assert_eq!(
        host_path(&file, "Socket"),
        Err(failure(&file, "socket file"))
    );
    assert!(host_path(Path::new("/dev/null"), "CharDevice").is_ok());
    let null = Path::new("/dev/null");
    assert_eq!(
        host_path(null, "BlockDevice"),
        Err(failure(null, "block device"))
    );
    assert_eq!(
        host_path(&file, "CharDevice"),
        Err(failure(&file, "character device"))
    );
}

#[test]
fn case_b61_a_missing_path_without_a_type_becomes_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    assert_eq!(host_path(&path, ""), Ok(path.clone()));
    assert!(path.is_dir());
    assert_eq!(mode(&path), 0o755);
    let up = dir.path().join("../x");
    assert!(
        host_path(&up, "")
            .unwrap_err()
            .contains("must not contain '..'")
    );
}

#[test]
fn na_054_an_empty_directory_is_open_to_all_and_keeps_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let pod = with_volume(json!({"emptyDir": {}}), json!({}));
    let place = set_up_at(dir.path(), &pod, &ObjectSet::default(), at(0)).unwrap();
    assert_eq!(place, dir.path().join("volumes/kubernetes.io~empty-dir/v"));
    assert_eq!(mode(&place), 0o777);
    fs::write(place.join("x"), "kept").unwrap();
    set_up_at(dir.path(), &pod, &ObjectSet::default(), at(1)).unwrap();
    assert_eq!(fs::read_to_string(place.join("x")).unwrap(), "kept");
    tear_down(dir.path()).unwrap();
    assert!(!dir.path().exists());
}

#[test]
fn na_040_a_group_of_its_own_may_write() {
    let dir = tempfile::tempdir().unwrap();
    let group = rustix::process::getgid().as_raw();
    let pod = with_volume(
        json!({"emptyDir": {}}),
        json!({"securityContext": {"fsGroup": group}}),
    );
    let place = set_up_at(dir.path(), &pod, &ObjectSet::default(), at(0)).unwrap();
    let metadata = fs::metadata(&place).unwrap();
    assert_eq!((metadata.gid(), metadata.mode() & 0o2070), (group, 0o2070));
}

fn map(a: &str, b: &str) -> ObjectSet {
    objects(&[(
        Needed::config_map("m"),
        json!({"kind": "ConfigMap", "data": {"a": a, "b": b}}),
    )])
}

#[test]
fn na_057_mounted_keys_change_together_and_equal_content_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pod = with_volume(json!({"configMap": {"name": "m"}}), json!({}));
    let place = set_up_at(dir.path(), &pod, &map("1", "1"), at(0)).unwrap();
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert_eq!((read("a"), read("b")), ("1".into(), "1".into()));
    assert_eq!(
        fs::read_link(place.join("a")).unwrap(),
        Path::new("..data/a")
    );
    assert_eq!(mode(&place.join("a")), 0o644);
    let version = fs::read_link(place.join("..data")).unwrap();
    assert!(
        version
            .to_string_lossy()
            .starts_with("..2026_01_31_10_00_00.")
    );
    // A container that opened the directory of a version reads that version to the end.
    let held = fs::File::open(place.join("..data/a")).unwrap();
    set_up_at(dir.path(), &pod, &map("1", "1"), at(5)).unwrap();
    assert_eq!(fs::read_link(place.join("..data")).unwrap(), version);
    set_up_at(dir.path(), &pod, &map("2", "2"), at(9)).unwrap();
    assert_eq!((read("a"), read("b")), ("2".into(), "2".into()));
    assert_eq!(std::io::read_to_string(held).unwrap(), "1");
    assert!(!place.join(&version).exists());
    let gone = objects(&[(Needed::config_map("m"), json!({"data": {"a": "3"}}))]);
    set_up_at(dir.path(), &pod, &gone, at(10)).unwrap();
    assert!(fs::symlink_metadata(place.join("b")).is_err());
}

#[test]
fn na_058_a_selected_key_must_be_there_unless_optional() {
    let dir = tempfile::tempdir().unwrap();
    let volume = |optional: bool| json!({"configMap": {"name": "m", "optional": optional, "items": [{"key": "nope", "path": "x"}]}});
    let strict = with_volume(volume(false), json!({}));
    assert_eq!(
        set_up_at(dir.path(), &strict, &map("1", "1"), at(0)),
        Err(
            "MountVolume.SetUp failed for volume \"v\" : references non-existent config key: nope"
                .into()
        )
    );
    let lax = with_volume(volume(true), json!({}));
    let place = set_up_at(dir.path(), &lax, &map("1", "1"), at(0)).unwrap();
    assert!(!place.join("x").exists());
    let missing = with_volume(
        json!({"configMap": {"name": "x", "optional": true}}),
        json!({}),
    );
    assert!(set_up_at(dir.path(), &missing, &ObjectSet::default(), at(1)).is_ok());
}

#[test]
fn na_059_secrets_have_their_mode_and_a_group_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let secret = objects(&[(
        Needed::secret("x"),
        json!({"kind": "Secret", "data": {"k": "dg=="}}),
    )]);
    let volume = json!({"secret": {"secretName": "x", "defaultMode": 0o400}});
    let pod = with_volume(volume.clone(), json!({}));
    assert_eq!(
        set_up_at(dir.path(), &pod, &ObjectSet::default(), at(0)),
        Err("MountVolume.SetUp failed for volume \"v\" : secret \"x\" not found".into())
    );
    let place = set_up_at(dir.path(), &pod, &secret, at(0)).unwrap();
    assert_eq!(mode(&place.join("k")), 0o400);
    assert_eq!(fs::read_to_string(place.join("k")).unwrap(), "v");
    let group = rustix::process::getgid().as_raw();
    let grouped = with_volume(volume, json!({"securityContext": {"fsGroup": group}}));
    let place = set_up_at(dir.path(), &grouped, &secret, at(1)).unwrap();
    assert_eq!(mode(&place.join("k")), 0o440);
}

#[test]
fn na_060_downward_and_projected_volumes_show_every_path() {
    let dir = tempfile::tempdir().unwrap();
    let labels =
        json!({"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]});
    let projected = json!({"sources": [
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "map/a"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": labels}]});
    let pod = |app: &str| {
        pod_from(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": app, "z": "a\"b"}},
            "spec": {"containers": [], "volumes": [{"name": "v", "projected": projected}]}}))
    };
    let set = objects(&[
        (Needed::config_map("m"), json!({"data": {"a": "1"}})),
        (
            Needed::secret("s"),
            json!({"kind": "Secret", "data": {"k": "dg=="}}),
        ),
    ]);
    assert_eq!(
        needed(&pod("web")),
        BTreeSet::from([Needed::config_map("m"), Needed::secret("s")])
    );
    let place = set_up_at(dir.path(), &pod("web"), &set, at(0)).unwrap();
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert_eq!((read("map/a"), read("k")), ("1".into(), "v".into()));
    assert_eq!(read("labels"), "app=\"web\"\nz=\"a\\\"b\"");
    set_up_at(dir.path(), &pod("db"), &set, at(1)).unwrap();
    assert_eq!(read("labels"), "app=\"db\"\nz=\"a\\\"b\"");
}

#[test]
fn na_061_a_sub_path_is_made_and_never_leaves_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    let pod = with_volume(json!({"emptyDir": {}}), json!({}));
    let place = set_up_at(dir.path(), &pod, &ObjectSet::default(), at(0)).unwrap();
    let made = sub_path::resolve(&place, "a/b").unwrap();
    assert_eq!(made, place.join("a/b"));
    assert_eq!(mode(&made), 0o777);
    std::os::unix::fs::symlink("/etc", place.join("evil")).unwrap();
    assert!(matches!(
        sub_path::resolve(&place, "evil"),
        Err(SubPathError::Link(_))
    ));
    assert!(matches!(
        sub_path::resolve(&place, "evil/passwd"),
        Err(SubPathError::Link(_))
    ));
    assert!(matches!(
        sub_path::resolve(&place, "../x"),
        Err(SubPathError::NotBelow(_))
    ));
    let mapped = with_volume(json!({"configMap": {"name": "m"}}), json!({}));
    let place = set_up_at(dir.path(), &mapped, &map("1", "1"), at(0)).unwrap();
    let key = sub_path::resolve(&place, "a").unwrap();
    assert_eq!(fs::read_to_string(key).unwrap(), "1");
}

#[test]
fn mounts_say_where_how_and_with_what_propagation() {
    let places = Places::from([("v".to_owned(), PathBuf::from("/host/v"))]);
    let mounted = |mount: Value| {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "volumeMounts": [mount]})).unwrap();
        mounts(&container, &[], &places)
    };
    let all = mounted(
        json!({"name": "v", "mountPath": "data", "readOnly": true, "mountPropagation": "Bidirectional"}),
    );
    let wanted = Mount {
        source: "/host/v".into(),
        target: "/data".into(),
        read_only: true,
        propagation: "rshared",
    };
    assert_eq!(all, Ok(vec![wanted]));
    assert!(mounted(json!({"name": "x", "mountPath": "/y"})).is_err());
    let expression = json!({"name": "v", "mountPath": "/y", "subPathExpr": "$(NOPE)"});
    assert_eq!(
        mounted(expression),
        Err("missing value for \"NOPE\" in subPathExpr \"$(NOPE)\"".into())
    );
}
