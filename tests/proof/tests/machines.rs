//! Promise: the keeper renews in time and not too often. No lease seems longer than the server may count it.
//! A late grant is released.

#[test]
fn each_machine_keeps_its_promises() {
    luagate_proof::machines::check();
}
