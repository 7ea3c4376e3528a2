//! The one choice of cryptography for all TLS in this process.

/// Makes `ring` the cryptography of rustls. To be called before the first TLS client or server is made; calling it again
/// does nothing.
pub fn install_provider() {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
