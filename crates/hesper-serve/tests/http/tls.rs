//! Connections over TLS.

use std::io::{Read, Write};
use std::sync::Arc;

use hesper_serve::http::{Server, ServerOptions};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use crate::client::{Answer, Running};

#[test]
fn connections_are_encrypted_with_the_given_certificate() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http");
    let (certificate, key) = (folder.join("localhost.pem"), folder.join("localhost.key"));
    let server = Running::start(ServerOptions {
        tls: Some((certificate.clone(), key.clone())),
        ..ServerOptions::default()
    });
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert_eq!(Answer::parse(&text).status, 200, "{text}");
    assert!(!server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("200"));

    let bind = |tls| match Server::bind(ServerOptions { tls: Some(tls), ..ServerOptions::default() }) {
        Ok(_) => panic!("the files were accepted"),
        Err(message) => message,
    };
    assert!(bind(("/nowhere/c.pem".into(), key.clone())).contains("/nowhere/c.pem"));
    assert!(bind((key.clone(), key.clone())).contains("localhost.key"));
    assert!(bind((certificate.clone(), certificate)).contains("localhost.pem"));
}
