//! Connections whose other end is gone without a FIN or RST.

/// An idle connection has no unacknowledged data, so the system has to probe it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_use_tcp_keepalive_and_unacknowledged_data_times_out() {
    use std::{fs, net::SocketAddr, time::Duration};

    use rlock_testkit::{RedisServer, eventually};
    use rustix::{
        fd::OwnedFd,
        net::{getpeername, sockopt},
        process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
    };

    use crate::common::{LONG, client, resp2_client};

    /// Copies the sockets of this process that are connected to `address`.
    fn sockets_to(address: &str) -> Vec<OwnedFd> {
        let address: SocketAddr = address.parse().expect("an address");
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("our own process");
        let open = fs::read_dir("/proc/self/fd").expect("our own files");
        open.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok())
            .filter(|socket| {
                let peer = getpeername(socket).ok().flatten();
                peer.and_then(|peer| SocketAddr::try_from(peer).ok()) == Some(address)
            })
            .collect()
    }

    let server = RedisServer::start();
    // Over RESP2 one for requests, one for messages, and one on this runtime. Over RESP3 the first two are one.
    let _older = resp2_client(&server).await;
    let _newer = client(&server).await;
    let mut sockets = Vec::new();
    eventually(LONG, "all five connections are open", async || {
        // Otherwise these copies would count, too.
        sockets.clear();
        sockets = sockets_to(&server.address());
        sockets.len() == 5
    })
    .await;
    for socket in sockets {
        assert!(sockopt::socket_keepalive(&socket).expect("known"));
        let idle = sockopt::tcp_keepidle(&socket).expect("known");
        let every = sockopt::tcp_keepintvl(&socket).expect("known");
        assert!(idle <= Duration::from_secs(30), "{idle:?}");
        assert!(every <= Duration::from_secs(30), "{every:?}");
        let unanswered = sockopt::tcp_user_timeout(&socket).expect("known");
        assert!((1..=30_000).contains(&unanswered), "{unanswered} ms");
    }
}
