//! `ResourceService`: every kind of object, one service.

use futures::StreamExt;
use futures::stream::BoxStream;
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use muster_proto::v1;
use muster_proto::v1::resource_service_server::ResourceService;
use muster_store::Revision;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{answer, caller, kind_of};
use crate::admit::{self, FieldValidation};
use crate::auth::{Ask, Caller, Verb, authorize};
use crate::metrics::Metrics;
use crate::registry::{
    DeleteOptions, ListQuery, PatchForm, Precondition, Propagation, Registry, Selection, WatchItem,
    WatchQuery, WriteOptions, Written,
};
use crate::status::ApiError;

/// The service.
pub struct Resources {
    registry: Registry,
    metrics: Metrics,
    stop: CancellationToken,
}

/// A reference that was looked at: what, where, which part.
struct Target {
    kind: &'static Kind,
    key: NamespacedName,
    status: bool,
}

impl Resources {
    /// Over a registry. Open watches end when `stop` is cancelled.
    pub fn new(registry: Registry, metrics: Metrics, stop: CancellationToken) -> Self {
        Self {
            registry,
            metrics,
            stop,
        }
    }

    fn authorize(&self, caller: &Caller, verb: Verb, target: &Target) -> Result<(), ApiError> {
        let ask = Ask::object(verb, target.kind, &target.key.namespace, &target.key.name)
            .of(if target.status { "status" } else { "" });
        authorize(caller, &ask, self.registry.cache())
    }

    fn authorize_many(
        &self,
        caller: &Caller,
        verb: Verb,
        target: &Target,
        selection: &Selection,
    ) -> Result<(), ApiError> {
        let name = selection
            .required_field("metadata.name")
            .unwrap_or_default();
        let node = selection
            .required_field("spec.nodeName")
            .unwrap_or_default();
        let ask = Ask {
            node,
            ..Ask::object(verb, target.kind, &target.key.namespace, name)
        };
        authorize(caller, &ask, self.registry.cache())
    }

    fn get_one(
        &self,
        caller: &Caller,
        request: &v1::GetRequest,
    ) -> Result<v1::ObjectReply, ApiError> {
        let target = target(request.resource.as_ref())?;
        self.authorize(caller, Verb::Get, &target)?;
        let stored = self.registry.get(caller, target.kind, &target.key)?;
        Ok(v1::ObjectReply {
            object: stored.bytes.clone(),
            warnings: Vec::new(),
        })
    }

    fn list_page(
        &self,
        caller: &Caller,
        request: v1::ListRequest,
    ) -> Result<v1::ListReply, ApiError> {
        let target = target(request.resource.as_ref())?;
        let selection = selection(target.kind, request.selection.as_ref())?;
        self.authorize_many(caller, Verb::List, &target, &selection)?;
        let query = ListQuery {
            namespace: some(&target.key.namespace),
            selection,
            limit: request.limit as usize,
            continue_token: request.continue_token,
        };
        let page = self.registry.list(caller, target.kind, &query)?;
        Ok(v1::ListReply {
            items: page
                .items
                .iter()
                .map(|stored| stored.bytes.clone())
                .collect(),
            resource_version: page.revision.to_string(),
            continue_token: page.continue_token,
        })
    }

    async fn create_one(
        &self,
        caller: &Caller,
        request: v1::CreateRequest,
    ) -> Result<v1::ObjectReply, ApiError> {
        let mut target = target(request.resource.as_ref())?;
        if target.status {
            return Err(ApiError::method_not_allowed());
        }
        let (options, validation) = write_options(request.options.as_ref());
        // Before the object is read: a stranger learns nothing from its faults. A create has no name yet.
        let ask = Ask::object(Verb::Create, target.kind, &target.key.namespace, "");
        authorize(caller, &ask, self.registry.cache())?;
        let (mut object, warnings) = admit::decode(target.kind, &request.object, validation)?;
        place(&mut object, &mut target)?;
        let written = self
            .registry
            .create(caller, target.kind, object, &options)
            .await?;
        Ok(reply(written, warnings))
    }

