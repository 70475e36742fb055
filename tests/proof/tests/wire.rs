//! Promise: each call is a valid Redis command, has one outcome however often it is sent, and its reply is
//! read as the contract of the scripts describes.

use luagate_proof::scripts::Scripts;

#[test]
fn each_call_is_sent_and_its_reply_read_as_the_contract_describes() {
    luagate_proof::wire::check(&Scripts::read());
}
