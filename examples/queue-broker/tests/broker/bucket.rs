//! The S3 server of the tests, and the configuration of a broker for it.

use primacy_conformance::live::moto::{BUCKET, Moto};

/// A bucket on a server of its own.
pub(crate) struct Bucket {
    moto: Moto,
}

impl Bucket {
    /// Starts the server; an error names what is missing.
    pub(crate) async fn start() -> Result<Self, String> {
        Ok(Self { moto: Moto::start().await? })
    }

    /// The environment variables of a broker.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.moto.port())),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// The URL of a prefix.
    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }
}
