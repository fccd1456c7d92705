//! `primacy serve-local`: the door before a map of one process, for tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;

use crate::exit::{Exit, Failure};
use crate::serve::{Backend, Door, DoorTls, Local, acceptor, read_users};

/// Answer etcd's API from memory, replicated nowhere.
#[derive(Debug, Parser)]
pub(crate) struct ServeLocal {
    /// Where to listen
    #[arg(long, value_name = "ADDR")]
    serve: SocketAddr,
    /// The only ones who are answered: a file with a line `NAME:PASSWORD` for each
    #[arg(long, value_name = "FILE")]
    serve_users: Option<PathBuf>,
    /// The certificate to show clients, in a PEM file
    #[arg(long, value_name = "FILE", requires = "serve_key")]
    serve_certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "serve_certificate")]
    serve_key: Option<PathBuf>,
    /// The authorities whose certificates clients must show
    #[arg(long, value_name = "FILE", requires = "serve_certificate")]
    serve_ca: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) fn serve_local(args: &ServeLocal) -> Result<Exit, Failure> {
    let wrong = |why: String| Failure::new(Exit::Config, why);
    let users = args.serve_users.as_deref().map(read_users).transpose().map_err(wrong)?;
    let tls = match (&args.serve_certificate, &args.serve_key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (certificate.clone(), key.clone());
            let files = DoorTls { certificate, key, ca: args.serve_ca.clone() };
            Some(acceptor(&files).map_err(wrong)?)
        }
        (None, _) | (_, None) => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| wrong(error.to_string()))?;
    runtime.block_on(async {
        let backend = |address| -> Arc<dyn Backend> { Local::start(format!("{scheme}://{address}")) };
        let door = Door::open(args.serve, backend, users, tls).await;
        let door = door.map_err(|error| wrong(format!("{}: {error}", args.serve)))?;
        door.serve().await;
        Ok(Exit::Success)
    })
}
