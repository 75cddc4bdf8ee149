//! Who has which slots, as a node of the cluster says it.

use std::{collections::HashMap, fmt};

use redis::Value;

use super::slot::SLOTS;

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

/// What one node says of the whole cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Grows with every promotion.
    pub(super) epoch: u64,
    /// The first and the last slot, and the master that has them.
    pub(super) ranges: Vec<(u16, u16, Place)>,
    /// All nodes that are known to work, replicas too, and what the cluster calls them.
    pub(super) names: HashMap<Place, String>,
}

impl Place {
    /// Reads `host:port`. A node that knows no host for another means its own.
    pub(super) fn parse(address: &str, asked: &Self) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Some(Self::at(host, port.parse().ok()?, asked))
    }

    fn at(host: &str, port: u16, asked: &Self) -> Self {
        let host = match host {
            "" | "?" => asked.host.clone(),
            host => host.trim_matches(['[', ']']).to_owned(),
        };
        Self { host, port }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Layout {
    /// Reads the answers to `CLUSTER INFO` and `CLUSTER SLOTS`; `None`: they make no sense.
    pub(super) fn read(info: &str, slots: &Value, asked: &Place) -> Option<Self> {
        let epoch = info
            .lines()
            .find_map(|line| line.strip_prefix("cluster_current_epoch:"))
            .and_then(|epoch| epoch.trim().parse().ok());
        let mut layout = Self {
            epoch: epoch.unwrap_or(0),
            ..Self::default()
        };
        let Value::Array(ranges) = slots else {
            return None;
        };
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = parts.as_slice() else {
                return None;
            };
            let (first, last) = (slot(*first)?, slot(*last)?);
            let mut nodes = nodes.iter().map(|node| named(node, asked));
            let (master, name) = nodes.next()??;
            layout.ranges.push((first, last, master.clone()));
            layout.names.insert(master, name);
            layout.names.extend(nodes.flatten());
        }
        Some(layout)
    }
}

fn slot(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

fn named(node: &Value, asked: &Place) -> Option<(Place, String)> {
    let Value::Array(node) = node else {
        return None;
    };
    let [host, Value::Int(port), name, ..] = node.as_slice() else {
        return None;
    };
    let host = match host {
        Value::Nil => "",
        host => text(host)?,
    };
    let place = Place::at(host, u16::try_from(*port).ok()?, asked);
    Some((place, text(name)?.to_owned()))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Place {
        Place {
            host: "seed".to_owned(),
            port: 1,
        }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("id")])
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_layout_names_masters_and_replicas_and_hosts_that_are_left_out() {
        let slots = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(99),
                node(bulk("10.0.0.1"), 7),
                node(Value::Nil, 8),
            ]),
            Value::Array(vec![Value::Int(100), Value::Int(16_383), node(bulk(""), 9)]),
        ]);
        let info = "cluster_state:ok\r\ncluster_current_epoch:6\r\n";
        let layout = Layout::read(info, &slots, &asked()).expect("it makes sense");
        let mut places: Vec<_> = layout.names.keys().map(ToString::to_string).collect();
        places.sort_unstable();
        assert_eq!(layout.names[&layout.ranges[0].2], "id");
        assert_eq!(places, ["10.0.0.1:7", "seed:8", "seed:9"]);
        assert_eq!(layout.epoch, 6);
        let (first, last, master) = &layout.ranges[1];
        assert_eq!((*first, *last, master.port), (100, 16_383, 9));
    }

    #[test]
    fn answers_that_make_no_sense_are_no_layout() {
        for slots in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_384)])]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]),
            Value::Array(vec![Value::Array(vec![
                Value::Int(0),
                Value::Int(1),
                Value::Array(vec![bulk("nameless"), Value::Int(1)]),
            ])]),
        ] {
            assert_eq!(Layout::read("", &slots, &asked()), None, "{slots:?}");
        }
    }

    #[test]
    fn an_address_may_leave_the_host_out_or_be_one_of_ipv6() {
        for (address, place) in [
            ("10.0.0.1:7", "10.0.0.1:7"),
            (":7", "seed:7"),
            ("?:7", "seed:7"),
            ("::1:7", "::1:7"),
        ] {
            let read = Place::parse(address, &asked()).expect("it makes sense");
            assert_eq!(read.to_string(), place);
        }
        for address in ["", "host", "host:none"] {
            assert_eq!(Place::parse(address, &asked()), None);
        }
    }
}
