//! Reads the layout of a cluster: which nodes it has, and which slots each serves.

use std::fmt;

use redis::{FromRedisValue, Value};
use rlock_proto::store::HashSlot;

/// Host and port of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::store) struct NodeAddr {
    pub(in crate::store) host: String,
    pub(in crate::store) port: u16,
}

impl NodeAddr {
    /// Parses the `host:port` of a redirection. A node that leaves the host out means its own.
    pub(super) fn parse(address: &str, asked: &Self) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Some(Self::new(host, port.parse().ok()?, asked))
    }

    fn new(host: &str, port: u16, asked: &Self) -> Self {
        let host = match host {
            "" | "?" => asked.host.clone(),
            host => host.trim_matches(['[', ']']).to_owned(),
        };
        Self { host, port }
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// The slots of the whole cluster, as one node sees them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) struct Layout {
    /// Grows with every promotion.
    pub(in crate::store) epoch: u64,
    /// The first slot, the last slot, and their master.
    pub(in crate::store) ranges: Vec<(u16, u16, NodeAddr)>,
}

impl Layout {
    /// Reads the replies to `CLUSTER INFO` and `CLUSTER SLOTS`. Returns `None` if they name no master.
    pub(in crate::store) fn read(info: &str, slots: &Value, asked: &NodeAddr) -> Option<Self> {
        let epoch = info
            .lines()
            .find_map(|line| line.strip_prefix("cluster_current_epoch:"))
            .and_then(|epoch| epoch.trim().parse().ok());
        let mut layout = Self {
            epoch: epoch.unwrap_or(0),
            ranges: Vec::new(),
        };
        for range in read::<Vec<Vec<Value>>>(slots)? {
            let [first, last, nodes @ ..] = range.as_slice() else {
                return None;
            };
            let (first, last) = (read(first)?, read(last)?);
            if first > last || last >= HashSlot::COUNT {
                return None;
            }
            let master = read_node(nodes.first()?, asked)?;
            layout.ranges.push((first, last, master));
        }
        (!layout.ranges.is_empty()).then_some(layout)
    }
}

fn read_node(node: &Value, asked: &NodeAddr) -> Option<NodeAddr> {
    let node: Vec<Value> = read(node)?;
    let [host, port, ..] = node.as_slice() else {
        return None;
    };
    let host: Option<String> = read(host)?;
    Some(NodeAddr::new(&host.unwrap_or_default(), read(port)?, asked))
}

fn read<T: FromRedisValue>(value: &Value) -> Option<T> {
    T::from_redis_value_ref(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> NodeAddr {
        NodeAddr {
            host: "seed".to_owned(),
            port: 1,
        }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port)])
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_layout_names_masters_and_hosts_that_are_left_out() {
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
        let masters = layout.ranges.iter().map(|(_, _, addr)| addr.to_string());
        assert_eq!(masters.collect::<Vec<_>>(), ["10.0.0.1:7", "seed:9"]);
        assert_eq!(layout.epoch, 6);
        let (first, last, master) = &layout.ranges[1];
        assert_eq!((*first, *last, master.port), (100, 16_383, 9));
    }

    #[test]
    fn malformed_cluster_slots_are_refused() {
        for slots in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_384)])]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]),
            Value::Array(vec![Value::Array(vec![
                Value::Int(9),
                Value::Int(7),
                node(bulk("backwards"), 1),
            ])]),
            Value::Array(vec![Value::Array(vec![
                Value::Int(0),
                Value::Int(1),
                Value::Array(vec![bulk("portless")]),
            ])]),
        ] {
            assert_eq!(Layout::read("", &slots, &asked()), None, "{slots:?}");
        }
    }

    #[test]
    fn an_address_of_a_node_may_be_without_host_or_of_ipv6() {
        for (address, place) in [
            ("10.0.0.1:7", "10.0.0.1:7"),
            (":7", "seed:7"),
            ("?:7", "seed:7"),
            ("::1:7", "[::1]:7"),
        ] {
            let read = NodeAddr::parse(address, &asked()).expect("it makes sense");
            assert_eq!(read.to_string(), place);
        }
        for address in ["", "host", "host:none"] {
            assert_eq!(NodeAddr::parse(address, &asked()), None);
        }
    }
}
