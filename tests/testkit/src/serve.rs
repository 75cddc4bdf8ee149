//! A listener that is served on the present thread until it is stopped.

use std::{future::Future, io, net::TcpListener as StdTcpListener};

use tokio::{net::TcpListener, runtime, sync::oneshot};

pub(crate) fn serve_until<F: Future<Output = ()>>(
    listener: StdTcpListener,
    stopped: oneshot::Receiver<()>,
    accept: impl FnOnce(TcpListener) -> F,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        tokio::select! {
            _ = stopped => {}
            () = accept(listener) => {}
        }
        Ok(())
    })
}
