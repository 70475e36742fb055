//! The report of a server about itself (`INFO`), for `luagate doctor`. Promise: any text leads to a
//! judgement, and what a terminal gets of it has no hidden character.

use super::{text, texts};
use crate::doctor::checks::{self, Info};
use crate::output::{is_hidden, visible};

pub fn run(data: &[u8]) {
    let info = Info::new(text(data));
    let setting = text(&data[..data.len().min(40)]);
    let judged = [
        checks::version(&info),
        checks::eviction(&info),
        checks::memory(&info),
        checks::persistence(&info, Some(&setting), Some(&setting)),
        checks::persistence(&info, None, None),
        checks::replication(&info),
    ];
    for judgement in judged {
        assert!(!judgement.found.is_empty());
        assert!(!visible(&judgement.found).contains(is_hidden), "{:?}", judgement.found);
    }
    let _ = info.is_cluster();
}

pub fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "redis_version:7.2.4\r\nredis_mode:standalone\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
        "valkey_version:8.0.1\r\nserver_mode:cluster\r\ncluster_enabled:1\r\n",
        "used_memory:95\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\ntotal_system_memory:1000\r\n",
        "role:master\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=7,lag=0\r\nmaster_repl_offset:7\r\n",
        "role:slave\r\nmaster_link_status:down\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:err\r\nloading:0\r\n",
    ])
}
