-- Part: the storage layout. Only this part defines the contents of the keys.
--
--   holders   sorted set: id, end of its lease in ms; inf: permanent
--             `<id> <permits left> <fence>`: permits released before their minimum hold ended, and its end
--   queue     sorted set: id, ticket
--   meta      hash: a record for each of these, and the field 'the state'. No id contains a space.
--
-- Records and the state are packed numbers. A script reads and writes them several times faster than decimal text.
--   a holder      fence; also permits and least_end (0: none), if it has more than one permit or a minimum hold
--   a waiter      permits, lease_ms, patience_until (the waiter's deadline on the server), asks_before (it plans to
--                 ask again this many ms before patience_until), at_least_ms; its inbox follows
--   'the state'   mode           4 times the version of this layout; + 2: resize pinned the limit; + 1: granting is suspended,
--                                because keys were lost, while a lease that is still known runs
--                 limit          0: none is stored
--                 extra_weight   the permits of all holders beyond one each
--                 next_end       no lease ends before this time
--                 last_end       no lease ends after this time, except permanent ones
--                 expiry         when the keys expire; 0: never
--                 last_fence     the last fence or ticket that was given
--                 head_until     while nothing is free, the first waiter stays first until this time; inf: no id waits
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
