//! Promise: the keeper renews in time and no more, a lease never seems longer than the server may count it, and a late grant
//! is released.

#[test]
fn each_machine_keeps_its_promises() {
    luagate_proof::machines::check();
}
