-- Part: the storage layout. Only this part says what the keys hold.
--
--   holders   sorted set: id, end of its lease in ms; inf: permanent
--             `<id> <permits left> <fence>`: permits released before their minimum hold ended, and when it does
--   queue     sorted set: id, ticket
--   meta      hash: a record for each of these, and the field 'the state'. No id contains a space.
--
-- Records and the state are packed numbers. A script reads and writes them several times faster than digits.
--   a holder      fence; permits and least_end (0: none), where it has more than one permit or a minimum hold
--   a waiter      permits, lease_ms, patience_until, asks_before (it plans to ask again so many ms before patience_until),
--                 at_least_ms; its inbox follows
--   'the state'   mode           4 times the version of this layout; + 2: resize pinned the limit; + 1: granting is suspended,
--                                because keys were lost, while a lease that is still known runs
--                 limit          0: none is stored
--                 extra_weight   what the holders weigh beyond one permit each
--                 next_end       no lease ends before this
--                 last_end       no lease ends after this, except permanent ones
--                 expiry         when the keys expire; 0: never
--                 last_fence     the last fence or ticket that was given
--                 head_until     while nothing is free, the first waiter stays first until this; inf: nobody waits
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
