//! A broker of a job queue in a single object, in the format of osqueue. The broker leads that object, so its writes are
//! fenced by their own compare-and-set.
//!
//! ```sh
//! queue-broker --store file:/tmp/queue --listen 127.0.0.1:8080 &
//! queue-broker --store file:/tmp/queue --listen 127.0.0.1:8081 &    # Stands by, and says who leads.
//! curl -d '{"payload":{"to":"a@example.org"}}' -H 'Content-Type: application/json' http://127.0.0.1:8080/v1/jobs
//! ```

mod broker;
mod http;
mod place;
mod queue;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::broker::{Broker, Timers};

/// Serve a job queue that is kept in one object.
///
/// Any number of brokers may be started on one object. One of them leads; the
/// others say who does, and one takes over when it is gone.
#[derive(Debug, Parser)]
#[command(name = "queue-broker", version, verbatim_doc_comment)]
struct Args {
    /// Where the queue is kept: file:DIRECTORY, or s3://BUCKET/PREFIX with AWS_* in the environment
    #[arg(long, value_name = "URL")]
    store: String,

    /// The address to listen on
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,

    /// Where clients reach this broker, if not at the address that it listens on
    #[arg(long, value_name = "ADDR")]
    advertise: Option<String>,

    /// After how many milliseconds without a write a leader is taken to be gone
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    timeout: u64,

    /// Milliseconds between two looks of a broker that does not lead
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    retry: u64,

    /// After how many milliseconds without a heartbeat a job is given to another worker
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    job_timeout: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // The library leaves the choice of a crypto provider to the application.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served =
        runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(serve(&args)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("queue-broker: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: &Args) -> Result<(), String> {
    let listener = tokio::net::TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|error| format!("--listen {}: {error}", args.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let advertised = args.advertise.clone().unwrap_or_else(|| address.to_string());
    let document = place::open(&args.store).await?;
    let timers = Timers {
        timeout: Duration::from_millis(args.timeout),
        retry: Duration::from_millis(args.retry),
        job_timeout: Duration::from_millis(args.job_timeout),
    };
    let broker = Broker::new(document, advertised, timers).map_err(|error| error.to_string())?;
    eprintln!("queue-broker: listens on {address}");
    let serving = axum::serve(listener, http::routes(broker.clone()));
    let leading = broker.clone();
    tokio::select! {
        error = leading.lead_and_stand_by() => Err(error),
        served = async { serving.await } => served.map_err(|error| error.to_string()),
        () = asked_to_end() => {
            // Accepted changes are written, and then another broker leads at once.
            broker.resign().await;
            Ok(())
        }
    }
}

async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
