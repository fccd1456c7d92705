//! An emulator of Azure Blob Storage: Azurite, by Microsoft, an npm package.

use std::net::SocketAddr;
use std::process::Command;

use super::{Ground, Server, free_port, program, run_python};

/// The container that exists.
pub const CONTAINER: &str = "primacy";

/// Azurite's account, with the key from its public documentation.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// Another key of the same form.
const WRONG_KEY: &str =
    "AAAAdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGAA==";

/// Creates the container, by the client library.
const MAKE_CONTAINER: &str = "
import sys
from azure.storage.blob import BlobServiceClient
url, account, key, container = sys.argv[1:]
BlobServiceClient(url, credential={'account_name': account, 'account_key': key}).create_container(container)
";

/// The server, and its directory with the data and credential files.
#[derive(Debug)]
pub struct Azurite {
    ground: Ground,
    port: u16,
    server: Server,
}

impl Azurite {
    /// Starts the server, with a container.
    ///
    /// # Errors
    /// The missing program, for the report.
    pub async fn start() -> Result<Self, String> {
        program("azurite-blob")?;
        // The package of moto contains the Python interpreter with the client library.
        let moto = program("moto_server")?;
        let ground = Ground::new("azurite");
        for (name, key) in [("credentials", KEY), ("wrong", WRONG_KEY)] {
            let text = format!("azure_storage_account_key = {key}\n");
            std::fs::write(ground.at(name), text).map_err(|error| error.to_string())?;
        }
        let port = free_port();
        let server = Self::serve(&ground, port).await;
        let azurite = Self { ground, port, server };
        let python = moto.with_file_name("python3");
        run_python(&python, MAKE_CONTAINER, &[&azurite.endpoint(port), ACCOUNT, KEY, CONTAINER]);
        Ok(azurite)
    }

    async fn serve(ground: &Ground, port: u16) -> Server {
        let mut command = Command::new(program("azurite-blob").expect("it was there at the start"));
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--silent"]);
        command.args(["--skipApiVersionCheck", "--disableTelemetry", "--location"]).arg(ground.at("data"));
        let mut server = Server::start("azurite", command, ground);
        server.until(async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
        server
    }

    fn endpoint(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}/{ACCOUNT}")
    }

    fn url_with(&self, container: &str, credentials: &str, port: u16) -> String {
        let credentials = self.ground.at(credentials);
        let endpoint = self.endpoint(port);
        format!(
            "az://{container}/laws?account={ACCOUNT}&endpoint={endpoint}&credentials={}",
            credentials.display()
        )
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The URL of its container.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(CONTAINER, "credentials", self.port)
    }

    /// The URL with a key that is not the account's.
    #[must_use]
    pub fn url_with_wrong_key(&self) -> String {
        self.url_with(CONTAINER, "wrong", self.port)
    }

    /// The URL of a container that does not exist.
    #[must_use]
    pub fn url_of_missing_container(&self) -> String {
        self.url_with("nobody", "credentials", self.port)
    }

    /// Ends it in order, so that it writes all its data to disk.
    pub async fn stop(&mut self) {
        self.server.stop().await;
    }

    /// Restarts it with its data.
    pub async fn restart(&mut self) {
        self.server = Self::serve(&self.ground, self.port).await;
    }

    /// Its process, for signals.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }
}