    async fn update_one(
        &self,
        caller: &Caller,
        request: v1::UpdateRequest,
    ) -> Result<v1::ObjectReply, ApiError> {
        let mut target = target(request.resource.as_ref())?;
        let (options, validation) = write_options(request.options.as_ref());
        self.authorize(caller, Verb::Update, &target)?;
        let (mut object, warnings) = admit::decode(target.kind, &request.object, validation)?;
        let asked = target.key.clone();
        place(&mut object, &mut target)?;
        if target.key != asked {
            // What the body added to the reference was not judged yet.
            self.authorize(caller, Verb::Update, &target)?;
        }
        let written = if target.status {
            self.registry
                .update_status(caller, target.kind, object, &options)
                .await?
        } else {
            self.registry
                .update(caller, target.kind, object, &options)
                .await?
        };
        Ok(reply(written, warnings))
    }

    async fn patch_one(
        &self,
        caller: &Caller,
        request: v1::PatchRequest,
    ) -> Result<v1::ObjectReply, ApiError> {
        let target = target(request.resource.as_ref())?;
        let form = match request.r#type() {
            v1::PatchType::Json => PatchForm::Json,
            v1::PatchType::Merge => PatchForm::Merge,
            v1::PatchType::Strategic => PatchForm::Strategic,
            v1::PatchType::Unspecified => {
                return Err(ApiError::bad_request(
                    "the patch's type is missing: JSON, MERGE or STRATEGIC",
                ));
            }
        };
        let (options, _) = write_options(request.options.as_ref());
        self.authorize(caller, Verb::Patch, &target)?;
        let patch = request.patch;
        let key = target.key.clone();
        let written = self
            .registry
            .patch(
                caller,
                target.kind,
                key,
                (form, patch),
                target.status,
                &options,
            )
            .await?;
        Ok(reply(written, Vec::new()))
    }

    async fn delete_one(
        &self,
        caller: &Caller,
        request: v1::DeleteRequest,
    ) -> Result<v1::DeleteReply, ApiError> {
        let target = target(request.resource.as_ref())?;
        if target.status {
            return Err(ApiError::method_not_allowed());
        }
        self.authorize(caller, Verb::Delete, &target)?;
        let propagation = match request.propagation_policy.as_str() {
            "" => None,
            text => Some(Propagation::parse(text).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "propagationPolicy: Unsupported value: \"{text}\": supported values: \"Background\", \
                     \"Foreground\", \"Orphan\""
                ))
            })?),
        };
        let revision = some(&request.precondition_resource_version)
            .map(|text| parse_revision(&text))
            .transpose()?;
        let options = DeleteOptions {
            propagation,
            grace_seconds: request.grace_period_seconds,
            precondition: Precondition {
                uid: some(&request.precondition_uid),
                revision,
            },
            dry_run: request.dry_run,
        };
        let written = self
            .registry
            .delete(caller, target.kind, target.key, options)
            .await?;
        Ok(v1::DeleteReply {
            gone: written.gone,
            object: written.stored.bytes.clone(),
        })
    }

    async fn open_watch(
        &self,
        caller: &Caller,
        request: v1::WatchRequest,
    ) -> Result<BoxStream<'static, Result<v1::WatchEvent, Status>>, ApiError> {
        let target = target(request.resource.as_ref())?;
        let selection = selection(target.kind, request.selection.as_ref())?;
        self.authorize_many(caller, Verb::Watch, &target, &selection)?;
        let after = some(&request.resource_version)
            .map(|text| parse_revision(&text))
            .transpose()?;
        let query = WatchQuery {
            namespace: some(&target.key.namespace),
            selection,
            after: after.filter(|revision| revision.0 != 0),
            bookmarks: request.bookmarks,
        };
        let items = self.registry.watch(caller, target.kind, query).await?;
        let counted = self.metrics.watcher(target.kind);
        let stopped = self.stop.clone().cancelled_owned();
        let events = items.take_until(stopped).map(move |item| {
            let _ = &counted;
            item.map(event).map_err(Status::from)
        });
        Ok(events.boxed())
    }
}

fn reply(written: Written, mut warnings: Vec<String>) -> v1::ObjectReply {
    warnings.extend(written.warnings);
    v1::ObjectReply {
        object: written.stored.bytes.clone(),
        warnings,
    }
}

fn event(item: WatchItem) -> v1::WatchEvent {
    use v1::watch_event::Type;
    let resource_version = item.revision().to_string();
    let (kind, object) = match item {
        WatchItem::Added(stored) => (Type::Added, stored.bytes.clone()),
        WatchItem::Modified(stored) => (Type::Modified, stored.bytes.clone()),
        WatchItem::Deleted(stored) => (Type::Deleted, stored.bytes.clone()),
        WatchItem::Bookmark(_) => (Type::Bookmark, bytes::Bytes::new()),
    };
    v1::WatchEvent {
        r#type: kind.into(),
        object,
        resource_version,
    }
}

