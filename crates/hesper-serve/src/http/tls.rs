//! TLS, with the feature `tls`. Without the feature, a server with TLS options does not start.

#[cfg(feature = "tls")]
pub(crate) use with_tls::{TlsAcceptor, acceptor};
#[cfg(not(feature = "tls"))]
pub(crate) use without_tls::{TlsAcceptor, acceptor};

#[cfg(feature = "tls")]
mod with_tls {
    use std::sync::Arc;

    pub(crate) use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use crate::http::ServerOptions;

    /// Reads the certificate and the private key.
    pub(crate) fn acceptor(options: &ServerOptions) -> Result<Option<TlsAcceptor>, String> {
        let Some((certificate, key)) = &options.tls else { return Ok(None) };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain = chain
            .map_err(|error| format!("cannot read the certificate {}: {error}", certificate.display()))?;
        if chain.is_empty() {
            return Err(format!("{} has no certificate in PEM format", certificate.display()));
        }
        let key_der = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("cannot read the key {}: {error}", key.display()))?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key_der))
            .map_err(|error| {
                format!("cannot use {} with {}: {error}", certificate.display(), key.display())
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(TlsAcceptor::from(Arc::new(config))))
    }
}

#[cfg(not(feature = "tls"))]
mod without_tls {
    use std::io;

    use tokio::net::TcpStream;

    use crate::http::ServerOptions;

    /// Has no values: there is no TLS.
    #[derive(Clone)]
    pub(crate) enum TlsAcceptor {}

    impl TlsAcceptor {
        /// Never called.
        pub(crate) async fn accept(&self, _stream: TcpStream) -> io::Result<TcpStream> {
            match *self {}
        }
    }

    /// Refuses options with TLS.
    pub(crate) fn acceptor(options: &ServerOptions) -> Result<Option<TlsAcceptor>, String> {
        match &options.tls {
            None => Ok(None),
            Some((certificate, _)) => Err(format!(
                "cannot use {}: this program was built without TLS; build it with the feature tls",
                certificate.display()
            )),
        }
    }
}
