//! Typed get, list, watch, create, update, patch and delete of every kind.

mod types;

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use muster_proto::v1;
use muster_proto::v1::resource_service_client::ResourceServiceClient;

use crate::connection::{Connection, Service};
use crate::error::ClientError;

pub use self::types::{
    DeleteOptions, Deleted, FieldValidation, ListOptions, ObjectList, Page, PatchType, WatchEvent,
    WatchEventType, WriteOptions, Written,
};

/// Items asked for in one page of a list.
const PAGE: u32 = 500;

/// Calls on objects. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Resources {
    client: ResourceServiceClient<Service>,
    connection: Connection,
}

impl Resources {
    pub(crate) fn new(client: ResourceServiceClient<Service>, connection: Connection) -> Self {
        Self { client, connection }
    }

    /// One object. `name.namespace` is empty for cluster-scoped kinds.
    pub async fn get(&self, kind: &Kind, name: &NamespacedName) -> Result<Object, ClientError> {
        let message = v1::GetRequest {
            resource: Some(reference(kind, &name.namespace, &name.name, "")),
        };
        let reply = self
            .client
            .clone()
            .get(self.connection.request(message))
            .await
            .map_err(|s| self.connection.fault(&s))?;
        object(&reply.into_inner().object)
    }

    /// As [`Resources::get`], with `None` instead of the NotFound error.
    pub async fn find(
        &self,
        kind: &Kind,
        name: &NamespacedName,
    ) -> Result<Option<Object>, ClientError> {
        match self.get(kind, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every object that matches, in pages behind the scenes. An empty namespace means all of them.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<ObjectList, ClientError> {
        let mut page = self.list_page(kind, namespace, options, PAGE, "").await?;
        let mut items = std::mem::take(&mut page.items);
        while !page.continue_token.is_empty() {
            page = self
                .list_page(kind, namespace, options, PAGE, &page.continue_token)
                .await?;
            items.append(&mut page.items);
        }
        Ok(ObjectList {
            items,
            resource_version: page.resource_version,
        })
    }

    /// One page of a list; `limit` 0 asks for everything.
    pub async fn list_page(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
        limit: u32,
        continue_token: &str,
    ) -> Result<Page, ClientError> {
        let message = v1::ListRequest {
            resource: Some(reference(kind, namespace, "", "")),
            selection: selection(options),
            limit,
            continue_token: continue_token.to_owned(),
        };
        let reply = self
            .client
            .clone()
            .list(self.connection.request(message))
            .await
            .map_err(|s| self.connection.fault(&s))?
            .into_inner();
        let items = reply
            .items
            .iter()
            .map(|bytes| object(bytes))
            .collect::<Result<_, _>>()?;
        Ok(Page {
            items,
            resource_version: reply.resource_version,
            continue_token: reply.continue_token,
        })
    }

    /// The changes after a revision, in order. Empty: first every object there is, then changes. Ends with an
    /// error when the revision is too old ([`ClientError::is_expired`]) or the connection is lost.
    pub async fn watch(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
        resource_version: &str,
    ) -> Result<Watch, ClientError> {
        let message = v1::WatchRequest {
            resource: Some(reference(kind, namespace, "", "")),
            selection: selection(options),
            resource_version: resource_version.to_owned(),
            bookmarks: true,
        };
        // The deadline is for the stream to open, not for the stream.
        let mut client = self.client.clone();
        let opening = client.watch(message);
        let stream = match tokio::time::timeout(self.connection.deadline(), Box::pin(opening)).await
        {
            Ok(opened) => opened.map_err(|s| self.connection.fault(&s))?.into_inner(),
            Err(_) => {
                return Err(ClientError::TimedOut {
                    after: self.connection.deadline(),
                });
            }
        };
        Ok(Watch {
            stream,
            connection: self.connection.clone(),
        })
    }

    /// Makes an object. Its namespace and name (or generateName) are read from it.
    pub async fn create(
        &self,
        kind: &Kind,
        made: &Object,
        options: &WriteOptions,
    ) -> Result<Written, ClientError> {
        let message = v1::CreateRequest {
            resource: Some(reference(kind, made.namespace(), made.name(), "")),
            object: made.to_bytes().into(),
            options: Some(write_options(options)),
        };
        let reply = self
            .client
            .clone()
            .create(self.connection.request(message))
            .await
            .map_err(|s| self.connection.fault(&s))?;
        written(reply.into_inner())
    }

    /// Replaces an object. A resourceVersion in it must be the stored one.
    pub async fn update(
        &self,
        kind: &Kind,
        changed: &Object,
        options: &WriteOptions,
    ) -> Result<Written, ClientError> {
        self.replace(kind, changed, "", options).await
    }

    /// Replaces an object's status only.
    pub async fn update_status(
        &self,
        kind: &Kind,
        changed: &Object,
        options: &WriteOptions,
    ) -> Result<Written, ClientError> {
        self.replace(kind, changed, "status", options).await
    }

    /// Changes an object by a patch.
    pub async fn patch(
        &self,
        kind: &Kind,
        name: &NamespacedName,
        patch_type: PatchType,
        patch: &[u8],
        options: &WriteOptions,
    ) -> Result<Written, ClientError> {
        let patch_type = match patch_type {
            PatchType::Json => v1::PatchType::Json,
            PatchType::Merge => v1::PatchType::Merge,
            PatchType::Strategic => v1::PatchType::Strategic,
        };
        let message = v1::PatchRequest {
            resource: Some(reference(kind, &name.namespace, &name.name, "")),
            r#type: patch_type.into(),
            patch: patch.to_vec().into(),
            options: Some(write_options(options)),
        };
        let reply = self
            .client
            .clone()
            .patch(self.connection.request(message))
            .await
            .map_err(|s| self.connection.fault(&s))?;
        written(reply.into_inner())
    }

    /// Deletes an object, or marks it as to be deleted.
    pub async fn delete(
        &self,
        kind: &Kind,
        name: &NamespacedName,
        options: &DeleteOptions,
    ) -> Result<Deleted, ClientError> {
        let message = v1::DeleteRequest {
            resource: Some(reference(kind, &name.namespace, &name.name, "")),
            propagation_policy: options.propagation_policy.clone(),
            grace_period_seconds: options.grace_period_seconds,
            precondition_uid: options.uid.clone(),
            precondition_resource_version: options.resource_version.clone(),
            dry_run: options.dry_run,
        };
        let reply = self
            .client
            .clone()
            .delete(self.connection.request(message))
            .await
            .map_err(|s| self.connection.fault(&s))?
            .into_inner();
        let object = if reply.object.is_empty() {
            None
        } else {
            Some(object(&reply.object)?)
        };
        Ok(Deleted {
            gone: reply.gone,
            object,
        })
    }

    async fn replace(
        &self,
        kind: &Kind,
        changed: &Object,
        subresource: &str,
        options: &WriteOptions,
    ) -> Result<Written, ClientError> {
        let message = v1::UpdateRequest {
            resource: Some(reference(
                kind,
                changed.namespace(),
                changed.name(),
                subresource,
            )),
            object: changed.to_bytes().into(),
            options: Some(write_options(options)),
        };
        let reply = self
            .client
            .clone()
            .update(self.connection.request(message))
            .await
            .map_err(|s| self.connection.fault(&s))?;
        written(reply.into_inner())
    }
}

/// The events of a watch. After an error it ends.
pub struct Watch {
    stream: tonic::Streaming<v1::WatchEvent>,
    connection: Connection,
}

impl Stream for Watch {
    type Item = Result<WatchEvent, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let next = match Pin::new(&mut self.stream).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => next,
            };
            return Poll::Ready(match next {
                None => None,
                Some(Err(status)) => Some(Err(self.connection.fault(&status))),
                Some(Ok(message)) => match event(message) {
                    // A type of a newer server's: not ours to judge.
                    Ok(None) => continue,
                    Ok(Some(event)) => Some(Ok(event)),
                    Err(error) => Some(Err(error)),
                },
            });
        }
    }
}

