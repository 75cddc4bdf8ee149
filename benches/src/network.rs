//! The network between clients and servers: the loopback interface, with or without a delay.

use std::{
    fmt,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rlock_testkit::{RedisServer, Worker};
use serde::Serialize;

use crate::{
    statistics::median,
    worker::{self, Role},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Network {
    /// The loopback interface.
    Direct,
    /// A proxy that adds half a millisecond to each round trip.
    Delayed,
}

/// The additional time of a round trip.
const DELAY: Duration = Duration::from_micros(500);

/// The number of `PING`s in a measurement, with and without the delay.
const PINGS: usize = 100;

/// The number of corrections of the delay after a measurement.
const ADJUSTMENTS: usize = 3;

impl Network {
    pub(crate) const ALL: [Self; 2] = [Self::Direct, Self::Delayed];

    /// Opens a route to servers.
    pub(crate) async fn reach(
        self,
        servers: impl IntoIterator<Item = &RedisServer>,
    ) -> Result<Route> {
        let servers = servers.into_iter();
        let addresses: Vec<String> = servers.map(RedisServer::address).collect();
        let delay = match self {
            Self::Direct => None,
            Self::Delayed => Some(Delay::start(&addresses).await?),
        };
        Ok(Route { addresses, delay })
    }
}

/// Formats the network for the title of a scenario.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "",
            Self::Delayed => ", behind 0.5 ms of delay",
        })
    }
}

/// A route from clients to servers. Dropping it ends the delay.
pub(crate) struct Route {
    /// The addresses of the servers.
    addresses: Vec<String>,
    delay: Option<Delay>,
}

impl Route {
    /// Returns the address where clients connect to the server with this number.
    pub(crate) fn address(&self, server: usize) -> String {
        match &self.delay {
            None => self.addresses[server].clone(),
            Some(delay) => format!("127.0.0.1:{}", delay.ports[server]),
        }
    }

    /// Returns the URL of the first server.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address(0))
    }

    /// Returns the URLs of all servers.
    pub(crate) fn urls(&self) -> Vec<String> {
        let all = 0..self.addresses.len();
        all.map(|server| format!("redis://{}/", self.address(server)))
            .collect()
    }

    /// Measures the delay of a round trip to the first server in milliseconds, by `PING`. Returns
    /// `None` for a route without a delay.
    pub(crate) fn added(&self) -> Result<Option<f64>> {
        let Some(delay) = &self.delay else {
            return Ok(None);
        };
        let added = added(&self.addresses[0], delay.ports[0])?;
        Ok(Some(added * 1e3))
    }
}

/// The process of the delaying proxies, with one for each server.
struct Delay {
    _proxy: Worker,
    ports: Vec<u16>,
}

impl Delay {
    /// Starts the proxies, and sets a delay so that a round trip takes [`DELAY`] longer. The cost
    /// of the proxies themselves, mostly their wake-ups, counts as delay.
    async fn start(addresses: &[String]) -> Result<Self> {
        let mut proxy = worker::spawn(&Role::Delay {
            addresses: addresses.to_owned(),
        })?;
        let ports: Vec<u16> = worker::answer(&mut proxy).await?;
        let mut one_way = DELAY.as_secs_f64() / 2.0;
        for _ in 0..ADJUSTMENTS {
            set(&mut proxy, one_way).await?;
            let excess = added(&addresses[0], ports[0])? - DELAY.as_secs_f64();
            one_way = (one_way - excess / 2.0).max(0.0);
        }
        set(&mut proxy, one_way).await?;
        Ok(Self {
            _proxy: proxy,
            ports,
        })
    }
}

/// Sets the delay of one direction in seconds.
async fn set(proxy: &mut Worker, one_way: f64) -> Result<()> {
    proxy.send(&Duration::from_secs_f64(one_way).as_nanos().to_string());
    let _: bool = worker::answer(proxy).await?;
    Ok(())
}

/// Returns how many seconds longer a `PING` takes over this port than directly, by medians.
fn added(server: &str, port: u16) -> Result<f64> {
    let mut direct = Pinged::connect(server)?;
    let mut delayed = Pinged::connect(&format!("127.0.0.1:{port}"))?;
    for _ in 0..PINGS {
        direct.ping()?;
        delayed.ping()?;
    }
    Ok(median(&delayed.seconds) - median(&direct.seconds))
}

/// A connection for `PING`s, and their times in seconds.
struct Pinged {
    connection: TcpStream,
    seconds: Vec<f64>,
}

impl Pinged {
    fn connect(address: &str) -> Result<Self> {
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            connection,
            seconds: Vec::with_capacity(PINGS),
        })
    }

    fn ping(&mut self) -> Result<()> {
        let mut reply = [0; 7];
        let sent = Instant::now();
        self.connection.write_all(b"PING\r\n")?;
        self.connection.read_exact(&mut reply)?;
        self.seconds.push(sent.elapsed().as_secs_f64());
        ensure!(&reply == b"+PONG\r\n", "the server replies to PING");
        Ok(())
    }
}
