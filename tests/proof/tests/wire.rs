//! Promise: each call is sent as Redis expects it, has one outcome however often it is sent, and its reply is read as the
//! contract of the scripts describes.

use luagate_proof::scripts::Scripts;

#[test]
fn each_call_is_sent_and_answered_as_the_contract_describes() {
    luagate_proof::wire::check(&Scripts::read());
}