fn event(message: v1::WatchEvent) -> Result<Option<WatchEvent>, ClientError> {
    use v1::watch_event::Type;
    let resource_version = message.resource_version.clone();
    let kind = match message.r#type() {
        Type::Bookmark => return Ok(Some(WatchEvent::Bookmark { resource_version })),
        Type::Added => WatchEventType::Added,
        Type::Modified => WatchEventType::Modified,
        Type::Deleted => WatchEventType::Deleted,
        Type::Unspecified => return Ok(None),
    };
    Ok(Some(WatchEvent::Object {
        kind,
        object: object(&message.object)?,
        resource_version,
    }))
}

fn reference(kind: &Kind, namespace: &str, name: &str, subresource: &str) -> v1::ResourceRef {
    v1::ResourceRef {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        resource: kind.plural.to_owned(),
        namespace: if kind.namespaced {
            namespace.to_owned()
        } else {
            String::new()
        },
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    }
}

fn selection(options: &ListOptions) -> Option<v1::Selection> {
    (*options != ListOptions::default()).then(|| v1::Selection {
        label_selector: options.label_selector.clone(),
        field_selector: options.field_selector.clone(),
    })
}

fn write_options(options: &WriteOptions) -> v1::WriteOptions {
    let field_validation = match options.field_validation {
        FieldValidation::Ignore => v1::FieldValidation::Ignore,
        FieldValidation::Warn => v1::FieldValidation::Warn,
        FieldValidation::Strict => v1::FieldValidation::Strict,
    };
    v1::WriteOptions {
        dry_run: options.dry_run,
        field_manager: options.field_manager.clone(),
        field_validation: field_validation.into(),
    }
}

fn object(bytes: &[u8]) -> Result<Object, ClientError> {
    Object::from_bytes(bytes).map_err(|error| ClientError::Malformed(error.to_string()))
}

fn written(reply: v1::ObjectReply) -> Result<Written, ClientError> {
    Ok(Written {
        object: object(&reply.object)?,
        warnings: reply.warnings,
    })
}
