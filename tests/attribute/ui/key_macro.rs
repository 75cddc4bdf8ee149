use rlock_core::key;

const NIGHT: &str = "night";

fn main() {
    let id = 42;
    // Templates, as in the attribute.
    let _ = key!("order:<>");
    let _ = key!("order:<id");
    let _ = key!("<id><id>");
    let _ = key!("{order:<id>");
    let _ = key!("order:<id + 1>");
    let _ = key!("");
    // Texts without a value.
    let _ = key!("order:{id}");
    let _ = key!("night");
    // Not a literal.
    let _ = key!();
    let _ = key!(NIGHT);
    let _ = key!(concat!("order:", "<id>"));
    let _ = key!(["order:<id>", "item:<id>"]);
    let _ = key!(&NIGHT);
    let _ = key!(shared "order:<id>");
    // What is too much.
    let _ = key!("order:<id>", "item:<id>");
    let _ = key!("order:<number>", number = id);
}
