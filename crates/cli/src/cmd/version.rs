//! `muster version`.

use clap::Args;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::failure::{Failure, Outcome};
use crate::output::document::{self, FormatArg};
use crate::session::{Server, Session};

/// Whose version.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster version                               this program and the server
  muster version --client                      this program only
  muster version -o json                       for scripts")]
pub(crate) struct VersionArgs {
    /// Ask no server
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    output: FormatArg,
}

impl VersionArgs {
    /// Runs the command. Without a server the client's version is still printed.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let mut versions = json!({"clientVersion": {
            "gitVersion": format!("v{}", env!("CARGO_PKG_VERSION")),
            "kubernetesLevel": muster_model::KUBERNETES_LEVEL,
        }});
        let mut outcome = Ok(());
        if !self.client {
            match session.connect().await {
                Ok(server) => match server_version(&server).await {
                    Ok(version) => versions["serverVersion"] = version,
                    Err(failure) => outcome = Err(failure),
                },
                Err(failure) => outcome = Err(failure),
            }
        }
        let console = &mut session.console;
        match self.output.format {
            Some(format) => document::write(console, format, &versions)?,
            None => console.out.write_all(plain(&versions).as_bytes())?,
        }
        outcome
    }
}

fn plain(versions: &Value) -> String {
    let of = |side: &str| versions[side]["gitVersion"].as_str();
    let mut text = format!(
        "Client Version: {} (Kubernetes {})\n",
        of("clientVersion").unwrap_or_default(),
        muster_model::KUBERNETES_LEVEL
    );
    if let Some(version) = of("serverVersion") {
        text.push_str(&format!("Server Version: {version}\n"));
    }
    text
}

/// The REST API's `/version`, over the connection that gRPC uses: both live on one port.
async fn server_version(server: &Server) -> Outcome<Value> {
    let fault = |why: String| Failure::new(format!("cannot ask the server for its version: {why}"));
    let request = http::Request::get("/version")
        .body(tonic::body::Body::empty())
        .map_err(|error| fault(error.to_string()))?;
    let call = async {
        let channel = server.connection.channel().clone();
        let response = channel
            .oneshot(request)
            .await
            .map_err(|error| fault(error.to_string()))?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| fault(error.to_string()))?
            .to_bytes();
        if !status.is_success() {
            return Err(fault(format!("it answered {status}")));
        }
        serde_json::from_slice(&body).map_err(|_| fault("it does not tell".to_owned()))
    };
    match tokio::time::timeout(server.connection.deadline(), call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(fault("no answer in time".to_owned())),
    }
}