fn target(reference: Option<&v1::ResourceRef>) -> Result<Target, ApiError> {
    let kind = kind_of(reference)?;
    let reference = reference.ok_or_else(ApiError::unknown_resource)?;
    let status = match reference.subresource.as_str() {
        "" => false,
        "status" if kind.has_status => true,
        _ => return Err(ApiError::unknown_resource()),
    };
    let namespace = if kind.namespaced {
        reference.namespace.clone()
    } else {
        String::new()
    };
    Ok(Target {
        kind,
        key: NamespacedName::new(namespace, reference.name.clone()),
        status,
    })
}

fn selection(
    kind: &'static Kind,
    selection: Option<&v1::Selection>,
) -> Result<Selection, ApiError> {
    let Some(selection) = selection else {
        return Ok(Selection::everything());
    };
    Selection::parse(kind, &selection.label_selector, &selection.field_selector)
}

fn write_options(options: Option<&v1::WriteOptions>) -> (WriteOptions, FieldValidation) {
    let validation = match options.map(v1::WriteOptions::field_validation) {
        Some(v1::FieldValidation::Ignore) => FieldValidation::Ignore,
        Some(v1::FieldValidation::Strict) => FieldValidation::Strict,
        _ => FieldValidation::Warn,
    };
    let dry_run = options.is_some_and(|options| options.dry_run);
    (
        WriteOptions {
            dry_run,
            field_validation: validation,
        },
        validation,
    )
}

/// The object's own name and namespace and those of the request must agree; what one leaves out, the other says.
fn place(object: &mut Object, target: &mut Target) -> Result<(), ApiError> {
    if target.key.name.is_empty() {
        target.key.name = object.name().to_owned();
    } else if object.name().is_empty() {
        object
            .metadata_mut()
            .insert("name".into(), target.key.name.clone().into());
    } else if object.name() != target.key.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            target.key.name
        )));
    }
    if !target.kind.namespaced {
        object.metadata_mut().remove("namespace");
        return Ok(());
    }
    if target.key.namespace.is_empty() {
        target.key.namespace = object.namespace().to_owned();
    } else if object.namespace().is_empty() {
        object
            .metadata_mut()
            .insert("namespace".into(), target.key.namespace.clone().into());
    } else if object.namespace() != target.key.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn parse_revision(text: &str) -> Result<Revision, ApiError> {
    text.parse().map(Revision).map_err(|_| {
        ApiError::bad_request(format!(
            "resourceVersion: Invalid value: \"{text}\": must be a number as the server gave it"
        ))
    })
}

#[tonic::async_trait]
impl ResourceService for Resources {
    type WatchStream = BoxStream<'static, Result<v1::WatchEvent, Status>>;

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        answer(
            &self.metrics,
            "GET",
            kind,
            since,
            self.get_one(&caller, &request),
        )
        .map(Response::new)
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListReply>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        answer(
            &self.metrics,
            "LIST",
            kind,
            since,
            self.list_page(&caller, request),
        )
        .map(Response::new)
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        let stream = self.open_watch(&caller, request).await;
        answer(&self.metrics, "WATCH", kind, since, stream).map(Response::new)
    }

    async fn create(
        &self,
        request: Request<v1::CreateRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        let reply = self.create_one(&caller, request).await;
        answer(&self.metrics, "POST", kind, since, reply).map(Response::new)
    }

    async fn update(
        &self,
        request: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        let reply = self.update_one(&caller, request).await;
        answer(&self.metrics, "PUT", kind, since, reply).map(Response::new)
    }

    async fn patch(
        &self,
        request: Request<v1::PatchRequest>,
    ) -> Result<Response<v1::ObjectReply>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        let reply = self.patch_one(&caller, request).await;
        answer(&self.metrics, "PATCH", kind, since, reply).map(Response::new)
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteReply>, Status> {
        let (since, caller, request) = (Instant::now(), caller(&request), request.into_inner());
        let kind = kind_of(request.resource.as_ref()).ok();
        let reply = self.delete_one(&caller, request).await;
        answer(&self.metrics, "DELETE", kind, since, reply).map(Response::new)
    }
}
