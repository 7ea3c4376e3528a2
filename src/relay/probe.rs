//! Asks the own relay whether it answers, over the network like any other server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, transport};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Asks gRPC health at one address.
#[derive(Debug, Clone)]
pub struct Probe {
    channel: Channel,
    login: Option<MetadataValue<Ascii>>,
}

impl Probe {
    /// Of the relay that listens on `address`, with the cluster secret.
    ///
    /// # Errors
    /// Where the address makes no URL.
    pub fn new(address: SocketAddr, secret: &str) -> Result<Self, transport::Error> {
        let address = SocketAddr::new(reachable(address.ip()), address.port());
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect_lazy();
        Ok(Self { channel, login: format!("Bearer {secret}").parse().ok() })
    }

    /// Asks. The error says what is wrong.
    ///
    /// # Errors
    /// Where it does not answer, or says that it does not serve.
    pub async fn ask(&self) -> Result<(), String> {
        let mut request = Request::new(HealthCheckRequest { service: String::new() });
        if let Some(login) = &self.login {
            request.metadata_mut().insert("authorization", login.clone());
        }
        let answer =
            HealthClient::new(self.channel.clone()).check(request).await.map_err(|status| status.to_string())?;
        match answer.into_inner().status() {
            ServingStatus::Serving => Ok(()),
            other => Err(other.as_str_name().to_owned()),
        }
    }
}

/// An address that listens everywhere is reached at home.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
