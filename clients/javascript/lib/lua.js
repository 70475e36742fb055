// The files of the folder lua/, as texts. `./dev manifest` writes this file.
module.exports = {
  'manifest.json': `{
  "contract": 1,
  "scripts": {
    "semaphore/acquire": {
      "file": "dist/semaphore/acquire.lua",
      "sha1": "f36efa5a3c18e9efaa21090cf96130a4570e73e4",
      "keys": [
        "meta",
        "holders",
        "queue"
      ],
      "argv": [
        "id",
        "permits",
        "limit",
        "lease_ms",
        "wait_ms",
        "inbox",
        "ticket",
        "max_waiting",
        "at_least_ms",
        "head_start_ms"
      ],
      "optional": 3,
      "replies": {
        "granted": [
          "permits",
          "fence",
          "expires_at",
          "now",
          "in_use",
          "limit"
        ],
        "held": [
          "permits",
          "fence",
          "expires_at",
          "now",
          "in_use",
          "limit"
        ],
        "queued": [
          "ticket",
          "position",
          "retry_after",
          "in_use",
          "limit",
          "now"
        ],
        "denied": [
          "next_expiry",
          "in_use",
          "limit",
          "waiting",
          "now"
        ],
        "above_limit": [
          "limit",
          "now"
        ]
      }
    },
    "semaphore/try_acquire_several": {
      "file": "dist/semaphore/try_acquire_several.lua",
      "sha1": "4bd16076df6e49be1a097331d4e787f7a063f84e",
      "keys": [
        "meta",
        "holders",
        "queue",
        "..."
      ],
      "argv": [
        "id",
        "permits limit lease_ms at_least_ms ..."
      ],
      "replies": {
        "granted": [
          "now",
          "permits"
        ],
        "held": [
          "now",
          "permits"
        ],
        "denied": [
          "index",
          "next_expiry",
          "now",
          "usages",
          "still_held"
        ],
        "above_limit": [
          "index",
          "limit",
          "now",
          "still_held"
        ]
      }
    },
    "semaphore/release": {
      "file": "dist/semaphore/release.lua",
      "sha1": "38c6ed7218044a1800b12185ba4cdc0b8ee04000",
      "keys": [
        "meta",
        "holders",
        "queue"
      ],
      "argv": [
        "id",
        "keep",
        "fence"
      ],
      "optional": 1,
      "replies": {
        "released": [
          "left",
          "in_use",
          "limit"
        ],
        "cancelled": [],
        "gone": []
      }
    },
    "semaphore/refresh": {
      "file": "dist/semaphore/refresh.lua",
      "sha1": "560c49bf1e73bac2da61886544ae8a132d8670f2",
      "keys": [
        "meta",
        "holders",
        "queue"
      ],
      "argv": [
        "id",
        "lease_ms",
        "fence"
      ],
      "optional": 1,
      "replies": {
        "refreshed": [
          "permits",
          "fence",
          "expires_at",
          "now"
        ],
        "lost": [
          "now"
        ]
      }
    },
    "semaphore/lookup": {
      "file": "dist/semaphore/lookup.lua",
      "sha1": "bee9d1ce6d71375a0fbd9f3f871cd3eedd8afbee",
      "keys": [
        "meta",
        "holders",
        "queue"
      ],
      "argv": [
        "id"
      ],
      "replies": {
        "held": [
          "permits",
          "fence",
          "expires_at",
          "now"
        ],
        "queued": [
          "ticket",
          "position",
          "now"
        ],
        "gone": [
          "now"
        ]
      }
    },
    "semaphore/resize": {
      "file": "dist/semaphore/resize.lua",
      "sha1": "8460d90e108fb1d3130da5ff9d352857cd892ac4",
      "keys": [
        "meta",
        "holders",
        "queue"
      ],
      "argv": [
        "limit",
        "expected"
      ],
      "replies": {
        "resized": [
          "old",
          "new",
          "in_use"
        ],
        "unchanged": [
          "current",
          "in_use"
        ]
      }
    },
    "semaphore/inspect": {
      "file": "dist/semaphore/inspect.lua",
      "sha1": "8460a802d141532c2d907ed01c5bedfc40244175",
      "keys": [
        "meta",
        "holders",
        "queue"
      ],
      "argv": [
        "offset",
        "count"
      ],
      "replies": {
        "": [
          "limit",
          "pinned",
          "in_use",
          "holder_count",
          "waiter_count",
          "last_fence",
          "now",
          "holders",
          "waiters"
        ]
      }
    },
    "latch/count_down": {
      "file": "dist/latch/count_down.lua",
      "sha1": "3b96667f4bc934a77136621643ad3c56f4286e2e",
      "keys": [
        "latch",
        "waiters"
      ],
      "argv": [
        "id",
        "count",
        "life_ms"
      ],
      "replies": {
        "counted": [
          "left",
          "count",
          "now"
        ],
        "already": [
          "left",
          "count",
          "now"
        ]
      }
    },
    "latch/wait": {
      "file": "dist/latch/wait.lua",
      "sha1": "e5aca7162d8f76a1e1feb2a0075558b5080318e8",
      "keys": [
        "latch",
        "waiters"
      ],
      "argv": [
        "count",
        "life_ms",
        "wait_ms",
        "inbox"
      ],
      "replies": {
        "open": [
          "count",
          "now"
        ],
        "closed": [
          "left",
          "count",
          "retry_after",
          "now"
        ]
      }
    },
    "latch/count": {
      "file": "dist/latch/count.lua",
      "sha1": "8cec23f9f0c7017e67f030c2f7cdd98cebfc971e",
      "keys": [
        "latch",
        "waiters"
      ],
      "argv": [],
      "replies": {
        "none": [
          "now"
        ],
        "open": [
          "count",
          "now"
        ],
        "closed": [
          "left",
          "count",
          "now"
        ]
      }
    },
    "latch/delete": {
      "file": "dist/latch/delete.lua",
      "sha1": "01444eb031d9decb85571b7fcb987d4e80f52727",
      "keys": [
        "latch",
        "waiters"
      ],
      "argv": [],
      "replies": {
        "deleted": [
          "now"
        ],
        "none": [
          "now"
        ]
      }
    },
    "autocomplete/recent_add": {
      "file": "dist/autocomplete/recent_add.lua",
      "sha1": "9679cabd3a0cce383bbebe46896f471f997f9374",
      "keys": [
        "recent"
      ],
      "argv": [
        "contact",
        "keep"
      ],
      "replies": {
        "": [
          "kept"
        ]
      }
    },
    "autocomplete/recent_remove": {
      "file": "dist/autocomplete/recent_remove.lua",
      "sha1": "38b1f95e02ebaa06183b49cfd58953895b3f1652",
      "keys": [
        "recent"
      ],
      "argv": [
        "contact"
      ],
      "replies": {
        "": [
          "removed"
        ]
      }
    },
    "autocomplete/recent_match": {
      "file": "dist/autocomplete/recent_match.lua",
      "sha1": "6ec6de6e5e8cb508f25f0fa8277a4ac0b9f84af6",
      "keys": [
        "recent"
      ],
      "argv": [
        "prefix",
        "count"
      ],
      "replies": {
        "": [
          "contacts"
        ]
      }
    },
    "autocomplete/prefix_add": {
      "file": "dist/autocomplete/prefix_add.lua",
      "sha1": "dc0449c47447a50254570a5e8caad45c0979d765",
      "keys": [
        "prefix"
      ],
      "argv": [
        "member ..."
      ],
      "replies": {
        "": [
          "added"
        ]
      }
    },
    "autocomplete/prefix_remove": {
      "file": "dist/autocomplete/prefix_remove.lua",
      "sha1": "972fc3326d520e3e85441738eadd3bd1ba6795d6",
      "keys": [
        "prefix"
      ],
      "argv": [
        "member ..."
      ],
      "replies": {
        "": [
          "removed"
        ]
      }
    },
    "autocomplete/prefix_match": {
      "file": "dist/autocomplete/prefix_match.lua",
      "sha1": "1d8c583831429f4769cb6f62eb8b427f6b33a821",
      "keys": [
        "prefix"
      ],
      "argv": [
        "prefix",
        "count"
      ],
      "replies": {
        "": [
          "members"
        ]
      }
    }
  }
}
`,
  'errors.json': `{
  "errors": [
    {
      "code": "LUAGATE",
      "example": "LUAGATE limit: not a number or out of range. Accepted: 0 to 2147483647, in decimal digits",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "A script refuses an argument, or the layout of the stored state.",
      "source": "the scripts"
    },
    {
      "code": "NOSCRIPT",
      "example": "NOSCRIPT No matching script. Please use EVAL.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server does not have the script. Send its text, at once.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "LOADING",
      "example": "LOADING Redis is loading the dataset in memory",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server reads its data after its start, or a replica copies its master.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "BUSY",
      "example": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "Another script or a module runs for longer than busy-reply-threshold.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "contains": "Script killed by user",
      "example": "ERR Script killed by user with SCRIPT KILL. script: on @user_script:1.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "An operator used SCRIPT KILL. The server permits this only before the first write of the script.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "READONLY",
      "example": "READONLY You can't write against a read only replica.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "After a failover, the address or the connection still leads to the former master. Connect again. With the address of a replica, this never passes.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "REDIRECT",
      "example": "REDIRECT 127.0.0.1:6379",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "READONLY for connections that have sent CLIENT CAPA redirect.",
      "source": "Valkey 8 and 9"
    },
    {
      "code": "MASTERDOWN",
      "example": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "A replica has lost its master.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "NOREPLICAS",
      "example": "NOREPLICAS Not enough good replicas to write.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "Fewer replicas are connected than min-replicas-to-write: for some seconds after each failover.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "MISCONF",
      "example": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The last snapshot, or a write to the AOF, failed, for example because the disk is full. It passes when the next one succeeds.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "CLUSTERDOWN",
      "example": "CLUSTERDOWN Hash slot not served",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "No node serves the slot, for example before a replica is promoted.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "TRYAGAIN",
      "example": "TRYAGAIN Multiple keys request during rehashing of slot",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The slot is being moved, and its keys are on both nodes.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "contains": "max number of clients",
      "example": "ERR max number of clients reached",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server, or the proxy, has maxclients connections. It closes this one.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9, Codis"
    },
    {
      "code": "OOM",
      "example": "OOM command not allowed when used memory > 'maxmemory'.",
      "passes": "perhaps",
      "run": "no",
      "try": "end",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The memory of the server is full. Releasing works, and can grant a permit to a waiter.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "NOAUTH",
      "example": "NOAUTH Authentication required.",
      "passes": "perhaps",
      "run": "no",
      "try": "end",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The connection has not logged in. While a password is changed, this passes.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9, Envoy, twemproxy, Codis"
    },
    {
      "code": "WRONGPASS",
      "example": "WRONGPASS invalid username-password pair or user is disabled.",
      "passes": "perhaps",
      "run": "no",
      "try": "end",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The password is not, or not yet, or no longer valid. While a password is changed, this passes.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9, Envoy"
    },
    {
      "contains": "unauthenticated",
      "example": "ERR Protocol error: unauthenticated multibulk length",
      "passes": "perhaps",
      "run": "no",
      "try": "end",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The connection has not logged in, and the call is longer than the server accepts before that. It closes the connection.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "contains": "invalid password",
      "example": "ERR invalid password",
      "passes": "perhaps",
      "run": "no",
      "try": "end",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As WRONGPASS.",
      "source": "Envoy, twemproxy, Codis"
    },
    {
      "code": "MOVED",
      "example": "MOVED 3999 127.0.0.1:6381",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "Another node of the cluster has the slot. A client of a cluster sends the call there; this row is for a client of one server.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "ASK",
      "example": "ASK 3999 127.0.0.1:6381",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As MOVED, for this call only: after ASKING.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "CROSSSLOT",
      "example": "CROSSSLOT Keys in request don't hash to the same slot",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The names have different groups.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "WRONGTYPE",
      "example": "WRONGTYPE Operation against a key holding the wrong kind of value",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "Another program uses the key.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "NOPERM",
      "example": "NOPERM No permissions to access a key",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The ACL refuses the call.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "contains": "ACL failure",
      "example": "ERR ACL failure in script: User u has no permissions to run the 'zadd' command script: on @user_script:60.",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The ACL refuses a command of the script. What the script wrote before grants nothing.",
      "source": "Redis 7.2 and later, Valkey"
    },
    {
      "contains": "can't run this command",
      "example": "ERR Error running script (call to f_4b7b85fa83c092d95ba226a8571f0ad8930b7117): @user_script:60: @user_script: 60: The user executing the script can't run this command or subcommand",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As ACL failure.",
      "source": "Redis 6.2 and 7.0"
    },
    {
      "contains": "can't access",
      "example": "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 4b7b85fa83c092d95ba226a8571f0ad8930b7117, on @user_script:60.",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As ACL failure.",
      "source": "Redis 6.2 and 7.0"
    },
    {
      "contains": "permissions to ",
      "example": "ERR User u has no permissions to run the 'evalsha' command",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As NOPERM, from servers that imitate Redis.",
      "source": "other servers"
    },
    {
      "code": "DENIED",
      "example": "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "Protected mode accepts only connections of the same machine. The server closes the connection.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "code": "NOPROTO",
      "example": "NOPROTO unsupported protocol version",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server does not know the version of the protocol that HELLO asks for.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9, Envoy"
    },
    {
      "contains": "unknown command",
      "example": "ERR unknown command 'EVALSHA', with args beginning with: ",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server or a proxy does not have the command.",
      "source": "Redis 6.2 to 8, Valkey 8 and 9"
    },
    {
      "contains": "unsupported command",
      "example": "ERR unsupported command 'EVALSHA'",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As unknown command.",
      "source": "Envoy"
    },
    {
      "contains": "upstream failure",
      "example": "upstream failure",
      "passes": "yes",
      "run": "unknown",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server behind the proxy has closed the connection, or has not answered within op_timeout.",
      "source": "Envoy"
    },
    {
      "contains": "no upstream host",
      "example": "no upstream host",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The proxy knows no healthy server.",
      "source": "Envoy"
    },
    {
      "is": "ERR Connection refused",
      "example": "ERR Connection refused",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The proxy cannot connect to the server, or has ejected all servers.",
      "source": "twemproxy"
    },
    {
      "is": "ERR Host is down",
      "example": "ERR Host is down",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The proxy does not know the address of the server.",
      "source": "twemproxy"
    },
    {
      "is": "ERR Connection timed out",
      "example": "ERR Connection timed out",
      "passes": "yes",
      "run": "unknown",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server has not answered within the timeout of the pool.",
      "source": "twemproxy"
    },
    {
      "is": "ERR Connection reset by peer",
      "example": "ERR Connection reset by peer",
      "passes": "yes",
      "run": "unknown",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server has ended its connection to the proxy.",
      "source": "twemproxy"
    },
    {
      "is": "ERR Broken pipe",
      "example": "ERR Broken pipe",
      "passes": "yes",
      "run": "unknown",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As Connection reset by peer.",
      "source": "twemproxy"
    },
    {
      "is": "ERR unknown",
      "example": "ERR unknown",
      "passes": "yes",
      "run": "unknown",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server has closed its connection to the proxy, for example because it ends.",
      "source": "twemproxy"
    },
    {
      "contains": "slot is not ready",
      "example": "ERR handle request, slot is not ready, may be offline",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "No group of servers has the slot.",
      "source": "Codis"
    },
    {
      "contains": "router is not online",
      "example": "ERR router is not online",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The proxy starts. It closes the connection.",
      "source": "Codis"
    },
    {
      "contains": "ERR handle response, ",
      "example": "ERR handle response, backend conn reset",
      "passes": "yes",
      "run": "unknown",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The server has closed its connection to the proxy, or has not answered.",
      "source": "Codis"
    },
    {
      "contains": "ERR handle request, ",
      "example": "ERR handle request, command 'SCRIPT' is not allowed",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The proxy refuses the call.",
      "source": "Codis"
    },
    {
      "contains": "max concurrent connections exceeded",
      "example": "ERR max concurrent connections exceeded",
      "passes": "yes",
      "run": "no",
      "try": "repeat",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As max number of clients.",
      "source": "Upstash"
    },
    {
      "contains": "capacity quota exceeded",
      "example": "ERR DB capacity quota exceeded",
      "passes": "perhaps",
      "run": "no",
      "try": "end",
      "wait": "repeat",
      "renewal": "repeat",
      "release": "repeat",
      "why": "As OOM.",
      "source": "Upstash"
    },
    {
      "contains": "limit exceeded",
      "example": "ERR max requests limit exceeded. Limit: 500000, Usage: 500000.",
      "passes": "no",
      "run": "no",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "The requests of the day or the month are used up.",
      "source": "Upstash"
    },
    {
      "example": "ERR an error that no row names",
      "passes": "no",
      "run": "unknown",
      "try": "end",
      "wait": "end",
      "renewal": "repeat",
      "release": "repeat",
      "why": "Any other error: nothing is known.",
      "source": "any server or proxy"
    }
  ],
  "of_other_commands": {
    "BUSYGROUP": "XGROUP CREATE",
    "BUSYKEY": "RESTORE",
    "EXECABORT": "EXEC",
    "INPROG": "SENTINEL FAILOVER",
    "INVALIDOBJ": "PFCOUNT and PFMERGE",
    "IOERR": "MIGRATE",
    "NOGOODPRIMARY": "SENTINEL FAILOVER",
    "NOGOODSLAVE": "SENTINEL FAILOVER",
    "NOGROUP": "XREADGROUP and other commands of streams",
    "NOMASTERLINK": "PSYNC",
    "NOQUORUM": "SENTINEL CKQUORUM",
    "NOSUB": "UNSUBSCRIBE",
    "NOTBUSY": "SCRIPT KILL",
    "NOTREADY": "CLUSTER SYNCSLOTS, between nodes",
    "UNBLOCKED": "WAIT, if the master becomes a replica: the calls before it have run, and are not confirmed",
    "UNKILLABLE": "SCRIPT KILL"
  }
}
`,
  'dist/autocomplete/prefix_add.lua': `-- autocomplete/prefix_add: adds members to a group. A repeated call changes nothing, so it returns 0.
--
-- KEYS  prefix
-- ARGV  member ...   0 to 1000 of them, any bytes
-- REPLY added        how many members are new

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

takes('prefix', 1, 'member ...', #ARGV)
if #ARGV > 1000 then refuse('members: got ' .. #ARGV .. '. Accepted: 0 to 1000 in one call') end
if problem then return redis.error_reply(problem) end

if #ARGV == 0 then return 0 end
local scored = {} -- all with the score 0, so that bytes alone decide the order
for i, member in ipairs(ARGV) do scored[2 * i - 1], scored[2 * i] = 0, member end
return redis.call('ZADD', KEYS[1], unpack(scored))
`,
  'dist/autocomplete/prefix_match.lua': `-- autocomplete/prefix_match: lists the members of a group that begin with a prefix. Writes nothing.
--
-- KEYS  prefix
-- ARGV  prefix    any bytes; empty: all members
--       count     how many to list at most, 1 to 1000
-- REPLY members   a list: the first ones in the order of their bytes

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

takes('prefix', 1, 'prefix count', 2)
local prefix, count = ARGV[1], number(2, 'count', 1, 1000)
if problem then return redis.error_reply(problem) end

local last = #prefix
while last > 0 and string.byte(prefix, last) == 255 do last = last - 1 end
local after = '+'
if last > 0 then after = '(' .. string.sub(prefix, 1, last - 1) .. string.char(string.byte(prefix, last) + 1) end
return redis.call('ZRANGEBYLEX', KEYS[1], '[' .. prefix, after, 'LIMIT', 0, count)
`,
  'dist/autocomplete/prefix_remove.lua': `-- autocomplete/prefix_remove: removes members from a group. A repeated call changes nothing, so it returns 0.
--
-- KEYS  prefix
-- ARGV  member ...   0 to 1000 of them, any bytes
-- REPLY removed      how many were in the group

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

takes('prefix', 1, 'member ...', #ARGV)
if #ARGV > 1000 then refuse('members: got ' .. #ARGV .. '. Accepted: 0 to 1000 in one call') end
if problem then return redis.error_reply(problem) end

if #ARGV == 0 then return 0 end
return redis.call('ZREM', KEYS[1], unpack(ARGV))
`,
  'dist/autocomplete/recent_add.lua': `-- autocomplete/recent_add: makes a contact the newest of a user's recent ones. A repeated call changes nothing more.
--
-- KEYS  recent
-- ARGV  contact   any bytes
--       keep      how many of the newest to keep, 1 to 1000; older ones are removed
-- REPLY kept      how many there are now

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

takes('recent', 1, 'contact keep', 2)
local contact, keep = ARGV[1], number(2, 'keep', 1, 1000)
if problem then return redis.error_reply(problem) end

local recent = KEYS[1]
local place = redis.call('LPOS', recent, contact)
local kept
if place == 0 then
  kept = redis.call('LLEN', recent)
else
  kept = redis.call('LPUSH', recent, contact) -- first, since this is refused when memory is full
  if place then kept = kept - redis.call('LREM', recent, -1, contact) end -- from the tail: the older of the two
end
if kept > keep then
  redis.call('LTRIM', recent, 0, keep - 1)
  kept = keep
end
return kept
`,
  'dist/autocomplete/recent_match.lua': `-- autocomplete/recent_match: lists a user's recent contacts that begin with a prefix. Writes nothing.
--
-- KEYS  recent
-- ARGV  prefix     any bytes; the case of ASCII letters is ignored; empty: all contacts
--       count      how many to list at most, 1 to 1000
-- REPLY contacts   a list, newest first

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

takes('recent', 1, 'prefix count', 2)
local prefix, count = ARGV[1], number(2, 'count', 1, 1000)
if problem then return redis.error_reply(problem) end

prefix = string.lower(prefix) -- ASCII only: servers run in the C locale
local contacts = {}
for _, contact in ipairs(redis.call('LRANGE', KEYS[1], 0, 999)) do -- recent_add keeps no more
  if string.lower(string.sub(contact, 1, #prefix)) == prefix then
    contacts[#contacts + 1] = contact
    if #contacts == count then break end
  end
end
return contacts
`,
  'dist/autocomplete/recent_remove.lua': `-- autocomplete/recent_remove: removes one of a user's recent contacts. A repeated call changes nothing more.
--
-- KEYS  recent
-- ARGV  contact   any bytes
-- REPLY removed   1, or 0 when it was not there

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

takes('recent', 1, 'contact', 1)
if problem then return redis.error_reply(problem) end
return redis.call('LREM', KEYS[1], 1, ARGV[1])
`,
  'dist/latch/count.lua': `-- latch/count: returns how many ids are left to count down. Writes nothing.
--
-- KEYS  latch waiters
-- ARGV  none
-- REPLY none    now                  no id has counted down, and no caller has waited
--       open    count now
--       closed  left count now

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
if #KEYS < 2 then -- there is nothing to read
  return redis.error_reply('LUAGATE keys: wrong number of keys. Accepted: 2: latch waiters')
end
local latch, waiters = KEYS[1], KEYS[2]
if latch == waiters then
  return redis.error_reply('LUAGATE keys: one key twice. Accepted: 2 different keys: latch waiters')
end

local fields = call('HLEN', latch)
local waiting = call('ZCARD', waiters)

local count = 0     -- how many ids must count down; 0: none is stored
local counted = 0   -- how many ids have counted down
local expiry = now  -- when the keys expire
local a, b, c = string.match(call('HGET', latch, 'the state') or '', '^(%d+) (%d+) (%d+)$')
if a then count, counted, expiry = tonumber(a), tonumber(b), tonumber(c) end

if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end

takes('latch waiters', 2, '', 0)
if problem then return redis.error_reply(problem) end

if count == 0 then return {'none', now} end
if is_open() then return {'open', count, now} end
return {'closed', count - counted, count, now}
`,
  'dist/latch/count_down.lua': `-- latch/count_down: counts an id, once. The last one opens the latch. A repeated call with the same id counts nothing twice.
--
-- KEYS  latch waiters
-- ARGV  id        the caller's id
--       count     how many ids must count down; stored if none is stored. Afterwards the stored count is in force
--       life_ms   how long the latch is kept after this call, at least
-- REPLY counted  left count now
--       already  left count now     the id had counted before, or the latch was open

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
if #KEYS < 2 then -- there is nothing to read
  return redis.error_reply('LUAGATE keys: wrong number of keys. Accepted: 2: latch waiters')
end
local latch, waiters = KEYS[1], KEYS[2]
if latch == waiters then
  return redis.error_reply('LUAGATE keys: one key twice. Accepted: 2 different keys: latch waiters')
end

local fields = call('HLEN', latch)
local waiting = call('ZCARD', waiters)

local count = 0     -- how many ids must count down; 0: none is stored
local counted = 0   -- how many ids have counted down
local expiry = now  -- when the keys expire
local a, b, c = string.match(call('HGET', latch, 'the state') or '', '^(%d+) (%d+) (%d+)$')
if a then count, counted, expiry = tonumber(a), tonumber(b), tonumber(c) end

if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end

local function clear()
  if fields > 0 then call('UNLINK', latch) end
  fields = 0
end

local function start(declared, ms)
  if count == 0 then
    clear() -- fields without a state belong to no latch
    count = declared
  end
  expiry = math.max(expiry, now + ms)
end

local function save(id)
  if fields > 0 then call('PEXPIREAT', latch, expiry) end -- first, since PEXPIREAT is allowed when memory is full
  local text = count .. ' ' .. counted .. ' ' .. expiry
  if id then
    call('HSET', latch, 'the state', text, id, '')
  else
    call('HSET', latch, 'the state', text)
  end
  if fields == 0 then call('PEXPIREAT', latch, expiry) end
end

local function tell()
  if waiting == 0 then return end
  local inboxes = call('ZREVRANGEBYSCORE', waiters, '+inf', '(' .. now, 'LIMIT', 0, 100)
  for _, inbox in ipairs(inboxes) do
    redis.pcall('PUBLISH', inbox, latch .. ' 0 0 0 ' .. now) -- an ACL may forbid it; the rest of the call must still run
  end
  if #inboxes < 100 then -- all waiters got one; the rest of the waits have ended
    call('UNLINK', waiters)
  else
    call('ZREM', waiters, unpack(inboxes))
  end
end

takes('latch waiters', 2, 'id count life_ms', 3)
local id, declared = word(1, 'id', 200), number(2, 'count', 1, 2147483647)
local life_ms = number(3, 'life_ms', 1, 3155760000000)
if problem then return redis.error_reply(problem) end

local counts = not is_open() and (count == 0 or call('HEXISTS', latch, id) == 0)
start(declared, life_ms)
if counts then
  counted = counted + 1
  if is_open() then clear() end
end
save(counts and not is_open() and id)
if is_open() then tell() end
return {counts and 'counted' or 'already', count - counted, count, now}
`,
  'dist/latch/delete.lua': `-- latch/delete: deletes the latch and its counted ids. Sends a message to at most 100 waiters, which ask again.
--
-- KEYS  latch waiters
-- ARGV  none
-- REPLY deleted  now                 there was one, open or closed
--       none     now                 there was none

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
if #KEYS < 2 then -- there is nothing to read
  return redis.error_reply('LUAGATE keys: wrong number of keys. Accepted: 2: latch waiters')
end
local latch, waiters = KEYS[1], KEYS[2]
if latch == waiters then
  return redis.error_reply('LUAGATE keys: one key twice. Accepted: 2 different keys: latch waiters')
end

local fields = call('HLEN', latch)
local waiting = call('ZCARD', waiters)

local count = 0     -- how many ids must count down; 0: none is stored
local counted = 0   -- how many ids have counted down
local expiry = now  -- when the keys expire
local a, b, c = string.match(call('HGET', latch, 'the state') or '', '^(%d+) (%d+) (%d+)$')
if a then count, counted, expiry = tonumber(a), tonumber(b), tonumber(c) end

if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end

local function clear()
  if fields > 0 then call('UNLINK', latch) end
  fields = 0
end

local function start(declared, ms)
  if count == 0 then
    clear() -- fields without a state belong to no latch
    count = declared
  end
  expiry = math.max(expiry, now + ms)
end

local function save(id)
  if fields > 0 then call('PEXPIREAT', latch, expiry) end -- first, since PEXPIREAT is allowed when memory is full
  local text = count .. ' ' .. counted .. ' ' .. expiry
  if id then
    call('HSET', latch, 'the state', text, id, '')
  else
    call('HSET', latch, 'the state', text)
  end
  if fields == 0 then call('PEXPIREAT', latch, expiry) end
end

local function tell()
  if waiting == 0 then return end
  local inboxes = call('ZREVRANGEBYSCORE', waiters, '+inf', '(' .. now, 'LIMIT', 0, 100)
  for _, inbox in ipairs(inboxes) do
    redis.pcall('PUBLISH', inbox, latch .. ' 0 0 0 ' .. now) -- an ACL may forbid it; the rest of the call must still run
  end
  if #inboxes < 100 then -- all waiters got one; the rest of the waits have ended
    call('UNLINK', waiters)
  else
    call('ZREM', waiters, unpack(inboxes))
  end
end

takes('latch waiters', 2, '', 0)
if problem then return redis.error_reply(problem) end

local was_there = count > 0
clear()
tell()
return {was_there and 'deleted' or 'none', now}
`,
  'dist/latch/wait.lua': `-- latch/wait: asks whether the latch is open, and requests a message when it opens.
--
-- KEYS  latch waiters
-- ARGV  count     how many ids must count down; stored if none is stored. Afterwards the stored count is in force
--       life_ms   how long the latch is kept after this call, at least
--       wait_ms   how long after this call the inbox receives one message if the latch opens; 0: no message
--       inbox     channel for this message; empty: the caller only asks again
-- REPLY open    count now
--       closed  left count retry_after now

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
if #KEYS < 2 then -- there is nothing to read
  return redis.error_reply('LUAGATE keys: wrong number of keys. Accepted: 2: latch waiters')
end
local latch, waiters = KEYS[1], KEYS[2]
if latch == waiters then
  return redis.error_reply('LUAGATE keys: one key twice. Accepted: 2 different keys: latch waiters')
end

local fields = call('HLEN', latch)
local waiting = call('ZCARD', waiters)

local count = 0     -- how many ids must count down; 0: none is stored
local counted = 0   -- how many ids have counted down
local expiry = now  -- when the keys expire
local a, b, c = string.match(call('HGET', latch, 'the state') or '', '^(%d+) (%d+) (%d+)$')
if a then count, counted, expiry = tonumber(a), tonumber(b), tonumber(c) end

if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end

local function clear()
  if fields > 0 then call('UNLINK', latch) end
  fields = 0
end

local function start(declared, ms)
  if count == 0 then
    clear() -- fields without a state belong to no latch
    count = declared
  end
  expiry = math.max(expiry, now + ms)
end

local function save(id)
  if fields > 0 then call('PEXPIREAT', latch, expiry) end -- first, since PEXPIREAT is allowed when memory is full
  local text = count .. ' ' .. counted .. ' ' .. expiry
  if id then
    call('HSET', latch, 'the state', text, id, '')
  else
    call('HSET', latch, 'the state', text)
  end
  if fields == 0 then call('PEXPIREAT', latch, expiry) end
end

local function tell()
  if waiting == 0 then return end
  local inboxes = call('ZREVRANGEBYSCORE', waiters, '+inf', '(' .. now, 'LIMIT', 0, 100)
  for _, inbox in ipairs(inboxes) do
    redis.pcall('PUBLISH', inbox, latch .. ' 0 0 0 ' .. now) -- an ACL may forbid it; the rest of the call must still run
  end
  if #inboxes < 100 then -- all waiters got one; the rest of the waits have ended
    call('UNLINK', waiters)
  else
    call('ZREM', waiters, unpack(inboxes))
  end
end

takes('latch waiters', 2, 'count life_ms wait_ms inbox', 4)
local declared, life_ms = number(1, 'count', 1, 2147483647), number(2, 'life_ms', 1, 3155760000000)
local wait_ms, inbox = number(3, 'wait_ms', 0, 86400000), ARGV[4]
if inbox ~= '' then word(4, 'inbox', 300) end
if problem then return redis.error_reply(problem) end

start(declared, math.max(life_ms, wait_ms)) -- a waiter that gets the message must find the latch
save()
if is_open() then
  tell() -- also to this caller's inbox: other threads may wait there
  return {'open', count, now}
end

local over = waiting > 0 and call('ZRANGEBYSCORE', waiters, '-inf', now, 'LIMIT', 0, 100) or {}
if #over > 0 then call('ZREM', waiters, unpack(over)) end
local retry_after = 1000 -- without an inbox no message comes
if wait_ms > 0 and inbox ~= '' then
  call('ZADD', waiters, 'GT', now + wait_ms, inbox)
  call('PEXPIREAT', waiters, expiry)
  retry_after = math.max(1, math.floor(wait_ms / 3))
end
return {'closed', count - counted, count, retry_after, now}
`,
  'dist/semaphore/acquire.lua': `-- semaphore/acquire: requests permits, at once or in line. A repeated call with the same id grants nothing twice.
--
-- KEYS  meta holders queue
-- ARGV  id         the caller's id
--       permits    1 to the limit in force, or \`all\`: all that are free now, at least 1, never in line
--       limit      the limit to store if none is stored yet; 0: declares none
--       lease_ms   how long the permit is valid without a refresh; 0: permanent
--       wait_ms    how long the caller stays in line after this call; 0: does not wait
--       inbox      channel for messages, or \`<channel>#<secret>\`: then the messages are signed with the secret;
--                  empty: no messages, the caller only asks again
--       ticket     0, or the ticket of an earlier reply: restores the place of a waiter that the server removed. One that no
--                  server gave counts as 0: above the last fence, and more than a minute ahead of the server's clock
--       max_waiting    joins the line only while fewer ids wait; 0 or left out: joins any line. A waiter keeps its place
--       at_least_ms    minimum hold: permits that are released earlier stay in use until it ends; 0 or left out: none.
--                      The lease is not shorter
--       head_start_ms  joins the line as if the call had come that much earlier, up to a day; 0 or left out: at the end
-- REPLY granted      permits fence expires_at now in_use limit
--       held         permits fence expires_at now in_use limit
--       queued       ticket position retry_after in_use limit now
--       denied       next_expiry in_use limit waiting now  with wait_ms: the line is full; next_expiry may be too early
--       above_limit  limit now  more than the limit in force, so never granted; the id has no place in line
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
if #ARGV < 7 or #ARGV > 10 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 7 to 10: '
    .. 'id permits limit lease_ms wait_ms inbox ticket max_waiting at_least_ms head_start_ms')
end
local id, want, declared, lease_ms, wait_ms, inbox, ticket, max_waiting, at_least_ms, head_start_ms = unpack(ARGV)
want = want == '1' and 1 or want ~= 'all' and (find(want, DIGITS) and want + 0 or -1)
declared = find(declared, DIGITS) and declared + 0 or -1
lease_ms = find(lease_ms, DIGITS) and lease_ms + 0 or -1
wait_ms = wait_ms == '0' and 0 or find(wait_ms, DIGITS) and wait_ms + 0 or -1
ticket = ticket == '0' and 0 or find(ticket, DIGITS) and ticket + 0 or -1
local longest_wait = inbox == '' and 60000 or 86400000
local problem = (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or want and (want < 1 or want > 2147483647) and string.format(NO_NUMBER, 'permits', 1, 2147483647) .. ', or all'
  or (declared < 0 or declared > 2147483647) and string.format(NO_NUMBER, 'limit', 0, 2147483647)
  or (lease_ms < 0 or lease_ms > 3155760000000) and string.format(NO_NUMBER, 'lease_ms', 0, 3155760000000)
  or (wait_ms < 0 or wait_ms > longest_wait) and string.format(NO_NUMBER, 'wait_ms', 0, longest_wait)
  or (ticket < 0 or ticket > 9007199254740991) and string.format(NO_NUMBER, 'ticket', 0, 9007199254740991)
  or inbox ~= '' and ((#inbox > 300 or not find(inbox, WORD)) and string.format(NO_WORD, 'inbox', 300)
    or find(inbox, '#') and not find(inbox, '^[^#]+#.')
      and 'LUAGATE inbox: empty channel or secret. Accepted: \`channel\` or \`channel#secret\`')
if max_waiting then
  max_waiting = max_waiting == '0' and 0 or find(max_waiting, DIGITS) and max_waiting + 0 or -1
  at_least_ms = (not at_least_ms or at_least_ms == '0') and 0 or find(at_least_ms, DIGITS) and at_least_ms + 0 or -1
  head_start_ms = (not head_start_ms or head_start_ms == '0') and 0 or find(head_start_ms, DIGITS) and head_start_ms + 0 or -1
  problem = problem
    or (max_waiting < 0 or max_waiting > 2147483647) and string.format(NO_NUMBER, 'max_waiting', 0, 2147483647)
    or (at_least_ms < 0 or at_least_ms > 3155760000000) and string.format(NO_NUMBER, 'at_least_ms', 0, 3155760000000)
    or (head_start_ms < 0 or head_start_ms > 86400000) and string.format(NO_NUMBER, 'head_start_ms', 0, 86400000)
  if lease_ms > 0 and lease_ms < at_least_ms then lease_ms = at_least_ms end
else
  max_waiting, at_least_ms, head_start_ms = 0, 0, 0
end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
if problem then return redis.error_reply(problem) end
local waiting = line_is_empty and now < next_end and not record and want and now + lease_ms <= last_end and 0
local gives_back
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
local own_end = fence and call('ZSCORE', holders, id)
if own_end and tonumber(own_end) > now then
  return {'held', weight, fence, own_end == 'inf' and -1 or tonumber(own_end), now, suspended and limit or in_use, limit}
end
local stored_limit = limit
if limit == 0 then limit = declared end -- stored with the state
if limit == 0 then
  return redis.error_reply(
    'LUAGATE no limit: the call passes no limit and none is stored. Pass a limit, or store one with \`resize\`')
end
if not consistent or suspended or fence or now >= next_end then
  if consistent and not suspended then -- the caller's own lease, and up to 100 others, the earliest first
    local ended = fence and {id} or {}
    for _, who in ipairs(held > 0 and call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100) or {}) do
      if not fence or who ~= id then ended[#ended + 1] = who end
    end
    if #ended > 0 then
      for _, text in ipairs(extra_weight > 0 and call('HMGET', meta, unpack(ended)) or {}) do
        if text and #text == HOLDER_SIZE then extra_weight = extra_weight - select(2, struct.unpack(HOLDER, text)) + 1 end
      end
      local gone = call('ZREM', holders, unpack(ended))
      consistent = call('HDEL', meta, unpack(ended)) == #ended and gone == #ended
      held, lease_ended = held - gone, true
    end
    if fence then record, fence = false, nil end
    next_end, changed = tonumber(held > 0 and call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or NEVER), true
  end
  if not consistent then
    local known = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0)
    call('UNLINK', meta, queue)
    if is_known and last_end > now then
      call('ZADD', holders, last_end, 'lost leases') -- it contains a space, so no id is equal to it
      known = math.max(known, last_end)
    end
    suspended, waiting, extra_weight, record, fence = true, 0, 0, false, nil
    next_end, last_end = NEVER, known == NEVER and last_end or known
    expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
    held, changed, ttl_changed, wrote = call('ZCARD', holders), true, true, true
  end
  if suspended and call('ZCOUNT', holders, '(' .. now, '+inf') == 0 then
    call('UNLINK', holders)
    suspended, held, extra_weight, next_end, changed, lease_ended = false, 0, 0, NEVER, true, true
  end
  in_use = suspended and 2147483647 or held + extra_weight
end
local highest_ticket
if ticket > 0 then
  highest_ticket = math.max(last_fence, micros + 60000000)
  if ticket > highest_ticket then ticket = 0 end
end
local place = record and call('ZSCORE', queue, id)
local above_limit = want and want > limit
local waits = wait_ms > 0 and want and not above_limit
local asks, behind, patience_until = true, 0, now + wait_ms
local is_new = waits and not place and ticket == 0
local serves = in_use < limit or now >= head_until or not is_new and (waits or place)
if place then
  ticket = tonumber(place)
elseif ticket > 0 then
  if waits and (waiting > 0 or in_use + want > limit) then
    last_fence = math.max(last_fence, math.min(ticket + head_start_ms * 1000, highest_ticket))
    next_fence = math.max(next_fence, last_fence + 1)
    call('ZADD', queue, ticket, id)
    is_new_queue, wrote = waiting == 0, true
    if is_new_queue then head_until = patience_until end
    waiting = waiting + 1
  end
elseif head_start_ms > 0 then
  ticket = math.max(1, next_fence - head_start_ms * 1000)
  if waiting > 0 and (waits or serves) then behind = call('ZCOUNT', queue, '(' .. string.format('%.0f', ticket), '+inf') end
end
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
local given, stopped, first, first_text, when, texts
local seen, at = 0, 0
while serves and (asks and waiting == behind or waiting > 0 and seen < 100) do
  local in_line = waiting > (asks and behind or 0)
  if in_line and not texts then
    local last = seen == 0 and 1 or 99 - seen -- usually one is served, and the next becomes first
    line = line or call('ZRANGE', queue, '0', seen == 0 and '1' or last)
    if #line <= last then waiting = #line end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end
    at, in_line = 0, waiting > 0
  end
  local who, text = id
  if in_line then
    seen, at = seen + 1, at + 1
    who, text = line[at], texts[at]
  end
  local permits, lease, patience, asks_before, at_least, channel, secret
  local mine, alive = asks and who == id, true
  if mine then
    permits = want or math.max(1, limit - in_use)
    lease = lease_ms
    patience = patience_until
    at_least = at_least_ms
  elseif text and #text >= WAITER_SIZE then
    permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, text)
    alive = patience > now
    if alive and (in_use < limit or permits > limit) then
      channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      alive = in_use >= limit or listens(channel)
    end
  else
    alive = false
  end
  local fits = alive and in_use + permits <= limit
  if alive and permits <= limit and (not fits and (waits or not mine) or channel == '') then
    head_until = patience -- stays first; without an inbox its permits are reserved for it
    if not mine and patience - asks_before > next_end then first, first_text = who, text end
    break
  end
  if in_line then -- first, since ZREM is allowed when memory is full, and any write after it
    call('ZREM', queue, who)
    waiting, wrote, changed = waiting - 1, true, true
  end
  local ends, score
  if fits then
    ends = lease == 0 and NEVER or now + lease
    score = lease == 0 and '+inf' or string.format('%d%09d', ends / 1000000000, ends % 1000000000)
    last_fence = next_fence
    next_fence = next_fence + 1
    if not mine then -- the script is atomic: no client sees the message before the permit
      local fence_text = string.format('%d%09d', last_fence / 1000000000, last_fence % 1000000000)
      fits = tell(channel, secret, who, permits, fence_text, lease == 0 and -1 or score)
    end
  elseif alive and not mine then
    tell(channel, secret, who, 0, 0, 0)
  end
  if fits then
call('ZADD', holders, score, who)
local granted = permits == 1 and at_least == 0 and struct.pack(PLAIN_HOLDER, last_fence)
  or struct.pack(HOLDER, last_fence, permits, at_least > 0 and now + at_least or 0)
if records then records[#records + 1], records[#records + 2] = who, granted else records = {who, granted} end
if held == 0 then is_new_holders = true end
if in_use == 0 and last_end > ends + 1000 then last_end = 0 end -- it was of leases that have ended
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
held, in_use, extra_weight, wrote = held + 1, in_use + permits, extra_weight + permits - 1, true
    if mine then given, weight = last_fence, permits end
  elseif in_line and not (text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE)) then -- else it is a holder's record
    call('HDEL', meta, who)
  end
  if mine then asks = false end
  if in_line and at == #line then line, texts = nil, nil end
end
when = math.max(next_end, now) -- a waiter that stays the first asks when the next lease ends
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
if seen == 100 then
  local leaves = asks and not waits and id -- the caller, if it gives up its place
  waiting, head_until = call('ZCARD', queue), 0
  stopped = waiting > 0
  for from = 0, math.min(waiting, 1000) - 1, 100 do
    line = call('ZRANGE', queue, from, from + 99)
    local ids, channels, secrets = {}, {}, {}
    for i, text in ipairs(call('HMGET', meta, unpack(line))) do
      if text and line[i] ~= leaves and #text > WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now then
        ids[#ids + 1] = line[i]
        channels[#ids], secrets[#ids] = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      end
    end
    local nth = #ids > 0 and listens(unpack(channels))
    if nth then tell(channels[nth], secrets[nth], ids[nth], 0, 0, 0) break end
  end
end
local joins = is_new and not given
if joins and max_waiting > 0 and waiting - behind >= max_waiting then
  if not stopped then
local front = call('ZRANGE', queue, 0, math.min(waiting - behind, 100) - 1)
local gone, asked, channels, first_is_gone = {}, {}, {}, false
for i, text in ipairs(call('HMGET', meta, unpack(front))) do
  local is_holder = text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE) -- the queue was restored alone
  local lives = text and #text >= WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now
  local channel = lives and string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if not lives and not is_holder then gone[#gone + 1] = front[i] end
  if channel and channel ~= '' then asked[#asked + 1], channels[#channels + 1] = front[i], channel end
end
local counts = #asked > 0 and redis.pcall('PUBSUB', 'NUMSUB', unpack(channels)) or {}
for i, who in ipairs(asked) do
  if counts[2 * i] == 0 then gone[#gone + 1] = who end
end
if #gone > 0 then
  call('ZREM', queue, unpack(gone))
  call('HDEL', meta, unpack(gone))
  waiting, wrote, changed = waiting - #gone, true, true
  for _, who in ipairs(gone) do first_is_gone = first_is_gone or who == front[1] end
  if first_is_gone then
    head_until = 0 -- the next call finds the first waiter
    local last = records and #records or 0 -- a record that \`hint\` changed must not be written again
    if last > 0 and records[last - 1] == front[1] then records[last - 1], records[last] = nil, nil end
  end
end
  end
  joins = waiting - behind < max_waiting
end
if place and asks and not waits then -- the caller gives up its place
  call('ZREM', queue, id)
  call('HDEL', meta, id)
  waiting, wrote, stopped = waiting - 1, true, stopped and waiting > 1
end
local reply
if given then
  reply = {'granted', weight, given, lease_ms == 0 and -1 or now + lease_ms, now, in_use, limit}
elseif above_limit then
  reply = {'above_limit', limit, now}
  limit = stored_limit -- only a grant stores a limit
elseif joins or waits and not is_new then
if joins then
  if ticket == 0 then ticket = next_fence end
  last_fence, next_fence = next_fence, next_fence + 1
  call('ZADD', queue, ticket, id)
  is_new_queue = waiting == 0
  if waiting == behind then head_until = patience_until end -- it is the first
  waiting = waiting + 1
end
local ahead = joins and waiting - behind - 1 or call('ZRANK', queue, id)
if ahead == 0 and waiting > 1 and not place then
  first, when = call('ZRANGE', queue, '1', '1')[1], now + 1000
  first_text = call('HGET', meta, first)
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
end
local position, retry_after = ahead + 1, math.max(1, (wait_ms - wait_ms % 3) / 3)
if ahead > 0 then retry_after = math.min(retry_after, 1000 * ahead) end
if stopped then
  retry_after = 1
elseif suspended or next_end < now + retry_after then -- while suspended it waits for the last lease
  local lease = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')
  if lease[2] and lease[2] ~= 'inf' then
    local ask_in = math.max(1, lease[2] - now)
    if ahead > 0 and not suspended then
      local asked = record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) - wait_ms or 0
      ask_in = math.max(ask_in + math.min(3 * ahead, 60 + math.floor(ahead / 50)), math.min(asked - now, 0) + 1000)
      if find(lease[1], ' ') then ask_in = retry_after end
    end
    retry_after = math.min(retry_after, ask_in)
  end
end
if expiry ~= 0 and patience_until > expiry then expiry, ttl_changed = patience_until + 60000, true end
wrote = true -- the record of a waiter may be refused when memory is full
local text = struct.pack(WAITER, want, lease_ms, patience_until, wait_ms - retry_after, at_least_ms) .. inbox
if records then records[#records + 1], records[#records + 2] = id, text else records = {id, text} end
  reply = {'queued', ticket, position, retry_after, suspended and limit or in_use, limit, now}
else
  local ends_at = next_end < NEVER and next_end -- if the line is full; a lease that was refreshed may end later
  if not stopped and (suspended or not waits) then
    local score = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
    ends_at = score and score ~= 'inf' and score
  end
  if stopped or not ends_at then ends_at = waiting > 0 and head_until end -- 0: serve stopped at its bound; ask at once
  reply = {'denied', ends_at and math.max(1, ends_at - now) or -1, suspended and limit or in_use, limit, waiting, now}
end
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
return reply
`,
  'dist/semaphore/holds.lua': `-- Part for scripts of users: put its text before theirs. \`holds\` returns true while the permit with this id and fence is held,
-- so "do this only while I hold it" is one atomic step. Declare the semaphore's keys. \`fence\` is text, as it came in ARGV.
local function holds(meta, holders, id, fence)
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
  local stored = redis.call('HMGET', meta, 'the state', id)
  local version = stored[1] and math.floor((string.byte(stored[1]) or 0) / 4)
  if version and version ~= VERSION then
    error('LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore')
  end
  local ends, clock = redis.call('ZSCORE', holders, id), redis.call('TIME')
  if not ends or tonumber(ends) <= clock[1] * 1000 + math.floor(clock[2] / 1000) then return false end
  local record = stored[2]
  local is_holder = record and (#record == PLAIN_HOLDER_SIZE or #record == HOLDER_SIZE)
  return is_holder and struct.unpack(PLAIN_HOLDER, record) == tonumber(fence) or false
end
`,
  'dist/semaphore/inspect.lua': `-- semaphore/inspect: lists holders and waiters. Writes nothing. Ended leases are neither listed nor counted.
--
-- KEYS  meta holders queue
-- ARGV  offset   how many holders, and how many waiters, to skip
--       count    how many of each to list at most, 0 to 1000
-- REPLY limit pinned in_use holder_count waiter_count last_fence now holders waiters
--
-- The reply does not begin with a word. \`holders\` has a list for each: id permits fence expires_at cooling_down; in the order of
-- the ends. cooling_down is 1 for permits that were released before their minimum hold ended: they have no holder until then.
-- \`waiters\` has a list for each: id permits ticket patience_until; in the order of the queue.
-- in_use is exact if at most 1,000 leases have ended, or at most 1,000 run. waiter_count is exact if at most 1,000 ids wait.
-- Beyond that in_use is approximate, and waiter_count may include waiters whose patience has ended.
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local id = ''
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
if problem then return redis.error_reply(problem) end
local waiting, gives_back = call('ZCARD', queue)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
local function holdings(ids)
  local list = {}
  for i, text in ipairs(#ids > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    list[i] = text and (#text == PLAIN_HOLDER_SIZE and {struct.unpack(PLAIN_HOLDER, text), 1}
      or #text == HOLDER_SIZE and {struct.unpack(HOLDER, text)}) or {0, 0}
  end
  return list
end
local live = call('ZCOUNT', holders, '(' .. now, '+inf')
in_use = live
if suspended or not consistent then
  in_use = math.max(limit, live)
elseif extra_weight > 0 then
  local ended, sum = held - live, 0
  local first, last = '-inf', now
  if live < ended then first, last = '(' .. now, '+inf' end
  for from = 0, math.min(live, ended, 1000) - 1, 100 do
    for _, row in ipairs(holdings(call('ZRANGEBYSCORE', holders, first, last, 'LIMIT', from, 100))) do sum = sum + row[2] - 1 end
  end
  in_use = live + (live < ended and sum or extra_weight - sum)
end
local function split(reply)
  local ids, scores = {}, {}
  for i = 1, #reply, 2 do ids[#ids + 1], scores[#ids + 1] = reply[i], tonumber(reply[i + 1]) end
  return ids, scores
end
local function waiters(from, to)
  local list, over = {}, 0
  local ids, tickets = split(call('ZRANGE', queue, from, to, 'WITHSCORES'))
  for i, text in ipairs(#ids > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    local permits, _, patience = struct.unpack(WAITER, text and #text >= WAITER_SIZE and text or string.rep('\\0', WAITER_SIZE))
    if patience > now then list[#list + 1] = {ids[i], permits, tickets[i], patience} else over = over + 1 end
  end
  return list, over
end
for from = 0, math.min(waiting, 1000) - 1, 100 do
  waiting = waiting - select(2, waiters(from, from + 99))
end
local holder_list, waiter_list = {}, {}
if count > 0 then
  waiter_list = waiters(offset, offset + count - 1)
  local ids, ends = split(call('ZRANGEBYSCORE', holders, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', offset, count))
  for i, row in ipairs(holdings(ids)) do
    local released = string.match(ids[i], '^(%S+) %d+ %d+$')
    holder_list[i] = {released or ids[i], row[2], row[1], ends[i] == NEVER and -1 or ends[i], released and 1 or 0}
  end
end
return {limit, pinned and 1 or 0, in_use, live, waiting, last_fence, now, holder_list, waiter_list}
`,
  'dist/semaphore/lookup.lua': `-- semaphore/lookup: returns the permit or the place in line of an id. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
takes('meta holders queue', 3, 'id', 1)
local id = word(1, 'id', 200)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
if problem then return redis.error_reply(problem) end
local ends, rank = call('ZSCORE', holders, id), call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', weight, fence, ends == 'inf' and -1 or tonumber(ends), now}
end
if rank and record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) > now then
  return {'queued', tonumber(call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
`,
  'dist/semaphore/refresh.lua': `-- semaphore/refresh: starts a new lease for a permit, counted from now. It ends no earlier than the minimum hold. A lost permit
-- stays lost.
--
-- KEYS  meta holders queue
-- ARGV  id
--       lease_ms   0: permanent
--       fence      only the permit with this fence; 0 or left out: the permit that the id holds
-- REPLY refreshed permits fence expires_at now
--       lost      now
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id lease_ms fence')
end
local id, lease_ms, only, problem = ARGV[1], ARGV[2], ARGV[3] or '0', nil
lease_ms = find(lease_ms, DIGITS) and lease_ms + 0 or -1
only = only == '0' and 0 or find(only, DIGITS) and only + 0 or -1
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
problem = problem or (not fence or least_end > 0) and (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or (lease_ms < 0 or lease_ms > 3155760000000) and string.format(NO_NUMBER, 'lease_ms', 0, 3155760000000)
  or (only < 0 or only > 9007199254740991) and string.format(NO_NUMBER, 'fence', 0, 9007199254740991)
if problem then return redis.error_reply(problem) end
if not fence or only > 0 and fence ~= only then return {'lost', now} end
local ends = lease_ms == 0 and NEVER or now + lease_ms
if ends < least_end then ends = least_end end
local reply = {'refreshed', weight, fence, lease_ms == 0 and -1 or ends, now}
if now < next_end and ends <= last_end and redis.pcall('ZADD', holders, 'XX', 'GT', 'CH', ends, id) == 1 then return reply end
local before = call('ZSCORE', holders, id)
local before_ms = tonumber(before or 0)
if before_ms <= now then return {'lost', now} end
if before_ms == ends then return reply end
local held, waiting = 1, line_is_empty and 0 or call('ZCARD', queue)
renewed = lease_ms == 0 and '+inf' or ends
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
lease_ended = before == 'inf'
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
local first = waiting > 0 and ends < before_ms and call('ZRANGE', queue, '0', '0')[1]
local first_text, when = first and call('HGET', meta, first), math.max(next_end, now)
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
return reply
`,
  'dist/semaphore/release.lua': `-- semaphore/release: releases permits, or a place in line. A repeated call changes nothing more.
--
-- KEYS  meta holders queue
-- ARGV  id
--       keep    how many permits to keep; 0: releases all. Permits released before their minimum hold ended stay in use until
--               then
--       fence   only the permit with this fence, or the place in line with this ticket; 0 or left out: any of this id
-- REPLY released  left in_use limit
--       cancelled   the id was in line; the waiter receives a message
--       gone        the lease had ended, or the permit was released before, or the id has another fence or ticket now
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id keep fence')
end
local id, keep, only, problem = ARGV[1], ARGV[2], ARGV[3] or '0', nil
keep = keep == '0' and 0 or find(keep, DIGITS) and keep + 0 or -1
only = only == '0' and 0 or find(only, DIGITS) and only + 0 or -1
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
problem = problem or (not fence or least_end > 0) and (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or (keep < 0 or keep > 2147483647) and string.format(NO_NUMBER, 'keep', 0, 2147483647)
  or (only < 0 or only > 9007199254740991) and string.format(NO_NUMBER, 'fence', 0, 9007199254740991)
if problem then return redis.error_reply(problem) end
if only > 0 and record and (fence or tonumber(call('ZSCORE', queue, id) or 0)) ~= only then
  record, fence = false, nil -- they belong to a later call with the same id
end
local waiting = fence and line_is_empty and 0 or nil -- nil: not read yet
local gives_back = fence and now < next_end -- before next_end no lease has ended
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
local word, leaves_last = 'gone'
local is_live = gives_back or (fence or suspended or not consistent) and tonumber(call('ZSCORE', holders, id) or 0) > now
if record and keep > 0 then
  if is_live and keep > (weight or 0) or not fence then
    return redis.error_reply('LUAGATE keep: more permits than this id holds. Accepted: 0 to ' .. (weight or 0))
  end
  if is_live and consistent then
    word = 'released'
    local text = keep == 1 and least_end <= now and struct.pack(PLAIN_HOLDER, fence)
      or struct.pack(HOLDER, fence, keep, least_end)
if least_end > now and keep < weight then
  local name = string.format('%s %.0f %.0f', id, keep, fence)
  call('HDEL', meta, id) -- first, since HDEL is allowed when memory is full
  call('ZADD', holders, least_end, name)
  local permits, ends = weight - keep, least_end
  records = records or {}
  records[#records + 1], records[#records + 2] = name, struct.pack(HOLDER, fence, permits, least_end)
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
  held, extra_weight, in_use = held + 1, extra_weight + permits - 1, in_use + permits
  wrote, changed = true, true
end
    records = records or {}
    records[#records + 1], records[#records + 2] = id, text
    extra_weight, in_use, fence = extra_weight - weight + keep, in_use - weight + keep, nil
  end
elseif not consistent or suspended and not record then
  if is_live and keep == 0 and (only == 0 or fence) then
    call('ZREM', holders, id)
    word, lease_ended = 'released', true
  end
elseif fence then
  if is_live then
    word = 'released'
if least_end > now and keep < weight then
  local name = string.format('%s %.0f %.0f', id, keep, fence)
  call('HDEL', meta, id) -- first, since HDEL is allowed when memory is full
  call('ZADD', holders, least_end, name)
  local permits, ends = weight - keep, least_end
  records = records or {}
  records[#records + 1], records[#records + 2] = name, struct.pack(HOLDER, fence, permits, least_end)
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
  held, extra_weight, in_use = held + 1, extra_weight + permits - 1, in_use + permits
  wrote, changed = true, true
end
  end
  call('HDEL', meta, id)
  if waiting > 0 and held == 1 and gives_back then
    leaves_last = true -- else the server deletes the empty key, and creates it again for the next holder
  elseif call('ZREM', holders, id) == 1 then
    held = held - 1
  else
    consistent, word, records = false, 'gone', nil
  end
  in_use = in_use - weight
  if weight > 1 then extra_weight, changed = extra_weight - weight + 1, true end
  fence, wrote, lease_ended = nil, true, true
elseif record and call('ZREM', queue, id) == 0 then
  consistent = false -- the record is of neither a holder nor a waiter
elseif record then
  call('HDEL', meta, id)
  waiting, wrote, changed, word = waiting - 1, true, waiting > 1, 'cancelled'
  local channel, secret = string.match(record, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if channel ~= '' then tell(channel, secret, id, 0, 0, -1) end
end
if not consistent or suspended or fence or now >= next_end then
  if consistent and not suspended then -- the caller's own lease, and up to 100 others, the earliest first
    local ended = fence and {id} or {}
    for _, who in ipairs(held > 0 and call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100) or {}) do
      if not fence or who ~= id then ended[#ended + 1] = who end
    end
    if #ended > 0 then
      for _, text in ipairs(extra_weight > 0 and call('HMGET', meta, unpack(ended)) or {}) do
        if text and #text == HOLDER_SIZE then extra_weight = extra_weight - select(2, struct.unpack(HOLDER, text)) + 1 end
      end
      local gone = call('ZREM', holders, unpack(ended))
      consistent = call('HDEL', meta, unpack(ended)) == #ended and gone == #ended
      held, lease_ended = held - gone, true
    end
    if fence then record, fence = false, nil end
    next_end, changed = tonumber(held > 0 and call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or NEVER), true
  end
  if not consistent then
    local known = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0)
    call('UNLINK', meta, queue)
    if is_known and last_end > now then
      call('ZADD', holders, last_end, 'lost leases') -- it contains a space, so no id is equal to it
      known = math.max(known, last_end)
    end
    suspended, waiting, extra_weight, record, fence = true, 0, 0, false, nil
    next_end, last_end = NEVER, known == NEVER and last_end or known
    expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
    held, changed, ttl_changed, wrote = call('ZCARD', holders), true, true, true
  end
  if suspended and call('ZCOUNT', holders, '(' .. now, '+inf') == 0 then
    call('UNLINK', holders)
    suspended, held, extra_weight, next_end, changed, lease_ended = false, 0, 0, NEVER, true, true
  end
  in_use = suspended and 2147483647 or held + extra_weight
end
local serves, asks, behind, waits, want, lease_ms, at_least_ms, patience_until = true
local given, stopped, first, first_text, when, texts
local seen, at = 0, 0
while serves and (asks and waiting == behind or waiting > 0 and seen < 100) do
  local in_line = waiting > (asks and behind or 0)
  if in_line and not texts then
    local last = seen == 0 and 1 or 99 - seen -- usually one is served, and the next becomes first
    line = line or call('ZRANGE', queue, '0', seen == 0 and '1' or last)
    if #line <= last then waiting = #line end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end
    at, in_line = 0, waiting > 0
  end
  local who, text = id
  if in_line then
    seen, at = seen + 1, at + 1
    who, text = line[at], texts[at]
  end
  local permits, lease, patience, asks_before, at_least, channel, secret
  local mine, alive = asks and who == id, true
  if mine then
    permits = want or math.max(1, limit - in_use)
    lease = lease_ms
    patience = patience_until
    at_least = at_least_ms
  elseif text and #text >= WAITER_SIZE then
    permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, text)
    alive = patience > now
    if alive and (in_use < limit or permits > limit) then
      channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      alive = in_use >= limit or listens(channel)
    end
  else
    alive = false
  end
  local fits = alive and in_use + permits <= limit
  if alive and permits <= limit and (not fits and (waits or not mine) or channel == '') then
    head_until = patience -- stays first; without an inbox its permits are reserved for it
    if not mine and patience - asks_before > next_end then first, first_text = who, text end
    break
  end
  if in_line then -- first, since ZREM is allowed when memory is full, and any write after it
    call('ZREM', queue, who)
    waiting, wrote, changed = waiting - 1, true, true
  end
  local ends, score
  if fits then
    ends = lease == 0 and NEVER or now + lease
    score = lease == 0 and '+inf' or string.format('%d%09d', ends / 1000000000, ends % 1000000000)
    last_fence = next_fence
    next_fence = next_fence + 1
    if not mine then -- the script is atomic: no client sees the message before the permit
      local fence_text = string.format('%d%09d', last_fence / 1000000000, last_fence % 1000000000)
      fits = tell(channel, secret, who, permits, fence_text, lease == 0 and -1 or score)
    end
  elseif alive and not mine then
    tell(channel, secret, who, 0, 0, 0)
  end
  if fits then
call('ZADD', holders, score, who)
local granted = permits == 1 and at_least == 0 and struct.pack(PLAIN_HOLDER, last_fence)
  or struct.pack(HOLDER, last_fence, permits, at_least > 0 and now + at_least or 0)
if records then records[#records + 1], records[#records + 2] = who, granted else records = {who, granted} end
if held == 0 then is_new_holders = true end
if in_use == 0 and last_end > ends + 1000 then last_end = 0 end -- it was of leases that have ended
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
held, in_use, extra_weight, wrote = held + 1, in_use + permits, extra_weight + permits - 1, true
    if mine then given, weight = last_fence, permits end
  elseif in_line and not (text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE)) then -- else it is a holder's record
    call('HDEL', meta, who)
  end
  if mine then asks = false end
  if in_line and at == #line then line, texts = nil, nil end
end
when = math.max(next_end, now) -- a waiter that stays the first asks when the next lease ends
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
if seen == 100 then
  local leaves = asks and not waits and id -- the caller, if it gives up its place
  waiting, head_until = call('ZCARD', queue), 0
  stopped = waiting > 0
  for from = 0, math.min(waiting, 1000) - 1, 100 do
    line = call('ZRANGE', queue, from, from + 99)
    local ids, channels, secrets = {}, {}, {}
    for i, text in ipairs(call('HMGET', meta, unpack(line))) do
      if text and line[i] ~= leaves and #text > WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now then
        ids[#ids + 1] = line[i]
        channels[#ids], secrets[#ids] = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      end
    end
    local nth = #ids > 0 and listens(unpack(channels))
    if nth then tell(channels[nth], secrets[nth], ids[nth], 0, 0, 0) break end
  end
end
if leaves_last then call('ZREM', holders, id) end
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
if word ~= 'released' then return {word} end
return {word, keep, suspended and limit or in_use, limit}
`,
  'dist/semaphore/resize.lua': `-- semaphore/resize: sets the limit and pins it, so that it no longer expires.
--
-- KEYS  meta holders queue
-- ARGV  limit      0: deletes the limit. While any id holds or waits it is only unpinned, and stays until the state expires
--       expected   sets only if this is the limit in force (0: no limit); -1: sets always
-- REPLY resized    old new in_use
--       unchanged  current in_use
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
takes('meta holders queue', 3, 'limit expected', 2)
local new = number(1, 'limit', 0, 2147483647)
local expected = ARGV[2] ~= '-1' and number(2, 'expected', 0, 2147483647)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local id = ''
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
if problem then return redis.error_reply(problem) end
local waiting, gives_back = call('ZCARD', queue)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
local old = limit
if expected and expected ~= old then return {'unchanged', old, suspended and limit or in_use} end
if new == 0 and consistent and not state then return {'resized', 0, 0, 0} end
if not consistent or suspended or fence or now >= next_end then
  if consistent and not suspended then -- the caller's own lease, and up to 100 others, the earliest first
    local ended = fence and {id} or {}
    for _, who in ipairs(held > 0 and call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100) or {}) do
      if not fence or who ~= id then ended[#ended + 1] = who end
    end
    if #ended > 0 then
      for _, text in ipairs(extra_weight > 0 and call('HMGET', meta, unpack(ended)) or {}) do
        if text and #text == HOLDER_SIZE then extra_weight = extra_weight - select(2, struct.unpack(HOLDER, text)) + 1 end
      end
      local gone = call('ZREM', holders, unpack(ended))
      consistent = call('HDEL', meta, unpack(ended)) == #ended and gone == #ended
      held, lease_ended = held - gone, true
    end
    if fence then record, fence = false, nil end
    next_end, changed = tonumber(held > 0 and call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or NEVER), true
  end
  if not consistent then
    local known = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0)
    call('UNLINK', meta, queue)
    if is_known and last_end > now then
      call('ZADD', holders, last_end, 'lost leases') -- it contains a space, so no id is equal to it
      known = math.max(known, last_end)
    end
    suspended, waiting, extra_weight, record, fence = true, 0, 0, false, nil
    next_end, last_end = NEVER, known == NEVER and last_end or known
    expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
    held, changed, ttl_changed, wrote = call('ZCARD', holders), true, true, true
  end
  if suspended and call('ZCOUNT', holders, '(' .. now, '+inf') == 0 then
    call('UNLINK', holders)
    suspended, held, extra_weight, next_end, changed, lease_ended = false, 0, 0, NEVER, true, true
  end
  in_use = suspended and 2147483647 or held + extra_weight
end
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
changed = true
if new == 0 then
  pinned, lease_ended = false, true
  if held + waiting == 0 and not suspended then limit = 0 end
else
  limit, pinned, expiry, ttl_changed = new, true, 0, true
end
if waiting > 0 then
  local ids = call('ZRANGE', queue, 0, 99)
  for i, text in ipairs(call('HMGET', meta, unpack(ids))) do
    if text and #text >= WAITER_SIZE and struct.unpack(WAITER, text) > limit then
      call('ZREM', queue, ids[i])
      call('HDEL', meta, ids[i])
      local channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      tell(channel, secret, ids[i], 0, 0, 0)
    end
  end
end
local serves, asks, behind, waits, want, lease_ms, at_least_ms, patience_until = true
local given, stopped, first, first_text, when, texts
local seen, at = 0, 0
while serves and (asks and waiting == behind or waiting > 0 and seen < 100) do
  local in_line = waiting > (asks and behind or 0)
  if in_line and not texts then
    local last = seen == 0 and 1 or 99 - seen -- usually one is served, and the next becomes first
    line = line or call('ZRANGE', queue, '0', seen == 0 and '1' or last)
    if #line <= last then waiting = #line end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end
    at, in_line = 0, waiting > 0
  end
  local who, text = id
  if in_line then
    seen, at = seen + 1, at + 1
    who, text = line[at], texts[at]
  end
  local permits, lease, patience, asks_before, at_least, channel, secret
  local mine, alive = asks and who == id, true
  if mine then
    permits = want or math.max(1, limit - in_use)
    lease = lease_ms
    patience = patience_until
    at_least = at_least_ms
  elseif text and #text >= WAITER_SIZE then
    permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, text)
    alive = patience > now
    if alive and (in_use < limit or permits > limit) then
      channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      alive = in_use >= limit or listens(channel)
    end
  else
    alive = false
  end
  local fits = alive and in_use + permits <= limit
  if alive and permits <= limit and (not fits and (waits or not mine) or channel == '') then
    head_until = patience -- stays first; without an inbox its permits are reserved for it
    if not mine and patience - asks_before > next_end then first, first_text = who, text end
    break
  end
  if in_line then -- first, since ZREM is allowed when memory is full, and any write after it
    call('ZREM', queue, who)
    waiting, wrote, changed = waiting - 1, true, true
  end
  local ends, score
  if fits then
    ends = lease == 0 and NEVER or now + lease
    score = lease == 0 and '+inf' or string.format('%d%09d', ends / 1000000000, ends % 1000000000)
    last_fence = next_fence
    next_fence = next_fence + 1
    if not mine then -- the script is atomic: no client sees the message before the permit
      local fence_text = string.format('%d%09d', last_fence / 1000000000, last_fence % 1000000000)
      fits = tell(channel, secret, who, permits, fence_text, lease == 0 and -1 or score)
    end
  elseif alive and not mine then
    tell(channel, secret, who, 0, 0, 0)
  end
  if fits then
call('ZADD', holders, score, who)
local granted = permits == 1 and at_least == 0 and struct.pack(PLAIN_HOLDER, last_fence)
  or struct.pack(HOLDER, last_fence, permits, at_least > 0 and now + at_least or 0)
if records then records[#records + 1], records[#records + 2] = who, granted else records = {who, granted} end
if held == 0 then is_new_holders = true end
if in_use == 0 and last_end > ends + 1000 then last_end = 0 end -- it was of leases that have ended
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
held, in_use, extra_weight, wrote = held + 1, in_use + permits, extra_weight + permits - 1, true
    if mine then given, weight = last_fence, permits end
  elseif in_line and not (text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE)) then -- else it is a holder's record
    call('HDEL', meta, who)
  end
  if mine then asks = false end
  if in_line and at == #line then line, texts = nil, nil end
end
when = math.max(next_end, now) -- a waiter that stays the first asks when the next lease ends
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
if seen == 100 then
  local leaves = asks and not waits and id -- the caller, if it gives up its place
  waiting, head_until = call('ZCARD', queue), 0
  stopped = waiting > 0
  for from = 0, math.min(waiting, 1000) - 1, 100 do
    line = call('ZRANGE', queue, from, from + 99)
    local ids, channels, secrets = {}, {}, {}
    for i, text in ipairs(call('HMGET', meta, unpack(line))) do
      if text and line[i] ~= leaves and #text > WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now then
        ids[#ids + 1] = line[i]
        channels[#ids], secrets[#ids] = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      end
    end
    local nth = #ids > 0 and listens(unpack(channels))
    if nth then tell(channels[nth], secrets[nth], ids[nth], 0, 0, 0) break end
  end
end
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
return {'resized', old, limit, suspended and limit or in_use}
`,
  'dist/semaphore/try_acquire_several.lua': `-- semaphore/try_acquire_several: requests permits of several semaphores at once, all or none. A repeated call with the same id
-- grants nothing twice.
--
-- KEYS  meta holders queue ...
--                 of 1 to 64 semaphores, all with one hash tag
-- ARGV  id        the caller's id, the same for all
--       permits limit lease_ms at_least_ms ...
--                 of each semaphore, as for \`acquire\`; permits: 1 to the limit in force
-- REPLY granted      now permits
--       held         now permits
--       denied       index next_expiry now usages still_held
--       above_limit  index limit now still_held  more than the limit in force, so never granted
--
-- Lists are in the order of KEYS. \`permits\` has for each semaphore: permits fence expires_at in_use limit. \`index\` is the
-- first semaphore that has too few free permits, or has a waiter; from 1. \`usages\` has for each: in_use limit waiting.
-- \`denied\` and \`above_limit\` grant nothing, and the id has no place in line. \`still_held\`: at how many of them the id has a
-- permit all the same, by an earlier run of this call: if not 0, release it at each.
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\\128-\\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
local count, seen_keys, asked = #KEYS / 3, {}, {}
local tag = string.match(KEYS[1] or '', '{(.-)}')
if count % 1 ~= 0 or count < 1 or count > 64 then
  refuse('keys: wrong number of keys. Accepted: meta holders queue of 1 to 64 semaphores')
end
for _, key in ipairs(KEYS) do
  if seen_keys[key] then refuse('keys: ' .. key .. ' twice. Accepted: each semaphore once') end
  if not tag or string.match(key, '{(.-)}') ~= tag then
    refuse('keys: no hash tag, or different ones. Accepted: keys with one hash tag')
  end
  seen_keys[key] = true
end
if #ARGV ~= 1 + 4 * count then
  refuse('arguments: wrong number of arguments. Accepted: ' .. 1 + 4 * count
    .. ': id, and permits limit lease_ms at_least_ms of each semaphore')
end
local id = word(1, 'id', 200)
for at = 2, problem and 0 or #ARGV, 4 do
  local permits, limit = number(at, 'permits', 1, 2147483647), number(at + 1, 'limit', 0, 2147483647)
  local lease_ms, at_least_ms = number(at + 2, 'lease_ms', 0, 3155760000000), number(at + 3, 'at_least_ms', 0, 3155760000000)
  if not problem and lease_ms > 0 and lease_ms < at_least_ms then lease_ms = at_least_ms end
  asked[#asked + 1] = {permits, limit, lease_ms, at_least_ms}
end
if problem then return redis.error_reply(problem) end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local function open(KEYS, want, declared, lease_ms, at_least_ms)
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- \`write\` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
  if problem then return end
  local waiting, gives_back = call('ZCARD', queue)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
  local stored_limit = limit
  if limit == 0 then limit = declared end
  local in_force = limit
  if limit == 0 then
    problem = 'LUAGATE no limit: the call passes no limit and none is stored. Pass a limit, or store one with \`resize\`'
    return
  end
  local own_end = fence and call('ZSCORE', holders, id)
  local is_held = own_end and tonumber(own_end) > now
  local one = {is_held = is_held, above_limit = not is_held and want > limit and limit}
  function one.advance(asks)
    if is_held then return true end
if not consistent or suspended or fence or now >= next_end then
  if consistent and not suspended then -- the caller's own lease, and up to 100 others, the earliest first
    local ended = fence and {id} or {}
    for _, who in ipairs(held > 0 and call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100) or {}) do
      if not fence or who ~= id then ended[#ended + 1] = who end
    end
    if #ended > 0 then
      for _, text in ipairs(extra_weight > 0 and call('HMGET', meta, unpack(ended)) or {}) do
        if text and #text == HOLDER_SIZE then extra_weight = extra_weight - select(2, struct.unpack(HOLDER, text)) + 1 end
      end
      local gone = call('ZREM', holders, unpack(ended))
      consistent = call('HDEL', meta, unpack(ended)) == #ended and gone == #ended
      held, lease_ended = held - gone, true
    end
    if fence then record, fence = false, nil end
    next_end, changed = tonumber(held > 0 and call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or NEVER), true
  end
  if not consistent then
    local known = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0)
    call('UNLINK', meta, queue)
    if is_known and last_end > now then
      call('ZADD', holders, last_end, 'lost leases') -- it contains a space, so no id is equal to it
      known = math.max(known, last_end)
    end
    suspended, waiting, extra_weight, record, fence = true, 0, 0, false, nil
    next_end, last_end = NEVER, known == NEVER and last_end or known
    expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
    held, changed, ttl_changed, wrote = call('ZCARD', holders), true, true, true
  end
  if suspended and call('ZCOUNT', holders, '(' .. now, '+inf') == 0 then
    call('UNLINK', holders)
    suspended, held, extra_weight, next_end, changed, lease_ended = false, 0, 0, NEVER, true, true
  end
  in_use = suspended and 2147483647 or held + extra_weight
end
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
    if record and not fence then -- gives up its place in line
      waiting, record = waiting - call('ZREM', queue, id), false
      call('HDEL', meta, id)
    end
    local serves, behind, waits, patience_until = true, 0, false, nil
local given, stopped, first, first_text, when, texts
local seen, at = 0, 0
while serves and (asks and waiting == behind or waiting > 0 and seen < 100) do
  local in_line = waiting > (asks and behind or 0)
  if in_line and not texts then
    local last = seen == 0 and 1 or 99 - seen -- usually one is served, and the next becomes first
    line = line or call('ZRANGE', queue, '0', seen == 0 and '1' or last)
    if #line <= last then waiting = #line end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end
    at, in_line = 0, waiting > 0
  end
  local who, text = id
  if in_line then
    seen, at = seen + 1, at + 1
    who, text = line[at], texts[at]
  end
  local permits, lease, patience, asks_before, at_least, channel, secret
  local mine, alive = asks and who == id, true
  if mine then
    permits = want or math.max(1, limit - in_use)
    lease = lease_ms
    patience = patience_until
    at_least = at_least_ms
  elseif text and #text >= WAITER_SIZE then
    permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, text)
    alive = patience > now
    if alive and (in_use < limit or permits > limit) then
      channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      alive = in_use >= limit or listens(channel)
    end
  else
    alive = false
  end
  local fits = alive and in_use + permits <= limit
  if alive and permits <= limit and (not fits and (waits or not mine) or channel == '') then
    head_until = patience -- stays first; without an inbox its permits are reserved for it
    if not mine and patience - asks_before > next_end then first, first_text = who, text end
    break
  end
  if in_line then -- first, since ZREM is allowed when memory is full, and any write after it
    call('ZREM', queue, who)
    waiting, wrote, changed = waiting - 1, true, true
  end
  local ends, score
  if fits then
    ends = lease == 0 and NEVER or now + lease
    score = lease == 0 and '+inf' or string.format('%d%09d', ends / 1000000000, ends % 1000000000)
    last_fence = next_fence
    next_fence = next_fence + 1
    if not mine then -- the script is atomic: no client sees the message before the permit
      local fence_text = string.format('%d%09d', last_fence / 1000000000, last_fence % 1000000000)
      fits = tell(channel, secret, who, permits, fence_text, lease == 0 and -1 or score)
    end
  elseif alive and not mine then
    tell(channel, secret, who, 0, 0, 0)
  end
  if fits then
call('ZADD', holders, score, who)
local granted = permits == 1 and at_least == 0 and struct.pack(PLAIN_HOLDER, last_fence)
  or struct.pack(HOLDER, last_fence, permits, at_least > 0 and now + at_least or 0)
if records then records[#records + 1], records[#records + 2] = who, granted else records = {who, granted} end
if held == 0 then is_new_holders = true end
if in_use == 0 and last_end > ends + 1000 then last_end = 0 end -- it was of leases that have ended
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
held, in_use, extra_weight, wrote = held + 1, in_use + permits, extra_weight + permits - 1, true
    if mine then given, weight = last_fence, permits end
  elseif in_line and not (text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE)) then -- else it is a holder's record
    call('HDEL', meta, who)
  end
  if mine then asks = false end
  if in_line and at == #line then line, texts = nil, nil end
end
when = math.max(next_end, now) -- a waiter that stays the first asks when the next lease ends
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
if seen == 100 then
  local leaves = asks and not waits and id -- the caller, if it gives up its place
  waiting, head_until = call('ZCARD', queue), 0
  stopped = waiting > 0
  for from = 0, math.min(waiting, 1000) - 1, 100 do
    line = call('ZRANGE', queue, from, from + 99)
    local ids, channels, secrets = {}, {}, {}
    for i, text in ipairs(call('HMGET', meta, unpack(line))) do
      if text and line[i] ~= leaves and #text > WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now then
        ids[#ids + 1] = line[i]
        channels[#ids], secrets[#ids] = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      end
    end
    local nth = #ids > 0 and listens(unpack(channels))
    if nth then tell(channels[nth], secrets[nth], ids[nth], 0, 0, 0) break end
  end
end
    if given then fence, own_end, is_held = given, lease_ms == 0 and 'inf' or now + lease_ms, true end
    local can_have = is_held or waiting == 0 and in_use + want <= limit
    if not can_have then
      local score = not stopped and call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
      local ends_at = score and score ~= 'inf' and score or waiting > 0 and head_until
      one.next_expiry = ends_at and math.max(1, ends_at - now) or -1
    end
    return can_have
  end
  function one.save()
    if not is_held then limit = stored_limit end -- only a grant stores a limit
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
    local used = suspended and in_force or in_use
    return {weight, fence, own_end == 'inf' and -1 or tonumber(own_end), used, in_force}, {used, in_force, waiting}
  end
  return one
end
local all, still_held, blocked, above = {}, 0, nil, nil
for i = 1, count do
  all[i] = open({KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]}, unpack(asked[i]))
  if problem then return redis.error_reply(problem) end
end
for index, one in ipairs(all) do
  if one.is_held then still_held = still_held + 1 end
  above = above or one.above_limit and index
  if not one.advance(false) then blocked = blocked or index end
end
local permits, usages = {}, {}
for index, one in ipairs(all) do
  if not (above or blocked) then one.advance(true) end
  permits[index], usages[index] = one.save()
end
if above then return {'above_limit', above, all[above].above_limit, now, still_held} end
if blocked then return {'denied', blocked, all[blocked].next_expiry, now, usages, still_held} end
return {still_held == count and 'held' or 'granted', now, permits}
`,
};
